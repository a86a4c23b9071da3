//! Tells whether a large file may contain output of a supported tool, before it is parsed.
//!
//! Parsing takes seconds per 10 MB, regardless of the content. So a large file is only parsed if its first part is text and contains the mark of a
//! tool. Marks are long enough not to occur in random bytes.

use super::{clean, decode, unixbench};

/// Size in bytes of the part of a large file that is examined. Smaller files are always parsed.
const FIRST: usize = 1 << 20;

/// Maximum share of control characters in a text.
const MOST_CONTROLS: f64 = 0.01;

/// Texts that occur in tools' results, at least one per tool.
const WORDS: &[&str] = &[
    "c %CP",
    "\"jobs\"",
    "\"jobname\"",
    "groupid=",
    "IOPS=",
    ";fio-",
    "0000%=",
    "Iozone",
    "reclen",
    "Children see",
    " report\"",
    "avg_",
    "min/avg/max",
    "% packet",
    "iperf 3",
    "\"test_start\"",
    "bits/sec",
    "Bytes/sec",
    " port ",
    "Device",
    "\"sysstat\"",
    "sample",
    "INDEX",
    "\"command\"",
    "Time (mean ",
    "command,mean,",
    "thread |",
    "%-ile",
    "<TestTimeSeconds>",
    "MB/s",
    "Elapsed time",
    "MiB/s [last]",
    "File operations:",
    "Operations performed:",
    "tps = ",
    "ops/sec",
    "Smart Log for NVM",
    "\"avail_spare\"",
    "\"smartctl\"",
];

/// Returns the reason for not parsing a file: its first part is not text, or has no mark of any tool. `None` if the file should be parsed.
#[must_use]
pub fn without_results(bytes: &[u8]) -> Option<&'static str> {
    let first = bytes.get(..FIRST).filter(|first| first.len() < bytes.len())?;
    let text = decode(first.to_vec());
    // Control characters that occur in recordings of a terminal do not count.
    let is_control =
        |c: &char| c.is_ascii_control() && !matches!(c, '\t'..='\r' | '\u{7}' | '\u{8}' | '\u{1b}');
    if text.chars().filter(is_control).count() as f64 > MOST_CONTROLS * text.chars().count() as f64 {
        return Some("its first MiB is no text");
    }
    (!has_any(&clean(&text))).then_some("its first MiB has nothing that one of these tools writes")
}

/// Returns whether a text contains the mark of any tool.
pub(super) fn has_any(text: &str) -> bool {
    WORDS.iter().chain(&unixbench::TESTS).any(|word| text.contains(word))
        || has_figure_with_unit(text)
        || has_fields(text)
        || text.lines().any(|line| {
            is_of_atop(line)
                || line.contains("DEV") && line.contains("tps")
                || line.matches("%CP").count() > 1
        })
}

/// Returns whether a text has a figure with a unit as dd and ping print it: `289 MB/s`, `1.5GB/s`, `time=0.2ms`, `0.1/0.2/0.3 ms`, `(0%`.
fn has_figure_with_unit(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let mut before = "";
    text.split_whitespace().any(|word| {
        let last = std::mem::replace(&mut before, word);
        let word = word.trim_end_matches([',', ')']);
        let plain = word.rsplit(['=', '<', '(']).next().unwrap_or_default();
        let unit = plain.trim_start_matches(is_part);
        let is_rate = matches!(unit, "bytes/sec" | "bytes/s")
            || unit
                .strip_suffix("/s")
                .map(|unit| unit.trim_end_matches('B').trim_end_matches('i'))
                .is_some_and(|letter| matches!(letter, "" | "k" | "K" | "M" | "m" | "G" | "g" | "T" | "t"));
        let has_figure = unit.len() < plain.len() || last.ends_with(|c: char| c.is_ascii_digit());
        has_figure && (is_rate || unit == "ms" || unit == "%" && word.starts_with('('))
    })
}

/// Returns whether a text has at least six figures separated by commas, as in the CSV of bonnie++ and iperf, even if a terminal wrapped them.
fn has_fields(text: &str) -> bool {
    const FEWEST: usize = 5;
    let is_field = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'u' | b'm' | b's' | b'\n');
    text.as_bytes()
        .split(|b| *b != b',' && !is_field(*b))
        .any(|run| run.split(|b| *b == b',').count() > FEWEST)
}

/// Returns whether a line is atop's: `DSK |  sda | ...` on a screen, or `DSK box 1677664800 ...` of `-P`.
fn is_of_atop(line: &str) -> bool {
    ["DSK", "LVM", "MDD"].iter().any(|label| {
        line.find(label).is_some_and(|at| {
            let rest = line[at + label.len()..].trim_start();
            let is_stamp = |word: &str| word.len() >= 9 && word.bytes().all(|b| b.is_ascii_digit());
            rest.starts_with('|') || rest.split_whitespace().nth(1).is_some_and(is_stamp)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes from 0 to `below` without repetition patterns.
    fn random(below: u64) -> Vec<u8> {
        let mut state = 1_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u8::try_from((state >> 33) % below).unwrap_or(u8::MAX)
        };
        std::iter::repeat_with(next).take(2 * FIRST).collect()
    }

    #[test]
    fn a_large_file_shows_at_its_begin_that_it_is_a_text_of_results() {
        let printable: Vec<u8> = random(96).iter().map(|b| if *b == 95 { b'\n' } else { b' ' + b }).collect();
        let braces = b"{\n".repeat(FIRST);
        let mut marked = braces.clone();
        marked.splice(10..10, *b"a: (groupid=0, jobs=1)\n");
        for (bytes, reason) in [
            (random(256), Some("its first MiB is no text")),
            (vec![0; 2 * FIRST], Some("its first MiB is no text")),
            (printable, Some("its first MiB has nothing that one of these tools writes")),
            (braces.clone(), Some("its first MiB has nothing that one of these tools writes")),
            (braces[..FIRST].to_vec(), None),
            (marked, None),
        ] {
            assert_eq!(without_results(&bytes), reason, "{:?}", &bytes[..20]);
        }
    }
}
