//! The agent: carries out a conductor's requests with the engine, over stdio or a guest's virtio-serial port.

use std::process::ExitCode;

/// Serves the conductor on stdin and stdout until it says goodbye or goes away.
pub(crate) fn main() -> ExitCode {
    ExitCode::FAILURE
}
