//! Tests that a damaged text never yields a wrong figure: the results are those of the intact text, or fewer.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use iotax_interop::import::{Found, recognise};
use proptest::prelude::*;

use super::{data, seeded};

const FILES: [&str; 14] = [
    "fio-3.33.json",
    "fio-3.33.txt",
    "fio-3.33-terse.txt",
    "bonnie-1.03.txt",
    "bonnie-1.97-table.txt",
    "bonnie-2.00.txt",
    "bonnie-2.00-table.txt",
    "iozone-3.506.txt",
    "iozone-3.489-excel.txt",
    "iozone-3.506-throughput.txt",
    "iozone-cut.txt",
    "vdbench-5.04.07.txt",
    "vdbench-5.02.txt",
    "vdbench-flatfile.html",
];

/// A way to damage a text; positions are shares of its length.
#[derive(Debug, Clone)]
enum Mutation {
    DropLines(f64, usize),
    Truncate(f64),
    Wrap(usize),
    WrapAtBlanks(usize),
    Crlf,
    Indent(usize),
    Quote,
    Typographic,
    Commas,
    OneBlank,
    Entities,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        4 => (0.0..1.0, 1_usize..6).prop_map(|(at, count)| Mutation::DropLines(at, count)),
        2 => (0.0..1.0).prop_map(Mutation::Truncate),
        1 => (20_usize..200).prop_map(Mutation::Wrap),
        1 => (20_usize..200).prop_map(Mutation::WrapAtBlanks),
        1 => Just(Mutation::Crlf),
        1 => (1_usize..9).prop_map(Mutation::Indent),
        1 => Just(Mutation::Quote),
        1 => Just(Mutation::Typographic),
        1 => Just(Mutation::Commas),
        1 => Just(Mutation::OneBlank),
        1 => Just(Mutation::Entities),
    ]
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
fn position_at(share: f64, length: usize) -> usize {
    (share * length as f64) as usize
}

fn mutated(text: &str, mutation: &Mutation) -> String {
    let lines = || text.lines().map(str::to_owned);
    let each = |change: &dyn Fn(&str) -> String| lines().map(|line| change(&line) + "\n").collect();
    match mutation {
        Mutation::DropLines(at, count) => {
            let first = position_at(*at, text.lines().count());
            let kept = lines().enumerate().filter(|(i, _)| !(first..first + count).contains(i));
            kept.map(|(_, line)| line + "\n").collect()
        }
        Mutation::Truncate(at) => text.chars().take(position_at(*at, text.chars().count())).collect(),
        Mutation::Wrap(width) => each(&|line| {
            let chars: Vec<char> = line.chars().collect();
            chars.chunks(*width).map(|piece| piece.iter().collect::<String>()).collect::<Vec<_>>().join("\n")
        }),
        Mutation::WrapAtBlanks(width) => each(&|line| {
            let mut changed = String::new();
            let mut length = 0;
            for word in line.split(' ') {
                if length + word.len() > *width && length > 0 {
                    changed.push('\n');
                    length = 0;
                } else if length > 0 || changed.is_empty() {
                    changed.push_str(if changed.is_empty() { "" } else { " " });
                }
                changed.push_str(word);
                length += word.len() + 1;
            }
            changed
        }),
        Mutation::Crlf => text.replace('\n', "\r\n"),
        Mutation::Indent(by) => each(&|line| " ".repeat(*by) + line),
        Mutation::Quote => each(&|line| format!("> {line}")),
        Mutation::Typographic => {
            text.replace('"', "\u{201d}").replace("  ", "\u{a0} ").replace('-', "\u{2013}")
        }
        Mutation::Commas => text.replace('.', ","),
        Mutation::OneBlank => each(&|line| line.split_whitespace().collect::<Vec<_>>().join(" ")),
        Mutation::Entities => {
            format!("<pre>{}</pre>", text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
        }
    }
}

const fn is_cut(mutation: &Mutation) -> bool {
    matches!(mutation, Mutation::Truncate(_))
}

/// Formats every figure with its name.
fn figures(all: &[Found]) -> HashSet<String> {
    let entries = all.iter().flat_map(|found| &found.entries);
    entries
        .flat_map(|entry| {
            let others = entry.stated.others.iter().map(|one| (one.name.as_str(), one.value));
            let metrics = entry.stated.metrics.iter().map(|(word, value)| (word.as_str(), *value));
            // A damaged text may keep one direction only, whose figures then have no prefix.
            let name = |word: &str| match word.split_once(' ') {
                Some(("read" | "write", word)) => word.to_owned(),
                _ => word.to_owned(),
            };
            metrics.chain(others).map(|(word, value)| format!("{} {value}", name(word))).collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the figures that may be found: those of the whole text, and those of a single direction or clone.
fn allowed(text: &str) -> HashSet<String> {
    let mut all = figures(&recognise(text));
    // Clones with different names are not added up.
    let mut number = 0;
    let apart = |line: &str| {
        number += 1;
        line.replace("mix: (groupid", &format!("mix{number}: (groupid"))
            .replace("\"jobname\": \"mix\"", &format!("\"jobname\": \"mix{number}\""))
    };
    let apart: String = text.lines().map(apart).collect::<Vec<_>>().join("\n");
    all.extend(figures(&recognise(&apart)));
    // Without a unit, or with a broken one, iozone's figures have the default unit.
    all.extend(figures(&recognise(&text.replace("Output is in", ""))));
    all.extend(figures(&recognise(&text.replace("Output is in", "Output is in x"))));
    // fio's latency from submission where that from issue is not there.
    for text in [text, &apart] {
        let submitted = text.replace("\"lat_ns\"", "\"\"").replace("     lat (", "     ");
        all.extend(figures(&recognise(&submitted)));
    }
    // Means of several are weighted by rates where counts are not there.
    all.extend(figures(&recognise(&text.replace("\"total_ios\"", "\"\""))));
    all
}

/// The allowed figures of each file.
static ALLOWED: LazyLock<HashMap<&str, HashSet<String>>> =
    LazyLock::new(|| FILES.iter().map(|file| (*file, allowed(&data(file)))).collect());

proptest! {
    #![proptest_config(seeded(3000))]

    #[test]
    fn nothing_is_found_that_was_not_there(
        file in prop::sample::select(&FILES[..]),
        mutations in prop::collection::vec(mutation(), 1..3),
    ) {
        let (mut spoilt, allowed) = (data(file), &ALLOWED[file]);
        // A text ends where it is cut off.
        for mutation in mutations.iter().filter(|m| !is_cut(m)).chain(mutations.iter().filter(|m| is_cut(m))) {
            spoilt = mutated(&spoilt, mutation);
        }
        for figure in figures(&recognise(&spoilt)) {
            prop_assert!(allowed.contains(&figure), "{} after {:?}: {}", file, mutations, figure);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "(\\PC|\n|[0-9,;.:%+ ]){0,400}") {
        let _ = recognise(&text);
    }
}

#[test]
fn what_a_mail_or_a_page_adds_takes_nothing() {
    for file in FILES {
        let text = data(file);
        for mutation in
            [Mutation::Crlf, Mutation::Quote, Mutation::Indent(4), Mutation::Typographic, Mutation::Entities]
        {
            let spoilt = mutated(&text, &mutation);
            assert_eq!(figures(&recognise(&spoilt)), figures(&recognise(&text)), "{file} after {mutation:?}");
        }
    }
}
