//! `iotax commits`: the database client that commits rows until it is killed; `iotax crash` starts it.

use std::fs::File;
use std::path::PathBuf;

use iotax_model::crash::{JournalMode, SqliteMode, Synchronous};
use iotax_model::exit::Exit;

use super::{Failure, OrExit};
use crate::database::{postgresql, sqlite};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Commit to a SQLite database
    Sqlite {
        /// Path of the database, a new file
        path: PathBuf,
        /// Journal mode of the database
        #[arg(long)]
        journal_mode: JournalMode,
        /// Setting `synchronous` of the database, which decides when it flushes
        #[arg(long)]
        synchronous: Synchronous,
    },
    /// Commit to a PostgreSQL cluster
    Postgresql {
        /// Directory of the server's socket
        sockets: PathBuf,
    },
}

pub(super) fn main(command: &Command) -> Result<Exit, Failure> {
    // A row counts as acknowledged once its line is in the pipe, so stdout must not be buffered.
    let stdout = rustix::stdio::stdout().try_clone_to_owned().or_exit(Exit::Environment)?;
    let mut said = File::from(stdout);
    match command {
        Command::Sqlite { path, journal_mode, synchronous } => {
            let mode = SqliteMode { journal_mode: *journal_mode, synchronous: *synchronous };
            sqlite::commit_rows(path, mode, &mut said)
        }
        Command::Postgresql { sockets } => postgresql::commit_rows(sockets, &mut said),
    }
    .or_exit(Exit::Measurement)?;
    Ok(Exit::Fine)
}
