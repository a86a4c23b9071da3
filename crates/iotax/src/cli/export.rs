//! `iotax export`: writes a run in another format.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_analysis::judge;
use iotax_interop::export::{FORMATS, Format};
use iotax_model::exit::Exit;

use super::known_words::known_words;
use super::output::{StoreArgs, load};
use super::{Failure, output_formats};

/// Flags of `iotax export`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Run number from iotax list
    run: i64,
    #[arg(long, value_name = "FORMAT", value_parser = known_words(output_formats::exported, FORMATS.iter().map(|format| format.name)), help = formats())]
    format: &'static Format,
    /// File to write, or for csv the directory [default: stdout]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

/// The help text that lists the formats.
fn formats() -> String {
    let each = FORMATS.iter().map(|format| format!("{} ({})", format.name, format.help));
    format!("Format: {}", each.collect::<Vec<_>>().join(", "))
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let run = load(&args.store.open_existing()?, args.run)?;
    let judgement = judge(&run);
    output_formats::export(args.format, &(run, judgement), args.output.as_deref())?;
    Ok(Exit::Fine)
}
