//! I/Os whose priority differs from their thread's (`cmdprio`).

use iotax_load::random::{Purpose, SplitMix64};
use iotax_load::request::{Io, IoKind};
use iotax_model::workload::{Priority, PriorityShareOfLength, PrioritySplit, Workload};

/// The realtime class, fio's default for `cmdprio_percentage` without `cmdprio_class`.
const REAL_TIME: u16 = 1;

/// The I/Os whose priority differs from their thread's. A priority is encoded as for ioprio_set(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PriorityShare {
    /// A percentage of all I/Os, regardless of direction and length.
    Any(Share),
    /// Percentages of the I/Os of each length in bytes; all I/Os other than reads use `writes`.
    ByLength { reads: Vec<(u32, Share)>, writes: Vec<(u32, Share)> },
}

/// A percentage of I/Os and the priority that they get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    percent: u8,
    value: u16,
}

impl PriorityShare {
    pub(crate) fn new(workload: &Workload) -> Option<Self> {
        let (class, level) = (workload.cmdprio_class.unwrap_or(REAL_TIME), workload.cmdprio.unwrap_or(0));
        let usual = Priority { class, level, hint: 0 }.number();
        if let Some(split) = &workload.cmdprio_bssplit {
            let shares = |split: &PrioritySplit| {
                let shares = split.shares().iter().filter(|share| share.percent > 0);
                let value = |priority: Option<Priority>| priority.map_or(usual, Priority::number);
                let share = |share: &PriorityShareOfLength| {
                    let length = u32::try_from(share.length.0).ok()?;
                    Some((length, Share { percent: share.percent, value: value(share.priority) }))
                };
                shares.filter_map(share).collect()
            };
            return Some(Self::ByLength { reads: shares(&split.read), writes: shares(&split.write) });
        }
        let percent = workload.cmdprio_percentage.filter(|percent| *percent > 0)?;
        Some(Self::Any(Share { percent, value: usual }))
    }

    /// Returns the priority of an I/O, encoded as for ioprio_set(2); `drawn` is a random number below 100. 0 keeps the thread's priority.
    #[inline(never)]
    fn of(&self, io: Io, drawn: u64) -> u16 {
        let shares = match self {
            Self::Any(share) => return if drawn < share.percent.into() { share.value } else { 0 },
            Self::ByLength { reads, .. } if io.direction == IoKind::Read => reads,
            Self::ByLength { writes, .. } => writes,
        };
        let mut end = 0;
        let mut alike = shares.iter().filter(|(length, _)| *length == io.length).map(|(_, share)| share);
        let found = alike.find(|share| {
            end += u64::from(share.percent);
            drawn < end
        });
        found.map_or(0, |share| share.value)
    }
}

/// Random choice of each I/O's priority: the thread's priority, or the priority of the share that the I/O falls into.
#[derive(Debug)]
pub(crate) struct Priorities {
    share: Option<PriorityShare>,
    random: SplitMix64,
}

impl Priorities {
    pub(crate) const fn new(share: Option<PriorityShare>) -> Self {
        Self { share, random: SplitMix64::new(0, Purpose::Priorities, 0) }
    }

    /// Returns the priority for the next I/O, encoded as for ioprio_set(2); 0 keeps the thread's priority.
    #[inline]
    pub(crate) fn next(&mut self, io: Io) -> u16 {
        match &self.share {
            Some(share) => share.of(io, self.random.below(100)),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::workload::WorkloadKeys;

    const READ: Io = Io { direction: IoKind::Read, offset: 0, length: 65536 };

    fn share(keys: &[(&str, &str)]) -> Option<PriorityShare> {
        let mut own = WorkloadKeys::default();
        keys.iter().for_each(|(key, text)| own.set(key, text).expect(text));
        PriorityShare::new(&own.complete(&WorkloadKeys::default()))
    }

    #[test]
    fn as_many_ios_as_are_asked_for_have_a_priority_of_their_own() {
        for (keys, value, expected) in [
            (&[("cmdprio_percentage", "20")][..], 0x2000, 2000),
            (&[("cmdprio_percentage", "100"), ("cmdprio_class", "2"), ("cmdprio", "7")], 0x4007, 10_000),
            (&[("cmdprio_percentage", "0")], 0, 0),
            (&[], 0, 0),
        ] {
            let mut priorities = Priorities::new(share(keys));
            let values: Vec<u16> =
                (0..10_000).map(|_| priorities.next(READ)).filter(|value| *value > 0).collect();
            assert!(values.iter().all(|own| *own == value), "{keys:?}");
            assert!(values.len().abs_diff(expected) < 200, "{keys:?}: {}", values.len());
        }
    }

    #[test]
    fn the_ios_of_a_length_have_its_priorities_and_others_none() {
        let split = [("cmdprio_bssplit", "64k/25/1/1:64k/50/3/2/1:1m/0,1m/100"), ("cmdprio_class", "2")];
        let mut priorities = Priorities::new(share(&split));
        let mut count = |io: Io| {
            let mut found = std::collections::BTreeMap::<u16, u32>::new();
            (0..10_000).for_each(|_| *found.entry(priorities.next(io)).or_default() += 1);
            found
        };
        let near = |count: u32, expected: u32| count.abs_diff(expected) < 200;
        let small = count(READ);
        assert_eq!(small.keys().copied().collect::<Vec<_>>(), [0, 0x2001, 0x600a]);
        assert!(
            near(small[&0], 2500) && near(small[&0x2001], 2500) && near(small[&0x600a], 5000),
            "{small:?}"
        );
        assert_eq!(count(Io { length: 1 << 20, ..READ }).into_iter().collect::<Vec<_>>(), [(0, 10_000)]);
        let write = Io { direction: IoKind::Write, length: 1 << 20, ..READ };
        assert_eq!(count(write).into_iter().collect::<Vec<_>>(), [(0x4000, 10_000)]);
        assert_eq!(count(Io { length: 65536, ..write }).into_iter().collect::<Vec<_>>(), [(0, 10_000)]);
    }
}
