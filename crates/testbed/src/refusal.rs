//! Refusals, made before anything is touched.

use iotax_model::exit::Exit;

/// Something that cannot be done here, said before anything was touched.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// [`Exit::Usage`] for bad input, [`Exit::Environment`] for what the machine refuses.
    pub exit: Exit,
    message: String,
}

impl Refusal {
    /// The input is at fault.
    pub fn input(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    /// The machine is at fault.
    pub fn environment(message: impl Into<String>) -> Self {
        Self { exit: Exit::Environment, message: message.into() }
    }
}
