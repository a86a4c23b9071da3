//! `iotax report`: shows the results of runs again.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_analysis::compare::{Account, history};
use iotax_analysis::judge;
use iotax_model::exit::Exit;
use iotax_report::document;
use iotax_report::{csv, json};
use iotax_store::Store;

use super::number;
use super::output::{OutputArgs, load};
use super::terminal::PageArgs;
use super::{Failure, OrExit, csv_dir, usage};

/// Flags of `iotax report`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Run numbers from iotax list; several are shown side by side [default: the newest]
    #[arg(value_name = "RUN", value_parser = number::run)]
    runs: Vec<i64>,
    /// Also show the run's wall time by phase
    #[arg(long)]
    timing: bool,
    /// Show the tables of each workload, latency breakdowns, all remarks and every figure
    #[arg(long)]
    detail: bool,
    /// Write CSV files into this directory: measurements, comparisons, cells, samples and disks, with several runs also their
    /// history
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Print a block to paste into a ticket or a mail: the machine, the stacks and the answer in 80 columns
    #[arg(long, conflicts_with_all = ["detail", "timing", "markdown"])]
    paste: bool,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = args.output.store.open_existing()?;
    match args.runs.as_slice() {
        [] => {
            let newest = store.latest().or_exit(Exit::Environment)?;
            one(args, &store, newest.context("the store has no run yet").or_exit(Exit::Usage)?)
        }
        [run] => one(args, &store, *run),
        runs => several(args, &store, runs),
    }
}

fn one(args: &Args, store: &Store, run: i64) -> Result<Exit, Failure> {
    let outputs = args.output.open(json::MARK)?;
    args.csv.as_deref().map_or(Ok(()), |dir| outputs.refuse_among_csv(dir))?;
    let page = match (args.paste, args.detail) {
        (true, _) => document::paste,
        (_, true) => document::run,
        _ => document::answer,
    };
    let layout = if args.paste { PageArgs::to_paste() } else { args.page };
    let (run, judgement) = outputs.report(store, run, layout, page)?;
    if args.detail {
        args.page.show(&document::figures(&run, &judgement), outputs.stdout_is_taken());
    }
    if args.timing {
        args.page.show(&document::timing(judgement.timing.as_ref()), outputs.stdout_is_taken());
    }
    if let Some(dir) = &args.csv {
        csv_dir::write(dir, &csv::tables(&[(run, judgement)]))?;
    }
    Ok(Exit::Fine)
}

fn several(args: &Args, store: &Store, runs: &[i64]) -> Result<Exit, Failure> {
    if let Some(twice) = runs.iter().enumerate().find_map(|(i, run)| runs[..i].contains(run).then_some(run)) {
        return Err(usage(format!("run {twice} is named twice; a history has each run once")));
    }
    if args.output.html.is_some() {
        return Err(usage(
            "--html takes one run; of several, --json and --csv have everything that the tables have",
        ));
    }
    if args.timing {
        return Err(usage("--timing takes one run"));
    }
    if args.detail {
        return Err(usage("--detail takes one run"));
    }
    if args.paste {
        return Err(usage("--paste takes one run"));
    }
    let outputs = args.output.open(json::history::MARK)?;
    args.csv.as_deref().map_or(Ok(()), |dir| outputs.refuse_among_csv(dir))?;
    let runs = runs
        .iter()
        .map(|run| {
            let run = load(store, *run)?;
            let judgement = judge(&run);
            Ok((run, judgement))
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let accounts: Vec<Account> = runs.iter().map(|(run, judgement)| Account::of(run, judgement)).collect();
    // Plans may have different margins; the widest one is the most cautious.
    let margin = runs.iter().map(|(run, _)| run.plan.margin.share()).fold(0.0, f64::max);
    let history = history(&accounts, margin);
    args.page.show(&document::history(&accounts, &history), outputs.stdout_is_taken());
    outputs.write_json(&json::history::document(&accounts, &history))?;
    if let Some(dir) = &args.csv {
        let mut all = csv::tables(&runs);
        all.push(csv::history(&accounts, &history));
        csv_dir::write(dir, &all)?;
    }
    Ok(Exit::Fine)
}
