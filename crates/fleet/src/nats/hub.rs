//! The coordinator's end of the links over NATS.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::address::Address;
use super::connection::{Arrival, Connection, NatsError};
use super::frame::{Frame, Kind, unpack};
use super::presence::{AgentRole, Broadcast, Offer, Presence, encode, random};
use super::roster::{self, AGAIN, Roster, Wanted};
use super::session::Session;
use super::subject::Subjects;
use crate::link::{Hub, Incoming, LinkError, To};
use crate::message::{FromMember, ToMember};
use crate::pipe::monotonic_ns;

/// Maximum time that an acknowledgement waits for a data frame to carry it; also the interval at which the coordinator checks for frames to
/// repeat.
const TICK: Duration = Duration::from_millis(20);

/// Maximum time between two broadcasts that show that the coordinator is alive.
pub(super) const LONGEST_BEACON: Duration = Duration::from_secs(5);

/// A leaf that is silent for this many of the coordinator's broadcast intervals gets no more samples.
const LEAF_BEACONS: u32 = 3;

/// Default time without any message after which either end considers the other lost.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Reason text in the close frame to a member.
const DONE: &[u8] = b"the coordinator has ended its work";

/// Numbers of repeated and lost messages, which can explain a slow fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Number of data frames that were sent again, to the members whose links have not ended.
    pub repeated: u64,
    /// Number of messages that the client dropped because this process read too slowly.
    pub dropped: u64,
    /// Number of invalid frames and messages from members.
    pub garbled: u64,
}

/// The coordinator's links to all members of a fleet.
#[derive(Debug)]
pub struct NatsHub {
    connection: Connection,
    subjects: Subjects,
    fleet: String,
    version: String,
    epoch: u64,
    patience: Duration,
    members: BTreeMap<String, MemberState>,
    /// Names of the members with unacknowledged frames, or with an acknowledgement to send.
    active: BTreeSet<String>,
    leaves: BTreeMap<String, u64>,
    ready: VecDeque<Incoming>,
    next_tick_ns: u64,
    next_beacon_ns: u64,
    looked_ns: u64,
    garbled: u64,
    /// Epoch of a later coordinator that has taken over the fleet; `None` if there is none.
    fenced_by: Option<u64>,
}

#[derive(Debug)]
struct MemberState {
    process: u64,
    stage: Stage,
    heard_ns: u64,
}

#[derive(Debug)]
enum Stage {
    Offered,
    Open(Session),
    /// The stream to the member ends when all its data is acknowledged.
    Closing(Session),
    Gone,
}

impl NatsHub {
    /// Finds the agents with these names, or those that the address selects, and waits until all have accepted the fleet.
    ///
    /// Without `names`, if the address has `expect`, takes exactly that many agents, the first ones by name. Takes over a fleet that has an
    /// earlier coordinator. Fails if the server cannot be used, if too few agents are free within the address's `wait`, if a chosen one
    /// does not accept the fleet in time, or if a later coordinator takes over.
    pub fn open(
        address: &Address,
        fleet: &str,
        version: &str,
        names: Option<&[String]>,
    ) -> Result<Self, NatsError> {
        Self::open_with(address, fleet, version, names, PATIENCE)
    }

    /// Opens the links as [`Self::open`] does. `patience` is the time without any message after which either end considers the other lost.
    pub fn open_with(
        address: &Address,
        fleet: &str,
        version: &str,
        names: Option<&[String]>,
        patience: Duration,
    ) -> Result<Self, NatsError> {
        let subjects = Subjects::new(&address.prefix);
        let listen =
            vec![subjects.answers(), subjects.all_from(fleet), subjects.all_merged(fleet), subjects.all()];
        let connection = Connection::open(address, &format!("iotax fleet {fleet}"), listen, false)?;
        let now = monotonic_ns();
        let mut hub = Self {
            connection,
            subjects,
            fleet: fleet.to_owned(),
            version: version.to_owned(),
            epoch: 0,
            patience,
            members: BTreeMap::new(),
            active: BTreeSet::new(),
            leaves: BTreeMap::new(),
            ready: VecDeque::new(),
            next_tick_ns: now,
            next_beacon_ns: now,
            looked_ns: now,
            garbled: 0,
            fenced_by: None,
        };
        let until = Instant::now() + address.wait;
        hub.enlist(address, names, until)?;
        hub.offer_to_all(address, until)?;
        Ok(hub)
    }

    /// Returns the names of all members that were chosen for the fleet, including lost ones.
    pub fn members(&self) -> Vec<String> {
        self.members.keys().cloned().collect()
    }

    /// Returns this coordinator's epoch, which is higher than that of the fleet's earlier coordinators.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the names of the leaves that merge samples at present.
    pub fn leaves(&self) -> Vec<String> {
        self.leaves.keys().cloned().collect()
    }

    /// Returns the numbers of repeated and lost messages so far.
    pub fn losses(&self) -> Losses {
        let repeated = self.members.values().map(|member| match &member.stage {
            Stage::Open(session) | Stage::Closing(session) => session.repeated(),
            Stage::Offered | Stage::Gone => 0,
        });
        Losses { repeated: repeated.sum(), dropped: self.connection.lost(), garbled: self.garbled }
    }

    /// Returns the numbers of messages and bytes sent since the start; the bytes include subjects.
    pub fn sent(&self) -> (u64, u64) {
        self.connection.sent()
    }

    /// Returns the numbers of messages and bytes received since the start; the bytes include subjects.
    pub fn received(&self) -> (u64, u64) {
        self.connection.received()
    }

    /// Finds the agents that are present, and chooses the members.
    fn enlist(
        &mut self,
        address: &Address,
        names: Option<&[String]>,
        until: Instant,
    ) -> Result<(), NatsError> {
        let (fleet, version) = (self.fleet.clone(), self.version.clone());
        let wanted = Wanted { fleet: Some(&fleet), names, version: &version };
        let roster =
            Roster::gather(&self.connection, &self.subjects, until, |all| all.is_enough(address, wanted))?;
        for (name, process) in roster.choose(address, wanted)? {
            let state = MemberState { process, stage: Stage::Offered, heard_ns: monotonic_ns() };
            self.members.insert(name, state);
        }
        // The lower bits decide between two coordinators that take over at the same time.
        let last = roster.last_epoch(&fleet).unwrap_or(0) >> 16;
        self.epoch = ((last + 1) << 16) | (random() & 0xffff);
        self.leaves = roster.leaves();
        Ok(())
    }

    /// Offers the fleet to the chosen members, repeatedly, until all have accepted. Fails if some have not by the time `until`, which is
    /// extended to at least two seconds from now.
    fn offer_to_all(&mut self, address: &Address, until: Instant) -> Result<(), NatsError> {
        let until = until.max(Instant::now() + 2 * AGAIN);
        let is_open = |state: &MemberState| matches!(state.stage, Stage::Open(_));
        self.tick(monotonic_ns());
        let mut again = Instant::now() + AGAIN;
        while !self.members.values().all(is_open) {
            let now = Instant::now();
            if now >= until {
                let found = self.members.values().filter(|state| is_open(state)).count();
                let silent = self.members.iter().filter(|(_, state)| !is_open(state));
                let others: Vec<String> = silent
                    .map(|(name, _)| format!("{} does not begin", iotax_model::visible::line(name)))
                    .collect();
                let expected = self.members.len();
                return Err(NatsError::Missing { found, expected, group: address.group.clone(), others });
            }
            if now >= again {
                self.tick(monotonic_ns());
                again = now + AGAIN;
            }
            if let Some(arrival) = self.connection.receive(again.saturating_duration_since(now).min(TICK))? {
                self.take(arrival);
            }
            self.check_fence()?;
        }
        Ok(())
    }

    fn broadcast(&self, broadcast: &Broadcast) {
        self.connection.publish(self.subjects.all(), encode(broadcast));
    }

    fn publish(&self, member: &str, frame: &Frame) {
        self.connection.publish(self.subjects.to(member), frame.encode());
    }

    fn check_fence(&self) -> Result<(), LinkError> {
        match self.fenced_by {
            None => Ok(()),
            Some(epoch) => Err(LinkError::Closed(format!(
                "another coordinator has taken over fleet {} (its epoch is {epoch}, this one's {})",
                self.fleet, self.epoch
            ))),
        }
    }

    fn beacon(&self) -> Duration {
        LONGEST_BEACON.min(self.patience / 6)
    }

    fn wake_by(&mut self, at_ns: u64) {
        self.next_tick_ns = self.next_tick_ns.min(at_ns);
    }

    /// Sends everything that is due: repeated frames, acknowledgements, offers and signs of life.
    fn tick(&mut self, now: u64) {
        for name in std::mem::take(&mut self.active) {
            if self.flush(&name, now, true) {
                self.active.insert(name);
            }
        }
        if now >= self.next_beacon_ns {
            let silent_ns = nanos(self.beacon() * LEAF_BEACONS);
            self.leaves.retain(|_, heard| now.saturating_sub(*heard) < silent_ns);
            let leaves = self.leaves();
            self.broadcast(&Broadcast::Alive { fleet: self.fleet.clone(), epoch: self.epoch, leaves });
            self.next_beacon_ns = now + nanos(self.beacon());
        }
        let offered = self.members.iter().filter(|(_, state)| matches!(state.stage, Stage::Offered));
        let offer = Offer {
            fleet: self.fleet.clone(),
            version: self.version.clone(),
            patience_ms: u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX),
            leaves: self.leaves(),
        };
        for (name, _) in offered {
            self.publish(name, &Frame::plain(Kind::Open, self.epoch, encode(&offer)));
        }
        self.next_tick_ns = if self.active.is_empty() { self.next_beacon_ns } else { now + nanos(TICK) };
    }

    /// Sends a member's pending frames; with `acknowledge`, also a pending acknowledgement. Ends a closing link once nothing remains.
    /// Returns true if frames are unacknowledged or an acknowledgement remains to be sent.
    fn flush(&mut self, name: &str, now: u64, acknowledge: bool) -> bool {
        let Some(state) = self.members.get_mut(name) else { return false };
        let is_closing = matches!(state.stage, Stage::Closing(_));
        let (Stage::Open(session) | Stage::Closing(session)) = &mut state.stage else { return false };
        let mut frames: Vec<Frame> = std::iter::from_fn(|| session.next(now)).collect();
        if acknowledge {
            frames.extend(session.acknowledgement());
        }
        let mut is_active = !session.is_quiet();
        if is_closing && !is_active {
            frames.push(Frame::plain(Kind::Close, session.epoch(), DONE.to_vec()));
            state.stage = Stage::Gone;
        } else if is_closing {
            is_active = true;
        }
        for frame in frames {
            self.publish(name, &frame);
        }
        is_active
    }

    fn take(&mut self, arrival: Arrival) {
        let (subject, payload, at_ns) = match arrival {
            Arrival::Connected => {
                self.reconnected();
                return;
            }
            Arrival::Local { .. } => return,
            Arrival::Message { subject, payload, at_ns } => (subject, payload, at_ns),
        };
        let Some((kind, names)) = self.subjects.parse(&subject) else { return };
        match (kind.as_str(), names.as_slice()) {
            ("from", [_, member]) => match Frame::decode(&payload) {
                Ok(frame) => self.take_frame(member, frame, at_ns),
                Err(error) => {
                    self.garbled += 1;
                    self.lose(member, &error.to_string());
                }
            },
            ("merged", [_, leaf]) => {
                if let Ok(frame) = Frame::decode(&payload) {
                    self.take_datagram(leaf, frame, at_ns);
                }
            }
            ("answer", [_]) => {
                if let Some(presence) = roster::read(&self.subjects, &subject, &payload) {
                    self.take_presence(&presence, at_ns);
                }
            }
            ("all", []) => self.take_broadcast(&payload),
            _ => {}
        }
    }

    fn take_broadcast(&mut self, payload: &[u8]) {
        if let Ok(Broadcast::Alive { fleet, epoch, .. }) = serde_json::from_slice(payload)
            && fleet == self.fleet
            && epoch > self.epoch
        {
            self.fenced_by = Some(epoch);
        }
    }

    fn take_presence(&mut self, presence: &Presence, at_ns: u64) {
        match presence.role {
            AgentRole::Leaf => {
                if self.leaves.insert(presence.name.clone(), at_ns).is_none() {
                    // Announce the new leaf to the members at once, with the next broadcast.
                    self.next_beacon_ns = at_ns;
                    self.wake_by(at_ns);
                }
            }
            AgentRole::Agent => {
                let known = self.members.get(&presence.name);
                if known.is_some_and(|known| known.process != presence.process) {
                    self.lose(&presence.name, "its agent has been restarted");
                }
            }
        }
    }

    fn reconnected(&mut self) {
        let now = monotonic_ns();
        for (name, state) in &mut self.members {
            if let Stage::Open(session) | Stage::Closing(session) = &mut state.stage {
                session.reconnected();
                state.heard_ns = now;
                self.active.insert(name.clone());
            }
        }
        self.next_beacon_ns = now;
        self.next_tick_ns = now;
    }

    fn take_frame(&mut self, name: &str, frame: Frame, at_ns: u64) {
        if frame.epoch > self.epoch {
            self.fenced_by = Some(frame.epoch);
            return;
        }
        let Some(state) = self.members.get_mut(name) else { return };
        if frame.epoch < self.epoch {
            return;
        }
        state.heard_ns = at_ns;
        match (&mut state.stage, frame.kind) {
            (Stage::Offered, Kind::Opened) => state.stage = Stage::Open(Session::new(self.epoch)),
            (_, Kind::Refused | Kind::Close) => {
                let reason = frame.reason();
                self.lose(name, &reason);
            }
            (Stage::Open(_) | Stage::Closing(_), Kind::Datagram) => self.take_datagram(name, frame, at_ns),
            (Stage::Open(session) | Stage::Closing(session), Kind::Data | Kind::Alive) => {
                let taken = session.take(&frame, at_ns);
                let parsed = taken.and_then(|message| message.map(|message| read(&message)).transpose());
                self.active.insert(name.to_owned());
                self.wake_by(at_ns + nanos(TICK));
                match parsed {
                    Ok(None) => {}
                    Ok(Some(message)) => {
                        self.ready.push_back(Incoming::Message { member: name.to_owned(), message, at_ns });
                    }
                    Err(error) => {
                        self.garbled += 1;
                        self.lose(name, &error.to_string());
                    }
                }
            }
            (Stage::Gone, Kind::Data | Kind::Alive | Kind::Opened) => {
                self.publish(name, &Frame::plain(Kind::Close, self.epoch, DONE.to_vec()));
            }
            _ => {}
        }
    }

    fn take_datagram(&mut self, from: &str, frame: Frame, at_ns: u64) {
        let message = unpack(frame.is_compressed, frame.payload).and_then(|message| read(&message));
        match message {
            Ok(message @ FromMember::Sample(_)) => {
                self.ready.push_back(Incoming::Message { member: from.to_owned(), message, at_ns });
            }
            Ok(_) | Err(_) => self.garbled += 1,
        }
    }

    fn lose(&mut self, name: &str, reason: &str) {
        let Some(state) = self.members.get_mut(name) else { return };
        if matches!(state.stage, Stage::Gone) {
            return;
        }
        state.stage = Stage::Gone;
        self.active.remove(name);
        self.ready.push_back(Incoming::Lost { member: name.to_owned(), reason: reason.to_owned() });
        self.publish(name, &Frame::plain(Kind::Close, self.epoch, DONE.to_vec()));
    }

    /// Reports members as lost if no message from them has arrived for longer than `patience`.
    fn lose_silent(&mut self, now: u64) {
        let patience = nanos(self.patience);
        let silent = self.members.iter().filter(|(_, state)| now.saturating_sub(state.heard_ns) > patience);
        let silent: Vec<String> = silent.map(|(name, _)| name.clone()).collect();
        for name in silent {
            self.lose(&name, &format!("nothing was heard of it for {} s", self.patience.as_secs_f64()));
        }
    }
}

impl Hub for NatsHub {
    fn send(&mut self, to: To<'_>, message: &ToMember) -> Result<(), LinkError> {
        self.check_fence()?;
        let bytes = encode(message);
        let now = monotonic_ns();
        let names: Vec<String> = match to {
            To::One(name) => vec![name.to_owned()],
            To::All => self.members(),
        };
        for name in names {
            if let Some(MemberState { stage: Stage::Open(session), .. }) = self.members.get_mut(&name) {
                session.push(&bytes);
                self.flush(&name, now, false);
                self.active.insert(name);
            }
        }
        self.wake_by(now + nanos(TICK));
        Ok(())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Incoming>, LinkError> {
        let until = Instant::now() + patience;
        let now = monotonic_ns();
        if now.saturating_sub(self.looked_ns) > nanos(self.patience / 2) {
            // This process itself was suspended, so that missing messages do not mean lost members.
            self.members.values_mut().for_each(|state| state.heard_ns = now);
        }
        loop {
            if let Some(incoming) = self.ready.pop_front() {
                return Ok(Some(incoming));
            }
            self.check_fence()?;
            let now = monotonic_ns();
            self.looked_ns = now;
            if now >= self.next_tick_ns {
                self.tick(now);
            }
            let left = until.saturating_duration_since(Instant::now());
            let to_tick = Duration::from_nanos(self.next_tick_ns.saturating_sub(now));
            match self.connection.receive(left.min(to_tick))? {
                Some(arrival) => self.take(arrival),
                None if left.is_zero() => return Ok(None),
                None => self.lose_silent(now),
            }
        }
    }

    fn close(&mut self, member: &str) {
        let Some(state) = self.members.get_mut(member) else { return };
        state.stage = match std::mem::replace(&mut state.stage, Stage::Gone) {
            Stage::Open(session) => Stage::Closing(session),
            other => other,
        };
        let now = monotonic_ns();
        if self.flush(member, now, true) {
            self.active.insert(member.to_owned());
            self.wake_by(now + nanos(TICK));
        }
    }
}

impl Drop for NatsHub {
    /// Sends a close frame to all members whose links have not ended, unless another coordinator has taken over the fleet.
    fn drop(&mut self) {
        if self.fenced_by.is_some() {
            return;
        }
        for (name, state) in &self.members {
            if !matches!(state.stage, Stage::Gone) {
                self.publish(name, &Frame::plain(Kind::Close, self.epoch, DONE.to_vec()));
            }
        }
    }
}

fn read(message: &[u8]) -> Result<FromMember, LinkError> {
    serde_json::from_slice(message).map_err(|error| LinkError::Garbled(error.to_string()))
}

/// Converts a duration to nanoseconds, saturating at `u64::MAX` (584 years).
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
