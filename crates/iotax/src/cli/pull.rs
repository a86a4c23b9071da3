//! `iotax pull`: copies runs from another store.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_store::{Location, Store};

use super::output::StoreArgs;
use super::push::{Which, copy, refuse_itself, wanted};
use super::{Failure, OrExit, usage};

/// Flags of `iotax pull`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// The store to copy from: a file, or postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "STORE")]
    from: String,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    if let Location::File(path) = Location::from(args.from.as_str())
        && !path.exists()
    {
        return Err(usage(format!("--from {}: it is not there; accepted: a store of iotax's", args.from)));
    }
    let from = Store::open_to_read(args.from.as_str()).or_exit(Exit::Environment)?;
    let runs = wanted(&args.which, &from)?;
    let mut to = args.store.open()?;
    refuse_itself(&to, &args.from)?;
    copy(runs, &from, &mut to)
}
