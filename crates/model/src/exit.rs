//! Exit codes of the `iotax` binary.

/// Exit codes of the `iotax` binary. Scripts may rely on these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command succeeded, and no gate (a condition such as `--fail-if` or `--require`) failed.
    Fine = 0,
    /// The command itself succeeded, but a gate failed, a required limit is not met, or verification found bad blocks.
    Gate = 1,
    /// The command line, a plan or another input is not valid.
    Usage = 2,
    /// A measurement failed, a target was lost, or the journal that verification needs is damaged.
    Measurement = 3,
    /// The environment lacks something that the command needs, such as permissions, space or a program; a file cannot be read or written;
    /// or a stored run is damaged.
    Environment = 4,
    /// A gate could not be evaluated for lack of a result, or an answer is undecided; no gate failed.
    Unjudged = 5,
    /// The user interrupted the command, which cleaned up before it exited.
    Interrupted = 130,
}

impl Exit {
    /// All exit codes with a one-line meaning, as printed in the help and the man page.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Fine, "fine"),
        (Self::Gate, "a gate tripped, a limit is missed, or verified data are not what was written"),
        (Self::Usage, "bad input"),
        (Self::Measurement, "a measurement failed, a target was lost or a journal is damaged"),
        (Self::Environment, "the environment refused"),
        (Self::Unjudged, "a gate could judge nothing and none tripped, or an answer is undecided"),
        (Self::Interrupted, "interrupted"),
    ];
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
