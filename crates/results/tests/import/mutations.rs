//! What happens to a text on its way must not become another figure: what is found is what was there, or less.

use std::collections::HashSet;

use iotax_results::exchange::import::{Found, recognise};
use proptest::prelude::*;

use super::data;

const FILES: [&str; 13] = [
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
    "vdbench-5.04.07.txt",
    "vdbench-5.02.txt",
    "vdbench-flatfile.html",
];

/// A way to spoil a text; places are shares of its length.
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
fn place(share: f64, length: usize) -> usize {
    (share * length as f64) as usize
}

fn mutated(text: &str, mutation: &Mutation) -> String {
    let lines = || text.lines().map(str::to_owned);
    let each = |change: &dyn Fn(&str) -> String| lines().map(|line| change(&line) + "\n").collect();
    match mutation {
        Mutation::DropLines(at, count) => {
            let first = place(*at, text.lines().count());
            let kept = lines().enumerate().filter(|(i, _)| !(first..first + count).contains(i));
            kept.map(|(_, line)| line + "\n").collect()
        }
        Mutation::Truncate(at) => text.chars().take(place(*at, text.chars().count())).collect(),
        Mutation::Wrap(width) => each(&|line| {
            let chars: Vec<char> = line.chars().collect();
            chars.chunks(*width).map(|piece| piece.iter().collect::<String>()).collect::<Vec<_>>().join("\n")
        }),
        Mutation::WrapAtBlanks(width) => each(&|line| {
            let mut told = String::new();
            let mut length = 0;
            for word in line.split(' ') {
                if length + word.len() > *width && length > 0 {
                    told.push('\n');
                    length = 0;
                } else if length > 0 || told.is_empty() {
                    told.push_str(if told.is_empty() { "" } else { " " });
                }
                told.push_str(word);
                length += word.len() + 1;
            }
            told
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

/// Every figure with its name, as text.
fn figures(all: &[Found]) -> HashSet<String> {
    let entries = all.iter().flat_map(|found| &found.entries);
    entries
        .flat_map(|entry| {
            let metrics = entry.stated.metrics.iter().map(|(word, value)| format!("{word} {value}"));
            let others =
                entry.stated.others.iter().map(|one| format!("{} {} {}", one.name, one.value, one.unit));
            metrics.chain(others).collect::<Vec<_>>()
        })
        .collect()
}

/// What may be found: what the whole text has, and what one direction or one clone of it has by itself.
fn allowed(text: &str) -> HashSet<String> {
    let mut all = figures(&recognise(text));
    let parts: Vec<String> = all
        .iter()
        .filter_map(|figure| figure.split_once(' ').filter(|(word, _)| ["read", "write"].contains(word)))
        .map(|(_, rest)| rest.to_owned())
        .collect();
    all.extend(parts);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn nothing_is_found_that_was_not_there(
        file in prop::sample::select(&FILES[..]),
        mutations in prop::collection::vec(mutation(), 1..3),
    ) {
        let text = data(file);
        let allowed = allowed(&text);
        let mut spoilt = text;
        for mutation in &mutations {
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
