//! `iotax powercut`: measures the data that real storage loses when its power is cut.

mod check;
mod start;

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use iotax_model::exit::Exit;
use iotax_model::target::{Machine, Remote};
use iotax_testbed::remote::RemoteError;

use super::{Failure, OrExit, usage};
use crate::runner::powercut::JournalLocation;

/// Name of the file that is written if the target is a directory.
const NAME: &str = "iotax-powercut.dat";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Write until the power fails, with a journal of acknowledged writes where the power stays on
    Start(Box<start::Args>),
    /// Report the acknowledged writes that the target lost
    Check(check::Args),
}

pub(super) fn main(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Start(args) => start::main(args),
        Command::Check(args) => check::main(args),
    }
}

/// Returns the path to write; for a directory, `iotax-powercut.dat` in it.
fn target(path: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path).or_exit(Exit::Environment)?;
    Ok(if path.is_dir() { path.join(NAME) } else { path })
}

/// Parses `--journal`: a path on this machine, or `ssh://user@host:port/path` on another one.
fn journal(name: &Path) -> Result<JournalLocation, Failure> {
    let Some(url) = name.to_str().filter(|_| Remote::is_meant(name)) else {
        let path = std::path::absolute(name).or_exit(Exit::Environment)?;
        return Ok(if is_line(&path) { JournalLocation::Line(path) } else { JournalLocation::Here(path) });
    };
    match Remote::parse(url).map_err(usage)? {
        Remote { machine: machine @ Machine::Domain { .. }, .. } => Err(usage(format!(
            "{machine}: no path; accepted: a path on this machine, or ssh://[user@]host[:port]/path"
        ))),
        remote => Ok(JournalLocation::There(remote)),
    }
}

/// Returns true for a character device or pipe, such as a serial line.
fn is_line(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_char_device() || found.file_type().is_fifo())
}

/// Converts an error of a power-cut test. A journal that the other machine refuses is bad input; every other error gets the exit code `other`.
fn refused_there(error: anyhow::Error, other: Exit) -> Failure {
    match error.downcast_ref::<RemoteError>() {
        Some(RemoteError::Refused { .. }) => usage(format!("--journal: {error}")),
        _ => Failure { exit: other, error },
    }
}
