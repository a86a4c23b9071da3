//! Strips common line prefixes: indentation, log time stamps, host names, container names.
//!
//! Some tools' lines begin alike, so the text without the prefix is used only if it yields more results.

use std::collections::HashMap;

/// Minimum share of lines that must start with a prefix.
const MOST: f64 = 0.9;

/// Minimum number of lines with a prefix; fewer lines may begin alike by chance.
const FEWEST: usize = 3;

/// Maximum length in bytes of lines that are considered.
const LONGEST: usize = 8 << 10;

/// Returns the text without one prefix that its lines share; `None` if there is none.
pub(super) fn without(text: &str) -> Option<String> {
    cut(text, time).or_else(|| without_word(text)).or_else(|| without_indent(text))
}

/// Returns the lines that are neither blank nor too long.
fn full(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim().is_empty() && line.len() <= LONGEST)
}

/// Replaces each line with the result of `rest`, if there is one. `None` if `rest` has results for fewer than 3 lines, or for fewer than
/// 90% of them.
fn cut(text: &str, rest: impl Fn(&str) -> Option<&str>) -> Option<String> {
    let (mut all, mut with) = (0_usize, 0_usize);
    for line in full(text) {
        all += 1;
        with += usize::from(rest(line).is_some());
    }
    if with < FEWEST || (with as f64) < MOST * all as f64 {
        return None;
    }
    let cut = |line| rest(line).unwrap_or(line);
    Some(text.split_inclusive('\n').map(cut).collect())
}

/// Strips a time stamp at the start of a line: `2024-01-01T00:00:00.123Z `, `[2024-01-01 00:00:00] `, `Jan  1 00:00:00 `, `[12.345678] `.
/// `None` without one.
fn time(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    let rest = if let Some(inner) = trimmed.strip_prefix('[') {
        let (inside, rest) = inner.split_once(']')?;
        let is_time = is_clock(inside) || inside.trim().parse::<f64>().is_ok() && inside.contains('.');
        is_time.then_some(rest)?
    } else {
        behind_time(trimmed)?
    };
    Some(rest.strip_prefix([' ', '\t']).unwrap_or(rest))
}

/// Returns whether a text is a date, a time of day, or both.
fn is_clock(text: &str) -> bool {
    behind_time(text).is_some_and(|rest| rest.trim().is_empty())
}

/// Returns the text after a time stamp: `2024-01-01T00:00:00Z`, `2024-01-01 00:00:00`, `Jan  1 00:00:00` or `00:00:00`.
fn behind_time(text: &str) -> Option<&str> {
    let (first, rest) = word(text)?;
    if is_time_of_day(first) {
        return Some(rest);
    }
    if let Some((date, clock)) = first.split_once('T') {
        return (is_date(date) && is_time_of_day(clock)).then_some(rest);
    }
    let (second, after) = word(rest.trim_start())?;
    if is_date(first) && is_time_of_day(second) {
        return Some(after);
    }
    let is_month = first.len() == 3 && first.starts_with(|c: char| c.is_ascii_uppercase());
    let (third, after) = word(after.trim_start())?;
    (is_month && second.parse::<u8>().is_ok() && is_time_of_day(third)).then_some(after)
}

fn word(text: &str) -> Option<(&str, &str)> {
    let end = text.find([' ', '\t', '\n']).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn is_date(word: &str) -> bool {
    word.len() >= 8
        && word.matches(['-', '/', '.']).count() == 2
        && word.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '/' | '.'))
}

/// Returns whether a word is a time of day like `00:00:00`, possibly with fraction and zone.
fn is_time_of_day(word: &str) -> bool {
    let word = word.trim_end_matches([':', ',']);
    word.len() >= 8
        && word.as_bytes()[2] == b':'
        && word.as_bytes()[5] == b':'
        && word.chars().all(|c| c.is_ascii_digit() || matches!(c, ':' | '.' | ',' | '+' | '-' | 'Z'))
}

/// Strips the first word if nearly all lines share it: `host `, `fio-pod | `, `host fio[123]: `. `None` otherwise.
fn without_word(text: &str) -> Option<String> {
    let mut times: HashMap<&str, usize> = HashMap::new();
    let mut all = 0_usize;
    for line in full(text) {
        all += 1;
        if let Some(name) = name(line) {
            *times.entry(name).or_default() += 1;
        }
    }
    let (name, most) = times.into_iter().max_by_key(|(_, times)| *times)?;
    if most < FEWEST || (most as f64) < MOST * all as f64 {
        return None;
    }
    let behind = |line: &'_ str| -> Option<usize> {
        let rest = line.trim_start().strip_prefix(name)?;
        Some(line.len() - rest.strip_prefix([' ', '\t']).unwrap_or(rest).len())
    };
    let bar = |line: &str| behind(line).is_some_and(|at| line[at..].trim_start().starts_with('|'));
    // Tables of tools have bars too, but not on every line. After container names, blanks align the bars.
    let has_bar = full(text).filter(|line| bar(line)).count() as f64 >= MOST * all as f64;
    cut(text, |line| {
        let rest = &line[behind(line)?..];
        match rest.trim_start().strip_prefix('|').filter(|_| has_bar) {
            Some(inner) => Some(inner.strip_prefix(' ').unwrap_or(inner)),
            None => Some(rest),
        }
    })
}

/// Returns the first word of a line, if it can be a host or container name.
fn name(line: &str) -> Option<&str> {
    let (first, _) = word(line.trim_start())?;
    first.starts_with(|c: char| c.is_ascii_alphabetic() || c == '[').then_some(first.trim_end_matches('\n'))
}

/// Strips the indentation that all lines share; `None` if there is none.
fn without_indent(text: &str) -> Option<String> {
    let blanks = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let least = full(text).map(blanks).min().filter(|least| *least > 0)?;
    cut(text, move |line| line.get(least..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_line_begins_with_goes() {
        let lines = ["read: 1", "  write: 2", "", "cpu: 3", "end: 4"];
        let plain = lines.map(|line| format!("{line}\n")).concat();
        for before in [
            "2024-01-01T00:00:00.123456789Z ",
            "2024-01-01 00:00:00,123 ",
            "[2024-01-01 00:00:00] ",
            "[ 12.345678] ",
            "Jan  1 00:00:00 ",
            "fio-1  | ",
            "[pod/fio/fio] ",
            "box ",
        ] {
            let with = lines.map(|line| format!("{before}{line}\n")).concat();
            assert_eq!(without(&with).as_deref(), Some(&*plain), "{before}");
        }
        let indented = lines.map(|line| if line.is_empty() { "\n".into() } else { format!("    {line}\n") });
        assert_eq!(without(&indented.concat()).as_deref(), Some(&*plain));
        assert_eq!(without(&plain), None);
        let logged = lines.map(|line| format!("Jan  1 00:00:00 box fio[12]: {line}\n")).concat();
        let thrice = without(&logged).and_then(|text| without(&text)).and_then(|text| without(&text));
        assert_eq!(thrice, Some(plain));
    }
}
