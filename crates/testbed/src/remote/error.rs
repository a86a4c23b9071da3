//! Errors of remote agents, with remedies.

use std::time::Duration;

use super::{RemoteHost, reach};
use crate::program::ProgramError;

/// An error while starting or removing a remote agent.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The program that connects to the machine is not installed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The undo log could not be written, so nothing was done.
    #[error(transparent)]
    NotRecorded(Box<dyn std::error::Error + Send + Sync>),
    /// A local pipe or file failed.
    #[error("{host}: {source}")]
    Local {
        /// The machine.
        host: RemoteHost,
        /// The system's error.
        source: std::io::Error,
    },
    /// The program that connects to the machine exited before the remote script answered.
    #[error("{host}: {said}; {}", reach::remedy(&host.machine, said))]
    Unreachable {
        /// The machine.
        host: RemoteHost,
        /// The output of the program and of the login.
        said: String,
    },
    /// The machine cannot run an agent.
    #[error("{host}: {reason}")]
    Refused {
        /// The machine.
        host: RemoteHost,
        /// The reason and the remedy.
        reason: String,
    },
    /// Files or processes of iotax remain on the machine.
    #[error("{host}: {said}")]
    Left {
        /// The machine.
        host: RemoteHost,
        /// The remote script's message.
        said: String,
    },
    /// The machine did not answer in time.
    #[error("{host}: no answer within {} s; does {} lead to a shell there?", waited.as_secs(), reach::shown(&host.machine))]
    Deadline {
        /// The machine.
        host: RemoteHost,
        /// The time waited.
        waited: Duration,
    },
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Parses a rejection by the script: `refused KIND ...`.
pub(super) fn refused(host: &RemoteHost, line: &str) -> RemoteError {
    let mut words = line.splitn(3, ' ').skip(1);
    let (kind, said) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let reason = match kind {
        "machine" => format!("it is {said:?}, and this program runs on \"Linux x86_64\""),
        "sudo" => format!("{said}; let this user run sudo without a password there, or log in as root"),
        "place" => {
            let room = if host.machine.shares_kernel() {
                "create the container with a writable /tmp that is not mounted noexec, such as --tmpfs /tmp:exec or an emptyDir volume"
            } else {
                "make room in ~/.cache or /tmp, on a filesystem that is not mounted noexec, or set XDG_CACHE_HOME there"
            };
            format!("there is no place for the agent's program: {said} {room}")
        }
        "copy" => format!("the agent's program could not be copied: {said}"),
        "leave" => format!("{said}; without --leave-agent the program needs no place of its own in ~/.cache"),
        _ => format!("unexpected: {line}"),
    };
    RemoteError::Refused { host: host.clone(), reason }
}
