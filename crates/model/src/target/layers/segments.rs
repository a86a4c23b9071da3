//! Splits the line of a stack into segments of words and keys, which arrows separate.

use std::collections::VecDeque;

use serde::{Serialize, de::DeserializeOwned};
use toml::{Table, Value};

use crate::key_errors::in_our_words;

/// Segments of a line that have not been parsed yet.
#[derive(Debug, Clone)]
pub(in crate::target) struct Segments(VecDeque<Segment>);

/// The text between two arrows of a stack's line: words, then `key=value` pairs.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    /// The words in front of the first key.
    words: Vec<String>,
    /// The segment's `key=value` pairs, as in the layer's table of a plan file.
    pub(super) keys: Table,
}

impl Segments {
    /// Splits a stack's line into segments.
    ///
    /// # Errors
    /// A segment has no words, a key occurs twice, or a quote is not closed.
    pub(in crate::target) fn of(line: &str) -> Result<Self, String> {
        let mut segments = VecDeque::new();
        let mut open = Segment { words: Vec::new(), keys: Table::new() };
        for token in tokens(line)? {
            match token {
                Token::Arrow if open.words.is_empty() => {
                    return Err(format!("{line:?}: nothing stands before a \">\""));
                }
                Token::Arrow => {
                    segments.push_back(std::mem::replace(
                        &mut open,
                        Segment { words: Vec::new(), keys: Table::new() },
                    ));
                }
                Token::Word(word) => open.words.push(word),
                Token::Key(key, value) => {
                    if open.words.is_empty() || open.keys.insert(key.clone(), value).is_some() {
                        return Err(format!("{line:?}: {key}= follows the name of its layer, once"));
                    }
                }
            }
        }
        if open.words.is_empty() {
            return Err(format!("{line:?}: a layer is expected at the end"));
        }
        segments.push_back(open);
        Ok(Self(segments))
    }

    /// Returns the words of the next segment, which stays in the queue; `None` at the end of the line.
    pub(super) fn next_words(&self) -> Option<&[String]> {
        Some(&self.0.front()?.words)
    }

    /// Returns the words of the next segment without its keys, for an error message; empty at the end of the line.
    pub(in crate::target) fn shown(&self) -> String {
        self.0.front().map(|segment| segment.words.join(" ")).unwrap_or_default()
    }

    /// Returns the number of segments that have not been parsed yet.
    pub(in crate::target) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the next segment if it can be a directory or volume group: a single word without keys, with another segment after it. `None`
    /// otherwise.
    pub(in crate::target) fn take_location(&mut self) -> Option<String> {
        let is_location = self.0.len() > 1
            && self.0.front().is_some_and(|segment| segment.words.len() == 1 && segment.keys.is_empty());
        is_location.then(|| self.take().words.remove(0))
    }

    /// Takes the next segment; at the end of the line, returns an empty segment.
    pub(super) fn take(&mut self) -> Segment {
        self.0.pop_front().unwrap_or(Segment { words: Vec::new(), keys: Table::new() })
    }
}

impl Segment {
    /// Deserializes a layer's settings from the segment's keys and from `known`, the keys that the segment's words express.
    ///
    /// # Errors
    /// A key occurs in both, is not known, or has an invalid value.
    pub(super) fn spec<L: DeserializeOwned>(
        self,
        known: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Result<L, String> {
        let name = self.words.join(" ");
        let mut keys = self.keys;
        for (key, value) in known {
            if keys.insert(key.to_owned(), value).is_some() {
                return Err(format!("{name}: {key}= is given by the other words; leave it out"));
            }
        }
        keys.try_into().map_err(|error: toml::de::Error| format!("{name}: {}", in_our_words(error.message())))
    }

    /// Rejects a segment with keys, for layers without settings.
    pub(super) fn without_keys(self) -> Result<(), String> {
        match self.keys.keys().next() {
            Some(key) => Err(format!("{}: {key}= is not known here", self.words.join(" "))),
            None => Ok(()),
        }
    }
}

enum Token {
    Word(String),
    Key(String, Value),
    Arrow,
}

/// Splits a line into tokens at blanks, except within double quotes.
///
/// # Errors
/// A quote is not closed.
fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (text, was_quoted, end) =
            token(rest).ok_or_else(|| format!("{line:?}: a quote is not closed"))?;
        rest = rest[end..].trim_start();
        tokens.push(match text.split_once('=') {
            _ if text == ">" && !was_quoted => Token::Arrow,
            Some((key, value)) if !was_quoted && is_key(key) => Token::Key(key.to_owned(), value_of(value)),
            _ => Token::Word(unquoted(&text)),
        });
    }
    Ok(tokens)
}

/// Splits off the first token, with its quotes. Returns the token, whether it starts with a quote, and its length in bytes; `None` if a quote is
/// not closed.
fn token(text: &str) -> Option<(String, bool, usize)> {
    let (mut in_quotes, mut is_escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if in_quotes => is_escaped = true,
            '"' => in_quotes = !in_quotes,
            c if c.is_whitespace() && !in_quotes => {
                return Some((text[..at].to_owned(), text.starts_with('"'), at));
            }
            _ => {}
        }
    }
    (!in_quotes).then(|| (text.to_owned(), text.starts_with('"'), text.len()))
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Converts the text of a value to a boolean, a whole number, or else a string without its quotes.
fn value_of(text: &str) -> Value {
    let flag = text.parse().ok().map(Value::Boolean);
    flag.or_else(|| text.parse().ok().map(Value::Integer)).unwrap_or_else(|| Value::String(unquoted(text)))
}

fn unquoted(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
}

/// Formats a word for a stack's line: in quotes if it is empty, or contains blanks or special characters.
pub(in crate::target) fn word(text: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !"\"\\>=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        serde_json::Value::from(text).to_string()
    }
}

/// Formats a layer's keys that differ from `defaults`, or all keys without them, as ` key=value ...`. Leaves out the keys in `known`, which
/// the segment's words already contain.
pub(super) fn keys<L: Serialize>(spec: &L, defaults: Option<&L>, known: &[&str]) -> String {
    let table = |spec| Table::try_from(spec).unwrap_or_default();
    let defaults = defaults.map(table).unwrap_or_default();
    let differs = |(key, value): &(&String, &Value)| {
        !known.contains(&key.as_str()) && defaults.get(*key) != Some(*value)
    };
    table(spec)
        .iter()
        .filter(differs)
        .map(|(key, value)| match value {
            Value::String(text) if value_of(text).is_str() => format!(" {key}={}", word(text)),
            Value::String(text) => format!(" {key}={}", serde_json::Value::from(text.as_str())),
            value => format!(" {key}={value}"),
        })
        .collect()
}
