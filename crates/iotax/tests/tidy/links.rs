//! Checks that files, headings and paths named by documents exist.

use std::collections::{BTreeMap, BTreeSet};

/// Beginnings of paths in backticks that refer to the repository.
const TOPS: [&str; 4] = ["crates/", "docs/", "scripts/", "examples/"];

/// The same, relative to `crates/`.
const CRATES: [&str; 9] = [
    "model/src",
    "load/src",
    "engine/src",
    "testbed/src",
    "analysis/src",
    "doctor/src",
    "report/src",
    "interop/src",
    "iotax/src",
];

/// Finds dead links and missing paths in documents (path and text); `paths` lists all files.
pub(super) fn dead_links(documents: &BTreeMap<&str, &str>, paths: &BTreeSet<&str>) -> Vec<String> {
    let is_there = |linked: &str| {
        let linked = linked.trim_end_matches('/');
        paths.contains(linked)
            || paths.range(linked..).any(|path| path.strip_prefix(linked).is_some_and(is_below))
    };
    let mut dead = Vec::new();
    for (document, text) in documents {
        for link in links(text).filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, heading) =
                link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
            let linked = if file.is_empty() { (*document).to_owned() } else { joined(document, file) };
            let headed = |heading: &str| {
                documents
                    .get(linked.as_str())
                    .is_some_and(|text| headings(text).any(|found| found == heading))
            };
            if !is_there(&linked) || heading.is_some_and(|heading| !headed(heading)) {
                dead.push(format!("{document}: {link} leads nowhere"));
            }
            // The site that mdbook makes holds docs/ alone.
            if document.starts_with("docs/") && !linked.starts_with("docs/") {
                dead.push(format!("{document}: {link} leads out of docs/"));
            }
        }
        for linked in quoted(text) {
            let begins = |tops: &[&str]| tops.iter().any(|top| linked.starts_with(top));
            if begins(&TOPS) && !is_there(linked) || begins(&CRATES) && !is_there(&format!("crates/{linked}"))
            {
                dead.push(format!("{document}: there is no {linked}"));
            }
        }
    }
    dead
}

fn is_below(rest: &str) -> bool {
    rest.starts_with('/')
}

/// The table of contents, used by `mdbook build`.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Finds pages of docs/ that the table of contents does not list exactly once with their heading.
pub(super) fn contents(documents: &BTreeMap<&str, &str>) -> Vec<String> {
    let listed = documents.get(CONTENTS).copied().unwrap_or_default();
    let pages = documents.iter().filter(|(path, _)| path.starts_with("docs/") && **path != CONTENTS);
    pages
        .filter_map(|(path, text)| {
            let heading = text.lines().next()?.strip_prefix("# ").unwrap_or_default();
            let entry = format!("- [{heading}]({})", path.trim_start_matches("docs/"));
            let times = listed.lines().filter(|line| line.trim() == entry).count();
            let links = links(listed).filter(|link| joined(CONTENTS, link) == **path).count();
            (times != 1 || links != 1).then(|| format!("{CONTENTS} must hold once: {entry}"))
        })
        .collect()
}

/// The file that lists tests by name.
pub(super) const TESTS: &str = ".config/nextest.toml";

/// Finds listed tests that do not exist; `is_there` returns whether a function has this name.
pub(super) fn named_tests(text: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let names = text.split("test(=").skip(1).filter_map(|rest| rest.split(')').next());
    names
        .filter(|name| !is_there(name.rsplit("::").next().unwrap_or_default()))
        .map(|name| format!("{TESTS}: there is no test {name}"))
        .collect()
}

/// Returns the targets of links `[text](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Returns single words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|word| !word.contains([' ', '*', '<', '{', '[', '$']))
}

/// Returns the anchors of headings.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        words
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c => (c.is_alphanumeric() || c == '-' || c == '_').then_some(c),
            })
            .collect()
    })
}

/// Resolves a path relative to a file's directory.
fn joined(from: &str, to: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_hold_every_page_once() {
        let wrong = |listed: &str| {
            contents(&BTreeMap::from([
                (CONTENTS, listed),
                ("docs/a.md", "# What is so\n"),
                ("README.md", ""),
            ]))
        };
        assert_eq!(wrong("# Summary\n- [What is so](a.md)\n"), Vec::<String>::new());
        let missing = ["docs/SUMMARY.md must hold once: - [What is so](a.md)"];
        for listed in ["", "- [What was](a.md)\n", "- [What is so](a.md)\n- [What is so](a.md)\n"] {
            assert_eq!(wrong(listed), missing, "{listed:?}");
        }
    }

    #[test]
    fn tests_that_are_not_there_are_found() {
        let text = "filter = 'test(=a::here) | test(/^gone/) | test(=gone)'";
        assert_eq!(named_tests(text, |name| name == "here"), [format!("{TESTS}: there is no test gone")]);
    }

    #[test]
    fn what_leads_nowhere_is_found() {
        let text = "# What is so, and why\n[a](b.md) [c](#what-is-so-and-why) [d](../crates/x) `crates/x/src/lib.rs` `docs/*.md`\n\
                    [e](c.md) [f](b.md#none) [g](#none) `crates/y` `engine/src/none.rs` [h](https://example.org/none)";
        let documents = BTreeMap::from([("docs/a.md", text), ("docs/b.md", "")]);
        let paths = BTreeSet::from(["docs/a.md", "docs/b.md", "crates/x/src/lib.rs", "crates/xy.rs"]);
        let dead = [
            "../crates/x leads out of docs/",
            "c.md leads nowhere",
            "b.md#none leads nowhere",
            "#none leads nowhere",
            "there is no crates/y",
            "there is no engine/src/none.rs",
        ];
        assert_eq!(dead_links(&documents, &paths), dead.map(|words| format!("docs/a.md: {words}")));
    }
}
