//! `iotax list`: lists the runs in the store.

use clap::Args as ClapArgs;
use iotax_analysis::time::utc;
use iotax_model::RunState;
use iotax_model::exit::Exit;
use iotax_model::{visible, wrap};
use iotax_store::{Filter, Listed, RunSummary, Store, StoreError};
use serde_json::json;

use super::json_args::JsonArgs;
use super::number;
use super::output::StoreArgs;
use super::say::{self, note, print_line, say};
use super::{Failure, OrExit};

/// Flags of `iotax list`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Only runs that have all these words: in their name, targets, workloads, machine, fleet, member, tags or note
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// Only runs with this tag; repeat to require several tags
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only runs of this machine, by its host name
    #[arg(long, value_name = "HOST")]
    machine: Option<String>,
    /// List at most this many runs, the newest [default: 100 on a terminal without --json]
    #[arg(long, value_name = "N", value_parser = number::positive::<u32>)]
    limit: Option<u32>,
    /// Check all measurements against their checksums
    #[arg(long, conflicts_with_all = ["words", "tags", "machine", "limit"])]
    check: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    json: JsonArgs,
}

/// State shown for a run that cannot be read, or only in part.
const DAMAGED: &str = "damaged";

/// Default number of runs shown on a terminal, and number of newest runs whose figures are shown.
const SHOWN: u32 = 100;

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let json = args.json.open_without_mark("a list of runs")?;
    let store = args.store.open_existing()?;
    let runs = if args.check { store.runs().or_exit(Exit::Environment)? } else { listed(args, &store)? };
    // Reading the figures of all runs would take as long as a trend over them.
    let omitted = runs.len().saturating_sub(SHOWN as usize);
    let outcomes = runs.iter().enumerate().map(|(at, (_, run))| {
        let run = run.as_ref().ok().filter(|_| at >= omitted);
        run.map_or_else(Outcome::default, |run| Outcome::of(&store, run))
    });
    let outcomes: Vec<Outcome> = outcomes.collect();
    json.write(|| {
        let lines = runs.iter().zip(&outcomes).map(|((id, run), outcome)| document(*id, run, outcome));
        lines.collect::<Vec<_>>().into()
    })?;
    if !json.is_on_stdout() {
        if runs.is_empty() {
            say!("{}", nothing(args));
        } else {
            print_line!("{:>5}  {:<20}  {:<11}  {:>9}  NAME", "RUN", "STARTED", "STATE", "MEASURED");
        }
        // A program that reads the output gets unwrapped lines.
        let is_wide = !say::Stream::Stdout.is_terminal() && std::env::var_os("COLUMNS").is_none();
        let width = if is_wide { usize::MAX } else { say::Stream::Stdout.width() };
        for ((id, run), outcome) in runs.iter().zip(outcomes) {
            print_run(*id, run, width);
            let machine = run.as_ref().ok().and_then(|run| run.machine.as_deref());
            print_below(&outcome.line(machine).unwrap_or_default(), width);
        }
    }
    let damaged: Vec<&StoreError> = runs.iter().filter_map(|(_, run)| damage(run)).collect();
    damaged.iter().for_each(|error| say!("{error}"));
    Ok(if damaged.is_empty() { Exit::Fine } else { Exit::Environment })
}

/// A run's main figures, and the user who started the run.
#[derive(Default)]
struct Outcome {
    /// The run's main figures as text; `None` if there are none to show.
    figures: Option<String>,
    user: Option<String>,
}

impl Outcome {
    fn of(store: &Store, run: &RunSummary) -> Self {
        if run.damage.is_some() {
            return Self::default();
        }
        // For a run in progress, all measurements would have to be read for its figures.
        let read = if run.state == RunState::Running {
            store.load_head(run.id).map(|head| (head, None))
        } else {
            store.load_figures(run.id).map(|(head, figures)| (head, Some(figures)))
        };
        let Ok((head, figures)) = read else { return Self::default() };
        let figures = figures.and_then(|figures| iotax_report::outcome(&head, &figures));
        Self { figures, user: head.environment.user }
    }

    /// Formats figures, user and machine in one line: `60.5k IOPS; ada@host`. `None` if none of them is known.
    fn line(self, machine: Option<&str>) -> Option<String> {
        let who = match (self.user, machine) {
            (Some(user), Some(host)) => Some(format!("{user}@{host}")),
            (user, host) => user.or(host.map(str::to_owned)),
        };
        let parts: Vec<String> = self.figures.into_iter().chain(who).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Returns the message that no run matches the arguments, or that no run is stored yet.
fn nothing(args: &Args) -> String {
    let asked = args.words.iter().map(|word| format!("{word:?}"));
    let asked = asked.chain(args.tags.iter().map(|tag| format!("--tag {tag}")));
    let asked: Vec<String> =
        asked.chain(args.machine.iter().map(|host| format!("--machine {host}"))).collect();
    if asked.is_empty() {
        format!("No run is stored yet; the first: {}", args.store.first())
    } else {
        format!("No run matches {}", asked.join(" "))
    }
}

/// Returns the runs that match the arguments, newest last.
fn listed(args: &Args, store: &Store) -> Result<Vec<Listed>, Failure> {
    let is_cut = args.limit.is_none() && !args.json.is_given() && say::Stream::Stdout.is_terminal();
    let filter = Filter {
        text: args.words.join(" "),
        tags: args.tags.clone(),
        machine: args.machine.clone(),
        // One more than shown, to detect that runs are left out.
        limit: if is_cut { Some(SHOWN + 1) } else { args.limit },
        ..Filter::default()
    };
    let mut runs = store.list(&filter).or_exit(Exit::Environment)?;
    if is_cut && runs.len() > SHOWN as usize {
        runs.pop();
        note!("The newest {SHOWN} runs; more: --limit N");
    }
    let line = |mut run: RunSummary| match run.damage.take() {
        None => (run.id, Ok(run)),
        Some(damage) => (run.id, Err(damage)),
    };
    Ok(runs.into_iter().rev().map(line).collect())
}

fn document(id: i64, run: &Result<RunSummary, StoreError>, outcome: &Outcome) -> serde_json::Value {
    match run {
        Ok(run) => {
            let mut line = json!({
                "id": id,
                "name": run.name,
                "state": state(run),
                "started_at": utc(run.started_at_ms),
                "targets": run.targets,
                "measured": run.measured,
                "planned": run.planned,
                "tags": run.tags,
            });
            if let Some(figures) = &outcome.figures {
                line["outcome"] = figures.as_str().into();
            }
            if let Some(user) = &outcome.user {
                line["user"] = user.as_str().into();
            }
            if let Some(fleet) = &run.fleet {
                line["fleet"] = fleet.fleet.as_str().into();
                line["member"] = fleet.member.as_str().into();
            }
            if let Some(machine) = &run.machine {
                line["machine"] = machine.as_str().into();
            }
            if let Some(damage) = &run.damage {
                line["error"] = damage.to_string().into();
            }
            line
        }
        Err(error) => json!({ "id": id, "state": DAMAGED, "error": error.to_string() }),
    }
}

/// Returns the error that makes all or part of a run unreadable; `None` for an intact run.
fn damage(run: &Result<RunSummary, StoreError>) -> Option<&StoreError> {
    match run {
        Ok(run) => run.damage.as_ref(),
        Err(error) => Some(error),
    }
}

fn state(run: &RunSummary) -> String {
    if run.damage.is_some() { DAMAGED.to_owned() } else { run.state.to_string() }
}

/// Columns before a run's name, and the indentation of lines below it.
const BEFORE: (usize, usize) = (53, 7);

/// Prints text below a run's line, wrapped and indented.
fn print_below(text: &str, width: usize) {
    let text = visible::line(text).to_string();
    for line in wrap::lines(&text, width.saturating_sub(BEFORE.1)) {
        print_line!("{:1$}{line}", "", BEFORE.1);
    }
}

fn print_run(id: i64, run: &Result<RunSummary, StoreError>, width: usize) {
    match run {
        Ok(run) => {
            let measured = format!("{}/{}", run.measured, run.planned);
            let (started, state) = (utc(run.started_at_ms), state(run));
            let words = [run.name.clone()].into_iter().chain(run.tags.iter().map(|tag| format!("+{tag}")));
            let fleet = run.fleet.as_ref().map(|of| format!("(fleet {}, {})", of.fleet, of.member));
            let name = visible::line(&words.chain(fleet).collect::<Vec<_>>().join(" ")).to_string();
            let is_below = BEFORE.0 + name.chars().count() > width;
            let beside = if is_below { "" } else { &name };
            print_line!(
                "{}",
                format!("{id:>5}  {started:<20}  {state:<11}  {measured:>9}  {beside}").trim_end()
            );
            if is_below {
                print_below(&name, width);
            }
        }
        Err(_) => print_line!("{id:>5}  {:<20}  {DAMAGED:<11}  {:>9}", "", ""),
    }
}
