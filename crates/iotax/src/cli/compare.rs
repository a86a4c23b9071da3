//! `iotax compare`: compares two runs, or two targets of a run.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_analysis::Metric;
use iotax_analysis::compare::{Account, Compared, Gate, GateResult, Question, Side, Which, compare};
use iotax_analysis::judge;
use iotax_model::exit::Exit;
use iotax_report::document;
use iotax_report::json::{comparison, read};

use super::args::MarginArgs;
use super::json_args::JsonArgs;
use super::known_words::known_words;
use super::output::{StoreArgs, load};
use super::say::say;
use super::terminal::PageArgs;
use super::{Failure, OrExit, input, usage};

/// Flags of `iotax compare`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A run's number, RUN:TARGET for one target of it, or a file that --json wrote, FILE or FILE:TARGET
    a: String,
    /// The other side, in the same form
    b: String,
    /// The side that the other is compared with: A or B
    #[arg(long, value_name = "A|B", default_value = "A", value_parser = which)]
    baseline: Which,
    /// Metrics to show: iops, bytes_per_s, latency_mean, latency_p50, latency_p90, latency_p99, latency_p99_9, cpu_per_io,
    /// cpu_per_gib [default: latency_mean, latency_p99, iops and cpu_per_io in tables, all in JSON]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = known_words(str::parse::<Metric>, Metric::compared().map(Metric::word)))]
    metric: Vec<Metric>,
    #[command(flatten)]
    margin: MarginArgs,
    /// Exit with code 1 if a cell exceeds the limit, by its whole interval, and with code 5 if no cell could be judged: slower, faster or
    /// different > N%, by latency_mean or by another metric as in latency_p99 slower > N%; separate several by commas
    #[arg(long, value_name = "GATE", value_delimiter = ',', value_parser = str::parse::<Gate>)]
    fail_if: Vec<Gate>,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    store: StoreArgs,
}

fn which(text: &str) -> Result<Which, String> {
    match text {
        "A" | "a" => Ok(Which::A),
        "B" | "b" => Ok(Which::B),
        _ => Err("accepted: A or B".into()),
    }
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let json = args.json.open(comparison::MARK)?;
    let (a, b) = (Named::read(&args.a)?, Named::read(&args.b)?);
    let (one, other) = (a.account(&args.store)?, b.account(&args.store)?);
    let (a, b) = (a.side(&one), b.side(&other));
    let all = if args.metric.is_empty() { Metric::compared().collect() } else { args.metric.clone() };
    let shown = if args.metric.is_empty() { document::SHOWN.to_vec() } else { args.metric.clone() };
    let question = Question {
        baseline: args.baseline,
        metrics: all,
        margin: args.margin.margin.unwrap_or_default().share(),
        gates: args.fail_if.clone(),
    };
    let compared = compare(&a, &b, &question).or_exit(Exit::Usage)?;
    args.page.show(&document::compared(&a, &b, &compared, &shown), json.is_on_stdout());
    json.write(|| comparison::document(&a, &b, &compared))?;
    Ok(judged(&compared))
}

/// Prints the outcome of each `--fail-if` condition and returns the exit code.
fn judged(compared: &Compared) -> Exit {
    for line in document::gates(compared) {
        say!("gate {line}");
    }
    if compared.tripped() {
        Exit::Gate
    } else if compared.gates.iter().any(GateResult::is_unjudged) {
        Exit::Unjudged
    } else {
        Exit::Fine
    }
}

/// Source of a compared run: its number in the store, or a file with its JSON.
enum Source {
    Run(i64),
    File(PathBuf),
}

/// One side of a comparison as named on the command line: a run or a file, and optionally one target in it.
struct Named {
    source: Source,
    target: Option<String>,
}

impl Named {
    fn read(text: &str) -> Result<Self, Failure> {
        let named = |source, target: Option<&str>| Ok(Self { source, target: target.map(str::to_owned) });
        let (head, target) = match text.rsplit_once(':') {
            Some((head, target)) if !target.is_empty() => (head, Some(target)),
            _ => (text, None),
        };
        if let Ok(run) = head.parse() {
            return named(Source::Run(run), target);
        }
        // A file name may contain a colon.
        if Path::new(text).is_file() {
            return named(Source::File(text.into()), None);
        }
        if target.is_some() && Path::new(head).is_file() {
            return named(Source::File(head.into()), target);
        }
        Err(usage(format!(
            "{text:?} is neither a run's number nor a file; accepted: RUN, RUN:TARGET, FILE or FILE:TARGET, such as 12, 12:vm-raw \
             or before.json"
        )))
    }

    fn account(&self, store: &StoreArgs) -> Result<Account, Failure> {
        match &self.source {
            Source::Run(run) => {
                let run = load(&store.open_existing()?, *run)?;
                Ok(Account::of(&run, &judge(&run)))
            }
            Source::File(path) => {
                let file_name = path.display();
                let text = input::text(path, input::REPORT)?;
                read::account(&text, &file_name.to_string())
                    .with_context(|| format!("{file_name}"))
                    .or_exit(Exit::Usage)
            }
        }
    }

    fn side<'a>(&'a self, account: &'a Account) -> Side<'a> {
        Side { account, target: self.target.as_deref() }
    }
}
