//! Leaves: processes that merge the samples of many members, so that the coordinator receives one sample per leaf and interval.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::address::Address;
use super::connection::{Arrival, Connection, NatsError};
use super::frame::{Frame, unpack};
use super::hub::nanos;
use super::presence::{AgentRole, Broadcast, Presence, Situation, encode};
use super::subject::Subjects;
use crate::link::LinkError;
use crate::message::{FromMember, Merged, PROTOCOL, StepNumber};
use crate::pipe::monotonic_ns;

/// Time that a leaf waits for further samples of an interval. Members start within milliseconds of each other, so their intervals also end
/// close together.
const HOLD: Duration = Duration::from_millis(500);

/// Number of forwarded intervals that are remembered, so that late samples are recognized.
const REMEMBERED: usize = 1024;

/// Time between two announcements of a leaf.
const BEACON: Duration = Duration::from_secs(1);

/// An interval: the fleet's id, the step's number and the interval's number.
type Key = (String, StepNumber, u32);

/// Counts of samples that a leaf has handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeafCounts {
    /// Number of samples received.
    pub samples: u64,
    /// Number of merged samples sent to coordinators.
    pub passed: u64,
    /// Number of samples that arrived after their interval was forwarded, if it is one of the last 1024 forwarded. Such samples are
    /// forwarded separately.
    pub late: u64,
}

/// Merger of the samples of each interval. Does not read a clock: the caller passes the time.
#[derive(Debug, Default)]
pub struct Merger {
    open: BTreeMap<Key, (Merged, u64)>,
    passed: BTreeSet<Key>,
    order: VecDeque<Key>,
    counts: LeafCounts,
}

impl Merger {
    /// Adds a sample that arrived at `now_ns`. Samples of an interval that is already forwarded are merged separately.
    pub fn add(&mut self, fleet: &str, sample: Merged, now_ns: u64) {
        self.counts.samples += 1;
        let key = (fleet.to_owned(), sample.step, sample.interval);
        self.counts.late += u64::from(self.passed.contains(&key));
        match self.open.entry(key) {
            Entry::Vacant(slot) => drop(slot.insert((sample, now_ns))),
            Entry::Occupied(mut slot) => slot.get_mut().0.merge(&sample),
        }
    }

    /// Returns the merged intervals that have been held for half a second (`HOLD`) at `now_ns`, each with its fleet's id.
    pub fn due(&mut self, now_ns: u64) -> Vec<(String, Merged)> {
        let hold = nanos(HOLD);
        let is_due = |(_, since): &(Merged, u64)| now_ns.saturating_sub(*since) >= hold;
        let keys: Vec<Key> =
            self.open.iter().filter(|(_, open)| is_due(open)).map(|(key, _)| key.clone()).collect();
        let mut due = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some((merged, _)) = self.open.remove(&key) {
                self.counts.passed += 1;
                due.push((key.0.clone(), merged));
            }
            if self.passed.insert(key.clone()) {
                self.order.push_back(key);
            }
            if self.order.len() > REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.passed.remove(&oldest);
            }
        }
        due
    }

    /// Returns the time at which the next interval is due, in nanoseconds of the caller's clock; `None` if no interval waits.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.open.values().map(|(_, since)| since + nanos(HOLD)).min()
    }

    /// Returns the counts of samples so far.
    pub fn counts(&self) -> LeafCounts {
        self.counts
    }
}

/// A leaf connected to a NATS server.
#[derive(Debug)]
pub struct Leaf {
    connection: Connection,
    subjects: Subjects,
    presence: Presence,
    merger: Merger,
    next_beacon_ns: u64,
}

impl Leaf {
    /// Connects to the server; keeps trying while the server is unreachable. [`Self::serve`] announces the leaf to the coordinators.
    pub fn connect(address: &Address, name: &str, version: &str) -> Result<Self, NatsError> {
        let subjects = Subjects::new(&address.prefix);
        let listen = vec![subjects.samples(name), subjects.all()];
        let connection = Connection::open(address, &format!("iotax leaf {name}"), listen, true)?;
        let presence = Presence {
            name: name.to_owned(),
            role: AgentRole::Leaf,
            group: address.group.clone(),
            version: version.to_owned(),
            protocol: PROTOCOL,
            process: super::presence::random(),
            situation: Situation::Free,
        };
        Ok(Self { connection, subjects, presence, merger: Merger::default(), next_beacon_ns: 0 })
    }

    /// Receives, merges and forwards samples for the duration `patience`, and announces the leaf once a second. Fails if the connection has
    /// ended.
    pub fn serve(&mut self, patience: Duration) -> Result<(), LinkError> {
        let until = monotonic_ns().saturating_add(nanos(patience));
        loop {
            let now = monotonic_ns();
            for (fleet, merged) in self.merger.due(now) {
                self.pass(&fleet, merged);
            }
            if now >= self.next_beacon_ns {
                self.announce();
                self.next_beacon_ns = now + nanos(BEACON);
            }
            if now >= until {
                return Ok(());
            }
            let wake = until.min(self.next_beacon_ns).min(self.merger.next_due_ns().unwrap_or(u64::MAX));
            if let Some(arrival) = self.connection.receive(Duration::from_nanos(wake.saturating_sub(now)))? {
                self.take(arrival);
            }
        }
    }

    /// Returns the counts of samples so far.
    pub fn counts(&self) -> LeafCounts {
        self.merger.counts()
    }

    fn announce(&self) {
        self.connection.publish(self.subjects.answer(&self.presence.name), encode(&self.presence));
    }

    fn pass(&self, fleet: &str, merged: Merged) {
        let frame = Frame::datagram(0, &encode(&FromMember::Sample(merged)));
        self.connection.publish(self.subjects.merged(fleet, &self.presence.name), frame.encode());
    }

    fn take(&mut self, arrival: Arrival) {
        let Arrival::Message { subject, payload, at_ns } = arrival else { return };
        if subject == self.subjects.all() {
            if serde_json::from_slice(&payload).is_ok_and(|said: Broadcast| said == Broadcast::Call) {
                self.announce();
            }
            return;
        }
        let Some((_, names)) = self.subjects.parse(&subject) else { return };
        let [_, fleet, _] = names.as_slice() else { return };
        let message = Frame::decode(&payload).and_then(|frame| unpack(frame.is_compressed, frame.payload));
        let sample = message.ok().and_then(|message| serde_json::from_slice(&message).ok());
        if let Some(FromMember::Sample(sample)) = sample {
            self.merger.add(fleet, sample, at_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use iotax_model::Histogram;
    use proptest::prelude::*;

    use super::*;

    fn sample(step: StepNumber, interval: u32, latencies: &[u64]) -> Merged {
        let mut latency = Histogram::new();
        latencies.iter().for_each(|value| latency.add(*value));
        let ios = latencies.len() as u64;
        Merged { step, interval, members: 1, ios, bytes: ios * 4096, latency }
    }

    proptest! {
        #[test]
        fn what_leaves_pass_on_is_the_merge_of_all(
            given in prop::collection::vec(
                (0_u64..3, 0_u32..4, prop::collection::vec(1_u64..10_000_000, 0..20), 0_u64..900_000_000), 1..60),
        ) {
            let mut leaves = [Merger::default(), Merger::default()];
            let (mut now, mut passed, mut truth) = (0, Vec::new(), BTreeMap::new());
            for (index, (step, interval, latencies, pause)) in given.iter().enumerate() {
                let sample = sample(*step, *interval, latencies);
                match truth.entry((*step, *interval)) {
                    Entry::Vacant(slot) => drop(slot.insert(sample.clone())),
                    Entry::Occupied(mut slot) => slot.get_mut().merge(&sample),
                }
                now += pause;
                let leaf = &mut leaves[index % 2];
                passed.extend(leaf.due(now).into_iter().map(|(_, merged)| merged));
                leaf.add("f", sample, now);
            }
            passed.extend(leaves.iter_mut().flat_map(|leaf| leaf.due(u64::MAX)).map(|(_, merged)| merged));
            let mut sums: BTreeMap<(StepNumber, u32), Merged> = BTreeMap::new();
            for merged in passed {
                match sums.entry((merged.step, merged.interval)) {
                    Entry::Vacant(slot) => drop(slot.insert(merged)),
                    Entry::Occupied(mut slot) => slot.get_mut().merge(&merged),
                }
            }
            prop_assert_eq!(sums, truth);
        }
    }

    #[test]
    fn a_late_sample_passes_later_and_is_counted() {
        let mut leaf = Merger::default();
        leaf.add("f", sample(1, 0, &[5]), 0);
        leaf.add("f", sample(1, 0, &[7]), 1);
        assert_eq!(leaf.due(1), []);
        assert_eq!(leaf.due(nanos(HOLD))[0].1.members, 2);
        leaf.add("f", sample(1, 0, &[9]), nanos(HOLD));
        // Another fleet's step with the same number is merged separately.
        leaf.add("g", sample(1, 0, &[9]), nanos(HOLD));
        assert_eq!(leaf.due(nanos(2 * HOLD)).len(), 2);
        assert_eq!(leaf.counts(), LeafCounts { samples: 4, passed: 3, late: 1 });
    }
}
