//! Labels results with the headings above them, such as "Native" and "Xen PV". Otherwise they would look like repetitions.

use super::lines::Lines;
use super::{Found, Stamp};

/// Level of headings without markup; Markdown headings have levels 1 to 6 and are above.
const PLAIN: usize = 7;

/// Maximum number of words in a heading without markup, and maximum length of a heading in bytes.
const WORDS: usize = 5;
const LONGEST: usize = 80;

/// Texts that occur in the output of tools; a line with one of them is not a heading.
const OF_TOOLS: [&str; 46] = [
    "fio-",
    "Starting ",
    "groupid",
    "Run status",
    "Disk stats",
    "All clients",
    "percentiles",
    "ping statistics",
    "Ping",
    "Approximate",
    "Ca. Zeit",
    "UNIX",
    "System Benchmarks",
    "Benchmark Run",
    "parallel cop",
    "Client connecting",
    "Server listening",
    "window size",
    "buffer size",
    "iperf",
    "Connecting to host",
    "Accepted connection",
    "avg-cpu",
    "Device",
    "since boot",
    "since Boot",
    "ATOP",
    "iozone",
    "Excel",
    "report",
    "Create-",
    "Input parameters",
    "System information",
    "Results for timespan",
    "Total IO",
    "Read IO",
    "Write IO",
    "latency distribution",
    "File operations:",
    "Throughput:",
    "General statistics:",
    "Latency (ms)",
    "Threads fairness:",
    "Test execution summary:",
    "per-request statistics",
    "Latency histogram",
];

/// Words that precede the number of a repetition.
const REPEATS: [&str; 9] =
    ["run", "round", "iteration", "repetition", "repeat", "pass", "try", "attempt", "take"];

/// A heading above results: its level and text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Heading {
    /// Index of the line, from 0.
    line: usize,
    level: usize,
    text: String,
}

/// Sets the label of each result to the headings above it, joined by commas. Does nothing if no tool has several results.
pub(super) fn label(text: &str, all: &mut [Found]) {
    if all.iter().all(|found| found.entries.len() < 2) {
        return;
    }
    let headings = headings(text);
    for found in all {
        let mut order: Vec<usize> = (0..found.entries.len()).collect();
        order.sort_by_key(|i| found.entries[*i].line);
        let mut above: Vec<&Heading> = Vec::new();
        let mut rest = &headings[..];
        for i in order {
            let entry = &mut found.entries[i];
            let end = rest.partition_point(|heading| heading.line + 1 < entry.line);
            enter(&mut above, &rest[..end]);
            rest = &rest[end..];
            let texts: Vec<&str> = above.iter().map(|heading| heading.text.as_str()).collect();
            entry.label = (!texts.is_empty()).then(|| texts.join(", "));
        }
    }
}

/// Adds new headings to the current ones, and removes current ones of the same or a deeper level. If all new headings are already current, the text
/// repeats itself and nothing changes.
fn enter<'a>(above: &mut Vec<&'a Heading>, new: &'a [Heading]) {
    if new.iter().all(|heading| above.iter().any(|known| known.text == heading.text)) {
        return;
    }
    above.retain(|heading| heading.level < PLAIN);
    for heading in new {
        if heading.level < PLAIN {
            above.retain(|known| known.level < heading.level);
        }
        above.push(heading);
    }
}

fn headings(text: &str) -> Vec<Heading> {
    let lines = Lines::of(text);
    let mut headings = Vec::new();
    let mut before = "";
    for (line, now) in lines.from(0).enumerate() {
        if let Some((level, text)) = heading(before, now, lines.get(line + 1).unwrap_or_default()) {
            let text = without_repeats(&text);
            if !text.is_empty() {
                headings.push(Heading { line, level, text });
            }
        }
        before = now;
    }
    headings
}

/// Returns the level and text of a heading; `None` for any other line. `before` and `next` are the adjacent lines.
fn heading(before: &str, line: &str, next: &str) -> Option<(usize, String)> {
    let line = line.trim();
    if line.is_empty() || line.len() > LONGEST || OF_TOOLS.iter().any(|of| line.contains(of)) {
        return None;
    }
    if Stamp::of(line).is_some() {
        return None;
    }
    let marks = line.len() - line.trim_start_matches('#').len();
    if (1..PLAIN).contains(&marks) && line[marks..].starts_with(' ') {
        let text = line.trim_matches(['#', ' ']);
        // After a prompt it would be a command.
        let is_words = !text.contains(" -") && !text.contains('=') && !text.is_empty();
        return is_words.then(|| (marks, text.to_owned()));
    }
    let is_line = |mark: char| next.trim().len() >= 3 && next.trim().chars().all(|c| c == mark);
    if let Some(mark) = ['=', '-'].into_iter().find(|mark| is_line(*mark)) {
        let text = line.trim_end_matches(':').trim_end();
        return is_words(text).then(|| (if mark == '=' { 1 } else { 2 }, text.to_owned()));
    }
    let inner = line.trim_matches(['=', '-', '*', '~', ' ']);
    if ["==", "--", "**", "~~"].iter().any(|mark| line.starts_with(mark)) {
        return is_words(inner).then(|| (PLAIN, inner.to_owned()));
    }
    if let Some(inner) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
        return is_words(inner).then(|| (PLAIN, inner.to_owned()));
    }
    let stands_alone = before.trim().is_empty() || line.ends_with(':');
    let text = line.trim_end_matches(':').trim_end();
    (stands_alone && is_words(text)).then(|| (PLAIN, text.to_owned()))
}

/// Returns whether a text is a few words with at most one number, so that it may be a heading.
fn is_words(text: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || " -_+.,()/'&".contains(c);
    let words: Vec<&str> = text.split_whitespace().collect();
    let numbers = words.iter().filter(|word| word.parse::<f64>().is_ok()).count();
    text.chars().filter(|c| c.is_alphabetic()).count() > 2
        && text.starts_with(char::is_alphanumeric)
        && !text.ends_with(['.', ','])
        && text.chars().all(is_plain)
        && words.len() <= WORDS
        && numbers <= 1
}

/// Removes the words and the number of a repetition: `Xen PV run 2` becomes `Xen PV`, `Run 2` becomes empty.
fn without_repeats(text: &str) -> String {
    let plain = |word: &str| word.trim_matches([':', '#', '(', ')', ',', '.', '-']).to_lowercase();
    let is_number = |word: &str| {
        let word = plain(word);
        !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == '/')
    };
    let is_repeat = |word: &str| REPEATS.contains(&plain(word).as_str());
    let is_numbered = |word: &str| {
        let word = plain(word);
        let name = word.trim_end_matches(|c: char| c.is_ascii_digit());
        name.len() < word.len() && REPEATS.contains(&name.trim_end_matches(['-', '_', '#']))
    };
    let is_ordinal = |word: &str| {
        let word = plain(word);
        let suffix = word.trim_start_matches(|c: char| c.is_ascii_digit());
        suffix.len() < word.len() && ["st", "nd", "rd", "th"].contains(&suffix)
            || ["first", "second", "third", "fourth", "fifth"].contains(&word.as_str())
    };
    let mut kept = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let next = words.peek().copied().unwrap_or_default();
        if is_repeat(word) && is_number(next) || is_ordinal(word) && is_repeat(next) {
            words.next();
        } else if !is_numbered(word) && plain(word) != "again" {
            kept.push(word);
        }
    }
    let text = kept.join(" ");
    text.trim_matches(['-', ',', ':', '(', ')', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_known_by_their_marks_and_by_standing_alone() {
        let text = "# Host A\nNative\n======\n## with load\n\nalone:\nread: IOPS=1\n[Xen PV]\n\nXen 4.1\n\nsda 1.0 2.0\n=== last ===\n\
            # fio --rw=read\n\nRun 2\n";
        let found: Vec<(usize, usize, String)> =
            headings(text).into_iter().map(|heading| (heading.line, heading.level, heading.text)).collect();
        let texts: Vec<&str> = found.iter().map(|(_, _, text)| text.as_str()).collect();
        assert_eq!(texts, ["Host A", "Native", "with load", "alone", "Xen PV", "Xen 4.1", "last"]);
        assert_eq!(found.iter().map(|(_, level, _)| *level).collect::<Vec<_>>(), [1, 1, 2, 7, 7, 7, 7]);
    }

    #[test]
    fn a_number_of_a_repetition_is_no_other_heading() {
        for (text, rest) in [
            ("Run 1", ""),
            ("run #2 of 3", "of 3"),
            ("Xen PV, second run", "Xen PV"),
            ("Native (run2)", "Native"),
            ("Native again", "Native"),
            ("Xen 4.1", "Xen 4.1"),
            ("Test 2", "Test 2"),
        ] {
            assert_eq!(without_repeats(text), rest, "{text}");
        }
    }
}
