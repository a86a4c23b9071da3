//! Leads a fleet: processes the members' messages and decides which actions follow.
//!
//! The coordinator neither waits nor reads a clock: the caller passes messages and times, and gets [`CoordinatorAction`]s back. The caller
//! carries out the actions in order, stores parts of runs on disk, and confirms that with [`Coordinator::stored`].

mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use iotax_model::record::{Environment, FleetMode};

use crate::link::Incoming;
use crate::message::{Assignment, FromMember, Merged, PROTOCOL, RunPart, StepNumber, ToMember};
use state::Member;
pub use state::{MemberState, MemberStatus};

/// Nanoseconds between two pings to a member.
const PING: u64 = 1_000_000_000;
/// Minimum nanoseconds between sending [`ToMember::Go`] and the start time that the message names.
const LEAD_NS: u64 = 50_000_000;
/// Lead time added for each member in nanoseconds: the time to send and read its message.
const LEAD_EACH_NS: u64 = 2_000_000;
/// Maximum number of members for which [`LEAD_EACH_NS`] is added.
const LEAD_AT_MOST: u64 = 500;

/// An action that the caller must carry out.
#[derive(Debug, Clone, PartialEq)]
pub enum CoordinatorAction {
    /// Send a message to a member.
    Send {
        /// Name of the receiving member.
        member: String,
        /// The message to send.
        message: ToMember,
    },
    /// Store a part of a member's run on disk, then confirm it with [`Coordinator::stored`].
    Keep {
        /// Name of the member whose run the part belongs to.
        member: String,
        /// Number of the part in the member's run, from 1.
        number: u64,
        /// The part to store.
        part: Box<RunPart>,
    },
    /// Close the link to a member.
    Close {
        /// Name of the member whose link to close.
        member: String,
    },
    /// Show a change in the fleet to the user.
    Tell(News),
}

/// A change in the fleet to show to the user.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// A member has connected and has the right version.
    Joined {
        /// Name of the member that has joined.
        member: String,
        /// Hardware and software of the member's machine.
        environment: Box<Environment>,
    },
    /// Every member has answered whether it can carry out its plan, or is lost. Reported once.
    Answered,
    /// A member is lost: its link ended, or the coordinator gave it up.
    Lost {
        /// Name of the lost member.
        member: String,
        /// The reason why the member is lost.
        reason: String,
    },
    /// The start time of a step was sent to the members that wait for it.
    Going {
        /// Number of the started step.
        step: StepNumber,
        /// Number of members that start the step.
        members: usize,
    },
    /// The figures of one interval, of one member or merged from several by a leaf.
    Sample {
        /// Name of the member or leaf that sent the figures.
        from: String,
        /// The figures of the interval.
        merged: Box<Merged>,
    },
    /// A member has ended its run and undone its changes, except for those that the reason in [`MemberState::Over`] names.
    Over {
        /// Name of the member whose run has ended.
        member: String,
    },
}

/// The coordinator of one fleet, from the members' arrival to the end of their runs.
#[derive(Debug)]
pub struct Coordinator {
    mode: FleetMode,
    /// Version and commit that every member must have.
    version: String,
    /// A member counts as lost if no message from it arrives within this many nanoseconds after a ping.
    silence_ns: u64,
    members: BTreeMap<String, Member>,
    /// First start time of each step that has started, in nanoseconds of the coordinator's clock.
    gone: BTreeMap<StepNumber, u64>,
    has_begun: bool,
    answered: bool,
    pings: u64,
}

impl Coordinator {
    /// Creates a coordinator for these members and their assignments. Members whose version differs from `version` are refused. A member
    /// counts as lost if no message from it arrives within `silence` after a ping.
    #[must_use]
    pub fn new(
        mode: FleetMode,
        version: &str,
        silence: Duration,
        assignments: impl IntoIterator<Item = (String, Assignment)>,
    ) -> Self {
        let members = assignments.into_iter().map(|(name, assignment)| (name, Member::new(assignment)));
        Self {
            mode,
            version: version.to_owned(),
            silence_ns: u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX),
            members: members.collect(),
            gone: BTreeMap::new(),
            has_begun: false,
            answered: false,
            pings: 0,
        }
    }

    /// Returns the name and status of each member, ordered by name.
    pub fn members(&self) -> impl Iterator<Item = (&str, MemberStatus<'_>)> {
        self.members.iter().map(|(name, member)| (name.as_str(), member.status()))
    }

    /// Returns true if every member has ended or is lost.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.members.values().all(Member::is_gone)
    }

    /// Processes a message or the loss of a link. `now_ns` is the current time of the coordinator's clock. Returns the actions to take.
    pub fn take(&mut self, incoming: Incoming, now_ns: u64) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        match incoming {
            Incoming::Lost { member, reason } => self.lose(&member, &reason, &mut actions),
            Incoming::Message { member, message, at_ns } => match (self.members.get_mut(&member), message) {
                (Some(known), message) if !known.is_gone() => {
                    known.hear();
                    self.message(&member, message, at_ns, &mut actions);
                }
                // A leaf is not one of the members.
                (None, FromMember::Sample(merged)) => actions.push(sample(&member, merged)),
                // Ignore members without an assignment and members that were given up.
                _ => {}
            },
        }
        self.settle(&mut actions);
        self.let_go(now_ns, &mut actions);
        actions
    }

    /// Does what is due at `now_ns` nanoseconds of the coordinator's clock: sends pings, gives up silent members, and starts steps whose
    /// members are ready. Call it regularly.
    pub fn tick(&mut self, now_ns: u64) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        let silent: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| !member.is_gone() && member.is_silent(now_ns, self.silence_ns))
            .map(|(name, _)| name.clone())
            .collect();
        for name in silent {
            let reason = format!("it gave no sign of life for {} s", self.silence_ns / 1_000_000_000);
            self.lose(&name, &reason, &mut actions);
        }
        for (name, member) in &mut self.members {
            if member.wants_ping(now_ns, PING) {
                self.pings += 1;
                member.ping(self.pings, now_ns);
                send(name, ToMember::Ping { number: self.pings }, &mut actions);
            }
        }
        self.settle(&mut actions);
        self.let_go(now_ns, &mut actions);
        actions
    }

    /// Gives up all members that have not joined, for this reason. They count as lost.
    pub fn give_up_absent(&mut self, reason: &str) -> Vec<CoordinatorAction> {
        let absent: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| member.is_absent())
            .map(|(name, _)| name.clone())
            .collect();
        let mut actions = Vec::new();
        absent.iter().for_each(|name| self.lose(name, reason, &mut actions));
        self.settle(&mut actions);
        actions
    }

    /// Begins the run. Returns the messages to all members that have answered that they can carry out their plans.
    pub fn begin(&mut self) -> Vec<CoordinatorAction> {
        self.has_begun = true;
        let mut actions = Vec::new();
        for (name, member) in &mut self.members {
            if member.begin() {
                send(name, ToMember::Begin, &mut actions);
            }
        }
        actions
    }

    /// Confirms that a part of a member's run is on disk. Returns the acknowledgement to send to the member.
    pub fn stored(&mut self, member: &str, number: u64) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        if let Some(known) = self.members.get_mut(member) {
            known.stored(number);
            send(member, ToMember::Acknowledge { number }, &mut actions);
        }
        actions
    }

    /// Returns the messages that make all members stop immediately, except those that have ended or are lost.
    pub fn cancel(&self) -> Vec<CoordinatorAction> {
        self.tell_all(&ToMember::Cancel)
    }

    /// Returns the messages that make all members stop after the current measurement, except those that have ended or are lost.
    pub fn drain(&self) -> Vec<CoordinatorAction> {
        self.tell_all(&ToMember::Drain)
    }

    fn tell_all(&self, message: &ToMember) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        for (name, _) in self.members.iter().filter(|(_, member)| !member.is_gone()) {
            send(name, message.clone(), &mut actions);
        }
        actions
    }

    fn message(&mut self, name: &str, message: FromMember, at_ns: u64, actions: &mut Vec<CoordinatorAction>) {
        let Some(member) = self.members.get_mut(name) else { return };
        match message {
            FromMember::Hello { protocol, version, environment } => {
                if protocol != PROTOCOL || version != self.version {
                    let reason = format!(
                        "it is iotax {version} (fleet protocol {protocol}), and this is {} (fleet protocol {PROTOCOL}); use the same \
                         version everywhere",
                        self.version
                    );
                    send(name, ToMember::Refused { reason: reason.clone() }, actions);
                    return self.lose(name, &reason, actions);
                }
                // A duplicate hello must not start the member again.
                if member.join() {
                    actions
                        .push(CoordinatorAction::Tell(News::Joined { member: name.to_owned(), environment }));
                    send(name, ToMember::Assign(Box::new(member.assignment().clone())), actions);
                }
            }
            FromMember::Checked { claims, refusal } => member.checked(claims, refusal),
            FromMember::Pong { number, received_member_ns, sent_member_ns, chrony_error_ns } => {
                member.pong(number, at_ns, received_member_ns, sent_member_ns, chrony_error_ns);
            }
            FromMember::Doing(what) => member.does(what),
            FromMember::Ready { step } => {
                member.ready(step);
            }
            FromMember::Began { step, intended_member_ns, at_member_ns } => {
                member.began(step, intended_member_ns, at_member_ns, at_ns);
            }
            FromMember::Sample(merged) => actions.push(sample(name, merged)),
            FromMember::Kept { number, part } => match member.keeps(number, part) {
                Some(part) => actions.push(CoordinatorAction::Keep { member: name.to_owned(), number, part }),
                // The part is already stored; only its acknowledgement was lost.
                None => send(name, ToMember::Acknowledge { number }, actions),
            },
            FromMember::Over { state, reason } => {
                member.over(state, reason);
                actions.push(CoordinatorAction::Tell(News::Over { member: name.to_owned() }));
                actions.push(CoordinatorAction::Close { member: name.to_owned() });
            }
        }
    }

    fn lose(&mut self, name: &str, reason: &str, actions: &mut Vec<CoordinatorAction>) {
        let Some(member) = self.members.get_mut(name).filter(|member| !member.is_gone()) else { return };
        member.lose(reason);
        actions.push(CoordinatorAction::Close { member: name.to_owned() });
        actions
            .push(CoordinatorAction::Tell(News::Lost { member: name.to_owned(), reason: reason.to_owned() }));
    }

    /// Reports [`News::Answered`] when the last member has answered or is lost.
    fn settle(&mut self, actions: &mut Vec<CoordinatorAction>) {
        if !self.answered && self.members.values().all(Member::has_answered) {
            self.answered = true;
            actions.push(CoordinatorAction::Tell(News::Answered));
        }
    }

    /// Starts the lowest step that a member waits for, if all members at work wait for a step and have a known clock offset.
    fn let_go(&mut self, now_ns: u64, actions: &mut Vec<CoordinatorAction>) {
        let at_work = || self.members.values().filter(|member| member.is_at_work());
        if at_work().any(|member| member.waits_for().is_none() || member.offset(now_ns).is_none()) {
            return;
        }
        let Some(step) = at_work().filter_map(Member::waits_for).min() else { return };
        let longest = at_work().map(Member::longest_trip_ns).max().unwrap_or(0);
        let many = LEAD_EACH_NS * (self.members.len() as u64).min(LEAD_AT_MOST);
        let at_ns = now_ns + LEAD_NS + many + 2 * longest;
        // If the step has started before, this member retries it: its delay counts from the first start.
        let after_others_ns = at_ns - *self.gone.entry(step).or_insert(at_ns);
        let mut members = 0;
        for (name, member) in &mut self.members {
            if member.is_at_work()
                && member.waits_for() == Some(step)
                && let Some(offset) = member.offset(now_ns)
            {
                let at_member_ns = member.go(at_ns, after_others_ns, offset);
                send(name, ToMember::Go { step, at_member_ns }, actions);
                members += 1;
            }
        }
        actions.push(CoordinatorAction::Tell(News::Going { step, members }));
    }

    /// Returns the mode of the fleet, which decides whether members start each step together.
    #[must_use]
    pub const fn mode(&self) -> FleetMode {
        self.mode
    }

    /// Returns true once [`Self::begin`] has been called.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }
}

fn sample(from: &str, merged: Merged) -> CoordinatorAction {
    CoordinatorAction::Tell(News::Sample { from: from.to_owned(), merged: Box::new(merged) })
}

fn send(member: &str, message: ToMember, actions: &mut Vec<CoordinatorAction>) {
    actions.push(CoordinatorAction::Send { member: member.to_owned(), message });
}
