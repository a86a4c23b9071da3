//! The member's end of the links over NATS: an agent that waits for a fleet to work for.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::address::Address;
use super::connection::{Arrival, Connection, NatsError};
use super::frame::{Frame, Kind};
use super::hub::{LONGEST_BEACON, PATIENCE, nanos};
use super::presence::{AgentRole, Broadcast, Offer, Presence, Situation, encode};
use super::session::Session;
use super::subject::Subjects;
use crate::link::LinkError;
use crate::message::{FromMember, PROTOCOL, ToMember};
use crate::pipe::monotonic_ns;

/// Interval at which the agent checks for frames to repeat while some of its frames are unacknowledged.
const TICK: Duration = Duration::from_millis(20);

/// The name, group and version of an agent.
#[derive(Debug, Clone)]
pub struct AgentName {
    /// Name of the agent, which must be unique on the server.
    pub name: String,
    /// Group of the agent; `None` if it belongs to none.
    pub group: Option<String>,
    /// Version and commit of the agent's iotax.
    pub version: String,
}

/// The fleet that an agent works for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// Id of the fleet, chosen by its coordinator.
    pub fleet: String,
    /// Version and commit of the coordinator's iotax.
    pub version: String,
}

/// An event while an agent works for a fleet.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberEvent {
    /// A message arrived from the coordinator, or an operator has cancelled the fleet.
    Coordinator(ToMember),
    /// A message arrived from the local worker process.
    Local(FromMember),
    /// The local worker process has ended.
    LocalEnded,
}

/// Sender with which the thread that reads from the worker process passes messages to [`Agent::next`].
#[derive(Debug, Clone)]
pub(super) struct Feeder {
    arrivals: mpsc::Sender<Arrival>,
    thread: u64,
}

impl Feeder {
    /// Passes a message on; `None` reports that the process has ended.
    pub(super) fn feed(&self, message: Option<FromMember>) {
        let _ = self.arrivals.send(Arrival::Local { thread: self.thread, message: message.map(Box::new) });
    }
}

/// An agent that is connected to the server and announced.
#[derive(Debug)]
pub struct Agent {
    connection: Connection,
    subjects: Subjects,
    who: AgentName,
    process: u64,
    work: Option<Work>,
    is_draining: bool,
    doing: Option<String>,
    ready: VecDeque<MemberEvent>,
    /// Number of the thread that reads from the current worker process. Messages of other threads, from earlier processes, are ignored.
    thread: u64,
}

/// The agent's work for one fleet.
#[derive(Debug)]
struct Work {
    fleet: Fleet,
    session: Session,
    patience: Duration,
    heard_ns: u64,
    next_beacon_ns: u64,
    leaves: Vec<String>,
    /// The reason why the stream has ended; `None` as long as it has not.
    over: Option<String>,
}

impl Agent {
    /// Connects and announces the agent. Keeps trying while the server is unreachable; fails if the server rejects the agent.
    pub fn enlist(address: &Address, who: &AgentName) -> Result<Self, NatsError> {
        let subjects = Subjects::new(&address.prefix);
        let listen = vec![subjects.to(&who.name), subjects.all()];
        let connection = Connection::open(address, &format!("iotax agent {}", who.name), listen, true)?;
        let process = super::presence::random();
        let agent = Self {
            connection,
            subjects,
            who: who.clone(),
            process,
            work: None,
            is_draining: false,
            doing: None,
            ready: VecDeque::new(),
            thread: 0,
        };
        agent.announce();
        Ok(agent)
    }

    /// Creates a sender for the thread that reads from a new worker process. Messages of earlier senders are ignored from now on.
    pub(super) fn feeder(&mut self) -> Feeder {
        self.thread += 1;
        Feeder { arrivals: self.connection.arrivals(), thread: self.thread }
    }

    /// Waits up to `patience` for a fleet to work for; `None` if the agent accepts none in that time.
    pub fn wait(&mut self, patience: Duration) -> Result<Option<Fleet>, LinkError> {
        let until = Instant::now() + patience;
        loop {
            if let Some(work) = &self.work {
                return Ok(Some(work.fleet.clone()));
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.connection.receive(left)? {
                Some(arrival) => self.take(arrival),
                None => return Ok(None),
            }
        }
    }

    /// Makes the agent accept no more fleets.
    pub fn drain(&mut self) {
        self.is_draining = true;
        self.announce();
    }

    /// Returns true if the agent accepts no more fleets.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Waits up to `patience` for the next event; `None` if there is none. When the work for the fleet or the connection has ended, fails
    /// with the reason.
    pub fn next(&mut self, patience: Duration) -> Result<Option<MemberEvent>, LinkError> {
        let until = Instant::now() + patience;
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let now = monotonic_ns();
            let wake_ns = self.tick(now)?;
            let left = until.saturating_duration_since(Instant::now());
            let to_tick = Duration::from_nanos(wake_ns.saturating_sub(now));
            match self.connection.receive(left.min(to_tick))? {
                Some(arrival) => self.take(arrival),
                None if left.is_zero() => return Ok(None),
                None => {}
            }
        }
    }

    /// Sends a message to the coordinator. When the work for the fleet has ended, fails with the reason.
    pub fn send(&mut self, message: &FromMember) -> Result<(), LinkError> {
        if let FromMember::Doing(doing) = message {
            self.doing = Some(doing.clone());
        }
        let Some(work) = &mut self.work else {
            return Err(LinkError::Closed("there is no work".into()));
        };
        if let Some(reason) = &work.over {
            return Err(LinkError::Closed(reason.clone()));
        }
        if matches!(message, FromMember::Sample(_)) {
            self.send_sample(message);
            return Ok(());
        }
        work.session.push(&encode(message));
        self.tick(monotonic_ns()).map(drop)
    }

    /// Waits up to `patience` and handles at most one event. Keeps the agent answering broadcasts while the worker process undoes its
    /// changes.
    pub fn linger(&mut self, patience: Duration) -> Result<(), LinkError> {
        if let Some(arrival) = self.connection.receive(patience)? {
            self.take(arrival);
        }
        Ok(())
    }

    /// Waits up to `patience` until the coordinator has acknowledged all messages; returns whether it has.
    pub fn settle(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            let Some(work) = &self.work else { return false };
            if work.session.is_quiet() {
                return true;
            }
            if self.next(TICK).is_err() {
                return false;
            }
        }
        false
    }

    /// Ends the work for the fleet; call this once the worker process has undone its changes. The agent is then free for another fleet,
    /// unless it is draining.
    pub fn free(&mut self, reason: &str) {
        if let Some(work) = self.work.take()
            && work.over.is_none()
        {
            let close = Frame::plain(Kind::Close, work.session.epoch(), reason.as_bytes().to_vec());
            self.publish(&work.fleet.fleet, &close);
        }
        self.doing = None;
        self.ready.clear();
        // The thread that reads from the ended process may still send messages; ignore them.
        self.thread += 1;
        self.announce();
    }

    fn situation(&self) -> Situation {
        match &self.work {
            Some(work) => Situation::Working {
                fleet: work.fleet.fleet.clone(),
                epoch: work.session.epoch(),
                doing: self.doing.clone(),
            },
            None if self.is_draining => Situation::Draining,
            None => Situation::Free,
        }
    }

    fn announce(&self) {
        let presence = Presence {
            name: self.who.name.clone(),
            role: AgentRole::Agent,
            group: self.who.group.clone(),
            version: self.who.version.clone(),
            protocol: PROTOCOL,
            process: self.process,
            situation: self.situation(),
        };
        self.connection.publish(self.subjects.answer(&self.who.name), encode(&presence));
    }

    fn publish(&self, fleet: &str, frame: &Frame) {
        self.connection.publish(self.subjects.from(fleet, &self.who.name), frame.encode());
    }

    /// Sends everything that is due: repeated frames, acknowledgements and signs of life. Returns the time at which to call this again, in
    /// nanoseconds of the monotonic clock; fails when the work for the fleet has ended.
    fn tick(&mut self, now: u64) -> Result<u64, LinkError> {
        let Some(work) = &mut self.work else {
            return Err(LinkError::Closed("there is no work".into()));
        };
        if work.over.is_none() && now.saturating_sub(work.heard_ns) > nanos(work.patience) {
            work.over =
                Some(format!("nothing was heard of the coordinator for {} s", work.patience.as_secs_f64()));
        }
        if let Some(reason) = &work.over {
            return Err(LinkError::Closed(reason.clone()));
        }
        let mut frames: Vec<Frame> = std::iter::from_fn(|| work.session.next(now)).collect();
        frames.extend(work.session.acknowledgement());
        if now >= work.next_beacon_ns {
            frames.push(work.session.alive());
            work.next_beacon_ns = now + nanos(LONGEST_BEACON.min(work.patience / 6));
        }
        let wake = if work.session.is_quiet() { work.next_beacon_ns } else { now + nanos(TICK) };
        let fleet = work.fleet.fleet.clone();
        for frame in frames {
            self.publish(&fleet, &frame);
        }
        Ok(wake)
    }

    fn take(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Connected => {
                if let Some(work) = &mut self.work {
                    work.session.reconnected();
                    work.heard_ns = monotonic_ns();
                }
                self.announce();
            }
            Arrival::Local { thread, message } => {
                if thread == self.thread {
                    self.ready.push_back(
                        message.map_or(MemberEvent::LocalEnded, |message| MemberEvent::Local(*message)),
                    );
                }
            }
            Arrival::Message { subject, payload, at_ns } => {
                if subject == self.subjects.all() {
                    if let Ok(broadcast) = serde_json::from_slice(&payload) {
                        self.take_broadcast(broadcast, at_ns);
                    }
                } else if let Ok(frame) = Frame::decode(&payload) {
                    self.take_frame(&frame, at_ns);
                }
            }
        }
    }

    fn take_broadcast(&mut self, broadcast: Broadcast, at_ns: u64) {
        match broadcast {
            Broadcast::Call => self.announce(),
            Broadcast::Alive { fleet, epoch, leaves } => {
                if let Some(work) = &mut self.work
                    && (work.fleet.fleet.as_str(), work.session.epoch()) == (fleet.as_str(), epoch)
                {
                    work.heard_ns = at_ns;
                    work.leaves = leaves;
                }
            }
            Broadcast::Drain(selection) => {
                if selection.has(&self.who.name, self.who.group.as_deref()) {
                    self.drain();
                }
            }
            Broadcast::Cancel { fleet } => {
                if self.work.as_ref().is_some_and(|work| work.fleet.fleet == fleet) {
                    self.ready.push_back(MemberEvent::Coordinator(ToMember::Cancel));
                }
            }
        }
    }

    fn take_frame(&mut self, frame: &Frame, at_ns: u64) {
        if frame.kind == Kind::Open {
            self.take_offer(frame, at_ns);
            return;
        }
        let Some(work) = &mut self.work else { return };
        if frame.epoch != work.session.epoch() {
            if frame.epoch < work.session.epoch() {
                self.refuse_earlier();
            }
            return;
        }
        work.heard_ns = at_ns;
        if frame.kind == Kind::Close {
            work.over = Some(frame.reason());
            return;
        }
        let taken = work.session.take(frame, at_ns);
        let parsed = taken.and_then(|message| {
            let read = |message: Vec<u8>| {
                serde_json::from_slice(&message).map_err(|error| LinkError::Garbled(error.to_string()))
            };
            message.map(read).transpose()
        });
        match parsed {
            Ok(message) => self.ready.extend(message.map(MemberEvent::Coordinator)),
            Err(error) => work.over = Some(error.to_string()),
        }
    }

    /// Sends the current coordinator's epoch to an earlier coordinator of the fleet, so that it learns that it was replaced.
    fn refuse_earlier(&mut self) {
        if let Some(work) = &mut self.work {
            let (fleet, frame) = (work.fleet.fleet.clone(), work.session.alive());
            self.publish(&fleet, &frame);
        }
    }

    fn take_offer(&mut self, frame: &Frame, at_ns: u64) {
        let Ok(offer) = serde_json::from_slice::<Offer>(&frame.payload) else { return };
        if let Some(work) = &mut self.work {
            if work.fleet.fleet != offer.fleet {
                let reason = format!("it works for fleet {}", work.fleet.fleet);
                self.publish(&offer.fleet, &Frame::plain(Kind::Refused, frame.epoch, reason.into_bytes()));
            } else if frame.epoch < work.session.epoch() {
                self.refuse_earlier();
            } else if frame.epoch > work.session.epoch() {
                // Undo the current work first; the coordinator repeats its offer.
                work.over = Some("another coordinator has taken over".into());
            } else {
                self.publish(&offer.fleet, &Frame::plain(Kind::Opened, frame.epoch, Vec::new()));
            }
            return;
        }
        if self.is_draining {
            let refused = Frame::plain(Kind::Refused, frame.epoch, b"it takes no more work".to_vec());
            self.publish(&offer.fleet, &refused);
            return;
        }
        let patience =
            Duration::from_millis(offer.patience_ms).clamp(Duration::from_millis(500), 60 * PATIENCE);
        self.work = Some(Work {
            fleet: Fleet { fleet: offer.fleet.clone(), version: offer.version },
            session: Session::new(frame.epoch),
            patience,
            heard_ns: at_ns,
            next_beacon_ns: at_ns,
            leaves: offer.leaves,
            over: None,
        });
        self.publish(&offer.fleet, &Frame::plain(Kind::Opened, frame.epoch, Vec::new()));
    }

    /// Sends a sample as a datagram, to a leaf if there is one. A lost sample does no harm, so it is not acknowledged.
    fn send_sample(&self, message: &FromMember) {
        let Some(work) = &self.work else { return };
        let frame = Frame::datagram(work.session.epoch(), &encode(message)).encode();
        let fleet = &work.fleet.fleet;
        let subject = match work.leaves.as_slice() {
            [] => self.subjects.from(fleet, &self.who.name),
            leaves => {
                let index = self
                    .who
                    .name
                    .bytes()
                    .fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
                self.subjects.sample(&leaves[index % leaves.len()], fleet, &self.who.name)
            }
        };
        self.connection.publish(subject, frame);
    }
}
