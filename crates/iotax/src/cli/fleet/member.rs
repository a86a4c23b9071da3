//! A member's process: carries out a plan with this machine's runner, and reports to the coordinator.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use iotax_fleet::link::MemberLink;
use iotax_fleet::message::{Assignment, Claims, Merged, RunPart};
use iotax_fleet::{Member, PipeLink, Wish, monotonic_ns};
use iotax_model::record::{FleetMode, Measurement, Sample};
use iotax_model::threads;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::{Histogram, Plan, Run, RunState, WarningKind, exit::Exit, schedule};
use iotax_store::Store;
use iotax_testbed::device::Permission;
use iotax_testbed::program::Program;
use iotax_testbed::undo::UndoLog;

use super::super::output::{OutputArgs, StoreArgs};
use super::super::progress::Watcher;
use super::super::session::{Membership, Session};
use super::super::signals::watch_signals;
use super::super::{Failure, OrExit, args, say};
use super::claims;
use crate::causes::with_causes;
use crate::runner::{self, Gate, Progress, Step};

/// Minimum time between two samples sent to the coordinator; shorter intervals are merged.
const SAMPLE: Duration = Duration::from_millis(500);

/// Serves a coordinator on stdin and stdout.
pub(super) fn main() -> Result<Exit, Failure> {
    serve(PipeLink::new(io::stdin(), io::stdout()))
}

/// Serves a coordinator until this member has finished its work.
pub(super) fn serve(link: impl MemberLink) -> Result<Exit, Failure> {
    // Stdout carries messages to the coordinator, and stderr only the reason why this member failed.
    say::be_quiet(true);
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let member = Member::new(link, stop, chrony_error_ns());
    member.greet(crate::version(), runner::environment(None)).or_exit(Exit::Environment)?;
    let mut assignment = None;
    loop {
        // A member that lost its coordinator before it began has nothing to undo.
        match member.next().or_exit(Exit::Environment)? {
            Wish::Refused(reason) => return Err(super::super::usage(reason)),
            Wish::End => return Ok(Exit::Interrupted),
            Wish::Assign(given) => {
                let answered = claims::of(&given, &permission(&given));
                let (claims, refusal) =
                    answered.map_or_else(|reason| (Claims::default(), Some(reason)), |claims| (claims, None));
                member.answer(claims, refusal).or_exit(Exit::Environment)?;
                assignment = Some(given);
            }
            Wish::Begin => break,
        }
    }
    let Some(assignment) = assignment else { return Ok(Exit::Usage) };
    thread::scope(|scope| {
        let (served, carried) = (&member, &assignment);
        threads::spawn_scoped(scope, "member", move || served.serve()).or_exit(Exit::Environment)?;
        carry_out(served, carried)
    })
}

fn permission(assignment: &Assignment) -> Permission {
    Permission::new(assignment.overwrite.clone(), assignment.overwrite_signature)
}

/// Carries out the plan with a temporary store, and undoes the changes. Returns once the coordinator has all results or the link has ended.
fn carry_out<L: MemberLink>(member: &Member<L>, assignment: &Assignment) -> Result<Exit, Failure> {
    let tag = format!("member-{}", runner::fresh_tag().or_exit(Exit::Environment)?);
    let undo_dir = args::undo_dir()?;
    let directory = undo_dir.with_file_name(&tag);
    let mut undo_log = UndoLog::create(&undo_dir, &tag).or_exit(Exit::Environment)?;
    let measured = undo_log.make_tree(&directory).or_exit(Exit::Environment).map(|_| {
        let path = directory.join("run.db");
        let output = OutputArgs { store: StoreArgs::at(path.clone()), ..OutputArgs::default() };
        let active = ActiveMember::new(member, assignment, path);
        let session = Session {
            yes: true,
            ask: false,
            permission: permission(assignment),
            fleet: Some(&active),
            ..Session::new(assignment.plan.clone(), &output)
        };
        let measured = session.measure();
        let run = active.tell_rest();
        (run, measured)
    });
    let (_, failures) = undo_log.undo_all();
    let (run, measured) = match measured {
        Ok((run, measured)) => (run, measured),
        Err(failure) => (None, Err(failure)),
    };
    let mut reasons: Vec<String> = failures
        .iter()
        .map(|failure| format!("not undone: {}: {}", failure.effect, failure.reason))
        .collect();
    let exit = match &measured {
        Ok((_, exit)) => *exit,
        Err(failure) => {
            reasons.insert(0, with_causes(&failure.error));
            failure.exit
        }
    };
    if exit == Exit::Environment && reasons.is_empty() {
        reasons.push("something could not be undone; run iotax clean there".into());
    }
    if reasons.is_empty() && exit == Exit::Measurement {
        let incomplete = run.iter().flat_map(|run| &run.warnings);
        let incomplete = incomplete.filter(|warning| warning.kind == WarningKind::Incomplete);
        reasons.extend(incomplete.map(|warning| warning.evidence.clone()).next_back());
    }
    let state = match run {
        Some(run) => run.state,
        None if exit == Exit::Interrupted => RunState::Interrupted,
        None => RunState::Failed,
    };
    let reason = (!reasons.is_empty()).then(|| reasons.join("; "));
    member.end(state, reason);
    Ok(exit)
}

/// The state of a member that is carrying out its plan.
struct ActiveMember<'a, L> {
    member: &'a Member<L>,
    assignment: &'a Assignment,
    store: PathBuf,
    run: Mutex<Option<i64>>,
    /// The run's state as last sent to the coordinator, without measurements; `None` before anything was sent.
    sent: Mutex<Option<Run>>,
    /// Agreed start of the current load, before its warm-up, in nanoseconds of this machine's monotonic clock; `None` if no start was
    /// agreed, as when each member starts on its own.
    at_ns: Mutex<Option<u64>>,
}

impl<'a, L: MemberLink> ActiveMember<'a, L> {
    fn new(member: &'a Member<L>, assignment: &'a Assignment, store: PathBuf) -> Self {
        let (run, sent, at_ns) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { member, assignment, store, run, sent, at_ns }
    }

    /// Sends everything new in the run to the coordinator, except measurements. Returns the run; `None` if it has not begun or cannot
    /// be read.
    fn tell_rest(&self) -> Option<Run> {
        let run = (*lock(&self.run))?;
        let run = Store::open_to_read(&self.store).and_then(|store| store.load(run)).ok()?;
        let mut sent = lock(&self.sent);
        let member = self.member;
        let new = |sent: Option<&Run>| {
            if sent.map_or(&self.assignment.plan, |sent| &sent.plan) != &run.plan {
                member.keep(RunPart::Plan(run.plan.clone()));
            }
            if sent.is_none_or(|sent| sent.environment != run.environment) {
                member.keep(RunPart::Environment(run.environment.clone()));
            }
            let targets =
                run.targets.iter().filter(|one| sent.is_none_or(|sent| !sent.targets.contains(one)));
            targets.for_each(|target| member.keep(RunPart::Target(target.clone())));
            let warnings =
                run.warnings.iter().filter(|one| sent.is_none_or(|sent| !sent.warnings.contains(one)));
            warnings.for_each(|warning| member.keep(RunPart::Warning(warning.clone())));
            if sent.map_or(!run.phases.is_empty(), |sent| sent.phases != run.phases) {
                member.keep(RunPart::Phases(run.phases.clone()));
            }
        };
        new(sent.as_ref());
        *sent = Some(run.without_measurements());
        Some(run)
    }
}

impl<L: MemberLink> Gate for ActiveMember<'_, L> {
    fn pass(&self, order: u32) -> Option<u64> {
        let at_ns = match self.assignment.mode {
            FleetMode::Each => None,
            FleetMode::Shared => self.member.pass(u64::from(order)),
        };
        *lock(&self.at_ns) = at_ns;
        at_ns
    }

    fn began(&self, order: u32, warm_up: Nanos, at: Instant) {
        if let Some(at_ns) = *lock(&self.at_ns) {
            let began_ns = monotonic_ns().saturating_sub(nanos(at.elapsed()));
            self.member.began(u64::from(order), at_ns + warm_up.0, began_ns);
        }
    }

    fn stored(&self, measurement: &Measurement) {
        // Send targets and rates first: a measurement is meaningless without them.
        if lock(&self.sent).is_none() {
            self.tell_rest();
        }
        self.member.keep(RunPart::Measurement(measurement.clone()));
    }
}

impl<L: MemberLink> Membership for ActiveMember<'_, L> {
    fn done(&self) -> HashSet<(String, String, u32)> {
        let Assignment { plan, seed, done, .. } = self.assignment;
        done.iter().filter_map(|step| cell(plan, *seed, *step)).collect()
    }

    fn begins(&self, run: i64) {
        *lock(&self.run) = Some(run);
    }

    fn watch<'a>(&'a self, watcher: Watcher<'a>) -> Box<dyn Progress + 'a> {
        Box::new(ProgressReport {
            active: self,
            watcher,
            step: 0,
            interval: 0,
            since: Instant::now(),
            merged: None,
        })
    }
}

/// Returns target name, workload name and round of the measurement with number `step` in the run, from 1. `None` if the plan has no such
/// measurement.
fn cell(plan: &Plan, seed: u64, step: u64) -> Option<(String, String, u32)> {
    let cells = plan.cells() as u64;
    let round = u32::try_from((step.checked_sub(1)?).checked_div(cells)? + 1).ok()?;
    let index = usize::try_from((step - 1) % cells).ok()?;
    let cell = *schedule::round_order(plan, seed, round).get(index)?;
    Some((plan.targets[cell.target].name.clone(), plan.workloads[cell.workload].name.clone(), round))
}

/// Display of the member's progress, which is also sent to the coordinator.
struct ProgressReport<'a, L: MemberLink> {
    active: &'a ActiveMember<'a, L>,
    watcher: Watcher<'a>,
    step: u64,
    interval: u32,
    since: Instant,
    merged: Option<Merged>,
}

impl<L: MemberLink> ProgressReport<'_, L> {
    fn tell_sample(&mut self) {
        if let Some(merged) = self.merged.take() {
            self.since = Instant::now();
            self.interval += 1;
            self.active.member.sample(merged);
        }
    }
}

impl<L: MemberLink> Drop for ProgressReport<'_, L> {
    /// Sends the samples that have not been sent yet.
    fn drop(&mut self) {
        self.tell_sample();
    }
}

impl<L: MemberLink> Progress for ProgressReport<'_, L> {
    fn phase(&mut self, what: &str) {
        self.active.member.does(what);
        self.watcher.phase(what);
    }

    fn filled(&mut self, target: &str, done: Bytes, total: Bytes) {
        self.watcher.filled(target, done, total);
    }

    fn cell(&mut self, step: Step<'_>) {
        if self.active.member.is_draining()
            && let Ok(stop) = watch_signals()
        {
            stop.store(true, Ordering::Relaxed);
        }
        self.tell_sample();
        self.step = step.cell as u64;
        self.interval = 0;
        self.since = Instant::now();
        let Step { round, rounds, cell, cells, target, workload, .. } = &step;
        self.active
            .member
            .does(&format!("round {round}/{rounds}, cell {cell}/{cells}: {target}, {workload}"));
        self.watcher.cell(step);
    }

    fn interval(&mut self, length: Nanos, iops: f64, oldest_ns: Option<u64>) {
        if self.since.elapsed() >= SAMPLE {
            self.tell_sample();
        }
        self.watcher.interval(length, iops, oldest_ns);
    }

    fn sample(&mut self, name: &str, sample: &Sample) {
        let (step, interval) = (self.step, self.interval);
        let merged = self.merged.get_or_insert_with(|| Merged {
            step,
            interval,
            members: 1,
            ios: 0,
            bytes: 0,
            latency: Histogram::new(),
        });
        merged.ios += sample.tallies.ios();
        merged.bytes += sample.tallies.bytes();
        merged.latency.merge(&sample.tallies.latency());
        self.watcher.sample(name, sample);
    }

    fn note(&mut self, text: &str) {
        self.watcher.note(text);
    }

    fn report_look(&mut self, text: &str) {
        self.active.member.does(text);
        self.watcher.report_look(text);
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the maximum error of this machine's wall clock in nanoseconds, as chrony estimates it; `None` if unknown, such as without a
/// running chrony or without a time source.
///
/// chronyc(1), tracking: the error is at most the offset, the root dispersion and half the root delay together.
fn chrony_error_ns() -> Option<u64> {
    const CHRONYC: Program = Program { name: "chronyc", package: "chrony" };
    let said = CHRONYC.run(["-c", "tracking"]).ok()?;
    parse_tracking(&String::from_utf8_lossy(&said))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds, above 0")]
fn parse_tracking(line: &str) -> Option<u64> {
    let fields: Vec<&str> = line.trim().split(',').collect();
    let number = |at: usize| fields.get(at)?.parse::<f64>().ok().filter(|number| number.is_finite());
    // Without a time source, chrony prints zeros.
    if number(2)? == 0.0 {
        return None;
    }
    Some(((number(4)?.abs() + number(11)? + number(10)? / 2.0) * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chronys_word_is_offset_dispersion_and_half_the_delay() {
        let line = "A29FC801,time.example,4,1700000000.0,-0.000010,0.000002,0.000020,-5.1,0.001,0.02,0.004,0.001,64.5,Normal\n";
        assert_eq!(parse_tracking(line), Some(3_010_000));
        assert_eq!(
            parse_tracking("00000000,,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised"),
            None
        );
        assert_eq!(parse_tracking("506 Cannot talk to daemon"), None);
    }

    #[test]
    fn a_step_is_a_cell_of_its_round() {
        let plan = Plan::from_toml(
            "repeat = 3\n[[target]]\nname = \"a\"\npath = \"/a\"\n[[target]]\nname = \"b\"\npath = \"/b\"\n[[workload]]\nrw = \"read\"\n",
        )
        .expect("a plan");
        let cells: Vec<_> = (1..=6).filter_map(|step| cell(&plan, 7, step)).collect();
        assert_eq!(cells.iter().map(|cell| cell.2).collect::<Vec<_>>(), [1, 1, 2, 2, 3, 3]);
        assert_eq!(cells.iter().collect::<HashSet<_>>().len(), 6);
        assert_eq!(cell(&plan, 7, 0), None);
    }
}
