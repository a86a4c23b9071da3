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

/// A fact that may be unknown.
pub type Known<T> = Option<Fact<T>>;

impl<T> Fact<T> {
    /// A fact: a value and its source.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self { value, source: source.into() }
    }

    /// A fact derived from this one, with the same source; `None` if `reading` yields none.
    pub fn read<U>(&self, reading: impl FnOnce(&T) -> Option<U>) -> Known<U> {
        Some(Fact { value: reading(&self.value)?, source: self.source.clone() })
    }
}
