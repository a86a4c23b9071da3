//! The exit codes of the binary, all of them.

/// How the process ends. Scripts may rely on these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The work was done.
    Fine = 0,
    /// The work was done and a gate that the user asked for tripped, or blocks that were verified do not hold what was written.
    Gate = 1,
    /// The command line, a plan or another input was refused.
    Usage = 2,
    /// A measurement failed, or the journal that verifying rests on is damaged.
    Measurement = 3,
    /// The environment refused: permissions, space, a missing program.
    Environment = 4,
    /// Interrupted by the user; everything was undone first.
    Interrupted = 130,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
