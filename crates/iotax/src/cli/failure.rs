//! Errors of commands, each with its exit code.

use iotax_model::exit::Exit;

/// An error and the exit code that goes with it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
}

/// Extension of `Result` that attaches an exit code to the error.
pub(super) trait OrExit<T> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|error| Failure { exit, error: error.into() })
    }
}

/// Returns a failure with the exit code for invalid input.
pub(super) fn usage(text: impl std::fmt::Display) -> Failure {
    Failure { exit: Exit::Usage, error: anyhow::anyhow!("{text}") }
}
