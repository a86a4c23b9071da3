//! `iotax fleet resume`.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;

use super::super::Failure;

/// Flags of `iotax fleet resume`.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    /// The fleet's id, as iotax fleet run shows it
    fleet: String,
}

pub(super) fn main(_args: &Args) -> Result<Exit, Failure> {
    Ok(Exit::Fine)
}
