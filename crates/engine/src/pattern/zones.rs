//! Offsets that stay in one zone of the area for a while, then move to the next zone.

use iotax_model::workload::Workload;

use super::blocks::Blocks;
use super::sizes::Size;
use super::walk::Walk;

/// I/O in one zone after another; after the last zone, the first one follows.
#[derive(Debug, Clone)]
pub(super) struct Zones {
    /// Offset of the area's first byte; `end` is the offset after its last.
    start: u64,
    end: u64,
    /// Bytes of a zone; `step` is the distance between the starts of two zones.
    range: u64,
    step: u64,
    /// Bytes to move in a zone before the next one begins; `left` counts down.
    quota: u64,
    left: u64,
    /// Offset of the current zone's first byte.
    zone: u64,
    within: Within,
}

/// The order of the I/O within a zone; offsets count from the zone's start.
#[derive(Debug, Clone)]
enum Within {
    InTurn(Walk),
    AtRandom(Blocks),
}

impl Zones {
    /// Creates the zones of worker number `job` in an area of `size` bytes from `start`; `None` if the workload uses no zones.
    pub(super) fn new(workload: &Workload, start: u64, size: u64, job: u32, seed: u64) -> Option<Self> {
        let (range, skip) = workload.zone()?;
        let within = if workload.rw.is_random() {
            Within::AtRandom(Blocks::new(workload, 0, range, job, seed))
        } else {
            Within::InTurn(Walk::new(0, range.0, None))
        };
        let quota = workload.zonesize.unwrap_or(range).0;
        let (step, end) = (range.0.saturating_add(skip.0), start + size);
        Some(Self { start, end, range: range.0, step, quota, left: quota, zone: start, within })
    }

    /// Returns the length of the area in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.end - self.start
    }

    pub(super) fn next(&mut self, size: Size) -> u64 {
        if self.left == 0 {
            self.go_on();
        }
        self.left = self.left.saturating_sub(size.length.into());
        self.zone
            + match &mut self.within {
                Within::InTurn(walk) => walk.next(size.length),
                Within::AtRandom(blocks) => blocks.next(size),
            }
    }

    /// Moves to the next zone; to the first one if the next would exceed the area.
    fn go_on(&mut self) {
        let next = self.zone.saturating_add(self.step);
        let is_whole = next.checked_add(self.range).is_some_and(|end| end <= self.end);
        self.zone = if is_whole { next } else { self.start };
        self.left = self.quota;
        if let Within::InTurn(walk) = &mut self.within {
            *walk = Walk::new(0, self.range, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::units::Bytes;
    use iotax_model::workload::WorkloadKeys;

    fn offsets(keys: &[(&str, &str)], count: usize) -> Vec<u64> {
        let mut own = WorkloadKeys { size: Some(Bytes(64 << 10)), ..WorkloadKeys::default() };
        keys.iter().for_each(|(key, text)| own.set(key, text).expect(text));
        let workload = own.complete(&WorkloadKeys::default());
        assert_eq!(workload.check(), Ok(()));
        let mut zones = Zones::new(&workload, 4096, 64 << 10, 0, 1).expect("zones");
        (0..count).map(|_| (zones.next(Size { length: 4096, align: 4096 }) - 4096) >> 12).collect()
    }

    #[test]
    fn a_zone_is_left_when_its_bytes_are_moved() {
        let skip = [("rw", "read"), ("zonesize", "8k"), ("zoneskip", "16k")];
        assert_eq!(offsets(&skip, 8), [0, 1, 6, 7, 12, 13, 0, 1]);
        let part = [("rw", "read"), ("zonesize", "8k"), ("zonerange", "16k")];
        assert_eq!(offsets(&part, 10), [0, 1, 4, 5, 8, 9, 12, 13, 0, 1]);
        let again = [("rw", "read"), ("zonesize", "16k"), ("zonerange", "8k"), ("zoneskip", "24k")];
        assert_eq!(offsets(&again, 10), [0, 1, 0, 1, 8, 9, 8, 9, 0, 1]);
    }

    #[test]
    fn random_places_stay_in_their_zone_and_come_once() {
        let keys = [("rw", "randread"), ("zonesize", "16k"), ("zoneskip", "16k")];
        let offsets = offsets(&keys, 16);
        for (visit, visited) in offsets.chunks(4).enumerate() {
            let first = [0, 8][visit % 2];
            let mut visited = visited.to_vec();
            visited.sort_unstable();
            assert_eq!(visited, (first..first + 4).collect::<Vec<_>>(), "{visit}");
        }
    }
}
