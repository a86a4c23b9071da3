//! Injects faults at a given line of the undo log, for tests; see [`VARIABLE`].

use std::io;

use rustix::process::{Signal, getpid, kill_process};

/// Environment variable with the fault. `kill@N` sends SIGKILL to this process right before line N of the undo log is written,
/// `kill-after@N` right after that line is synced. `error@N` fails halfway through writing the line, as on a full disk. Lines count from 1.
pub(super) const VARIABLE: &str = "IOTAX_FAULT";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Kill,
    KillAfter,
    Error,
}

/// The fault to inject, and the number of log lines until then; no fault by default.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InjectedFault {
    kind: Option<Kind>,
    /// Number of lines to write until the fault.
    left: u64,
}

impl InjectedFault {
    /// Parses the fault in the environment variable; none if the variable is not set.
    pub(super) fn from_environment() -> io::Result<Self> {
        std::env::var(VARIABLE).map_or(Ok(Self::default()), |text| Self::parse(&text))
    }

    pub(super) fn parse(text: &str) -> io::Result<Self> {
        let bad = || {
            let accepted = "accepted: kill@N, kill-after@N or error@N, N from 1";
            io::Error::new(io::ErrorKind::InvalidInput, format!("{VARIABLE}={text:?}: {accepted}"))
        };
        let (kind, line) = text.split_once('@').ok_or_else(bad)?;
        let kind = match kind {
            "kill" => Kind::Kill,
            "kill-after" => Kind::KillAfter,
            "error" => Kind::Error,
            _ => return Err(bad()),
        };
        let left = line.parse().ok().filter(|line| *line > 0).ok_or_else(bad)?;
        Ok(Self { kind: Some(kind), left })
    }

    /// Counts a line that is about to be written. Kills this process if a `kill` fault is due. Returns true if an `error` fault is due, so
    /// that writing must fail.
    pub(super) fn before(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        match self.kind {
            Some(Kind::Kill) if self.left == 0 => die(),
            Some(Kind::Error) if self.left == 0 => {
                self.kind = None;
                true
            }
            _ => false,
        }
    }

    /// Kills this process right after a line was written, if a `kill-after` fault is due.
    pub(super) fn after(&self) {
        if self.left == 0 && self.kind == Some(Kind::KillAfter) {
            die();
        }
    }
}

fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    unreachable!("nobody outlives SIGKILL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_strikes_once_at_its_line() {
        let mut fault = InjectedFault::parse("error@3").expect("valid");
        assert_eq!([0; 5].map(|_| fault.before()), [false, false, true, false, false]);
        let mut none = InjectedFault::default();
        assert_eq!([0; 3].map(|_| none.before()), [false; 3]);
        none.after();
    }

    #[test]
    fn what_is_not_understood_is_quoted() {
        for bad in ["", "kill", "kill@", "kill@0", "kill@-1", "stop@3", "error@x"] {
            let error = InjectedFault::parse(bad).expect_err(bad).to_string();
            assert!(error.contains(&format!("{bad:?}")) && error.contains("kill-after@N"), "{error}");
        }
    }
}
