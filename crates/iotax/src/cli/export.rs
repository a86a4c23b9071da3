//! `iotax export`: writes a run in another tool's format, or several runs as a Parquet data set.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_analysis::judge;
use iotax_interop::export::{ExportFormat, FORMATS};
use iotax_interop::parquet::dataset::{self, table_names};
use iotax_model::RunState;
use iotax_model::exit::Exit;
use iotax_report::counted;
use iotax_store::{Filter, Store};

use super::destination::Destination;
use super::known_words::known_words;
use super::number;
use super::output::{StoreArgs, load};
use super::say::{note, say};
use super::{Failure, OrExit, links, output_formats, usage};
use crate::causes::with_causes;

/// Flags of `iotax export`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Run number from iotax list; several with --parquet [default with --parquet: all]
    #[arg(value_name = "RUN", value_parser = number::run)]
    runs: Vec<i64>,
    #[arg(long, value_name = "FORMAT", required_unless_present = "parquet", conflicts_with = "parquet", value_parser = known_words(output_formats::exported, FORMATS.iter().map(|format| format.name)), help = formats())]
    format: Option<&'static ExportFormat>,
    /// File to write, or for csv the directory [default: stdout]
    #[arg(long, value_name = "FILE", conflicts_with = "parquet")]
    output: Option<PathBuf>,
    /// Write runs as Parquet files into this directory, in tables that DuckDB and pandas read together: runs, environment, targets,
    /// measurements, samples and histograms, each by year and month; what an earlier export wrote of these runs is replaced
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

/// Returns the help text that lists the formats.
fn formats() -> String {
    let each = FORMATS.iter().map(|format| format!("{} ({})", format.name, format.help));
    format!("Format: {}", each.collect::<Vec<_>>().join(", "))
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = args.store.open_existing()?;
    let (Some(format), [run]) = (args.format, args.runs.as_slice()) else {
        let Some(dir) = &args.parquet else {
            return Err(usage(format!(
                "{} runs: --format takes one run; --parquet DIR takes several",
                args.runs.len()
            )));
        };
        return write_dataset(dir, &store, &args.runs);
    };
    let run = load(&store, *run)?;
    let judgement = judge(&run);
    output_formats::export(format, &(run, judgement), args.output.as_deref())?;
    Ok(Exit::Fine)
}

/// Writes the given runs as a Parquet data set; if `runs` is empty, all runs that can be read and are not in progress. Writes a run's files
/// only if none would replace a file that iotax did not write.
fn write_dataset(dir: &Path, store: &Store, runs: &[i64]) -> Result<Exit, Failure> {
    let listed = store.list(&Filter::default()).or_exit(Exit::Environment)?;
    let all = listed.iter().rev().filter(|run| run.state != RunState::Running).map(|run| run.id);
    let mut ids: Vec<i64> = if runs.is_empty() { all.collect() } else { runs.to_vec() };
    ids.sort_unstable();
    ids.dedup();
    let tags: HashMap<i64, &[String]> = listed.iter().map(|run| (run.id, run.tags.as_slice())).collect();
    let mut left_out = 0;
    for id in &ids {
        let run = match load(store, *id) {
            Ok(run) => run,
            // An export of all runs skips damaged ones.
            Err(failure) if runs.is_empty() => {
                say!("run {id} is left out: {}", with_causes(&failure.error));
                left_out += 1;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let judgement = judge(&run);
        let files = dataset::files(&(run, judgement), tags.get(id).copied().unwrap_or_default());
        let open = |file: &dataset::DatasetFile| {
            let path = dir.join(&file.path);
            let parent = path.parent().unwrap_or(dir);
            links::check(parent)
                .and_then(|()| fs::create_dir_all(parent))
                .with_context(|| format!("cannot make {}", parent.display()))
                .or_exit(if parent.exists() { Exit::Usage } else { Exit::Environment })?;
            Destination::open(&path, file.mark.clone())
        };
        let destinations = files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        for (destination, file) in destinations.iter().zip(&files) {
            destination.write(&file.bytes)?;
        }
    }
    note!(
        "Parquet: {} in {}: {}",
        counted((ids.len() - left_out) as u64, "run"),
        dir.display(),
        table_names().collect::<Vec<_>>().join(", ")
    );
    Ok(if left_out == 0 { Exit::Fine } else { Exit::Environment })
}
