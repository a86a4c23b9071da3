//! Values offered by shell completion.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};

/// A parser that offers known values for shell completion and passes all text to an inner parser.
#[derive(Clone)]
pub(super) struct KnownWords<P> {
    parser: P,
    words: Vec<String>,
}

/// Adds words for shell completion to a parser.
pub(super) fn known_words<P: TypedValueParser>(
    parser: P,
    words: impl IntoIterator<Item: Into<String>>,
) -> KnownWords<P> {
    KnownWords { parser, words: words.into_iter().map(Into::into).collect() }
}

/// Returns a parser that accepts any text and offers `words` for completion; the command itself checks the text.
pub(super) fn text_of(words: impl IntoIterator<Item: Into<String>>) -> KnownWords<StringValueParser> {
    known_words(StringValueParser::new(), words)
}

impl<P: TypedValueParser> TypedValueParser for KnownWords<P> {
    type Value = P::Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<P::Value, Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = self.words.iter().map(PossibleValue::new);
        (!self.words.is_empty()).then(|| Box::new(words) as Box<_>)
    }
}
