//! Starts several agents at once: the guests of a target, and those of its neighbour.
//!
//! Each agent sets up its load first. When all are ready, the neighbour starts; when its window has begun, the measured agents start. If an
//! agent fails, the others still finish their work, so that they are ready for the next measurement. An agent flushes its writes only after
//! the runner has handled its [`Event::Over`], so that no counter of a window includes the flush.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use iotax_model::record::Outcome;
use iotax_model::threads;
use iotax_model::wire::{Event, Job};
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::host_info::monotonic_ns;

use super::gate::Entry;

/// An agent and its job.
pub(super) struct Participant<'a> {
    /// The instance's number, such as a guest's, or a server's address; for a neighbour its target's name.
    pub(super) name: String,
    pub(super) agent: &'a mut AgentClient,
    pub(super) job: Job,
    /// Time limit for the agent's work before and after the load; warm-up and runtime do not count.
    pub(super) slack: Duration,
    /// True if the agent reads this machine's monotonic clock, by which a start time can be set.
    pub(super) shares_clock: bool,
    /// True for a neighbour, which makes competing load and is not measured itself.
    pub(super) is_neighbour: bool,
}

/// An event of an agent, and the time of its arrival.
pub(super) struct AgentEvent {
    /// The agent's index among the participants.
    pub(super) participant: usize,
    pub(super) at: Instant,
    pub(super) kind: EventKind,
}

pub(super) enum EventKind {
    Ready,
    /// The load of a measured agent starts right after this event. Not sent if a start time was agreed.
    Starting,
    Event(Event),
    /// The agent has finished its job, or has failed.
    Ended(Box<Result<Outcome, AgentError>>),
}

/// Starts all jobs together once the gate permits it, and waits for their ends. Passes events to `on_event` in order of arrival.
pub(super) fn run(
    participants: Vec<Participant<'_>>,
    entry: Entry<'_>,
    on_event: &mut dyn FnMut(AgentEvent),
) {
    let (sender, events) = mpsc::channel();
    let mut began = Beginnings::new(&participants, entry.warm_up.into());
    let mut barrier = Barrier::new(&participants);
    thread::scope(|scope| {
        for (number, participant) in participants.into_iter().enumerate() {
            let (start, started) = mpsc::channel();
            barrier.starts.push(start);
            let (hear_over, over_heard) = mpsc::channel();
            barrier.overs.push(hear_over);
            let sender = sender.clone();
            // The receiver exists until all senders are dropped.
            let send = move |kind| {
                drop(sender.send(AgentEvent { participant: number, at: Instant::now(), kind }));
            };
            let (send_event, peer) = (send.clone(), participant.name.clone());
            let work = move || {
                let Participant { agent, job, slack, shares_clock, .. } = participant;
                let ended = agent.prepare(&job).and_then(|()| {
                    send(EventKind::Ready);
                    // The barrier outlives all participants.
                    let at_ns = started.recv().ok().flatten();
                    if !shares_clock && let Some(at_ns) = at_ns {
                        threads::sleep(Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
                    }
                    agent.go(&job, slack, at_ns.filter(|_| shares_clock), &mut |event| {
                        send(EventKind::Event(event.clone()));
                        if *event == Event::Over {
                            let _ = over_heard.recv();
                        }
                    })
                });
                send(EventKind::Ended(Box::new(ended)));
            };
            if let Err(error) = threads::spawn_scoped(scope, "participant", work) {
                let failed = AgentError::Failed { peer, message: error.to_string() };
                send_event(EventKind::Ended(Box::new(Err(failed))));
            }
        }
        drop(sender);
        for event in events {
            barrier.pass(&event, entry, on_event);
            began.see(&event);
            let over = matches!(event.kind, EventKind::Event(Event::Over)).then_some(event.participant);
            on_event(event);
            over.into_iter().for_each(|number| barrier.release(number));
        }
    });
    if let Some(at) = began.last() {
        entry.began(at);
    }
}

/// Start times of the measured agents' windows, reported by the agents or taken from the arrival of their messages. On a busy machine
/// messages arrive late but never early, so the earliest of these times counts.
struct Beginnings {
    known: BTreeMap<usize, Option<Instant>>,
    warm_up: Duration,
}

impl Beginnings {
    fn new(participants: &[Participant<'_>], warm_up: Duration) -> Self {
        Self {
            warm_up,
            known: (0..)
                .zip(participants)
                .filter(|(_, one)| !one.is_neighbour)
                .map(|(number, _)| (number, None))
                .collect(),
        }
    }

    fn see(&mut self, event: &AgentEvent) {
        let began = match &event.kind {
            // `Instant` uses the same clock.
            EventKind::Event(Event::Started { at_ns }) => {
                let since = Duration::from_nanos(monotonic_ns().saturating_sub(*at_ns));
                Instant::now().checked_sub(since).map(|started| started + self.warm_up)
            }
            EventKind::Event(Event::Measuring) => Some(event.at),
            EventKind::Event(Event::Sample(sample)) => {
                event.at.checked_sub(Duration::from_nanos(sample.at_ns))
            }
            _ => None,
        };
        if let (Some(known), Some(began)) = (self.known.get_mut(&event.participant), began) {
            *known = Some(known.map_or(began, |known| known.min(began)));
        }
    }

    /// Returns the start of the last window to begin; `None` until all windows have begun.
    fn last(&self) -> Option<Instant> {
        self.known.values().copied().collect::<Option<Vec<Instant>>>()?.into_iter().max()
    }
}

/// Tracker of the agents that are ready. Starts the neighbours, which make competing load, before the measured agents.
struct Barrier {
    is_neighbour: Vec<bool>,
    starts: Vec<Sender<Option<u64>>>,
    overs: Vec<Sender<()>>,
    /// The start time in nanoseconds of the monotonic clock; `None` to start immediately.
    at_ns: Option<u64>,
    unready: Vec<bool>,
    /// True for each neighbour whose window has not begun yet.
    warming_up: Vec<bool>,
    neighbours_started: bool,
    measured_started: bool,
}

impl Barrier {
    fn new(participants: &[Participant<'_>]) -> Self {
        let is_neighbour: Vec<bool> = participants.iter().map(|one| one.is_neighbour).collect();
        Self {
            unready: vec![true; participants.len()],
            warming_up: is_neighbour.clone(),
            is_neighbour,
            starts: Vec::new(),
            overs: Vec::new(),
            at_ns: None,
            neighbours_started: false,
            measured_started: false,
        }
    }

    fn pass(&mut self, event: &AgentEvent, entry: Entry<'_>, on_event: &mut dyn FnMut(AgentEvent)) {
        let number = event.participant;
        match event.kind {
            EventKind::Ready => self.unready[number] = false,
            EventKind::Event(Event::Measuring) => self.warming_up[number] = false,
            EventKind::Starting | EventKind::Event(_) => {}
            EventKind::Ended(_) => {
                self.unready[number] = false;
                self.warming_up[number] = false;
            }
        }
        let none = |waiting: &[bool]| !waiting.contains(&true);
        if none(&self.unready) && !self.neighbours_started {
            self.neighbours_started = true;
            self.at_ns = entry.pass();
            self.start(true);
        }
        if self.neighbours_started && none(&self.warming_up) && !self.measured_started {
            self.measured_started = true;
            let measured = self.is_neighbour.iter().enumerate().filter(|(_, is_neighbour)| !**is_neighbour);
            // An agreed start time may still be some time away.
            for (participant, _) in measured.filter(|_| self.at_ns.is_none()) {
                on_event(AgentEvent { participant, at: Instant::now(), kind: EventKind::Starting });
            }
            self.start(false);
        }
    }

    /// Lets an agent whose window is over continue, so that it flushes its writes.
    fn release(&self, number: usize) {
        // An agent that has failed does not wait for this.
        let _ = self.overs[number].send(());
    }

    fn start(&self, neighbours: bool) {
        for (start, is_neighbour) in self.starts.iter().zip(&self.is_neighbour) {
            if *is_neighbour == neighbours {
                // A participant that has failed no longer receives.
                let _ = start.send(self.at_ns);
            }
        }
    }
}
