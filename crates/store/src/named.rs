//! The name by which suggested commands refer to a store.

use iotax_model::run;

use crate::{Store, StoreError};

impl Store {
    /// Sets the name that suggested commands pass with `--db`; `None` to leave the option out.
    #[must_use]
    pub fn named(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    /// Returns an iotax command line, ready to paste: subcommand `word`, the run's number, `options`, and `--db` if the store has a name.
    #[must_use]
    pub fn command(&self, word: &str, run: i64, options: &str) -> String {
        run::command(word, &run.to_string(), options, self.name.as_deref())
    }

    /// Returns the error for a run that does not exist. It names the newest run and the command that lists runs.
    #[must_use]
    pub fn unknown(&self, run: i64, last: i64) -> StoreError {
        let list = run::command("list", "", "", self.name.as_deref());
        StoreError::UnknownRun { run, last, list }
    }
}
