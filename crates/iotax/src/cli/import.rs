//! `iotax import`: converts results of other tools to runs.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use iotax_interop::import::{self, Found, Imported};
use iotax_model::RunState;
use iotax_model::exit::Exit;
use iotax_report::{document, json};
use iotax_store::{NewRun, Store};

use super::output::OutputArgs;
use super::say::{note, say};
use super::terminal::PageArgs;
use super::{Failure, OrExit, input, usage};
use crate::runner;

/// Maximum number of lines printed that were not understood; further ones are only counted.
const SHOWN: usize = 20;

/// Flags of `iotax import`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Files with other tools' results, possibly among other text; - is stdin. Results of one tool become one run, repeated
    /// ones its rounds
    #[arg(value_name = "FILE|-", required = true)]
    files: Vec<PathBuf>,
    /// Treat all results of a target and workload as repetitions, and give them this label; without it, results under different headings
    /// are kept apart
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let outputs = args.output.open(json::MARK)?;
    let mut refused = Vec::new();
    let files = args.files.iter().map(|path| read(path, &mut refused)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
    let without: Vec<String> =
        files.iter().filter(|(_, found)| found.is_empty()).map(|(name, _)| name.clone()).collect();
    let runs = import::runs(files, args.label.as_deref());
    if runs.is_empty() {
        not_understood(&refused, "");
        return Err(usage(nothing(&names, &refused)));
    }
    if let Some((run, count, what)) = runs.iter().find_map(too_many) {
        return Err(usage(format!(
            "{count} {what} of {} in {}; accepted: up to {}; split what it wrote, and import its parts one by one",
            run.source.tool,
            names.join(", "),
            import::MOST_NAMES
        )));
    }
    if outputs.take_one_run() && runs.len() > 1 {
        let tools: Vec<&str> = runs.iter().map(|run| run.source.tool.as_str()).collect();
        return Err(usage(format!(
            "--html and --output take one run, but there are results of {}; accepted: files of one tool, or --json, which takes all",
            tools.join(" and ")
        )));
    }
    let mut store = args.output.store.open()?;
    let mut documents = Vec::new();
    for run in &runs {
        let id = keep(&mut store, run).or_exit(Exit::Environment)?;
        if runs.len() == 1 {
            outputs.report(&store, id, args.page, document::answer)?;
        } else {
            let (run, judgement) = outputs.show(&store, id, args.page, document::answer)?;
            documents.push(json::document(&run, &judgement));
        }
        not_understood(&run.source.not_understood, ", kept with the run");
        let labels = run.labels();
        if args.label.is_none() && !labels.is_empty() {
            say!(
                "{}: results below different headings are kept apart: {}; --label NAME takes them as repetitions",
                run.source.tool,
                labels.join("; ")
            );
        }
        note!("Run {id} kept; show it with: {}", store.command("report", id, ""));
    }
    if !documents.is_empty() {
        outputs.write_json(&documents.into())?;
    }
    not_understood(&refused, "");
    if !without.is_empty() {
        say!("No result of a tool that iotax knows in {}", without.join(", "));
    }
    Ok(Exit::Fine)
}

/// Checks the number of targets and workloads against `MOST_NAMES`. If there are more of one kind, returns the run, their number and
/// `targets` or `workloads`; otherwise `None`.
fn too_many(run: &Imported) -> Option<(&Imported, usize, &'static str)> {
    let counts = [(run.plan.targets.len(), "targets"), (run.plan.workloads.len(), "workloads")];
    let (count, what) = counts.into_iter().find(|(count, _)| *count > import::MOST_NAMES)?;
    Some((run, count, what))
}

/// Reads the results in a file, and returns them with the file's name. If there are none, adds to `refused` the lines that look like
/// results, or the reason.
fn read(path: &Path, refused: &mut Vec<String>) -> Result<(String, Vec<Found>), Failure> {
    let (name, bytes) = if path == Path::new("-") {
        ("stdin".to_owned(), input::stdin(input::RESULTS)?)
    } else {
        (shown(path), input::bytes(path, input::RESULTS)?)
    };
    if let Some(why) = import::without_results(&bytes) {
        refused.push(format!("{name}: {why}"));
        return Ok((name, Vec::new()));
    }
    let size = bytes.len();
    let text = import::decode(bytes);
    let found = import::recognise(&text);
    if found.is_empty() {
        refused.extend(import::refused(&text).iter().map(|line| line.of_file(&name)));
    }
    if let Some(found) = found.iter().find(|found| found.is_cut) {
        let (tool, most) = (found.tool, import::MOST_ROWS);
        return Err(usage(format!(
            "{name} ({size} bytes) has more than {most} results of {tool}, or lines of its that are not understood; accepted: up to \
             {most}; split it, and import its parts one by one"
        )));
    }
    Ok((name, found))
}

/// Returns a file's name without its directory, because the directory means nothing on other machines.
fn shown(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the error message for files without results. `refused` says what looks like results but was not understood.
fn nothing(names: &[String], refused: &[String]) -> String {
    let names = names.join(", ");
    if !refused.is_empty() {
        return format!("{names}: nothing was imported, for the lines above are all that looks like results");
    }
    let known: Vec<String> = import::READERS.iter().map(|(tool, _, how)| format!("{tool}: {how}")).collect();
    format!("{names}: no result of a tool that iotax knows; accepted:\n  {}", known.join("\n  "))
}

fn keep(store: &mut Store, run: &Imported) -> anyhow::Result<i64> {
    let started_at_ms = run.started_at_ms.unwrap_or_else(runner::now_ms);
    let id = store.create_run(&NewRun { plan: &run.plan, seed: 0, started_at_ms, fleet: None })?;
    store.set_source(id, &run.source)?;
    store.put_measurements(id, run.measurements())?;
    store.set_state(id, RunState::Complete)?;
    Ok(id)
}

/// Prints on stderr up to 20 lines that were not understood, then the number of further ones, followed by `rest`.
fn not_understood(lines: &[String], rest: &str) {
    if lines.is_empty() {
        return;
    }
    say!("Not understood:");
    lines.iter().take(SHOWN).for_each(|line| say!("  {line}"));
    if lines.len() > SHOWN {
        say!("  and {} more{rest}", lines.len() - SHOWN);
    }
}
