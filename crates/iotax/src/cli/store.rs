//! `iotax store`: creates and updates stores that a team shares.

use clap::Subcommand;
use iotax_model::exit::Exit;
use iotax_store::{Location, init};

use super::say::print_line;
use super::{Failure, OrExit};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a store or upgrade an older one, and grant PostgreSQL roles access to it
    Init {
        /// The store: a file, or postgres://USER@HOST/DATABASE; the database must exist
        #[arg(value_name = "STORE")]
        location: String,
        /// A role that may read runs; it must exist
        #[arg(long, value_name = "ROLE")]
        reader: Vec<String>,
        /// A role that may also store runs; it must exist
        #[arg(long, value_name = "ROLE")]
        writer: Vec<String>,
    },
}

pub(super) fn main(command: &Command) -> Result<Exit, Failure> {
    let Command::Init { location, reader, writer } = command;
    let location = Location::from(location.as_str());
    init(&location, reader, writer).or_exit(Exit::Environment)?;
    print_line!("{location} is ready; use it: --db {location}");
    Ok(Exit::Fine)
}
