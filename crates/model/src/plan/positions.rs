//! Adds line and column numbers to the errors of a plan file.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::PlanError;
use crate::key_errors::in_our_words;
use crate::workload::KEYS;

/// The text of a plan file, in which errors are located.
#[derive(Clone, Copy)]
pub(super) struct Text<'a>(pub(super) &'a str);

impl Text<'_> {
    /// Builds an error from a message, with the line and column where the byte range `span` starts, and the line with the range marked.
    pub(super) fn at(self, span: Range<usize>, message: &str) -> PlanError {
        let start = self.floor(span.start);
        let before = &self.0[..start];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = self.0[line_start..].lines().next().unwrap_or_default();
        let number = before.matches('\n').count() + 1;
        let lead = &self.0[line_start..start];
        // Marks end with the line; an empty span gets one mark.
        let end = self.floor(span.end).clamp(start, line_start + line.len().max(start - line_start));
        let marked = self.0[start..end].chars().count().max(1);
        // Tabs are kept, so that the marks line up.
        let indent: String = lead.chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
        let gutter = " ".repeat(number.to_string().len());
        PlanError::File(format!(
            "line {number}, column {}: {message}\n{gutter} |\n{number} | {line}\n{gutter} | {indent}{}",
            lead.chars().count() + 1,
            "^".repeat(marked)
        ))
    }

    /// Converts an error of the TOML parser, with its location.
    pub(super) fn parser(self, error: &toml::de::Error) -> PlanError {
        let message = error.message().trim_end();
        let refused = error.span().and_then(|span| self.number(span, message));
        let message = refused.unwrap_or_else(|| in_our_words(message));
        match error.span() {
            Some(span) => self.at(span, &message),
            None => PlanError::File(message),
        }
    }

    /// Returns the error message for a number outside the range of a workload's key; `None` if the error is about something else.
    fn number(self, value: Range<usize>, message: &str) -> Option<String> {
        message.rsplit_once(", expected u")?.1.parse::<u8>().ok()?;
        let start = self.floor(value.start);
        let before = self.0[..start].trim_end().strip_suffix('=')?.trim_end();
        let name = before.rsplit(|c: char| !(c.is_ascii_lowercase() || c == '_')).next()?;
        let key = KEYS.iter().find(|key| key.name == name)?;
        let number = self.0.get(start..self.floor(value.end))?;
        (key.check)(number.trim_matches('"')).err()
    }

    /// Rounds a byte offset down to the start of a UTF-8 character.
    fn floor(self, byte: usize) -> usize {
        self.0.floor_char_boundary(byte.min(self.0.len()))
    }
}

/// Finds the first of `words` that is a key of a table or its subtables. Returns the byte range from the key to the end of its value; `None` if no
/// word is a key.
pub(super) fn find_key<'w>(
    table: &DeTable<'_>,
    words: impl IntoIterator<Item = &'w str>,
) -> Option<Range<usize>> {
    words.into_iter().find_map(|word| find_one(table, word))
}

fn find_one(table: &DeTable<'_>, word: &str) -> Option<Range<usize>> {
    table.iter().find_map(|(key, value)| {
        if key.get_ref() == word {
            return Some(key.span().start..value.span().end);
        }
        match value.get_ref() {
            DeValue::Table(inner) => find_one(inner, word),
            _ => None,
        }
    })
}

/// Returns all words in the reason of an error, as candidates for [`find_key`].
pub(super) fn words(reason: &str) -> impl Iterator<Item = &str> {
    reason.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_marked_whatever_stands_before_it() {
        let text = "a = 1\n\té = \"x\"\nlast";
        let at = |span| Text(text).at(span, "no").to_string();
        assert_eq!(at(0..5), "line 1, column 1: no\n  |\n1 | a = 1\n  | ^^^^^");
        assert_eq!(at(12..15), "line 2, column 6: no\n  |\n2 | \té = \"x\"\n  | \t    ^^^");
        // Spans that end beyond their line, lie inside a character, or start beyond the end of the text.
        assert_eq!(at(2..99), "line 1, column 3: no\n  |\n1 | a = 1\n  |   ^^^");
        assert_eq!(at(8..8), "line 2, column 2: no\n  |\n2 | \té = \"x\"\n  | \t^");
        assert_eq!(at(99..100), "line 3, column 5: no\n  |\n3 | last\n  |     ^");
    }
}
