//! Rejections of requests, most of them before anything is changed.

use iotax_model::exit::Exit;

/// The reason why a request is rejected, with its remedy. Most rejections are found before anything is changed, others while a target is
/// built.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Exit code: [`Exit::Usage`] for invalid input, [`Exit::Environment`] if the machine cannot fulfil the request.
    pub exit: Exit,
    message: String,
}

impl Refusal {
    /// Rejects a request because of the user's input.
    pub fn input(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    /// Rejects a request because of the machine.
    pub fn environment(message: impl Into<String>) -> Self {
        Self { exit: Exit::Environment, message: message.into() }
    }
}
