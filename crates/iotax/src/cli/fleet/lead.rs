//! Coordinates a fleet, from the members' first messages until all members have finished.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use iotax_fleet::link::{Hub, To};
use iotax_fleet::message::{Assignment, RunPart, ToMember};
use iotax_fleet::nats;
use iotax_fleet::{Coordinator, CoordinatorAction, MemberState, News, monotonic_ns};
use iotax_model::exit::Exit;
use iotax_model::record::{FleetMember, FleetMode};
use iotax_model::threads;
use iotax_model::units::human;
use iotax_model::{RunState, Warning, WarningKind};
use iotax_report::counted;
use iotax_store::{Claim, NewRun, Store, StoreError};
use iotax_testbed::interrupt::{Interrupt, POLL, SILENCE};
use iotax_testbed::undo::{self, UndoLog};

use super::super::output::{Destinations, OutputArgs};
use super::super::say::{note, say};
use super::super::session::say_not_undone;
use super::super::terminal::PageArgs;
use super::super::{Failure, OrExit, args, confirm, estimate, usage};
use super::hosts::{Host, Link};
use super::live_line::{LiveLine, RecentIos};
use super::planned_member::PlannedMember;
use super::{claims, control, ctrl_c, report, requests, start};
use crate::runner::{self, marks::MarkSocket};

/// Time limit for a member's first message after its process has started: a busy machine may be slow to start a program.
const JOINED: Duration = Duration::from_mins(1);
/// Time limit for a killed coordinator's members to undo their changes.
const UNDOING: Duration = Duration::from_mins(1);
/// Interval between two checks of timeouts.
const TICK: Duration = Duration::from_millis(100);

/// The members and options of a fleet that this machine coordinates.
pub(super) struct Lead<'a> {
    pub(super) fleet: String,
    pub(super) mode: FleetMode,
    pub(super) members: Vec<PlannedMember>,
    pub(super) output: &'a OutputArgs,
    pub(super) yes: bool,
}

/// A run in the store that receives a member's results.
struct Kept {
    name: String,
    run: i64,
    _claim: Claim,
}

impl Lead<'_> {
    pub(super) fn carry_out(self) -> Result<Exit, Failure> {
        let (stop, at_work) = ctrl_c::watch().or_exit(Exit::Environment)?;
        if !self.yes && !io::stdin().is_terminal() {
            return Err(usage("there is no terminal to ask on; add --yes to begin without asking"));
        }
        let outputs = report::open(self.output)?;
        let mut store = self.output.store.open()?;
        let undo_dir = args::undo_dir()?;
        let mut undo_log = undo_log(&undo_dir, &self.fleet, &stop)?;
        undo_log.set_interrupt(&stop);
        let hosts: Vec<Host> = self.members.iter().map(|member| member.host.clone()).collect();
        let ask = !self.yes && io::stdin().is_terminal();
        let led = start::all(&hosts, &mut undo_log, &self.fleet, ask, &stop).and_then(
            |(mut hub, started, failed)| {
                let signals = Signals { stop: &stop, members_at_work: &at_work };
                let led = self.lead(hub.as_mut(), &mut store, &undo_log, &started, failed, signals);
                // Members stop and undo their changes when their streams end.
                drop(hub);
                started.end(&mut undo_log);
                led
            },
        );
        let (_, failures) = undo_log.undo_all();
        failures.iter().for_each(say_not_undone);
        let Some(exit) = led? else { return Ok(Exit::Fine) };
        self.report(&store, &outputs)?;
        Ok(if exit == Exit::Fine && !failures.is_empty() { Exit::Environment } else { exit })
    }

    /// Waits for the members, asks for confirmation and coordinates the plan to its end. `None` if the user declined.
    fn lead(
        &self,
        hub: &mut dyn Hub,
        store: &mut Store,
        undo_log: &UndoLog,
        started: &start::Started,
        failed: Vec<(String, String)>,
        signals: Signals<'_>,
    ) -> Result<Option<Exit>, Failure> {
        let assignments =
            self.members.iter().map(|member| (member.host.name.clone(), member.assignment.clone()));
        let is_enlisted = self.members.iter().any(|member| matches!(member.host.link, Link::Nats(_)));
        let silence = if is_enlisted { nats::PATIENCE } else { SILENCE };
        let coordinator = Coordinator::new(self.mode, crate::version(), silence, assignments);
        let socket = MarkSocket::open(&undo_log.socket()).or_exit(Exit::Environment)?;
        let mut at_work = AtWork {
            lead: self,
            hub,
            store,
            coordinator,
            socket,
            kept: Vec::new(),
            started,
            signals,
            line: LiveLine::new(),
            ios: RecentIos::default(),
            is_answered: false,
            is_stopping: false,
            is_cancelled: false,
        };
        for (member, reason) in failed {
            let lost = iotax_fleet::link::Incoming::Lost { member, reason };
            let actions = at_work.coordinator.take(lost, monotonic_ns());
            at_work.act(actions)?;
        }
        let led = at_work.gather().and_then(|()| at_work.begin());
        match led {
            Ok(true) => at_work.measure().map(Some),
            Ok(false) => {
                at_work.leave()?;
                Ok(None)
            }
            Err(failure) => {
                at_work.leave()?;
                Err(failure)
            }
        }
    }

    fn report(&self, store: &Store, outputs: &Destinations) -> Result<(), Failure> {
        let runs = report::runs(store, &self.fleet)?;
        report::show(&runs, outputs, PageArgs::default())?;
        let store_arg = runs.first().and_then(|run| run.store.as_deref());
        let shown = iotax_model::run::command("fleet report", &self.fleet, "", store_arg);
        note!("Fleet {} kept; show it again with: {shown}", self.fleet);
        Ok(())
    }
}

/// Creates the fleet's undo log, after undoing the changes that a killed coordinator of this fleet left. Fails if another coordinator still
/// leads the fleet, if a change cannot be undone, or if members have not undone theirs within a minute.
fn undo_log(dir: &Path, fleet: &str, stop: &Interrupt) -> Result<UndoLog, Failure> {
    let tag = control::tag(fleet);
    let end = Instant::now() + UNDOING;
    loop {
        let Some(cleaned) = undo::clean_tag(dir, &tag).or_exit(Exit::Environment)? else {
            return Err(anyhow::anyhow!("another coordinator leads fleet {fleet}"))
                .or_exit(Exit::Environment);
        };
        cleaned.undone.iter().for_each(|effect| note!("undone, after the earlier coordinator: {effect}"));
        cleaned.failed.iter().for_each(say_not_undone);
        cleaned.unreadable.iter().for_each(|error| say!("left alone: {error}"));
        if !cleaned.failed.is_empty() || !cleaned.unreadable.is_empty() {
            return Err(anyhow::anyhow!(
                "what the earlier coordinator of fleet {fleet} left is still there; what cannot be undone any more is forgotten with: iotax \
                 clean --forget"
            ))
            .or_exit(Exit::Environment);
        }
        if cleaned.in_use == 0 {
            break;
        }
        if stop.load(Ordering::Relaxed) {
            return Err(runner::Interrupted).or_exit(Exit::Interrupted);
        }
        if Instant::now() > end {
            return Err(anyhow::anyhow!(
                "{} of the earlier coordinator of fleet {fleet} still undo what they did; try again when they have ended",
                counted(cleaned.in_use as u64, "member")
            ))
            .or_exit(Exit::Environment);
        }
        threads::sleep(POLL);
    }
    UndoLog::create(dir, &tag)
        .with_context(|| format!("another coordinator leads fleet {fleet}"))
        .or_exit(Exit::Environment)
}

/// The flag that a signal sets to stop the fleet, and the flag that keeps a second Ctrl-C from ending the process.
#[derive(Clone, Copy)]
struct Signals<'a> {
    stop: &'a Interrupt,
    members_at_work: &'a ctrl_c::MembersAtWork,
}

/// A fleet whose members have been started.
struct AtWork<'a> {
    lead: &'a Lead<'a>,
    hub: &'a mut dyn Hub,
    store: &'a mut Store,
    coordinator: Coordinator,
    socket: MarkSocket,
    kept: Vec<Kept>,
    started: &'a start::Started,
    signals: Signals<'a>,
    line: LiveLine,
    ios: RecentIos,
    /// True once each member has reported whether it can carry out the plan, or is lost.
    is_answered: bool,
    /// True once a request at the socket has asked the members to stop.
    is_stopping: bool,
    /// True once a signal here has cancelled all members.
    is_cancelled: bool,
}

impl AtWork<'_> {
    /// Waits up to 100 ms for messages of members. Processes these, then timeouts, then requests at the coordinator's socket.
    fn step(&mut self) -> Result<(), Failure> {
        let mut patience = TICK;
        while let Some(incoming) = self.hub.receive(patience).or_exit(Exit::Environment)? {
            let actions = self.coordinator.take(incoming, monotonic_ns());
            self.act(actions)?;
            patience = Duration::ZERO;
        }
        let actions = self.coordinator.tick(monotonic_ns());
        self.act(actions)?;
        self.answer()
    }

    fn act(&mut self, actions: Vec<CoordinatorAction>) -> Result<(), Failure> {
        for action in actions {
            match action {
                CoordinatorAction::Send { member, message } => self.send(&member, &message)?,
                CoordinatorAction::Keep { member, number, part } => {
                    self.keep(&member, &part).or_exit(Exit::Environment)?;
                    let acknowledged = self.coordinator.stored(&member, number);
                    self.act(acknowledged)?;
                }
                CoordinatorAction::Close { member } => self.hub.close(&member),
                CoordinatorAction::Tell(news) => self.tell(news),
            }
        }
        Ok(())
    }

    fn send(&mut self, member: &str, message: &ToMember) -> Result<(), Failure> {
        self.hub.send(To::One(member), message).or_exit(Exit::Environment)
    }

    /// Stores a part of a member's run, such as a measurement or a warning, in that member's run in the store.
    fn keep(&mut self, member: &str, part: &RunPart) -> Result<(), StoreError> {
        let Some(Kept { run, .. }) = self.kept.iter().find(|kept| kept.name == member) else { return Ok(()) };
        match part {
            RunPart::Environment(environment) => self.store.set_environment(*run, environment),
            RunPart::Plan(plan) => self.store.set_plan(*run, plan),
            RunPart::Target(target) => self.store.put_target(*run, target),
            RunPart::Measurement(measurement) => self.store.put_measurement(*run, measurement),
            RunPart::Warning(warning) => self.store.put_warning(*run, warning),
            RunPart::Phases(phases) => self.store.add_phases(*run, phases),
        }
    }

    fn tell(&mut self, news: News) {
        match news {
            News::Joined { .. } => {}
            News::Sample { merged, .. } => self.ios.add(&merged, monotonic_ns()),
            News::Answered => self.is_answered = true,
            News::Lost { member, reason } => {
                let words = self.started.words(&member);
                let words = if words.is_empty() { words } else { format!("; it said: {words}") };
                self.line.above(|| say!("{member} is lost: {reason}{words}"));
            }
            News::Going { step, members } => {
                self.line.above(|| note!("step {step} goes off on {members} members"));
            }
            News::Over { member } => {
                let status = self.coordinator.members().find(|(name, _)| *name == member);
                match status.map(|(_, status)| status.state) {
                    Some(MemberState::Over { state: RunState::Complete, .. }) => {
                        self.line.above(|| note!("{member}: complete"));
                    }
                    Some(MemberState::Over { state, reason }) => {
                        let reason = reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
                        self.line.above(|| say!("{member}: {state}{reason}"));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Answers status, drain and cancel requests at the coordinator's socket.
    fn answer(&mut self) -> Result<(), Failure> {
        let (coordinator, mut actions) = (&self.coordinator, Vec::new());
        let ios = self.ios.text(monotonic_ns());
        let mut is_stopping = false;
        self.socket.answer(Duration::ZERO, |text| match text {
            requests::STATUS => {
                let ios = ios.map_or(String::new(), |ios| format!("\n{ios}"));
                Ok(format!("{}{ios}", control::lines(coordinator)))
            }
            requests::DRAIN => {
                actions = coordinator.drain();
                is_stopping = true;
                Ok("the fleet stops after the measurement that goes on".into())
            }
            requests::CANCEL => {
                actions = coordinator.cancel();
                is_stopping = true;
                Ok("the fleet stops".into())
            }
            _ => Err("a fleet takes no marks".into()),
        });
        self.is_stopping |= is_stopping;
        self.act(actions)
    }

    /// Waits until every member has reported whether it can carry out the plan, or is lost. Gives up members that send no message within a
    /// minute. Fails if the fleet is stopped meanwhile.
    fn gather(&mut self) -> Result<(), Failure> {
        let end = monotonic_ns() + u64::try_from(JOINED.as_nanos()).unwrap_or(u64::MAX);
        while !self.is_answered {
            self.step()?;
            if self.signals.stop.load(Ordering::Relaxed) || self.is_stopping {
                return Err(runner::Interrupted).or_exit(Exit::Interrupted);
            }
            if monotonic_ns() > end {
                let reason = format!("it did not greet within {} s", JOINED.as_secs());
                let actions = self.coordinator.give_up_absent(&reason);
                self.act(actions)?;
            }
        }
        Ok(())
    }

    /// Shows the plan, asks for confirmation, and begins. Returns false if the user declined. Fails, before anything is changed, if any
    /// member cannot take part or members conflict.
    fn begin(&mut self) -> Result<bool, Failure> {
        let (mut against, mut claimed) = (Vec::new(), Vec::new());
        for (name, status) in self.coordinator.members() {
            match status.state {
                MemberState::Checked { claims, refusal: None } => claimed.push((name, claims)),
                MemberState::Checked { refusal: Some(reason), .. } | MemberState::Lost { reason } => {
                    against.push(format!("{name}: {reason}"));
                }
                _ => against.push(format!("{name}: it ended before it began")),
            }
        }
        if against.is_empty() {
            against = claims::conflicts(&claimed, self.lead.mode);
        }
        let space: u64 = claimed.iter().fold(0, |sum, (_, claims)| sum.saturating_add(claims.space_bytes()));
        if !against.is_empty() {
            return Err(anyhow::anyhow!(
                "nothing was started, because not every member can take part:\n  {}",
                against.join("\n  ")
            ))
            .or_exit(Exit::Environment);
        }
        let lead = self.lead;
        if let Some(first) = lead.members.first() {
            let plan = &first.assignment.plan;
            let together = match lead.mode {
                FleetMode::Each => "each its own storage",
                FleetMode::Shared => "all one shared storage, step by step together",
            };
            let here = lead.members.iter().filter(|member| member.host.link.is_here()).count();
            say!(
                "Fleet {}: {}, {together}; {} x {}, {}{}. Seed {}.",
                lead.fleet,
                counted(lead.members.len() as u64, "member"),
                counted(plan.targets.len() as u64, "target"),
                counted(plan.workloads.len() as u64, "workload"),
                estimate::time(plan, first.assignment.done.len(), None),
                if space > 0 { format!(", {} in all", human::bytes(space)) } else { String::new() },
                first.assignment.seed
            );
            if here > 1 {
                say!(
                    "{here} of them are on this machine and share its CPUs: for trying a fleet out, not for comparing hosts"
                );
            }
        }
        if !lead.yes && !confirm::confirmed(self.signals.stop) {
            say!("Nothing was done.");
            return Ok(false);
        }
        for member in &lead.members {
            let run = match member.run {
                Some(run) => run,
                None => self.create(member).or_exit(Exit::Environment)?,
            };
            let claim = self.store.claim(run).or_exit(Exit::Environment)?;
            self.store.set_state(run, RunState::Running).or_exit(Exit::Environment)?;
            self.kept.push(Kept { name: member.host.name.clone(), run, _claim: claim });
        }
        self.signals.members_at_work.set(true);
        let actions = self.coordinator.begin();
        self.act(actions)?;
        Ok(true)
    }

    fn create(&mut self, member: &PlannedMember) -> Result<i64, StoreError> {
        let fleet = FleetMember {
            fleet: self.lead.fleet.clone(),
            member: member.host.name.clone(),
            mode: self.lead.mode,
            link: member.host.link.to_string(),
        };
        let Assignment { plan, seed, .. } = &member.assignment;
        let new = NewRun { plan, seed: *seed, started_at_ms: runner::now_ms(), fleet: Some(&fleet) };
        self.store.create_run(&new)
    }

    fn heed_signals(&mut self) -> Result<(), Failure> {
        if self.is_cancelled || !self.signals.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.line.above(|| say!("Stopping all members; what was measured is kept."));
        self.is_cancelled = true;
        let actions = self.coordinator.cancel();
        self.act(actions)
    }

    /// Processes messages until all members have finished.
    fn measure(&mut self) -> Result<Exit, Failure> {
        let measured = loop {
            if self.coordinator.is_over() {
                break Ok(());
            }
            if let Err(failure) = self.heed_signals().and_then(|()| self.step()) {
                break Err(failure);
            }
            if self.is_cancelled {
                self.signals.members_at_work.set(false);
            }
            self.line.show(&self.coordinator, &mut self.ios, monotonic_ns());
        };
        self.signals.members_at_work.set(false);
        let exit = self.settle().or_exit(Exit::Environment);
        measured?;
        exit
    }

    /// Cancels all members before they begin.
    fn leave(&mut self) -> Result<(), Failure> {
        let actions = self.coordinator.cancel();
        self.act(actions)
    }

    /// Stores the final state of each member's run. Returns the worst exit code.
    fn settle(&mut self) -> Result<Exit, StoreError> {
        let mut worst = Exit::Fine;
        for Kept { name, run, .. } in &self.kept {
            let status = self.coordinator.members().find(|(known, _)| known == name);
            let (state, reason) = match status.map(|(_, status)| status.state) {
                Some(MemberState::Over { state, reason }) => (*state, reason.clone()),
                Some(MemberState::Lost { reason }) => {
                    (RunState::Failed, Some(format!("the member was lost: {reason}")))
                }
                _ => (RunState::Interrupted, None),
            };
            if let Some(evidence) = reason {
                let warning = Warning {
                    kind: WarningKind::Incomplete,
                    target: None,
                    workload: None,
                    round: None,
                    evidence,
                    remedy: format!("go on with it: iotax fleet resume {}", self.lead.fleet),
                };
                self.store.put_warning(*run, &warning)?;
            }
            self.store.set_state(*run, state)?;
            worst = match (worst, state) {
                (Exit::Interrupted, _) | (_, RunState::Interrupted) => Exit::Interrupted,
                (_, RunState::Failed | RunState::Running) => Exit::Measurement,
                (worst, RunState::Complete) => worst,
            };
        }
        Ok(worst)
    }
}
