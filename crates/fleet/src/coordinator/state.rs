//! The coordinator's record of one member.

use std::collections::BTreeMap;

use iotax_model::RunState;
use iotax_model::record::FleetStart;

use crate::clock::{ClockOffset, Trips};
use crate::message::{Assignment, Claims, RunPart, StepNumber};

/// The state of a member, as the coordinator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberState {
    /// The member has not connected yet.
    Expected,
    /// The member has joined and checks whether it can carry out its plan.
    Checking,
    /// The member has answered whether it can carry out its plan.
    Checked {
        /// The resources that the plan needs exclusively on the member's machine.
        claims: Claims,
        /// The reason why the member cannot carry out its plan; `None` if it can.
        refusal: Option<String>,
    },
    /// The member carries out its plan.
    AtWork,
    /// The member has ended its run and undone its changes, except for those that `reason` names.
    Over {
        /// The state in which the run ended.
        state: RunState,
        /// The reason why the run failed, and changes that could not be undone; `None` if there is nothing to report.
        reason: Option<String>,
    },
    /// The link ended, or the coordinator gave the member up.
    Lost {
        /// The reason why the member is lost.
        reason: String,
    },
}

/// The status of a member for display.
#[derive(Debug, Clone, Copy)]
pub struct MemberStatus<'a> {
    /// The member's progress, from its connection to the end of its run.
    pub state: &'a MemberState,
    /// Last activity that the member reported; empty before the first report.
    pub doing: &'a str,
    /// Number of the step that the member is ready to start; `None` if it does not wait.
    pub waits_for: Option<StepNumber>,
    /// Offset of the member's clock from the coordinator's; `None` before the first answered ping.
    pub offset: Option<ClockOffset>,
    /// Error bound of the member's wall clock in nanoseconds, as chrony reports it; `None` if unknown.
    pub chrony_error_ns: Option<u64>,
}

/// The start of a step, as last announced to a member.
#[derive(Debug, Clone, Copy)]
struct Went {
    /// Offset of the member's clock in nanoseconds, as estimated when the start time was sent.
    offset_ns: i64,
    /// Nanoseconds by which the member starts after the first members that started this step.
    after_others_ns: u64,
}

/// The coordinator's record of one member.
#[derive(Debug)]
pub(super) struct Member {
    assignment: Assignment,
    state: MemberState,
    doing: String,
    waits_for: Option<StepNumber>,
    trips: Trips,
    offset: Option<ClockOffset>,
    chrony_error_ns: Option<u64>,
    /// The last ping: its number, its send time in nanoseconds, and true once it is answered; `None` before the first ping.
    pinged: Option<(u64, u64, bool)>,
    /// Send time in nanoseconds of the oldest ping after the member's last message; `None` if there is none.
    unanswered_since_ns: Option<u64>,
    /// The last announced start of a step; `None` before the first, and once the member has reported that it started.
    went: Option<Went>,
    /// Start of each of the member's steps, relative to the common start.
    starts: BTreeMap<StepNumber, FleetStart>,
    stored: u64,
}

impl Member {
    pub(super) fn new(assignment: Assignment) -> Self {
        Self {
            assignment,
            state: MemberState::Expected,
            doing: String::new(),
            waits_for: None,
            trips: Trips::default(),
            offset: None,
            chrony_error_ns: None,
            pinged: None,
            unanswered_since_ns: None,
            went: None,
            starts: BTreeMap::new(),
            stored: 0,
        }
    }

    pub(super) fn status(&self) -> MemberStatus<'_> {
        MemberStatus {
            state: &self.state,
            doing: &self.doing,
            waits_for: self.waits_for,
            offset: self.offset,
            chrony_error_ns: self.chrony_error_ns,
        }
    }

    pub(super) const fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    pub(super) const fn is_gone(&self) -> bool {
        matches!(self.state, MemberState::Over { .. } | MemberState::Lost { .. })
    }

    pub(super) const fn is_absent(&self) -> bool {
        matches!(self.state, MemberState::Expected)
    }

    pub(super) const fn is_at_work(&self) -> bool {
        matches!(self.state, MemberState::AtWork)
    }

    pub(super) const fn has_answered(&self) -> bool {
        !matches!(self.state, MemberState::Expected | MemberState::Checking)
    }

    pub(super) const fn waits_for(&self) -> Option<StepNumber> {
        self.waits_for
    }

    pub(super) fn offset(&self, now_ns: u64) -> Option<ClockOffset> {
        self.trips.offset(now_ns)
    }

    pub(super) fn longest_trip_ns(&self) -> u64 {
        self.trips.longest_ns()
    }

    pub(super) const fn hear(&mut self) {
        self.unanswered_since_ns = None;
    }

    pub(super) fn is_silent(&self, now_ns: u64, silence_ns: u64) -> bool {
        let asked = self.unanswered_since_ns.unwrap_or(u64::MAX);
        now_ns.saturating_sub(asked) >= silence_ns
    }

    /// Returns whether the next ping is due. A member gets none before it has joined, because it may not be listening yet, and none once it
    /// has ended or is lost.
    pub(super) fn wants_ping(&self, now_ns: u64, every_ns: u64) -> bool {
        let is_due = self.pinged.is_none_or(|(_, at_ns, _)| now_ns.saturating_sub(at_ns) >= every_ns);
        !self.is_gone() && self.state != MemberState::Expected && is_due
    }

    pub(super) fn ping(&mut self, number: u64, now_ns: u64) {
        self.pinged = Some((number, now_ns, false));
        self.unanswered_since_ns.get_or_insert(now_ns);
    }

    pub(super) fn pong(
        &mut self,
        number: u64,
        at_ns: u64,
        received_member_ns: u64,
        sent_member_ns: u64,
        chrony_error_ns: Option<u64>,
    ) {
        self.chrony_error_ns = chrony_error_ns;
        if let Some((last, asked_ns, answered @ false)) = &mut self.pinged
            && *last == number
        {
            *answered = true;
            self.trips.add(*asked_ns, at_ns, received_member_ns, sent_member_ns);
            self.offset = self.trips.offset(at_ns);
        }
    }

    /// Records that the member has joined. Returns false if it had joined before.
    pub(super) fn join(&mut self) -> bool {
        let is_new = self.state == MemberState::Expected;
        if is_new {
            self.state = MemberState::Checking;
        }
        is_new
    }

    pub(super) fn checked(&mut self, claims: Claims, refusal: Option<String>) {
        if self.state == MemberState::Checking {
            self.state = MemberState::Checked { claims, refusal };
        }
    }

    /// Records that the member begins its run. Returns false, and records nothing, unless it has answered that it can carry out its plan.
    pub(super) fn begin(&mut self) -> bool {
        let can = matches!(&self.state, MemberState::Checked { refusal: None, .. });
        if can {
            self.state = MemberState::AtWork;
        }
        can
    }

    pub(super) fn does(&mut self, what: String) {
        self.doing = what;
    }

    pub(super) const fn ready(&mut self, step: StepNumber) {
        self.waits_for = Some(step);
    }

    /// Records the start of the step that the member waits for, `after_others_ns` nanoseconds after the first members. Returns the start time
    /// `at_ns` converted to the member's clock.
    pub(super) fn go(&mut self, at_ns: u64, after_others_ns: u64, offset: ClockOffset) -> u64 {
        self.waits_for = None;
        self.went = Some(Went { offset_ns: offset.offset_ns, after_others_ns });
        offset.to_member(at_ns)
    }

    /// Records how late a step started on this member, in nanoseconds after the start time that the first members of the step were given.
    /// Uses a new estimate of the clock offset, which includes the pings since the start time was sent.
    pub(super) fn began(
        &mut self,
        step: StepNumber,
        intended_member_ns: u64,
        at_member_ns: u64,
        now_ns: u64,
    ) {
        let Some((went, offset)) = self.went.take().zip(self.trips.offset(now_ns)) else { return };
        // The start time was converted with an older estimate of the offset; correct it by the newer one.
        let known_better = i128::from(went.offset_ns) - i128::from(offset.offset_ns);
        let late = i128::from(at_member_ns) - i128::from(intended_member_ns);
        let late = late + known_better + i128::from(went.after_others_ns);
        if let Ok(late_ns) = i64::try_from(late) {
            self.starts.insert(step, FleetStart { late_ns, uncertainty_ns: offset.uncertainty_ns });
        }
    }

    /// Returns the part to store, or `None` if it is already stored. A measurement gets its start relative to the common start, if that is
    /// known.
    pub(super) fn keeps(&self, number: u64, mut part: Box<RunPart>) -> Option<Box<RunPart>> {
        if number <= self.stored {
            return None;
        }
        if let RunPart::Measurement(measurement) = part.as_mut() {
            measurement.fleet = self.starts.get(&u64::from(measurement.order)).copied();
        }
        Some(part)
    }

    pub(super) fn stored(&mut self, number: u64) {
        self.stored = self.stored.max(number);
    }

    pub(super) fn over(&mut self, state: RunState, reason: Option<String>) {
        self.waits_for = None;
        self.state = MemberState::Over { state, reason };
    }

    pub(super) fn lose(&mut self, reason: &str) {
        self.waits_for = None;
        self.state = MemberState::Lost { reason: reason.to_owned() };
    }
}
