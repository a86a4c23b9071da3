//! The store's name in suggested commands.

use iotax_model::run;

use crate::{Store, StoreError};

impl Store {
    /// The same store, with the name that the user gave it.
    #[must_use]
    pub fn named(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    /// A command about one of its runs that works when pasted.
    #[must_use]
    pub fn command(&self, word: &str, run: i64, options: &str) -> String {
        run::command(word, &run.to_string(), options, self.name.as_deref())
    }

    /// The error for a missing run, which says which runs exist.
    #[must_use]
    pub fn unknown(&self, run: i64, last: i64) -> StoreError {
        let list = run::command("list", "", "", self.name.as_deref());
        StoreError::UnknownRun { run, last, list }
    }
}
