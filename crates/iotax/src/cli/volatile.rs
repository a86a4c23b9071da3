//! `iotax volatile`: serves a volatile directory, which loses unflushed writes when its power is cut. A run starts this process.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_testbed::volatile::{self, Faults, VolatilePaths};

use super::{Failure, OrExit};

/// Flags of `iotax volatile`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Directory that holds the flushed data
    below: PathBuf,
    /// Directory to mount the volatile directory on
    point: PathBuf,
    /// Mark this process, so that it can be found and killed
    #[arg(long)]
    marker: String,
    /// Seed of the choice of unflushed writes that survive a cut
    #[arg(long)]
    seed: u64,
    /// Let only the oldest unflushed writes survive a cut
    #[arg(long)]
    in_order: bool,
    /// Keep or lose each write as a whole; a power cut leaves no torn write
    #[arg(long)]
    whole: bool,
    /// Acknowledge every Nth flush without performing it
    #[arg(long, value_name = "N")]
    drop_flush: Option<u32>,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let Args { below, point, marker: _, seed, in_order, whole, drop_flush } = args;
    let paths = VolatilePaths { below: below.clone(), point: point.clone() };
    let faults = Faults { seed: *seed, reorder: !in_order, tear: !whole, drop_flush: *drop_flush };
    volatile::serve(&paths, faults).or_exit(Exit::Environment)?;
    Ok(Exit::Fine)
}
