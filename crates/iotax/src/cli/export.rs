//! `iotax export`: a run in another format.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_analysis::judge;
use iotax_interop::export::{FORMATS, Format};
use iotax_model::exit::Exit;

use super::output::{Output, load};
use super::{Failure, output_formats};

/// Flags of `iotax export`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Number of the run, as iotax list shows it
    run: i64,
    #[arg(long, value_name = "FORMAT", value_parser = output_formats::exported, help = formats())]
    format: &'static Format,
    /// File to write, or for csv the directory [default: stdout]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Store of runs [default: iotax/iotax.db in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
}

/// The formats and what each is, for the help.
fn formats() -> String {
    let each = FORMATS.iter().map(|format| format!("{} ({})", format.name, format.help));
    format!("How: {}", each.collect::<Vec<_>>().join(", "))
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = Output { db: args.db.clone(), ..Output::default() }.existing_store()?;
    let run = load(&store, args.run)?;
    let judgement = judge(&run);
    output_formats::export(args.format, &(run, judgement), args.output.as_deref())?;
    Ok(Exit::Fine)
}
