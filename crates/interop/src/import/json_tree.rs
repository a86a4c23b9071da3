//! Parses JSON as tools write it, at any position in a text.
//!
//! A document is a flat list of small nodes that point into the text, so it takes at most a few times the memory of the text. Parsing does
//! not recurse and reads even a damaged text only once. `nan` and `inf`, which some tools write although JSON has no such values, become
//! null. A duplicate key also becomes null, because either value may be meant.

use std::borrow::Cow;

use super::parse_util::not_understood;
use super::{Found, LONGEST_QUOTE};

/// Maximum nesting depth.
const DEEPEST: usize = 128;

/// A value or a key: bytes `from..to` of the text. For a list or map, `next` is the index of the node after the last node in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Null,
    Bool(bool),
    Number { from: u32, to: u32 },
    Text { from: u32, to: u32 },
    List { next: u32 },
    Map { from: u32, next: u32 },
}

/// Value of `next` while a list or map is still open.
const OPEN: u32 = u32::MAX;

/// A parsed document, or the complete parts of a truncated one.
pub(super) struct Tree<'t> {
    text: &'t str,
    /// Nodes of the document; the first is a null that represents missing values.
    nodes: Vec<Node>,
    /// Position of the first byte that cannot be parsed, or of the byte after the document.
    pub(super) end: usize,
    pub(super) is_torn: bool,
}

impl<'t> Tree<'t> {
    /// Creates an empty tree for documents of a text.
    pub(super) const fn of(text: &'t str) -> Self {
        Self { text, nodes: Vec::new(), end: 0, is_torn: false }
    }

    /// Parses the document that starts at byte `from`; replaces the previous document.
    pub(super) fn read(&mut self, from: usize) {
        self.nodes.clear();
        self.nodes.push(Node::Null);
        self.end = from;
        // Nodes store 32-bit positions, so a longer text is rejected.
        self.is_torn = u32::try_from(self.text.len()).is_err() || self.document().is_none();
    }

    /// Returns the whole document; null if it is truncated.
    pub(super) fn root(&self) -> Value<'_> {
        Value { tree: self, at: usize::from(!self.is_torn) }
    }

    /// Returns the outermost maps that are complete, each with its start position in bytes.
    pub(super) fn maps(&self) -> impl Iterator<Item = (usize, Value<'_>)> {
        let mut at = 1;
        std::iter::from_fn(move || {
            loop {
                let value = Value { tree: self, at };
                match *self.nodes.get(at)? {
                    Node::Map { from, next } if next != OPEN => {
                        at = next as usize;
                        return Some((from as usize, value));
                    }
                    _ => at += 1,
                }
            }
        })
    }

    fn push(&mut self, node: Node) -> Option<()> {
        // [`OPEN`] must not be a valid index.
        (self.nodes.len() < OPEN as usize - 1).then(|| self.nodes.push(node))
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.end).copied()
    }

    fn blank(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.end += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.blank();
        (self.byte()? == byte).then(|| self.end += 1)
    }

    /// Parses until the outermost list or map is closed; `None` if the text ends or becomes invalid before that.
    fn document(&mut self) -> Option<()> {
        let mut open: Vec<usize> = Vec::new();
        loop {
            if !self.scalar_or_opening(&mut open)? {
                // An empty map or list closes at once.
                let is_map = matches!(self.nodes[*open.last()?], Node::Map { .. });
                self.blank();
                if self.byte()? != if is_map { b'}' } else { b']' } {
                    if is_map {
                        self.key()?;
                    }
                    continue;
                }
            }
            self.closings(&mut open)?;
            if open.is_empty() {
                return Some(());
            }
        }
    }

    /// Parses a scalar, or the opening bracket of a list or map. Returns true for a scalar; `None` for JSON that is invalid, truncated, too
    /// large or nested too deeply.
    fn scalar_or_opening(&mut self, open: &mut Vec<usize>) -> Option<bool> {
        self.blank();
        let from = u32::try_from(self.end).ok()?;
        let node = match self.byte()? {
            b'{' => Node::Map { from, next: OPEN },
            b'[' => Node::List { next: OPEN },
            b'"' => self.quoted()?,
            _ => self.word()?,
        };
        if !matches!(node, Node::Map { .. } | Node::List { .. }) {
            self.push(node)?;
            return Some(true);
        }
        (open.len() < DEEPEST).then_some(())?;
        open.push(self.nodes.len());
        self.end += 1;
        self.push(node).map(|()| false)
    }

    /// Parses the text after a value: closing brackets, then the comma and key before the next value, if any. `None` for invalid or
    /// truncated JSON.
    fn closings(&mut self, open: &mut Vec<usize>) -> Option<()> {
        while let Some(last) = open.last().copied() {
            let nodes = u32::try_from(self.nodes.len()).ok()?;
            self.blank();
            match (self.byte()?, &mut self.nodes[last]) {
                (b'}', Node::Map { next, .. }) | (b']', Node::List { next }) => {
                    *next = nodes;
                    open.pop();
                    self.end += 1;
                }
                (b',', Node::List { .. }) => {
                    self.end += 1;
                    break;
                }
                (b',', _) => {
                    self.end += 1;
                    return self.key();
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn key(&mut self) -> Option<()> {
        self.blank();
        (self.byte()? == b'"').then_some(())?;
        let key = self.quoted()?;
        self.push(key)?;
        self.take(b':')
    }

    /// Parses a quoted string into a node without its quotes; `None` if it is not closed or contains a control character.
    fn quoted(&mut self) -> Option<Node> {
        self.end += 1;
        let from = u32::try_from(self.end).ok()?;
        loop {
            match self.byte()? {
                b'"' => break,
                b'\\' => self.end = (self.end + 2).min(self.text.len()),
                0..b' ' => return None,
                _ => self.end += 1,
            }
        }
        let to = u32::try_from(self.end).ok()?;
        self.end += 1;
        Some(Node::Text { from, to })
    }

    /// Parses a number or another unquoted word; `None` for other text.
    fn word(&mut self) -> Option<Node> {
        let rest = &self.text.as_bytes()[self.end..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let node = match &rest[..length] {
            b"true" => Node::Bool(true),
            b"false" => Node::Bool(false),
            b"null" | b"nan" | b"-nan" | b"NaN" | b"inf" | b"-inf" | b"Infinity" | b"-Infinity" => Node::Null,
            [b'0'..=b'9', ..] | [b'-', b'0'..=b'9', ..] => {
                let (from, to) = (self.end, self.end + length);
                self.text[from..to].parse::<f64>().ok()?;
                Node::Number { from: u32::try_from(from).ok()?, to: u32::try_from(to).ok()? }
            }
            // At the end of the text, the word may be truncated.
            _ => return None,
        };
        self.end += length;
        Some(node)
    }
}

/// A value of a document; null if the value is missing.
#[derive(Clone, Copy)]
pub(super) struct Value<'t> {
    tree: &'t Tree<'t>,
    at: usize,
}

impl<'t> Value<'t> {
    fn node(self) -> Node {
        self.tree.nodes[self.at]
    }

    /// Returns the index of the node after this value and everything in it.
    fn next(self) -> usize {
        match self.node() {
            Node::List { next } | Node::Map { next, .. } => next as usize,
            _ => self.at + 1,
        }
    }

    /// Returns the child nodes: values of a list, or alternating keys and values of a map.
    fn parts(self) -> impl Iterator<Item = Self> + Clone {
        let end = self.next();
        let mut at = self.at + 1;
        std::iter::from_fn(move || {
            let part = Self { at, ..self };
            (at < end).then(|| {
                at = part.next();
                part
            })
        })
    }

    /// Returns the values of a list; nothing for other values.
    pub(super) fn items(self) -> impl Iterator<Item = Self> + Clone {
        self.parts().filter(move |_| self.is_list())
    }

    /// Returns the keys and values of a map; nothing for other values.
    pub(super) fn entries(self) -> impl Iterator<Item = (Cow<'t, str>, Self)> {
        let mut parts = self.parts().filter(move |_| self.is_map());
        std::iter::from_fn(move || Some((parts.next()?.text()?, parts.next()?)))
    }

    /// Returns the value of a key; null if the key is missing or duplicate.
    pub(super) fn get(self, key: &str) -> Self {
        let null = Self { at: 0, ..self };
        let mut found = null;
        let mut parts = self.parts().filter(move |_| self.is_map());
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            if name.is(key) {
                if found.at != 0 {
                    return null;
                }
                found = value;
            }
        }
        found
    }

    /// Returns the value at a path of keys; null if a key is missing or duplicate.
    pub(super) fn at(self, path: &[&str]) -> Self {
        path.iter().fold(self, |value, key| value.get(key))
    }

    /// Returns whether the text contains the value, even as null.
    pub(super) fn is_there(self) -> bool {
        self.at != 0
    }

    /// Returns the byte position of the value's key, and key and value as written. Returns 0 and the value alone if the value has no key.
    pub(super) fn quoted(self) -> (usize, String) {
        let Some(Node::Text { from, .. }) = self.at.checked_sub(1).and_then(|key| self.tree.nodes.get(key))
        else {
            return (0, self.to_string());
        };
        let offset = *from as usize - 1;
        let quoted = self.tree.text[offset..].chars().take_while(|c| !matches!(c, ',' | '}' | '\n' | '\r'));
        (offset, quoted.take(LONGEST_QUOTE).collect())
    }

    pub(super) fn is_null(self) -> bool {
        self.node() == Node::Null
    }

    pub(super) fn is_list(self) -> bool {
        matches!(self.node(), Node::List { .. })
    }

    pub(super) fn is_map(self) -> bool {
        matches!(self.node(), Node::Map { .. })
    }

    fn raw(self) -> &'t str {
        match self.node() {
            Node::Text { from, to } | Node::Number { from, to } => {
                &self.tree.text[from as usize..to as usize]
            }
            _ => "",
        }
    }

    /// Returns whether the value is this string.
    pub(super) fn is(self, text: &str) -> bool {
        self.text().is_some_and(|own| own == text)
    }

    /// Returns the text of a string without its quotes; `None` for other values, and for invalid escapes.
    pub(super) fn text(self) -> Option<Cow<'t, str>> {
        let Node::Text { from, to } = self.node() else { return None };
        let raw = self.raw();
        if !raw.contains('\\') {
            return Some(Cow::Borrowed(raw));
        }
        serde_json::from_str(&self.tree.text[from as usize - 1..=to as usize]).ok().map(Cow::Owned)
    }

    /// Returns the same as [`Self::text`], as an owned string.
    pub(super) fn string(self) -> Option<String> {
        self.text().map(Cow::into_owned)
    }

    /// Returns the number; `None` for other values, and for numbers too large for `f64`.
    pub(super) fn f64(self) -> Option<f64> {
        matches!(self.node(), Node::Number { .. })
            .then(|| self.raw().parse().ok())?
            .filter(|value: &f64| value.is_finite())
    }

    /// Returns the number if it is whole and not negative; `None` for other values.
    pub(super) fn u64(self) -> Option<u64> {
        matches!(self.node(), Node::Number { .. }).then(|| self.raw().parse().ok())?
    }

    /// Returns the number if it is whole; `None` for other values.
    pub(super) fn i64(self) -> Option<i64> {
        matches!(self.node(), Node::Number { .. }).then(|| self.raw().parse().ok())?
    }
}

/// Formats strings and numbers as written, other scalars as JSON, lists and maps as `...`.
impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.node() {
            Node::Bool(value) => write!(f, "{value}"),
            Node::Null => f.write_str("null"),
            Node::List { .. } | Node::Map { .. } => f.write_str("..."),
            Node::Text { .. } | Node::Number { .. } => {
                f.write_str(&self.text().unwrap_or_else(|| self.raw().into()))
            }
        }
    }
}

/// A JSON object at the start of a line.
pub(super) enum Object<'t> {
    /// The document is complete, and is this value.
    Whole(Value<'t>),
    /// The document is truncated after this text.
    Torn(&'t str),
}

impl<'t> Object<'t> {
    /// Returns the object if it is complete, else `None`. If a truncated object contains all `marks` of a tool, reports it as not
    /// understood.
    pub(super) fn or_torn(self, line: usize, marks: &[&str], found: &mut Found) -> Option<Value<'t>> {
        match self {
            Self::Whole(value) => return Some(value),
            Self::Torn(text) if marks.iter().all(|mark| text.contains(mark)) => {
                let first = text.trim_start().lines().next().unwrap_or_default();
                let shown: String = first.chars().take(80).collect();
                found.miss(not_understood(line, &shown, "the JSON that begins here is torn"));
            }
            Self::Torn(_) => {}
        }
        None
    }
}

/// Calls `each` with every object that starts a line, and with its line number from 1. Nested objects are not passed separately.
pub(super) fn objects(text: &str, each: &mut dyn FnMut(usize, Object<'_>)) {
    let mut tree = Tree::of(text);
    let (mut at, mut line) = (0, 1);
    while at < text.len() {
        let rest = &text[at..];
        let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let mut used = end;
        if rest.trim_start_matches([' ', '\t']).starts_with('{') {
            tree.read(at);
            used = if tree.is_torn {
                let end_of_tree = text.floor_char_boundary(tree.end);
                each(line, Object::Torn(&text[at..end_of_tree]));
                // After a truncated object nothing is complete; after a broken one, parsing continues where it broke.
                if tree.end >= text.len() {
                    break;
                }
                text[at..end_of_tree].rfind('\n').map_or(end, |last| (last + 1).max(end))
            } else {
                each(line, Object::Whole(tree.root()));
                text[tree.end..].find('\n').map_or(rest.len(), |end| tree.end - at + end + 1)
            };
        }
        line += newlines(&rest[..used]);
        at += used;
    }
}

/// Counts the line ends in a text.
pub(super) fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        objects(text, &mut |line, object| {
            if let Object::Whole(value) = object {
                found.push((line, json(value).to_string()));
            }
        });
        found
    }

    /// Returns the value as serde_json parses it.
    fn json(value: Value<'_>) -> serde_json::Value {
        match value.node() {
            Node::Null => serde_json::Value::Null,
            Node::Bool(value) => value.into(),
            Node::Number { .. } => serde_json::from_str(value.raw()).expect("a number"),
            Node::Text { .. } => value.string().expect("a text").into(),
            Node::List { .. } => value.items().map(json).collect(),
            Node::Map { .. } => serde_json::Value::Object(
                value.entries().map(|(key, value)| (key.into_owned(), json(value))).collect(),
            ),
        }
    }

    #[test]
    fn objects_are_found_between_other_text_broken_ones_and_without_figures() {
        let text = "hello {\n{\"a\": 1}\nwords\n  {\"b\": nan,\n\"c\": -nan\n}\n{\"broken\": ]\n{\"d\": {\n\"e\": 2}} after\n{\"cut\": [";
        assert_eq!(
            found(text),
            [(2, "{\"a\":1}".into()), (4, "{\"b\":null,\"c\":null}".into()), (8, "{\"d\":{\"e\":2}}".into())]
        );
    }

    #[test]
    fn what_is_no_json_is_torn_where_it_is_none() {
        for (text, end) in [
            ("{", 1),
            ("{\"a\" 1}", 5),
            ("{\"a\": [1, 2}", 11),
            ("[1,]", 3),
            ("{\"a\": 1,}", 8),
            ("{1: 2}", 1),
            ("{\"a\": tru}", 6),
            ("{\"a\": 1e}", 6),
            ("{\"a\": \"\n\"}", 7),
            ("[\"\\", 3),
        ] {
            let mut tree = Tree::of(text);
            tree.read(0);
            assert_eq!((tree.is_torn, tree.end), (true, end), "{text}");
        }
        let deep = "[".repeat(1000);
        let mut tree = Tree::of(&deep);
        tree.read(0);
        assert_eq!((tree.is_torn, tree.end), (true, DEEPEST));
    }

    #[test]
    fn of_a_torn_document_the_complete_maps_are_left() {
        let mut tree = Tree::of(" {\"a\": {\"b\": {}}, \"c\": [{\"d\": 1}, {\"e\": [{\"f\": 2}");
        tree.read(0);
        let left: Vec<(usize, String)> = tree.maps().map(|(at, map)| (at, json(map).to_string())).collect();
        assert_eq!(left, [(7, "{\"b\":{}}".into()), (24, "{\"d\":1}".into()), (41, "{\"f\":2}".into())]);
    }

    #[test]
    fn what_is_there_twice_is_not_known_and_what_is_not_there_is_null() {
        let mut tree = Tree::of(
            "{\"a\": 1, \"b\": {\"c\": 3}, \"a\": 2, \"big\": 18446744073709551615, \"huge\": 1e999}",
        );
        tree.read(0);
        let root = tree.root();
        assert!(root.get("a").is_null() && root.get("x").get("y").is_null());
        assert_eq!((root.at(&["b", "c"]).u64(), root.get("big").u64()), (Some(3), Some(u64::MAX)));
        assert_eq!((root.get("huge").f64(), root.get("b").items().count()), (None, 0));
    }

    proptest! {
        #[test]
        fn json_is_read_as_others_read_it(
            numbers in prop::collection::vec(any::<f64>().prop_filter("JSON's", |value| value.is_finite()), 0..5),
            words in prop::collection::vec(".{0,6}", 0..5),
        ) {
            let words: serde_json::Map<_, _> =
                words.into_iter().map(|word| (word.clone(), serde_json::json!([word, null, true, {}]))).collect();
            let value = serde_json::json!({"n": numbers, "w": words, "e": []});
            for text in [value.to_string(), serde_json::to_string_pretty(&value).expect("written")] {
                let mut tree = Tree::of(&text);
                tree.read(0);
                prop_assert!(!tree.is_torn);
                prop_assert_eq!(json(tree.root()), value.clone());
            }
        }
    }
}
