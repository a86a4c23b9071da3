//! The member's side of a fleet: one thread answers the coordinator while another carries out the plan and reports.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iotax_model::RunState;
use iotax_model::record::Environment;

use crate::link::{LinkError, MemberLink};
use crate::message::{Assignment, Claims, FromMember, Merged, PROTOCOL, RunPart, StepNumber, ToMember};
use crate::pipe::monotonic_ns;

/// Maximum time to wait for a message before checking which messages must be sent again.
const POLL: Duration = Duration::from_secs(1);
/// Time after which an unacknowledged part of the run is sent again.
const AGAIN: Duration = Duration::from_secs(10);

/// A request of the coordinator before the run, which the caller must act on.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    /// Leave: the coordinator does not accept this member, for this reason.
    Refused(String),
    /// Check whether this assignment can be carried out here, then call [`Member::answer`].
    Assign(Box<Assignment>),
    /// Begin to carry out the assignment.
    Begin,
    /// Leave: before the member began, the coordinator stopped the fleet or a signal stopped this process.
    End,
}

/// A member of a fleet, shared by its threads.
#[derive(Debug)]
pub struct Member<L> {
    link: L,
    /// Flag that makes the run stop. Set on cancellation and when the link ends; the caller may set it too.
    stop: Arc<AtomicBool>,
    chrony_error_ns: Option<u64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The step that the coordinator started last, and its start time in nanoseconds of this machine's monotonic clock; `None` before the
    /// first step and while the member waits.
    went: Option<(StepNumber, u64)>,
    is_draining: bool,
    /// True once the link has ended.
    has_ended: bool,
    /// Number of the last part of the run that was sent.
    last: u64,
    /// The parts that are not acknowledged: number, content and time of the last transmission.
    kept: Vec<(u64, Box<RunPart>, Instant)>,
}

impl<L: MemberLink> Member<L> {
    /// Creates a member. `stop` is set if the coordinator cancels the run or the link ends. `chrony_error_ns` is the error bound of the wall
    /// clock that chrony reports; `None` if unknown.
    pub fn new(link: L, stop: Arc<AtomicBool>, chrony_error_ns: Option<u64>) -> Self {
        Self { link, stop, chrony_error_ns, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Sends the first message, with this machine's version and environment.
    ///
    /// # Errors
    /// The link has ended.
    pub fn greet(&self, version: &str, environment: Environment) -> Result<(), LinkError> {
        let (protocol, version) = (PROTOCOL, version.to_owned());
        self.link.send(&FromMember::Hello { protocol, version, environment: Box::new(environment) })
    }

    /// Answers an assignment: sends the resources that the plan needs exclusively on this machine and, if the plan cannot be carried out, the
    /// reason.
    ///
    /// # Errors
    /// The link has ended.
    pub fn answer(&self, claims: Claims, refusal: Option<String>) -> Result<(), LinkError> {
        self.link.send(&FromMember::Checked { claims, refusal })
    }

    /// Waits for the coordinator's next request before the run; answers pings meanwhile.
    ///
    /// # Errors
    /// The link has ended.
    pub fn next(&self) -> Result<Wish, LinkError> {
        while !self.stop.load(Ordering::Relaxed) {
            match self.link.receive(POLL)? {
                Some(ToMember::Refused { reason }) => return Ok(Wish::Refused(reason)),
                Some(ToMember::Assign(assignment)) => return Ok(Wish::Assign(assignment)),
                Some(ToMember::Begin) => return Ok(Wish::Begin),
                Some(ToMember::Cancel | ToMember::Drain) => break,
                Some(other) => self.take(&other)?,
                None => {}
            }
        }
        Ok(Wish::End)
    }

    /// Answers the coordinator's messages during the run. Returns when the link has ended, which also stops the run.
    pub fn serve(&self) {
        while let Ok(message) = self.link.receive(POLL) {
            if message.is_some_and(|message| self.take(&message).is_err()) {
                break;
            }
            self.send_again();
        }
        self.stop.store(true, Ordering::Relaxed);
        self.state().has_ended = true;
        self.changed.notify_all();
    }

    fn take(&self, message: &ToMember) -> Result<(), LinkError> {
        match *message {
            ToMember::Ping { number } => {
                let received_member_ns = monotonic_ns();
                let chrony_error_ns = self.chrony_error_ns;
                let sent_member_ns = monotonic_ns();
                self.link.send(&FromMember::Pong {
                    number,
                    received_member_ns,
                    sent_member_ns,
                    chrony_error_ns,
                })?;
            }
            ToMember::Go { step, at_member_ns } => self.state().went = Some((step, at_member_ns)),
            ToMember::Acknowledge { number } => self.state().kept.retain(|(kept, ..)| *kept != number),
            ToMember::Cancel => self.stop.store(true, Ordering::Relaxed),
            ToMember::Drain => self.state().is_draining = true,
            ToMember::Refused { .. } | ToMember::Assign(_) | ToMember::Begin => {}
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Reports that a step is ready, and waits for its start time. Returns that time in nanoseconds of this machine's monotonic clock;
    /// `None` if the run must stop instead.
    pub fn pass(&self, step: StepNumber) -> Option<u64> {
        self.state().went = None;
        self.link.send(&FromMember::Ready { step }).ok()?;
        let mut state = self.state();
        loop {
            if state.has_ended || self.stop.load(Ordering::Relaxed) {
                return None;
            }
            match state.went {
                Some((went, at_ns)) if went == step => return Some(at_ns),
                _ => state = self.wait(state),
            }
        }
    }

    /// Reports the intended and the actual start time of a step, in nanoseconds of this machine's monotonic clock.
    pub fn began(&self, step: StepNumber, intended_member_ns: u64, at_member_ns: u64) {
        self.tell(&FromMember::Began { step, intended_member_ns, at_member_ns });
    }

    /// Reports the member's current activity.
    pub fn does(&self, what: &str) {
        self.tell(&FromMember::Doing(what.to_owned()));
    }

    /// Reports the merged figures of an interval of a step. A lost report is not repeated.
    pub fn sample(&self, merged: Merged) {
        self.tell(&FromMember::Sample(merged));
    }

    /// Sends a part of the run. [`Self::serve`] sends it again until the coordinator acknowledges it.
    pub fn keep(&self, part: RunPart) {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        let part = Box::new(part);
        state.kept.push((number, part.clone(), Instant::now()));
        drop(state);
        self.tell(&FromMember::Kept { number, part });
    }

    /// Returns true if the run must stop after the current measurement.
    pub fn is_draining(&self) -> bool {
        self.state().is_draining
    }

    /// Waits until the coordinator has acknowledged all parts of the run or the link has ended, then reports the run's end with this state
    /// and reason.
    pub fn end(&self, run: RunState, reason: Option<String>) {
        let mut state = self.state();
        while !state.kept.is_empty() && !state.has_ended {
            state = self.wait(state);
        }
        drop(state);
        self.tell(&FromMember::Over { state: run, reason });
    }

    fn send_again(&self) {
        let mut state = self.state();
        let mut late = Vec::new();
        for (number, part, sent) in &mut state.kept {
            if sent.elapsed() >= AGAIN {
                *sent = Instant::now();
                late.push(FromMember::Kept { number: *number, part: part.clone() });
            }
        }
        drop(state);
        late.iter().for_each(|message| self.tell(message));
    }

    /// Sends a message and ignores errors: if the link has ended, that stops the run anyway.
    fn tell(&self, message: &FromMember) {
        let _ = self.link.send(message);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // A signal sets `stop` without notifying the condition variable.
        let waited = self.changed.wait_timeout(state, Duration::from_millis(100));
        waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state)
    }
}
