//! The common steps of every command that measures: check, show the plan, ask, run, report.

use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_analysis::judge;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::record::{Environment, RunPhase, TargetRecord};
use iotax_model::target::{NetPath, NetworkSpec};
use iotax_model::units::Nanos;
use iotax_model::{TargetSpec, Warning, WarningKind};
use iotax_report::{document, json, terminal};
use iotax_store::{NewRun, Store};
use iotax_testbed::device::Permission;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::refusal::Refusal;
use iotax_testbed::target::preflight::{self, Needs};
use iotax_testbed::undo::{self, NotUndone, UndoLog};

use super::args::{GuestArgs, SessionArgs};
use super::concurrent::ConcurrentRuns;
use super::live::Live;
use super::output::{Destinations, OutputArgs};
use super::progress::{Line, Watcher};
use super::quit_key::QuitKey;
use super::rate_gate::RateGate;
use super::say::{self, Stream, note, say};
use super::signals::watch_signals;
use super::terminal::PageArgs;
use super::{Failure, OrExit, args, auth, confirm, links, requirements, usage, wear};
use crate::runner::{
    self, Domains, Ended, Gate, GuestOptions, Guests, Interrupted, Open, Order, Progress, RemoteAgents,
    RemoteOptions, RunContext,
};

/// Name of the phase before anything is changed; `UNDO` names the phase after the last measurement.
const CHECK: &str = "check";
const UNDO: &str = "undo";

/// A run to resume, with its finished measurements.
pub(super) struct Earlier {
    pub(super) run: i64,
    pub(super) seed: u64,
    /// Finished measurements: target, workload, round.
    pub(super) done: HashSet<(String, String, u32)>,
    /// The environment in which the run began.
    pub(super) environment: Environment,
    /// The layers and machine of each target, as the run has recorded them.
    pub(super) targets: Vec<TargetRecord>,
    /// The number of rounds that the run had planned until now.
    pub(super) rounds: u32,
}

/// Options of every command that runs plans.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) session: SessionArgs,
    #[command(flatten)]
    pub(super) guest: GuestArgs,
}

impl RunArgs {
    /// Returns a session that runs the plan as a new run, and asks before starting unless `--yes` is given.
    pub(super) fn session(&self, plan: Plan, permission: Permission) -> Session<'_> {
        let session = Session::new(plan, &self.output).with(&self.session, permission);
        Session { guests: self.guest.options(), ..session }
    }
}

/// A plan to run, with its options.
pub(super) struct Session<'a> {
    pub(super) plan: Plan,
    pub(super) output: &'a OutputArgs,
    /// True to begin without asking.
    pub(super) yes: bool,
    pub(super) guests: GuestOptions,
    /// The run to resume; `None` for a new run.
    pub(super) earlier: Option<Earlier>,
    /// True to keep created files instead of deleting them at the end.
    pub(super) keep: bool,
    /// The devices that may be overwritten.
    pub(super) permission: Permission,
    /// True to leave the agent's program on other machines, for later runs.
    pub(super) leave_agent: bool,
    /// True to show the plan and ask before starting: for runs that take minutes and gigabytes.
    pub(super) ask: bool,
    /// Output during measurements.
    pub(super) live: LiveOutput<'a>,
    /// The minimum rate that a search must find, from `--fail-if`.
    pub(super) gate: Option<RateGate>,
    /// The fleet that this machine is a member of; `None` in a run on one machine.
    pub(super) fleet: Option<&'a dyn Membership>,
}

/// A fleet, as seen by the session of one of its members.
pub(super) trait Membership: Gate {
    /// Returns the measurements to skip because an earlier part of the fleet's run made them: target, workload, round.
    fn done(&self) -> HashSet<(String, String, u32)>;
    /// Called when the run begins, with its number in the member's store.
    fn begins(&self, run: i64);
    /// Wraps `watcher`, so that progress is reported to the fleet's coordinator too.
    fn watch<'a>(&'a self, watcher: Watcher<'a>) -> Box<dyn Progress + 'a>;
}

/// Output during a measurement.
#[derive(Clone, Copy, Default)]
pub(super) struct LiveOutput<'a> {
    /// The sampling interval; `None` to derive it from the workload.
    pub(super) interval: Option<Nanos>,
    /// Formats each interval for printing; `None` for a progress bar only.
    pub(super) line: Option<&'a Line<'a>>,
}

/// Resources opened before a run starts, and results of the checks made before it.
struct Opened {
    needs: Needs,
    /// Lines about writes to the devices that the plan overwrites.
    wear: Vec<String>,
    tokens: HashMap<String, String>,
    tag: String,
    undo_log: UndoLog,
    store: Store,
    concurrent: ConcurrentRuns,
    /// The time that the checks took.
    checked: Duration,
    stop: Interrupt,
}

impl<'a> Session<'a> {
    /// Returns a session that runs the plan as a new run with default options, and asks before starting.
    pub(super) fn new(plan: Plan, output: &'a OutputArgs) -> Self {
        Self {
            plan,
            output,
            yes: false,
            guests: GuestOptions::default(),
            earlier: None,
            keep: false,
            permission: Permission::default(),
            leave_agent: false,
            ask: true,
            live: LiveOutput::default(),
            gate: None,
            fleet: None,
        }
    }

    pub(super) fn with(self, args: &SessionArgs, permission: Permission) -> Self {
        Self { yes: args.yes, permission, leave_agent: args.remote.leave_agent, ..self }
    }

    /// Runs the plan, shows the results and writes them. Returns the exit code.
    pub(super) fn carry_out(self) -> Result<Exit, Failure> {
        self.carry_out_and(Self::report)
    }

    /// Runs the plan for a command that reports the results of several runs itself. Returns the run's number and the exit code. The number
    /// is `None` if the user declined or the run could not be started.
    pub(super) fn measure(self) -> Result<(Option<i64>, Exit), Failure> {
        let mut run = None;
        let exit = self.carry_out_and(|_, measured, store, _| {
            run = Some(measured.run);
            Ok(match measured.ended.or_exit(Exit::Environment)? {
                // The command itself reports lost targets.
                Ended::Complete | Ended::Missing(_) => Exit::Fine,
                Ended::Interrupted => {
                    let command = store.command("report", measured.run, "");
                    say!("Interrupted; what was measured is kept: {command}");
                    Exit::Interrupted
                }
            })
        })?;
        Ok((run, exit))
    }

    fn carry_out_and(
        mut self,
        report: impl FnOnce(&Self, Measured, &Store, &Destinations) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let begun = Instant::now();
        let stop = watch_signals().or_exit(Exit::Environment)?;
        make_absolute(&mut self.plan)?;
        let needs = preflight::check(&self.plan, &self.permission)
            .map_err(|refusal| Failure { exit: refusal.exit, error: refusal.into() })?;
        for words in &needs.notes {
            note!("{words}");
        }
        let wear = wear::limit(&mut self.plan, &needs)?;
        if self.ask && !self.yes && !io::stdin().is_terminal() {
            let done = self.earlier.as_ref().map_or(0, |earlier| earlier.done.len());
            let seed = self.earlier.as_ref().map(|earlier| earlier.seed).or(self.plan.seed);
            confirm::show_plan(&self.plan, seed, done, needs.total(), None);
            wear.iter().for_each(|line| say!("  {line}"));
            return Err(usage("there is no terminal to ask on; add --yes to begin without asking"));
        }
        let tokens = auth::tokens(&self.plan)?;
        let outputs = self.output.open(json::MARK)?;
        self.refuse_taken(&outputs)?;
        let undo_dir = args::undo_dir()?;
        hint_at_leftovers(&undo_dir);
        refuse_changed_settings(&undo_dir, &self.plan)?;
        let store = self.output.store.open()?;

        let tag = runner::fresh_tag().or_exit(Exit::Environment)?;
        let mut undo_log = UndoLog::create(&undo_dir, &tag).or_exit(Exit::Environment)?;
        undo_log.set_interrupt(&stop);
        let concurrent = ConcurrentRuns::beside(undo_dir, &self.plan, &needs, &self.output.store)?;
        let checked = begun.elapsed();
        let mut opened = Opened { needs, wear, tokens, tag, undo_log, store, concurrent, checked, stop };
        let measured = self.with_undo_log(&mut opened);
        let Opened { mut undo_log, mut store, stop, .. } = opened;
        // Undo before writing the results, because their readers may be slow.
        let undoing = Instant::now();
        if stop.load(Ordering::Relaxed) {
            note!("Stopping: what was made is undone; another Ctrl-C leaves that to iotax clean.");
        }
        let (_, failures) = undo_log.undo_all();
        failures.iter().for_each(say_not_undone);
        let result = measured.and_then(|measured| {
            let Some(measured) = measured else { return Ok(Exit::Fine) };
            // If the store cannot be written, the results still report it.
            let _ = add_phase(&mut store, measured.run, UNDO, undoing.elapsed());
            report(&self, measured, &store, &outputs)
        });
        match result {
            // Errors after an interrupt are its consequences.
            Err(_) if stop.load(Ordering::Relaxed) => {
                say!("Interrupted.");
                Ok(Exit::Interrupted)
            }
            Ok(_) if stop.load(Ordering::Relaxed) => Ok(Exit::Interrupted),
            Ok(exit) if exit == Exit::Fine && !failures.is_empty() => Ok(Exit::Environment),
            other => other,
        }
    }

    /// Refuses a path that is used twice among store, target, journal and results. Also refuses a journal that already exists.
    fn refuse_taken(&self, outputs: &Destinations) -> Result<(), Failure> {
        let local = self.plan.everything().filter(|target| target.remote().is_none());
        let targets = local.filter_map(|target| Some(("the target", target.path()?.to_owned())));
        let journals = self.plan.workloads.iter().filter_map(|workload| workload.write_journal.as_ref());
        let journals: Vec<PathBuf> = journals.map(PathBuf::from).collect();
        let mut made: Vec<_> = self.output.store.file()?.into_iter().map(|db| ("--db", db)).collect();
        made.extend(targets);
        made.extend(journals.iter().map(|journal| ("--write-journal", journal.clone())));
        outputs.refuse_made(&made)?;
        for journal in &journals {
            links::check(journal)
                .with_context(|| format!("--write-journal {}", journal.display()))
                .or_exit(Exit::Environment)?;
        }
        match journals.iter().find(|journal| journal.symlink_metadata().is_ok()) {
            None => Ok(()),
            Some(journal) => Err(usage(format!(
                "--write-journal {}: it exists, and a journal is a new file; remove it or choose another name",
                journal.display()
            ))),
        }
    }

    /// Takes the steps that change the system, each recorded in the undo log, and measures. `None` if the user declines.
    fn with_undo_log(&self, opened: &mut Opened) -> Result<Option<Measured>, Failure> {
        let Opened { needs, wear, tokens, tag, undo_log, store, concurrent, checked, stop } = opened;
        let plan = &self.plan;
        // Claim the run first: it may be active in another process.
        let earlier = self.earlier.as_ref().map(|earlier| store.claim(earlier.run));
        let claimed = earlier.transpose().or_exit(Exit::Environment)?;
        let guests = plan
            .everything()
            .any(|target| target.guest().is_some())
            .then(|| Guests::prepare(&self.guests, plan, tag, undo_log, stop))
            .transpose()
            .or_exit(Exit::Environment)?;
        let domains = Domains::prepare(&self.guests, plan, tag, undo_log).or_exit(Exit::Environment)?;
        if let Some(earlier) = &self.earlier {
            same_machine(&earlier.environment, guests.as_ref())?;
        }
        let connecting = Instant::now();
        let options =
            RemoteOptions { leave_agent: self.leave_agent, ask: !self.yes && io::stdin().is_terminal() };
        let mut remote_agents = RemoteAgents::prepare(plan, options, undo_log, stop).map_err(|error| {
            let refusal = error.downcast_ref().map(|refusal: &Refusal| refusal.exit);
            Failure { exit: refusal.unwrap_or(Exit::Environment), error }
        })?;
        let checked = *checked + connecting.elapsed();
        let done = self.earlier.as_ref().map_or(0, |earlier| earlier.done.len());
        let seed = match (&self.earlier, plan.seed) {
            (Some(earlier), _) => earlier.seed,
            (None, Some(seed)) => seed,
            (None, None) => runner::fresh_seed().or_exit(Exit::Environment)? % 1_000_000,
        };
        if self.ask {
            // Show the plan whenever the user is asked about it.
            if !(self.yes && say::is_quiet()) {
                confirm::show_plan(plan, Some(seed), done, needs.total(), guests.as_ref());
                wear.iter().for_each(|line| say!("  {line}"));
            }
            concurrent.news().iter().for_each(|line| say!("{line}"));
            if !self.yes && !confirm::confirmed(stop) && !stop.load(Ordering::Relaxed) {
                remote_agents.end(undo_log);
                say!("Nothing was done.");
                return Ok(None);
            }
        } else {
            confirm::machine_caches(plan).iter().chain(wear.iter()).for_each(|line| say!("{line}"));
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Interrupted).or_exit(Exit::Interrupted);
        }
        let (run, done) = if let Some(earlier) = &self.earlier {
            store.set_repeat(earlier.run, plan.repeat).or_exit(Exit::Environment)?;
            if let Some(warning) = repeated_look_warning(earlier, plan) {
                store.put_warning(earlier.run, &warning).or_exit(Exit::Environment)?;
            }
            (earlier.run, earlier.done.clone())
        } else {
            let new = NewRun { plan, seed, started_at_ms: runner::now_ms(), fleet: None };
            let done = self.fleet.map_or_else(HashSet::new, Membership::done);
            (store.create_run(&new).or_exit(Exit::Environment)?, done)
        };
        if let Some(fleet) = self.fleet {
            fleet.begins(run);
        }
        let _claimed = match claimed {
            Some(claimed) => claimed,
            None => store.claim(run).or_exit(Exit::Environment)?,
        };
        add_phase(store, run, CHECK, checked)?;
        concurrent.announce(run, undo_log)?;
        let reader = self.output.store.open_existing()?;
        let so_far = |width: usize| {
            let run = reader.load(run).ok()?;
            let page = document::so_far(&run, &judge(&run));
            Some(terminal::set(&page, width, Stream::Stderr.has_colour()))
        };
        // A second connection, because the runner uses the first one.
        let live = self.output.store.open().ok().map(|store| Live::of(run, store));
        let mut watcher = Watcher::new(self.live.line, &so_far, live, concurrent);
        let quit_key = watcher.is_on_terminal().then(|| QuitKey::watch(stop, undo_log.socket())).flatten();
        if quit_key.is_some() {
            watcher.note("q ends the run and reports what is measured so far");
            if plan.watch().is_some() {
                watcher.note("m marks this moment, as does iotax mark TEXT elsewhere");
            }
        }
        let permission = &self.permission;
        let before = self.earlier.as_ref().map_or(&[][..], |earlier| &earlier.targets);
        let keep = self.keep;
        let order = Order {
            run,
            plan,
            seed,
            done,
            guests: guests.as_ref(),
            domains: domains.as_ref(),
            keep,
            permission,
            interval: self.live.interval,
            tokens,
            before,
            gate: self.fleet.map_or(&Open as &dyn Gate, |fleet| fleet),
        };
        let mut watcher: Box<dyn Progress + '_> = match self.fleet {
            Some(fleet) => fleet.watch(watcher),
            None => Box::new(watcher),
        };
        let context = RunContext { undo_log, store, progress: watcher.as_mut(), stop };
        let ended = runner::carry_out(&order, remote_agents, tag, context);
        drop((quit_key, watcher));
        for warning in concurrent.warnings() {
            store.put_warning(run, &warning).or_exit(Exit::Environment)?;
        }
        Ok(Some(Measured { run, ended }))
    }

    /// Returns whether all measurements of a new run failed and all targets are servers. Such a run is removed from the store.
    fn reached_no_server(&self, ended: &anyhow::Result<Ended>) -> bool {
        let has_servers =
            |target: &TargetSpec| target.network().is_some_and(|network| network.via == NetPath::Server);
        let is_whole = matches!(ended, Ok(Ended::Missing(cells)) if *cells >= self.plan.cells());
        is_whole
            && self.earlier.is_none()
            && self.fleet.is_none()
            && self.plan.targets.iter().all(has_servers)
    }

    /// Writes the results and reports how the run ended.
    fn report(&self, measured: Measured, store: &Store, outputs: &Destinations) -> Result<Exit, Failure> {
        let Measured { run, ended } = measured;
        if self.reached_no_server(&ended) && store.withdraw(run).or_exit(Exit::Environment)? {
            say!("Nothing was measured, and no run is kept.");
            return Ok(Exit::Measurement);
        }
        let reported = outputs.report(store, run, PageArgs::default(), document::answer);
        if reported.is_err() {
            say!("Run {run} is kept all the same; its results again: {}", store.command("report", run, ""));
        }
        let ended = ended.or_exit(Exit::Environment)?;
        let judgement = reported?.1;
        let corrupt = judgement.warnings.iter().any(|warning| warning.kind == WarningKind::Corrupt);
        let failed: u32 = judgement
            .cells
            .iter()
            .filter_map(|cell| cell.failure.as_ref())
            .map(|failure| failure.measurements)
            .sum();
        Ok(match conclude(ended, run, &self.plan, store) {
            Exit::Fine if failed > 0 => {
                say!("{failed} of them cannot be used: the table and the remarks say why");
                Exit::Measurement
            }
            Exit::Fine if corrupt => Exit::Gate,
            Exit::Fine if let Some(gate) = self.gate => {
                gate.judge(&store.load(run).or_exit(Exit::Environment)?)
            }
            Exit::Fine if self.plan.watch().is_some() || !self.plan.require.is_empty() => {
                requirements::exit(&store.load(run).or_exit(Exit::Environment)?, &judgement)
            }
            exit => exit,
        })
    }
}

/// A run whose measuring has ended, completely or not.
struct Measured {
    run: i64,
    ended: anyhow::Result<Ended>,
}

/// Returns a warning if rounds are added after results were visible, which raises the false-positive rate; else `None`. Results of a single
/// round do not count, because they decide no comparison.
fn repeated_look_warning(earlier: &Earlier, plan: &Plan) -> Option<Warning> {
    (plan.repeat > earlier.rounds && earlier.rounds > 1).then(|| Warning {
        kind: WarningKind::Extended,
        target: None,
        workload: None,
        round: None,
        evidence: format!(
            "the run had {} rounds when more were requested, {} in all: repeated looks raise the false-positive rate",
            earlier.rounds, plan.repeat
        ),
        remedy: "take verdicts close to the margin as hints; a new run, or one with --until-decided, keeps its error rate"
            .into(),
    })
}

/// Makes paths absolute, so that a run can be resumed from any directory. Rejects paths that plans and records cannot hold.
pub(super) fn make_absolute(plan: &mut Plan) -> Result<(), Failure> {
    let noisy = plan.neighbours.iter_mut().map(|neighbour| &mut neighbour.target);
    for target in plan.targets.iter_mut().chain(noisy) {
        for layer in target.stack.layers_mut() {
            for path in layer.kind_mut().paths() {
                *path = std::path::absolute(&*path).or_exit(Exit::Environment)?;
                refuse_other_than_utf8(path)?;
            }
        }
        let auth = target.stack.find_mut::<NetworkSpec>().and_then(|network| network.auth.as_mut());
        if let Some(file) = auth.filter(|source| !source.starts_with('$')) {
            *file = std::path::absolute(&*file).or_exit(Exit::Environment)?.display().to_string();
        }
    }
    Ok(())
}

/// Rejects a path that is not in UTF-8, or whose symbolic links lead to one that is not: plans, undo logs and records hold text.
fn refuse_other_than_utf8(path: &Path) -> Result<(), Failure> {
    let resolved = path.ancestors().find_map(|path| path.canonicalize().ok()).unwrap_or_default();
    match [path, &resolved].into_iter().find(|path| path.to_str().is_none()) {
        Some(path) => Err(usage(format!(
            "{}: the path is not in UTF-8, and a run's record holds no other; rename it",
            path.as_os_str().as_encoded_bytes().escape_ascii()
        ))),
        None => Ok(()),
    }
}

/// Refuses to resume with another accelerator for guests, QEMU, kernel, CPU model or version of iotax, because rounds of one run are
/// compared with one another. Unknown facts are skipped: a run may have stopped before its environment was read.
fn same_machine(then: &Environment, guests: Option<&Guests>) -> Result<(), Failure> {
    let now = runner::environment(guests);
    for (what, then, now) in [
        ("accel", &then.accel, &now.accel),
        ("QEMU", &then.qemu, &now.qemu),
        ("kernel", &then.kernel, &now.kernel),
        ("CPU", &then.cpu_model, &now.cpu_model),
        ("iotax", &then.tool, &now.tool),
    ] {
        if let (Some(then), Some(now)) = (then, now)
            && then != now
        {
            return Err(anyhow::anyhow!(
                "the run was started with {what} {then:?} and this is {now:?}: their measurements cannot be compared \
                 within one run; begin a new one"
            ))
            .or_exit(Exit::Environment);
        }
    }
    Ok(())
}

/// Refuses to start a plan that changes settings while another run has changed some, because their present values would be taken for the
/// original ones.
fn refuse_changed_settings(undo_dir: &Path, plan: &Plan) -> Result<(), Failure> {
    if plan.targets.iter().all(|target| target.setting_values().is_empty()) {
        return Ok(());
    }
    match undo::settings_in_force(undo_dir).or_exit(Exit::Environment)?.first() {
        Some(setting) => Err(anyhow::anyhow!(
            "another iotax run holds the {setting}; begin when it has ended, or after iotax clean if it was cut off"
        ))
        .or_exit(Exit::Environment),
        None => Ok(()),
    }
}

fn hint_at_leftovers(undo_dir: &Path) {
    if let Ok(left) = undo::leftovers(undo_dir)
        && !left.is_empty()
    {
        let things = if left.len() == 1 { "1 thing".into() } else { format!("{} things", left.len()) };
        say!("note: an earlier run that was cut off left {things} behind; iotax clean removes them");
    }
}

pub(super) fn say_not_undone(failure: &NotUndone) {
    say!("not undone: {}: {} (try: iotax clean)", failure.effect, failure.reason);
}

fn add_phase(store: &mut Store, run: i64, name: &str, time: Duration) -> Result<(), Failure> {
    let duration_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    store.add_phases(run, &[RunPhase { name: name.to_owned(), duration_ns }]).or_exit(Exit::Environment)
}

fn conclude(ended: Ended, run: i64, plan: &Plan, store: &Store) -> Exit {
    let resume =
        || store.load(run).map_or_else(|_| store.command("resume", run, ""), |run| run.command("resume", ""));
    match ended {
        Ended::Complete => {
            let [shown, page] = ["", "--html"].map(|options| store.command("report", run, options));
            note!("Run {run} kept; show it again with: {shown}; as a page: {page}");
            Exit::Fine
        }
        Ended::Missing(cells) => {
            if plan.adds_rounds() {
                // Decisions that were made without these measurements cannot be made again with them.
                say!("{cells} measurements failed, and the run ended without them. Run {run} kept");
            } else {
                say!("{cells} measurements failed; try them again with: {}", resume());
            }
            Exit::Measurement
        }
        Ended::Interrupted => {
            // A watch that the user ended has kept its measurement.
            let there = store.load(run).map_or(0, |run| run.measurements.len());
            let is_whole = plan.watch().is_some() && there >= plan.cells() * plan.most_rounds() as usize;
            let next = if is_whole {
                format!("Show it with: {}", store.command("report", run, ""))
            } else {
                format!("Go on with: {}", resume())
            };
            say!("Interrupted; what was measured is kept. {next}");
            Exit::Interrupted
        }
    }
}
