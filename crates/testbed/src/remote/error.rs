//! Errors of starting and removing agents on other machines, with remedies.

use std::time::Duration;

use super::{RemoteHost, reach};
use crate::program::ProgramError;

/// An error while starting or removing an agent on another machine or in a container.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The local program that connects to the machine, such as ssh, is not installed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The undo log could not be written, so the script was not told to continue.
    #[error(transparent)]
    NotRecorded(Box<dyn std::error::Error + Send + Sync>),
    /// A local pipe or file could not be read or written.
    #[error("{host}: {source}")]
    Local {
        /// The machine or container of the agent.
        host: RemoteHost,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The connecting program exited before the agent was started or removed.
    #[error("{host}: {said}; {}", reach::remedy(&host.machine, said))]
    Unreachable {
        /// The machine or container of the agent.
        host: RemoteHost,
        /// Output of the connecting program and of the login shell.
        said: String,
    },
    /// The script found that the machine cannot run an agent.
    #[error("{host}: {reason}")]
    Refused {
        /// The machine or container of the agent.
        host: RemoteHost,
        /// The reason and the remedy, in words.
        reason: String,
    },
    /// Some files or processes of iotax remain on the machine, or may remain on it.
    #[error("{host}: {said}")]
    Left {
        /// The machine or container of the agent.
        host: RemoteHost,
        /// The script's message, which names the files and processes that remain, or the reason why a guest cannot be cleaned.
        said: String,
    },
    /// The machine did not answer within the time limit of the step.
    #[error("{host}: no answer within {} s; does {} lead to a shell there?", waited.as_secs(), reach::shown(&host.machine))]
    Deadline {
        /// The machine or container of the agent.
        host: RemoteHost,
        /// The time limit of the step that was exceeded.
        waited: Duration,
    },
    /// The interrupt flag was set, for example by Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// Parses the script's line `refused KIND ...` into an error.
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
        "leave" => format!("{said}; without --leave-agent the program needs no directory in ~/.cache"),
        _ => format!("unexpected: {line}"),
    };
    RemoteError::Refused { host: host.clone(), reason }
}
