//! Errors found before anything is touched.

use iotax_model::exit::Exit;

/// A rejected request. Nothing was touched.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// [`Exit::Usage`] for invalid input, [`Exit::Environment`] for limits of the machine.
    pub exit: Exit,
    message: String,
}

impl Refusal {
    /// An error in the input.
    pub fn input(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    /// A refusal because of the machine.
    pub fn environment(message: impl Into<String>) -> Self {
        Self { exit: Exit::Environment, message: message.into() }
    }
}
