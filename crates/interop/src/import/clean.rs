//! Recovers a tool's plain text from files, terminals, mails and web pages.
//!
//! Figures keep their values and lines keep their numbers, so that messages about a line match the file.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// Decodes a file: UTF-8, or UTF-16 with a byte order mark. Invalid bytes become replacement characters.
#[must_use]
pub fn decode(bytes: Vec<u8>) -> String {
    let units = |of: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks_exact(2).map(|pair| of([pair[0], pair[1]]));
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    match bytes.as_slice() {
        [0xff, 0xfe, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] => units(u16::from_be_bytes),
        _ => String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    }
}

/// Removes what terminals, mails and web pages added to a text: colours, quote marks, bold and other markup, invisible characters,
/// typographic quotes and dashes. Replaces decimal commas if the text clearly uses them. Leaves JSON as it is.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    let text = text.trim_start_matches('\u{feff}');
    if is_json(text) {
        return Cow::Borrowed(text);
    }
    let is_page = tags(text).any(|(_, name)| PAGES.iter().any(|page| name.eq_ignore_ascii_case(page)));
    let mut clean = String::with_capacity(text.len());
    let mut visible = String::new();
    for line in text.split_inclusive('\n') {
        visible.clear();
        visible.extend(uncoloured(line).chars().filter_map(plain));
        if is_page {
            visible = unmarked(&visible);
        }
        clean.push_str(&unemphasised(unquoted(&visible)));
    }
    if has_decimal_commas(&clean) {
        clean = with_points(&clean);
    }
    Cow::Owned(without_stumps(&clean))
}

/// Removes a terminal's escape sequences from a line: colours, titles and cursor movements, even if `cat -v` printed the escape character as `^[`.
fn uncoloured(line: &str) -> Cow<'_, str> {
    if !line.contains('\u{1b}') && !line.contains("^[[") && !line.contains("^[]") {
        return Cow::Borrowed(line);
    }
    let mut visible = String::with_capacity(line.len());
    let line = line.replace("^[[", "\u{1b}[").replace("^[]", "\u{1b}]");
    let mut parts = line.split('\u{1b}');
    visible.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let after = match part.as_bytes().first() {
            // Parameters, up to the letter that ends the sequence.
            Some(b'[') => part[1..].find(|c: char| ('@'..='~').contains(&c)).map(|end| end + 2),
            // A window title, which a bell ends.
            Some(b']') => part.find('\u{7}').map(|end| end + 1).or(Some(part.len())),
            Some(b'(' | b')') => Some(2),
            _ => Some(1),
        };
        visible.push_str(after.and_then(|after| part.get(after..)).unwrap_or_default());
    }
    Cow::Owned(visible)
}

/// Removes the asterisks of bold text from a line: `**IOPS=13.0k**`.
fn unemphasised(line: &str) -> Cow<'_, str> {
    let parts: Vec<&str> = line.split("**").collect();
    let is_bold = |inside: &&str| !inside.is_empty() && !inside.contains('*') && inside.trim() == *inside;
    let is_marked = parts.len() > 2 && parts.len() % 2 == 1 && parts.iter().skip(1).step_by(2).all(is_bold);
    if is_marked { Cow::Owned(parts.concat()) } else { Cow::Borrowed(line) }
}

/// Minimum length in bytes of a line that a terminal may have wrapped.
const BROKEN: usize = 20;

/// Appends a question mark to each number that may be truncated, so that readers reject it. Such a number ends the text, or ends a line whose next
/// line holds only digits and a point.
fn without_stumps(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let is_rest = |line: &str| {
        let line = line.trim_end();
        line.starts_with(is_part) && !line.contains([' ', '\t', ',', ';', ':', '"'])
    };
    let mut clean = String::with_capacity(text.len());
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let plain = line.trim_end_matches('\n');
        clean.push_str(plain);
        let may_go_on = match lines.peek() {
            Some(next) => plain.len() >= BROKEN && is_rest(next),
            None => !line.ends_with('\n'),
        };
        if plain.ends_with(is_part) && may_go_on {
            clean.push('?');
        }
        clean.push_str(&line[plain.len()..]);
    }
    clean
}

/// Removes the marks `>` of quoted mail from the start of a line.
fn unquoted(line: &str) -> &str {
    let mut rest = line;
    while let Some(inner) = rest.trim_start().strip_prefix('>') {
        rest = inner.strip_prefix(' ').unwrap_or(inner);
    }
    rest
}

/// HTML tags that identify a text as a web page.
const PAGES: [&str; 8] = ["pre", "html", "p", "table", "br", "div", "code", "!doctype"];

/// HTML tags that are removed from a web page. Others are kept as text: `</data/a` is a path, and `<host>` a placeholder.
const WITHIN: [&str; 26] = [
    "a", "b", "body", "em", "font", "h1", "h2", "h3", "head", "hr", "i", "kbd", "li", "meta", "ol", "samp",
    "script", "span", "strong", "style", "tbody", "td", "th", "title", "tr", "ul",
];

/// Maximum length of a tag in bytes.
const LONGEST_TAG: usize = 1000;

/// Finds possible HTML tags, each with its byte position and name.
fn tags(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices('<').filter_map(|(at, _)| {
        let inner = text[at + 1..].strip_prefix('/').unwrap_or(&text[at + 1..]);
        let end = inner.find(|c: char| !(c.is_ascii_alphanumeric() || c == '!')).filter(|end| *end > 0)?;
        let (name, after) = inner.split_at(end);
        let is_end = after.starts_with(|c: char| c == '>' || c.is_whitespace()) || after.starts_with("/>");
        is_end.then_some((at, name))
    })
}

/// Returns whether a text is JSON, from which no markup has to be removed.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
        && serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>().all(|value| value.is_ok())
}

/// Returns a line of a web page as a browser shows it: tags removed and entities replaced.
fn unmarked(line: &str) -> String {
    let mut text = String::new();
    let mut next = 0;
    // End of the last tag found so far.
    let mut end = 0;
    for (at, name) in tags(line) {
        if end <= at {
            end = line[at..].find('>').map_or(usize::MAX, |length| at + length);
        }
        let is_known = PAGES.iter().chain(&WITHIN).any(|known| name.eq_ignore_ascii_case(known));
        if is_known && at >= next && end - at < LONGEST_TAG {
            text.push_str(&line[next..at]);
            next = end + 1;
        }
    }
    text.push_str(&line[next..]);
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ];
    entities.into_iter().fold(text, |text, (entity, character)| text.replace(entity, character))
}

/// Returns whether numbers use decimal commas: at least one is like `0,12` or `391,5`, which cannot be thousands, and none has a point or is
/// like `1,234,567`. Commands in the text are skipped, because people type them with points.
fn has_decimal_commas(text: &str) -> bool {
    let mut found = false;
    for word in text.lines().filter(|line| !is_command(line)).flat_map(str::split_whitespace) {
        if is_decimal(word, '.') || has_thousands(word) {
            return false;
        }
        let is_no_thousand = |(whole, part): (&str, &str)| whole == "0" || part.len() != 3;
        found |= is_decimal(word, ',') && word.split_once(',').is_some_and(is_no_thousand);
    }
    found
}

/// Returns whether a line starts with `$` or `#`, like a command or a comment.
fn is_command(line: &str) -> bool {
    line.trim_start().starts_with(['$', '#'])
}

/// Maximum length of a number in bytes.
const LONGEST_NUMBER: usize = 60;

/// Returns whether commas in a number separate thousands, as in `1,234,567`.
fn has_thousands(word: &str) -> bool {
    if word.len() > LONGEST_NUMBER {
        return false;
    }
    let parts: Vec<&str> = word.split(',').collect();
    parts.len() > 2
        && (1..=3).contains(&parts[0].len())
        && parts[1..].iter().all(|part| part.len() == 3)
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns whether a word is a decimal number with `sign` between its digits.
fn is_decimal(word: &str, sign: char) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once(sign).is_some_and(|(whole, part)| digits(whole) && digits(part))
}

fn with_points(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        for piece in line.split_inclusive(char::is_whitespace) {
            if is_decimal(piece.trim_end(), ',') && !is_command(line) {
                clean.push_str(&piece.replacen(',', ".", 1));
            } else {
                clean.push_str(piece);
            }
        }
    }
    clean
}

/// Returns the plain form of a typographic character; `None` for an invisible one.
fn plain(c: char) -> Option<char> {
    Some(match c {
        '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{ad}' | '\r' => return None,
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => ' ',
        '\u{2018}' | '\u{2019}' | '\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{ab}' | '\u{bb}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{b5}' | '\u{3bc}' => 'u',
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_way_added_goes_and_lines_stay() {
        for (text, cleaned) in [
            ("\u{feff}\u{201c}iops\u{201d}\u{a0}: 1\r\n", "\"iops\" : 1\n"),
            ("> > a  b\n>c\n\nd", "a  b\nc\n\nd"),
            ("<pre>x &lt;y&gt; <b style=\"color:red\">1</b></pre>\n", "x <y> 1\n"),
            ("1 < 2 > 1\n", "1 < 2 > 1\n"),
            ("rate 391,5 0,118 5.250\n", "rate 391,5 0,118 5.250\n"),
            ("rate 391,5 0,118\n", "rate 391.5 0.118\n"),
            ("1,234 5,678\n", "1,234 5,678\n"),
            ("$ x 0,5\n1,234\n", "$ x 0,5\n1,234\n"),
            ("1,234,567 0,5\n", "1,234,567 0,5\n"),
            ("# x 1.5\n0,5 1,234\n", "# x 1.5\n0.5 1.234\n"),
            ("x </data/a> <p99> 1\n", "x </data/a> <p99> 1\n"),
            ("<p>x </data/a> <p99> 1</p>\n", "x </data/a> <p99> 1\n"),
            ("{\"a\": \"<p>\u{201c}&lt;\"}\n", "{\"a\": \"<p>\u{201c}&lt;\"}\n"),
            ("\u{1b}[01;31m\u{1b}[KIOPS=\u{1b}[m\u{1b}[K13.0k\n", "IOPS=13.0k\n"),
            ("^[[1mIOPS=^[[0m13.0k\n", "IOPS=13.0k\n"),
            ("\u{1b}]0;root@h:~\u{7}x\r\n", "x\n"),
            ("read: **IOPS=13.0k**, **BW=1**\n", "read: IOPS=13.0k, BW=1\n"),
            ("2 ** 3 ** 4 and *** x ***\n", "2 ** 3 ** 4 and *** x ***\n"),
            ("10 \u{b5}s \u{2212}5\n", "10 us -5\n"),
        ] {
            assert_eq!(clean(text), cleaned);
        }
        assert_eq!(decode(b"\xff\xfea\0b\0".to_vec()), "ab");
        assert_eq!(decode(b"\xfe\xff\0a\0b".to_vec()), "ab");
        assert_eq!(decode(b"a\xffb".to_vec()), "a\u{fffd}b");
    }
}
