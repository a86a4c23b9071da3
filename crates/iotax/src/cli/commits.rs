//! `iotax commits`: the client of a database, which `iotax crash` starts.

use std::fs::File;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::crash::{JournalMode, SqliteMode, Synchronous};
use iotax_model::exit::Exit;

use super::{Failure, OrExit};
use crate::database;

/// Flags of `iotax commits`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The database, a new file
    path: PathBuf,
    /// Its journal mode
    #[arg(long)]
    journal_mode: JournalMode,
    /// When it flushes
    #[arg(long)]
    synchronous: Synchronous,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let mode = SqliteMode { journal_mode: args.journal_mode, synchronous: args.synchronous };
    // A line is acknowledged once the pipe has it: nothing may hold it back.
    let stdout = rustix::stdio::stdout().try_clone_to_owned().or_exit(Exit::Environment)?;
    database::commit_rows(&args.path, mode, &mut File::from(stdout)).or_exit(Exit::Measurement)?;
    Ok(Exit::Fine)
}
