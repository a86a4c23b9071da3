//! Errors of remote agents, with remedies.

use std::time::Duration;

use super::SshHost;
use crate::program::ProgramError;

/// An error while starting or removing a remote agent.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// ssh is not installed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The undo log could not be written, so nothing was done.
    #[error(transparent)]
    NotRecorded(Box<dyn std::error::Error + Send + Sync>),
    /// A local pipe or file failed.
    #[error("ssh {host}: {source}")]
    Local {
        /// The machine.
        host: SshHost,
        /// The system's error.
        source: std::io::Error,
    },
    /// ssh exited before the remote script answered.
    #[error("ssh {host}: {said}; {}", remedy(said))]
    Ssh {
        /// The machine.
        host: SshHost,
        /// The output of ssh and of the login.
        said: String,
    },
    /// The machine cannot run an agent.
    #[error("{host}: {reason}")]
    Refused {
        /// The machine.
        host: SshHost,
        /// The reason and the remedy.
        reason: String,
    },
    /// Something remains on the machine.
    #[error("{host}: {said}")]
    Left {
        /// The machine.
        host: SshHost,
        /// The remote script's message.
        said: String,
    },
    /// No answer in time.
    #[error("ssh {host}: no answer within {} s; does ssh {host} lead to a shell there?", waited.as_secs())]
    Deadline {
        /// The machine.
        host: SshHost,
        /// The time waited.
        waited: Duration,
    },
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Messages of ssh, and their remedies.
const REMEDIES: [(&str, &str); 7] = [
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its key is not the one that is known: find out why before you accept it",
    ),
    ("Host key verification failed", "connect to it once with ssh to see and accept its key"),
    (
        "Permission denied",
        "give ssh a key that is accepted there, or run this on a terminal without --yes, where ssh can ask",
    ),
    ("Could not resolve", "check the name, or describe the host in ~/.ssh/config"),
    ("Connection refused", "does sshd run there, on this port? Accepted: ssh://[user@]host[:port]/path"),
    ("timed out", "is the machine up, and is there a way to it?"),
    ("not available", "the account there needs a POSIX shell"),
];

fn remedy(said: &str) -> &'static str {
    let known = REMEDIES.iter().find(|(words, _)| said.contains(words));
    known.map_or("the account there needs a POSIX shell that ssh HOST sh can start", |(_, remedy)| remedy)
}

/// Parses a rejection by the script: `refused KIND ...`.
pub(super) fn refused(host: &SshHost, line: &str) -> RemoteError {
    let mut words = line.splitn(3, ' ').skip(1);
    let (kind, said) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let reason = match kind {
        "machine" => format!("it is {said:?}, and this program runs on \"Linux x86_64\""),
        "sudo" => format!("{said}; let this user run sudo without a password there, or log in as root"),
        "place" => format!(
            "there is no place for the agent's program: {said} make room in ~/.cache or /tmp, on a filesystem that is not \
             mounted noexec, or set XDG_CACHE_HOME there"
        ),
        "copy" => format!("the agent's program could not be copied: {said}"),
        "leave" => format!("{said}; without --leave-agent the program needs no place of its own in ~/.cache"),
        _ => format!("unexpected: {line}"),
    };
    RemoteError::Refused { host: host.clone(), reason }
}
