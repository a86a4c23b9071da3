//! Checks that modules import one way: no cycle of imports among the modules of a directory.
//!
//! A module includes all modules below it. Imports between a directory's own file (`mod.rs`, `lib.rs`) and its modules do not count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Source;

/// A module by its path within its crate: `["target", "lvm"]`.
type Module = Vec<String>;

/// The modules of a directory, with the modules that each names.
type Neighbours<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Finds the cycles among the modules of every crate, each reported once.
pub(super) fn circles(sources: &[Source]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &Source>> = BTreeMap::new();
    for source in sources {
        if let Some((name, module)) = module_of(&source.path) {
            crates.entry(name).or_default().insert(module, source);
        }
    }
    crates.iter().flat_map(|(name, modules)| circles_of(name, modules)).collect()
}

/// Returns crate and module of a source file; `None` for tests and files outside of libraries and programs.
fn module_of(path: &str) -> Option<(&str, Module)> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let module = file.strip_suffix(".rs")?;
    let mut module: Module = module.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    (module.last().map(String::as_str) != Some("tests")).then_some((name, module))
}

fn circles_of(name: &str, modules: &BTreeMap<Module, &Source>) -> Vec<String> {
    let mut by_directory: BTreeMap<&[String], Neighbours<'_>> = BTreeMap::new();
    let all = modules.keys().map(Vec::as_slice).collect::<BTreeSet<_>>();
    for (module, source) in modules {
        for named in named(&source.words, module, &all) {
            let common = module.iter().zip(named).take_while(|(a, b)| a == b).count();
            // One of them is a directory's own file.
            let (Some(from), Some(to)) = (module.get(common), named.get(common)) else { continue };
            by_directory.entry(&named[..common]).or_default().entry(from).or_default().insert(to);
        }
    }
    let circles = by_directory.iter().flat_map(|(directory, neighbours)| {
        let crate_dir = format!("crates/{name}/src/{}", directory.join("/"));
        shortest_circles(neighbours).into_iter().map(move |circle| format!("{crate_dir}: {circle}"))
    });
    circles.collect()
}

/// Returns the modules named by a module's code, without its tests.
fn named<'a>(words: &[String], module: &Module, all: &BTreeSet<&'a [String]>) -> BTreeSet<&'a [String]> {
    let mut found = BTreeSet::new();
    let mut rest = words;
    while let [word, after @ ..] = rest {
        let goes_on = words.len() - rest.len();
        let follows = goes_on > 0 && words[goes_on - 1] == ":";
        rest = after;
        if word == "#" && starts(after, &["[", "cfg", "(", "test", ")", "]"]) {
            rest = behind_item(&after[6..]);
        } else if !follows
            && (matches!(word.as_str(), "crate" | "self" | "super") || is_child(module, word, all))
        {
            paths(word, after, module.clone(), all, &mut found);
        }
    }
    found.retain(|named| *named != module.as_slice());
    found
}

fn is_child(module: &Module, word: &str, all: &BTreeSet<&[String]>) -> bool {
    let child: Module = module.iter().cloned().chain([word.to_owned()]).collect();
    all.contains(child.as_slice())
}

fn starts(words: &[String], with: &[&str]) -> bool {
    words.len() >= with.len() && words.iter().zip(with).all(|(word, with)| word == with)
}

/// Returns the words after the item that begins here.
fn behind_item(words: &[String]) -> &[String] {
    let mut depth = 0_u32;
    for (index, word) in words.iter().enumerate() {
        match word.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(word.as_str(), ";" | "}") {
            return &words[index + 1..];
        }
    }
    &[]
}

/// Follows a path from `base`, including all branches in braces, down to its last module. Returns the words after it.
fn paths<'w, 'a>(
    first: &str,
    mut words: &'w [String],
    base: Module,
    all: &BTreeSet<&'a [String]>,
    found: &mut BTreeSet<&'a [String]>,
) -> &'w [String] {
    let mut module = base;
    match first {
        "crate" => module.clear(),
        "self" => {}
        "super" => drop(module.pop()),
        name => {
            module.push(name.to_owned());
            if !all.contains(module.as_slice()) {
                module.pop();
                found.extend(all.get(module.as_slice()));
                return behind_path(words);
            }
        }
    }
    if !starts(words, &[":", ":"]) {
        found.extend(all.get(module.as_slice()));
        return words;
    }
    words = &words[2..];
    let [next, after @ ..] = words else { return words };
    if next != "{" {
        return paths(next, after, module, all, found);
    }
    words = after;
    while let [word, after @ ..] = words {
        words = after;
        match word.as_str() {
            "}" => break,
            "," => {}
            name => words = paths(name, after, module.clone(), all, found),
        }
    }
    words
}

/// Skips the rest of a path that names no further module. Returns the words after it.
fn behind_path(mut words: &[String]) -> &[String] {
    while starts(words, &[":", ":"]) {
        let mut depth = 0_u32;
        let end = words[2..].iter().position(|word| {
            depth = depth + u32::from(word == "{") - u32::from(word == "}");
            depth == 0
        });
        words = &words[2 + end.map_or(words.len() - 2, |end| end + 1)..];
    }
    words
}

/// Returns a shortest cycle through each module on a cycle, each once: `a -> b -> a`.
fn shortest_circles(neighbours: &Neighbours<'_>) -> Vec<String> {
    let mut known = BTreeSet::new();
    let mut circles = Vec::new();
    for start in neighbours.keys() {
        let Some(circle) = shortest_back(start, neighbours) else { continue };
        if !circle.iter().any(|module| known.contains(module)) {
            circles.push(format!("{} -> {start}", circle.join(" -> ")));
        }
        known.extend(circle);
    }
    circles
}

/// Returns the modules on the shortest path from `start` back to itself.
fn shortest_back<'a>(start: &'a str, neighbours: &Neighbours<'a>) -> Option<Vec<&'a str>> {
    let mut open = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(path) = open.pop_front() {
        for next in neighbours.get(path.last()?).into_iter().flatten() {
            if *next == start {
                return Some(path);
            }
            if seen.insert(*next) {
                open.push_back(path.iter().copied().chain([*next]).collect());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = sources.iter().map(|(path, text)| Source::new(path, text)).collect();
        circles(&sources)
    }

    #[test]
    fn circles_are_found_at_every_depth_and_however_they_are_written() {
        let [a, b, c] = ["a", "b/mod", "b/c"].map(|name| format!("crates/x/src/{name}.rs"));
        let circle = ["crates/x/src/: a -> b -> a"];
        assert_eq!(found(&[(&a, "use crate::b::B;"), (&b, ""), (&c, "use crate::{e, a::A};")]), circle);
        assert_eq!(found(&[(&a, "use super::b::{self, c::C};"), (&b, "fn f() { crate::a::f() }")]), circle);
        assert_eq!(
            found(&[(&a, "type X = crate::b::c::C;"), (&b, ""), (&c, "use super::super::a::A;")]),
            circle
        );
        let [first, last] = ["d", "e"].map(|name| format!("crates/x/src/b/{name}.rs"));
        assert_eq!(
            found(&[
                (&b, ""),
                (&c, "use super::d::D;"),
                (&first, "use crate::b::e;"),
                (&last, "use super::{F, c::C};")
            ]),
            ["crates/x/src/b: c -> d -> e -> c"]
        );
    }

    #[test]
    fn what_is_no_circle_is_not_found() {
        let (top, a, b) = ("crates/x/src/lib.rs", "crates/x/src/a.rs", "crates/x/src/b.rs");
        assert_eq!(found(&[(a, "use crate::b::B;"), (b, "")]), [""; 0]);
        assert_eq!(found(&[(top, "mod a; use a::A;"), (a, "use crate::X;"), (b, "")]), [""; 0]);
        assert_eq!(
            found(&[(a, "use crate::b::B;"), (b, "#[cfg(test)] mod tests { use crate::a::A; }")]),
            [""; 0]
        );
        assert_eq!(
            found(&[(a, "use crate::b::B;"), ("crates/x/src/b/tests.rs", "use crate::a::A;")]),
            [""; 0]
        );
        assert_eq!(found(&[(a, "use crate::b::B;"), ("crates/y/src/b.rs", "use crate::a::A;")]), [""; 0]);
    }
}
