//! I/Os with a priority of their own, apart from that of their thread.

use iotax_model::workload::Workload;

use crate::random::{Purpose, SplitMix64};

/// The class that fio takes for `cmdprio_percentage` without a class.
const REAL_TIME: u16 = 1;

/// The share of I/Os with a priority of their own, and that priority as ioprio_set(2) has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PriorityShare {
    percent: u8,
    value: u16,
}

impl PriorityShare {
    pub(crate) fn new(workload: &Workload) -> Option<Self> {
        let percent = workload.cmdprio_percentage.filter(|percent| *percent > 0)?;
        let (class, level) = (workload.cmdprio_class.unwrap_or(REAL_TIME), workload.cmdprio.unwrap_or(0));
        Some(Self { percent, value: class << 13 | level })
    }
}

/// The priority of each I/O.
#[derive(Debug)]
pub(crate) struct Priorities {
    share: Option<PriorityShare>,
    random: SplitMix64,
}

impl Priorities {
    pub(crate) const fn new(share: Option<PriorityShare>) -> Self {
        Self { share, random: SplitMix64::new(0, Purpose::Priorities, 0) }
    }

    /// That of the next I/O; 0 is its thread's.
    #[inline]
    pub(crate) const fn next(&mut self) -> u16 {
        match self.share {
            Some(share) if self.random.below(100) < share.percent as u64 => share.value,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::workload::WorkloadKeys;

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
                (0..10_000).map(|_| priorities.next()).filter(|value| *value > 0).collect();
            assert!(values.iter().all(|own| *own == value), "{keys:?}");
            assert!(values.len().abs_diff(expected) < 200, "{keys:?}: {}", values.len());
        }
    }
}
