//! `iotax crash`: compares the data that stacks lose in a power failure, and their speed.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_analysis::crash::CrashVerdict;
use iotax_model::crash::{
    CRASH_FORMAT, CrashDocument, CrashedTarget, DatabaseMode, PostgresqlMode, SqliteMode,
};
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::schedule::{self, Cell};
use iotax_model::target::{Format, PlannedLayer, Stack, TargetSpec, VolatileSpec};
use iotax_model::units::Nanos;
use iotax_report::document::CRASH_MARK;
use iotax_report::{document, html};
use iotax_testbed::device::Permission;
use iotax_testbed::postgresql::Programs;
use iotax_testbed::undo::UndoLog;

use super::cut_load::{self, SIZE};
use super::destination::Destination;
use super::json_args::JsonArgs;
use super::say::{note, say};
use super::session::say_not_undone;
use super::signals::watch_signals;
use super::terminal::PageArgs;
use super::{Failure, OrExit, args, number, target_args, usage};
use crate::runner::{self, crash::PowerCuts};

/// Time limit of the write load, in case its power is not cut.
const LONGEST: Nanos = Nanos::from_secs(120);

/// Default number of writes between two flushes of the load.
const WRITES_PER_FLUSH: u32 = 16;

/// A database that commits rows, instead of the plain write load.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Application {
    /// SQLite, in each combination of journal mode and `synchronous`
    Sqlite,
    /// PostgreSQL, with each of its settings for flushes
    Postgresql,
}

/// Flags of `iotax crash`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Stacks to cut the power of: RUNG:DIR for a rung of iotax ladder with its image in a directory, such as virtio-qcow2:/srv/images; the
    /// line of a stack on a directory, such as '/srv > raw file > virtio cache=unsafe' or
    /// '/srv > raw file > loop > ext4 mount_options=nobarrier > raw file'; a directory, for a file in it; PLAN.toml for all
    /// targets of a plan. A cut affects only files that iotax creates there
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// Number of power cuts of each target
    #[arg(long, value_name = "N", default_value = "5", value_parser = number::whole::<u32>(1..=1000))]
    cuts: u32,
    #[arg(long, value_name = "N", conflicts_with = "application", value_parser = number::whole::<u32>(1..=1_000_000), help = format!("Flush after this many writes [default: {WRITES_PER_FLUSH}]"))]
    fdatasync: Option<u32>,
    /// Let a database commit instead, one row at a time, in each of its modes: sqlite, or postgresql with a new cluster for each cut.
    /// Targets are then directories, volatile or not
    #[arg(long, value_name = "NAME", value_enum)]
    application: Option<Application>,
    /// Seed of the moments of cuts, the offsets and the writes that survive a cut [default: random]
    #[arg(long, value_name = "N", value_parser = number::seed)]
    seed: Option<u64>,
    #[command(flatten)]
    json: JsonArgs,
    /// Write the table and a chart of speed against safety as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let permission = Permission::default();
    let targets = target_args::targets(&args.targets, false, &permission)?;
    let targets: Vec<TargetSpec> =
        targets.into_iter().map(on_volatile).collect::<Result<_, _>>().map_err(usage)?;
    if let Some(application) = args.application {
        targets.iter().try_for_each(has_directory).map_err(usage)?;
        if let Application::Postgresql = application {
            Programs::find().or_exit(Exit::Environment)?;
        }
    }
    let json = args.json.open(CRASH_MARK)?;
    let html = args.html.as_deref().map(|path| Destination::open(path, html::MARK)).transpose()?;
    let writes_per_flush = args.fdatasync.unwrap_or(WRITES_PER_FLUSH);
    let load = cut_load::load("crash", SIZE, writes_per_flush, LONGEST);
    let mut plan = Plan::new("crash".into(), targets, vec![load]);
    let seed = cut_load::ready(&mut plan, &permission, args.seed)?;
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let tag = runner::fresh_tag().or_exit(Exit::Environment)?;
    let mut undo_log = UndoLog::create(&args::undo_dir()?, &tag).or_exit(Exit::Environment)?;
    undo_log.set_interrupt(&stop);
    let mut targets = crashed(&plan, args.application);
    let ended = PowerCuts::new(&plan, &permission, &tag, seed, &mut undo_log, &stop)
        .and_then(|cuts| all(cuts, &mut targets, args.cuts, seed, &mut undo_log));
    let (_, failures) = undo_log.undo_all();
    failures.iter().for_each(say_not_undone);
    let targets: Vec<CrashedTarget> = targets.into_iter().map(|(_, target)| target).collect();
    let made = targets.iter().map(|target| target.cuts.len() as u64).sum::<u64>();
    let planned = u64::from(args.cuts) * targets.len() as u64;
    let is_interrupted = stop.load(Ordering::Relaxed);
    if made == 0 && is_interrupted {
        say!("Interrupted.");
        return Ok(Exit::Interrupted);
    }
    let ended = match ended.or_exit(Exit::Measurement) {
        Err(failure) if made == 0 => return Err(failure),
        ended => ended,
    };
    let document = CrashDocument {
        format: CRASH_FORMAT.into(),
        tool: crate::version().into(),
        seed: Some(seed),
        writes_per_flush: args.application.is_none().then_some(writes_per_flush),
        planned_cuts: (made < planned).then_some(planned),
        targets,
    };
    args.page.show(&document::crash(&document), json.is_on_stdout());
    let value = serde_json::to_value(&document).or_exit(Exit::Environment)?;
    json.write(|| value)?;
    if let Some(html) = html {
        html.write(html::crash(&document).as_bytes())?;
    }
    if is_interrupted {
        say!("Interrupted; the cuts that were finished are above.");
        return Ok(Exit::Interrupted);
    }
    ended?;
    let verdicts: Vec<CrashVerdict<'_>> = document.targets.iter().map(CrashVerdict::of).collect();
    Ok(match () {
        () if verdicts.iter().any(CrashVerdict::breaks_promise) => Exit::Gate,
        () if !failures.is_empty() => Exit::Environment,
        () if verdicts.iter().any(CrashVerdict::is_undecided) => Exit::Unjudged,
        () => Exit::Fine,
    })
}

/// Returns a result without cuts for each target, with the target's index in the plan. With a database, there is a result for each target
/// and database mode.
fn crashed(plan: &Plan, application: Option<Application>) -> Vec<(usize, CrashedTarget)> {
    let modes: Vec<Option<DatabaseMode>> = match application {
        None => vec![None],
        Some(Application::Sqlite) => SqliteMode::all().map(DatabaseMode::Sqlite).map(Some).collect(),
        Some(Application::Postgresql) => PostgresqlMode::ALL.map(DatabaseMode::Postgresql).map(Some).into(),
    };
    let of = |spec: &TargetSpec, database: Option<DatabaseMode>| CrashedTarget {
        name: database.map_or_else(|| spec.name.clone(), |mode| format!("{} {mode}", spec.name)),
        stack: spec.stack.line(),
        database,
        cuts: Vec::new(),
    };
    let each = |(index, spec)| modes.iter().map(move |mode| (index, of(spec, *mode)));
    plan.targets.iter().enumerate().flat_map(each).collect()
}

/// Cuts the power of each target once per round, in random order, and adds each cut to its target. Ends at the first cut that fails or is
/// interrupted.
fn all(
    mut cuts: PowerCuts<'_>,
    targets: &mut [(usize, CrashedTarget)],
    rounds: u32,
    seed: u64,
    undo_log: &mut UndoLog,
) -> anyhow::Result<()> {
    for round in 1..=rounds {
        let mut order: Vec<Cell> = (0..targets.len()).map(|target| Cell { target, workload: 0 }).collect();
        schedule::shuffle(&mut order, seed, round);
        for Cell { target, .. } in order {
            let (index, crashed) = &mut targets[target];
            note!("cut {round}/{rounds}: {}", crashed.name);
            let cut = match crashed.database {
                None => cuts.cut(*index, round, undo_log),
                Some(mode) => cuts.cut_database(*index, mode, round, undo_log),
            };
            crashed.cuts.push(cut.with_context(|| crashed.name.clone())?);
        }
    }
    Ok(())
}

/// Refuses a target that is not a raw file in a volatile directory, because a database needs that directory.
fn has_directory(target: &TargetSpec) -> Result<(), String> {
    match target.stack.layers() {
        [PlannedLayer::Volatile(_), PlannedLayer::File(file)] if file.format == Format::Raw => Ok(()),
        _ => Err(format!(
            "{}: a database needs a directory; accepted: DIR, or 'DIR > volatile drop_flush=3 > raw file' for the directory of that file",
            target.name
        )),
    }
}

/// Puts the target on a volatile directory, which loses unflushed writes when its power is cut, unless it is on one already. Fails if a
/// layer cannot be part of a power cut, with the reason, or if the resulting stack is not valid.
fn on_volatile(mut target: TargetSpec) -> Result<TargetSpec, String> {
    let mut layers = target.stack.layers().to_vec();
    if !target.stack.has::<VolatileSpec>() {
        let dir = match layers.first_mut() {
            Some(PlannedLayer::File(file)) => file.dir.take(),
            _ => None,
        };
        let Some(dir) = dir else {
            return Err(format!(
                "{}: only what iotax creates here is cut; accepted: a directory, RUNG:DIR, or the line of a stack on a directory, such as \
                 '/srv > raw file > virtio'. iotax powercut tests real disks",
                target.stack.line()
            ));
        };
        layers.insert(0, VolatileSpec { dir: Some(dir), ..VolatileSpec::default() }.into());
    }
    for layer in &layers {
        let reason = match layer {
            PlannedLayer::File(file) if file.snapshot.is_some() => {
                Some("a snapshot is new for each use, so nothing of it outlives a cut; leave it out")
            }
            PlannedLayer::File(_)
            | PlannedLayer::Volatile(_)
            | PlannedLayer::Nbd(_)
            | PlannedLayer::Filter(_)
            | PlannedLayer::Loop(_)
            | PlannedLayer::Filesystem(_)
            | PlannedLayer::Virtio(_) => None,
            PlannedLayer::Fuse(_) => Some(
                "QEMU's FUSE export loses writes that arrive at the same time (seen with QEMU 10.0), without a cut; use virtio",
            ),
            PlannedLayer::Guest(_) => Some(
                "the journal of a guest's writes would be lost with it; use the virtio rung of the same image",
            ),
            _ => Some("it is recreated each time, so nothing of it outlives a cut; leave it out"),
        };
        if let Some(reason) = reason {
            return Err(format!("{}: {}: {reason}", target.name, layer.kind().key()));
        }
    }
    target.stack = layers.into_iter().fold(Stack::default(), Stack::with);
    target.check().map_err(|error| error.to_string())?;
    Ok(target)
}
