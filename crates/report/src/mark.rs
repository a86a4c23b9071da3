//! Marks: contents that show that iotax wrote a file itself, so that iotax may replace it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The mark of a file format. iotax replaces only files that carry the mark of the format that it writes.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Name of the format.
    pub format: &'static str,
    /// Position and text of the mark in the file.
    pub position: MarkPosition,
}

/// The position of a mark in a file.
#[derive(Debug, Clone)]
pub enum MarkPosition {
    /// The format has no mark, because it is another tool's format with free content.
    Nowhere,
    /// The file begins with this text.
    Start(Cow<'static, str>),
    /// Every line begins with one of these texts.
    EveryLine(&'static [&'static str]),
    /// A JSON document has this string under these nested keys.
    Member(&'static [&'static str], Value),
    /// A binary file has this text as its author, which a reader of the format finds; `None` if the contents have another format.
    Author(&'static str, fn(&[u8]) -> Option<String>),
}

/// The string expected by [`MarkPosition::Member`].
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// The whole string is this text.
    Is(&'static str),
    /// The string starts with this text; a version may follow.
    Begins(&'static str),
}

impl Mark {
    /// Returns the mark of a format whose files begin with `start`.
    #[must_use]
    pub const fn start(format: &'static str, start: &'static str) -> Self {
        Self { format, position: MarkPosition::Start(Cow::Borrowed(start)) }
    }

    /// Returns the mark of a JSON document whose schema name is under these nested keys.
    #[must_use]
    pub const fn schema(schema: &'static str, key_path: &'static [&'static str]) -> Self {
        Self { format: schema, position: MarkPosition::Member(key_path, Value::Is(schema)) }
    }

    /// Returns whether files of this format can carry a mark.
    #[must_use]
    pub const fn exists(&self) -> bool {
        !matches!(self.position, MarkPosition::Nowhere)
    }

    /// Returns whether a file with these contents carries the mark; false for a format without a mark.
    #[must_use]
    pub fn stands_in(&self, contents: &[u8]) -> bool {
        match &self.position {
            MarkPosition::Nowhere => false,
            MarkPosition::Start(start) => contents.starts_with(start.as_bytes()),
            MarkPosition::EveryLine(starts) => every_line(contents, starts),
            MarkPosition::Member(key_path, value) => {
                member(contents, key_path).is_some_and(|found| match value {
                    Value::Is(text) => found == *text,
                    Value::Begins(text) => found.starts_with(text),
                })
            }
            MarkPosition::Author(author, read) => read(contents).as_deref() == Some(author),
        }
    }
}

fn every_line(contents: &[u8], starts: &[&str]) -> bool {
    let Some(lines) = contents.strip_suffix(b"\n") else { return false };
    let ours = |line: &[u8]| starts.iter().any(|start| line.starts_with(start.as_bytes()));
    lines.split(|byte| *byte == b'\n').all(ours)
}

/// Reads the string under nested keys of a JSON document; `None` if it is missing or the text is not JSON. Parses a stream, without keeping
/// the document in memory.
fn member(contents: &[u8], key_path: &[&str]) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_slice(contents);
    let found = KeyPath(key_path).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    found
}

struct KeyPath<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for KeyPath<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            deserializer.deserialize_str(self)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for KeyPath<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document with a mark")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| text.to_owned()))
    }

    /// Reads the mark from a list of documents; `None` unless all documents have the same mark.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut found = list.next_element_seed(KeyPath(self.0))?.flatten();
        while let Some(next) = list.next_element_seed(KeyPath(self.0))? {
            found = found.filter(|found| next.as_ref() == Some(found));
        }
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match self.0 {
                [wanted, rest @ ..] if *wanted == key => found = map.next_value_seed(KeyPath(rest))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_stands_at_its_own_place_in_a_whole_document() {
        let ours = Mark::schema("iotax/1", &["schema"]);
        assert!(ours.stands_in(b"{ \"cells\": [{ \"schema\": 3 }], \"schema\": \"iotax/1\" }\n"));
        assert!(ours.stands_in(b"[{ \"schema\": \"iotax/1\" }, { \"schema\": \"iotax/1\" }]"));
        for other in [
            "[{ \"schema\": \"iotax/1\" }, {}]",
            "[]",
            "{ \"schema\": \"iotax/10\" }",
            "{ \"schema\": [\"iotax/1\"] }",
            "{ \"kept\": { \"schema\": \"iotax/1\" } }",
            "{ \"schema\": \"iotax/1\" } and more",
            "{ \"schema\": \"iotax/1\"",
            "\"iotax/1\"",
            "[\"schema\", \"iotax/1\"]",
            "",
        ] {
            assert!(!ours.stands_in(other.as_bytes()), "{other}");
        }
        let within = Mark::schema("iotax-net/1", &["iotax", "schema"]);
        assert!(within.stands_in(b"{ \"end\": {}, \"iotax\": { \"schema\": \"iotax-net/1\" } }"));
        assert!(!within.stands_in(b"{ \"schema\": \"iotax-net/1\", \"iotax\": \"schema\" }"));
    }

    #[test]
    fn every_line_has_the_mark_or_none() {
        let lines =
            Mark { format: "lines", position: MarkPosition::EveryLine(&["1.98,iotax-", "1.97,iotax-"]) };
        assert!(lines.stands_in(b"1.98,iotax-1,a\n1.97,iotax-1,b\n"));
        for other in ["", "\n", "1.98,iotax-1,a\n\n", "1.98,iotax-1,a", "1.98,iotax-1\nmine\n"] {
            assert!(!lines.stands_in(other.as_bytes()), "{other:?}");
        }
    }
}
