//! A value together with the file or command that it was read from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value and the file or command that shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fact<T> {
    /// The value.
    pub value: T,
    /// The path of a file, or a command line.
    pub source: String,
}

/// A fact with its source; `None` if it could not be read.
pub type Known<T> = Option<Fact<T>>;

impl<T> Fact<T> {
    /// Creates a fact from a value and its source: the path of a file, or a command line.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self { value, source: source.into() }
    }

    /// Applies `reading` to the value and keeps the source; `None` if `reading` returns `None`.
    pub fn read<U>(&self, reading: impl FnOnce(&T) -> Option<U>) -> Known<U> {
        Some(Fact { value: reading(&self.value)?, source: self.source.clone() })
    }
}
