//! Errors of connections to agents.

use std::path::PathBuf;
use std::time::Duration;

use iotax_model::wire::{PROTOCOL, WireError};

use crate::interrupt::SILENCE;

/// An error of the connection to an agent, or reported by the agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A local agent could not be started.
    #[error("{}: the agent could not be started: {source}", exe.display())]
    Spawn {
        /// Path of the program that should run as the agent.
        exe: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The agent's process or its guest exited, or the connection was lost.
    #[error("{peer} exited during {request}{}", after_colon(detail))]
    Gone {
        /// Name of the agent for messages, such as `the local agent`.
        peer: String,
        /// Name of the request that was pending.
        request: &'static str,
        /// Exit status and last output of the agent's process, as far as known.
        detail: String,
    },
    /// The agent did not answer within the request's deadline.
    #[error("{peer} did not answer {request} within {} s{}", waited.as_secs_f32(), after_colon(detail))]
    Deadline {
        /// Name of the agent for messages, such as `the local agent`.
        peer: String,
        /// Name of the request that was pending.
        request: &'static str,
        /// The request's deadline, counted from its start.
        waited: Duration,
        /// Exit status and last output of the agent's process, as far as known.
        detail: String,
    },
    /// The agent showed no sign of life for 15 s while a request was pending.
    #[error("{peer} hangs: no sign of life for {} s during {request}{}", SILENCE.as_secs(), after_colon(detail))]
    Silent {
        /// Name of the agent for messages, such as `the local agent`.
        peer: String,
        /// Name of the request that was pending.
        request: &'static str,
        /// Exit status and last output of the agent's process, as far as known.
        detail: String,
    },
    /// The agent sent data that is not a valid message, or the request could not be encoded.
    #[error("{peer}: {source}")]
    Protocol {
        /// Name of the agent for messages, such as `the local agent`.
        peer: String,
        /// The error of encoding or decoding.
        source: WireError,
    },
    /// The agent answered with a message that does not fit the request.
    #[error("{peer} answered {request} with {answer}")]
    Unexpected {
        /// Name of the agent for messages, such as `the local agent`.
        peer: String,
        /// Name of the request that was pending.
        request: &'static str,
        /// The first 120 characters of the message.
        answer: String,
    },
    /// The agent speaks another protocol version.
    #[error(
        "{peer} is iotax {version} and has protocol {theirs}, this one has {PROTOCOL}; use the same version on both ends"
    )]
    Version {
        /// Name of the agent for messages, such as `the local agent`.
        peer: String,
        /// Version of iotax on the agent's machine.
        version: String,
        /// The agent's protocol version.
        theirs: u16,
    },
    /// The agent could not carry out the request. The connection remains usable.
    #[error("{peer}: {message}")]
    Failed {
        /// Name of the agent for messages, such as `the local agent`.
        peer: String,
        /// The reason, as reported by the agent.
        message: String,
    },
    /// The interrupt flag was set, for example by Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The request was not sent, because the connection is unusable after an earlier error or a shutdown.
    #[error("{peer} cannot take {request} after an earlier error; restart it")]
    Over {
        /// Name of the agent for messages, such as `the local agent`.
        peer: String,
        /// Name of the request that was not sent.
        request: &'static str,
    },
}

fn after_colon(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}
