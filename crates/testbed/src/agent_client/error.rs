//! Errors of the protocol and of agents.

use std::path::PathBuf;
use std::time::Duration;

use iotax_model::wire::{PROTOCOL, WireError};

use crate::interrupt::SILENCE;

/// An error of the protocol or the agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A local agent could not be started.
    #[error("{}: the agent could not be started: {source}", exe.display())]
    Spawn {
        /// The program that was started.
        exe: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The agent or its guest exited.
    #[error("{peer} exited during {request}{}", after_colon(detail))]
    Gone {
        /// The agent's name.
        peer: String,
        /// The pending request.
        request: &'static str,
        /// Exit status and last output, as far as known.
        detail: String,
    },
    /// The agent did not answer in time.
    #[error("{peer} did not answer {request} within {} s{}", waited.as_secs_f32(), after_colon(detail))]
    Deadline {
        /// The agent's name.
        peer: String,
        /// The pending request.
        request: &'static str,
        /// The time waited.
        waited: Duration,
        /// Exit status and last output, as far as known.
        detail: String,
    },
    /// The agent shows no sign of life.
    #[error("{peer} hangs: no sign of life for {} s during {request}{}", SILENCE.as_secs(), after_colon(detail))]
    Silent {
        /// The agent's name.
        peer: String,
        /// The pending request.
        request: &'static str,
        /// Exit status and last output, as far as known.
        detail: String,
    },
    /// The peer sent data that is not a valid message.
    #[error("{peer}: {source}")]
    Protocol {
        /// The agent's name.
        peer: String,
        /// The protocol error.
        source: WireError,
    },
    /// The agent answered with a message that does not fit the request.
    #[error("{peer} answered {request} with {answer}")]
    Unexpected {
        /// The agent's name.
        peer: String,
        /// The pending request.
        request: &'static str,
        /// The beginning of the message.
        answer: String,
    },
    /// The agent speaks another protocol version.
    #[error(
        "{peer} is iotax {version} and has protocol {theirs}, this one has {PROTOCOL}; use the same version on both ends"
    )]
    Version {
        /// The agent's name.
        peer: String,
        /// The agent's version of iotax.
        version: String,
        /// The agent's protocol version.
        theirs: u16,
    },
    /// The request failed; the connection remains usable.
    #[error("{peer}: {message}")]
    Failed {
        /// The agent's name.
        peer: String,
        /// The agent's message.
        message: String,
    },
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
    /// An earlier error made the connection unusable.
    #[error("{peer} cannot take {request} after an earlier error; restart it")]
    Over {
        /// The agent's name.
        peer: String,
        /// The request that was not sent.
        request: &'static str,
    },
}

fn after_colon(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}
