//! `iotax volatile`: serves a volatile directory, which loses unflushed writes when its power is cut. A run starts this process.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_testbed::volatile::{self, Faults, Places};

use super::{Failure, OrExit};

/// Flags of `iotax volatile`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The directory that keeps what was flushed
    below: PathBuf,
    /// The directory to mount it on
    point: PathBuf,
    /// Has the process found when it must be killed
    #[arg(long)]
    marker: String,
    /// Seed of what a cut keeps
    #[arg(long)]
    seed: u64,
    /// Keep the oldest writes
    #[arg(long)]
    in_order: bool,
    /// Tear no write
    #[arg(long)]
    whole: bool,
    /// Acknowledge every Nth flush without doing it
    #[arg(long, value_name = "N")]
    drop_flush: Option<u32>,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let Args { below, point, marker: _, seed, in_order, whole, drop_flush } = args;
    let places = Places { below: below.clone(), point: point.clone() };
    let faults = Faults { seed: *seed, reorder: !in_order, tear: !whole, drop_flush: *drop_flush };
    volatile::serve(&places, faults).or_exit(Exit::Environment)?;
    Ok(Exit::Fine)
}
