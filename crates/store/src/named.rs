//! Names a store in suggested commands.

use iotax_model::run;

use crate::{Store, StoreError};

impl Store {
    /// Sets the name by which the user specified the store.
    #[must_use]
    pub fn named(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    /// A command for one of the store's runs, ready to paste.
    #[must_use]
    pub fn command(&self, word: &str, run: i64, options: &str) -> String {
        run::command(word, &run.to_string(), options, self.name.as_deref())
    }

    /// The error for a run that does not exist, with the newest run's number and the command that lists runs.
    #[must_use]
    pub fn unknown(&self, run: i64, last: i64) -> StoreError {
        let list = run::command("list", "", "", self.name.as_deref());
        StoreError::UnknownRun { run, last, list }
    }
}
