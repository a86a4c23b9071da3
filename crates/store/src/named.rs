//! The name of a store in commands that are suggested.

use iotax_model::run;

use crate::Store;

impl Store {
    /// The same store, whose runs know by what name the user gave it.
    #[must_use]
    pub fn named(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    /// A command about one of its runs that works when pasted.
    #[must_use]
    pub fn command(&self, word: &str, run: i64, options: &str) -> String {
        run::command(word, run, options, self.name.as_deref())
    }
}
