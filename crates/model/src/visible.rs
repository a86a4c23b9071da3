//! Makes text from outside safe to print. Characters that control a terminal, are invisible, or change the order of text become escapes such as
//! `\u{1b}`.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Ranges of invisible characters apart from control characters: Unicode's format characters, line and paragraph separators, and other characters
/// of zero width.
const HIDDEN: [(char, char); 25] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1345f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Returns whether a character controls a terminal or is invisible.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control() || HIDDEN.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// Escapes hidden characters in text of several lines; line ends and tabs are kept.
#[must_use]
pub fn text(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_hidden(c) && !matches!(c, '\n' | '\t'), |out, c| out.extend(c.escape_default()))
}

/// Escapes hidden characters and line ends, so that a name from outside cannot add lines to the output.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden, |out, c| out.extend(c.escape_default()))
}

/// Escapes hidden characters in a JSON document as `\uXXXX`. They can only occur within strings, so that the document's values stay the same.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| is_hidden(c) && !matches!(c, '\n' | '\r' | '\t'),
        |out, c| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        },
    )
}

fn escaped(text: &str, is_meant: impl Fn(char) -> bool, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    // Fast path: most text is plain ASCII.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.contains(&is_meant) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_meant(c) { escape(&mut out, c) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        for (raw, shown) in [
            ("\u{1b}]0;x\u{7}", "\\u{1b}]0;x\\u{7}"),
            ("\u{9b}31m\u{7f}\u{0}", "\\u{9b}31m\\u{7f}\\u{0}"),
            ("\u{202e}\u{2066}\u{200f}\u{61c}", "\\u{202e}\\u{2066}\\u{200f}\\u{61c}"),
            ("\u{200b}\u{2028}\u{feff}\u{e0041}", "\\u{200b}\\u{2028}\\u{feff}\\u{e0041}"),
            ("a\rb", "a\\rb"),
        ] {
            assert_eq!((&*text(raw), &*line(raw)), (shown, shown));
        }
        assert_eq!((&*text("a\n\tb"), &*line("a\n\tb")), ("a\n\tb", "a\\n\\tb"));
    }

    #[test]
    fn what_can_be_read_stays() {
        for plain in ["vm-raw", "3 µs · 4 %", "Größe", "e\u{301}", "דיסק", "磁盘", "▁▄█", "\u{fffd}", "😀"]
        {
            assert!(matches!(line(plain), Cow::Borrowed(same) if same == plain), "{plain}");
        }
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = "a\u{1b}\u{85}\u{202e}\u{e0041}\"\\\n";
        let document = json(&serde_json::to_string(value).expect("a text")).into_owned();
        assert!(!document.contains(is_hidden), "{document}");
        assert_eq!(serde_json::from_str::<String>(&document).expect("JSON"), value);
    }
}
