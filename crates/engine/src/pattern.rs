//! Which block is next, and whether it is read or written.

use iotax_model::units::Bytes;
use iotax_model::workload::{Rw, Workload};

use crate::backend::Io;
use crate::random::{Purpose, SplitMix64};

/// What an I/O does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
    /// Discards what is there.
    Trim,
    /// Flushes data and metadata, as fsync(2).
    Sync,
    /// Flushes data, as fdatasync(2).
    DataSync,
}

impl Direction {
    /// The word for it in records.
    #[inline]
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Sync | Self::DataSync => "sync",
        }
    }
}

/// Rounds of the mixing function: with three, neighbouring counters have nothing left in common.
const ROUNDS: usize = 3;

/// The numbers 0 to `count - 1` in random order, each exactly once per pass, without a map of what was visited; each
/// pass has an order of its own.
///
/// A counter runs over the next power of two and is put through a keyed bijection of that many bits; results that are
/// not below `count` are skipped, which on average costs less than one further step. The bijection is made of
/// multiplications by odd numbers and shifted exclusive-ors, each of which can be undone (as in xorshift-multiply
/// finalizers), on as many bits as are needed.
#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    counter: u64,
    keys: [(u64, u64); ROUNDS],
    random: SplitMix64,
}

impl Permutation {
    /// `count` must be at least 1 and at most 2^63.
    pub(crate) fn new(count: u64, random: SplitMix64) -> Self {
        let mask = count.next_power_of_two() - 1;
        let shift = (mask.count_ones() / 2).max(1);
        let mut permutation = Self { count, mask, shift, counter: 0, keys: [(1, 0); ROUNDS], random };
        permutation.begin_pass();
        permutation
    }

    fn begin_pass(&mut self) {
        self.counter = 0;
        for (factor, summand) in &mut self.keys {
            *factor = self.random.next() | 1;
            *summand = self.random.next();
        }
    }

    /// The next number.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        loop {
            if self.counter > self.mask {
                self.begin_pass();
            }
            let mut value = self.counter;
            self.counter += 1;
            for (factor, summand) in self.keys {
                value = value.wrapping_mul(factor).wrapping_add(summand) & self.mask;
                value ^= value >> self.shift;
            }
            if value < self.count {
                return value;
            }
        }
    }
}

/// Reads or writes.
#[derive(Debug, Clone)]
enum Mix {
    Only(Direction),
    /// `reads` of every 100 I/Os are reads, at random places among them.
    Both {
        reads: u64,
        deck: Permutation,
    },
}

/// The order of blocks.
#[derive(Debug, Clone)]
enum Order {
    /// From `first` up to below `end`, then again from `first`.
    Sequential {
        first: u64,
        end: u64,
        next: u64,
    },
    Random(Permutation),
}

/// What one worker does, I/O for I/O, without end.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    order: Order,
    mix: Mix,
    block: u32,
}

impl Pattern {
    /// The pattern of worker number `job` (from 0) of `workload` on the first `size` bytes. Sequential workers divide
    /// the blocks among them; random ones each roam over all of them in an order of their own. The area must hold a block
    /// for every worker that gets a slice.
    pub(crate) fn new(workload: &Workload, size: Bytes, job: u32, seed: u64) -> Self {
        let blocks = size.0 / workload.bs.0;
        let stream = |purpose| SplitMix64::new(seed, purpose, job.into());
        let order = if workload.rw.is_random() {
            Order::Random(Permutation::new(blocks, stream(Purpose::Offsets)))
        } else {
            let (first, end) = slice(blocks, job, workload.numjobs);
            Order::Sequential { first, end, next: first }
        };
        let mix = match workload.rw {
            Rw::Read | Rw::RandRead => Mix::Only(Direction::Read),
            Rw::Write | Rw::RandWrite => Mix::Only(Direction::Write),
            Rw::ReadWrite | Rw::RandRw => Mix::Both {
                reads: workload.rwmixread.into(),
                deck: Permutation::new(100, stream(Purpose::Mix)),
            },
        };
        Self { order, mix, block: u32::try_from(workload.bs.0).expect("bs is at most 64 MiB") }
    }

    /// The next I/O; `None` when all is done.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Io> {
        let block = match &mut self.order {
            Order::Sequential { first, end, next } => {
                let block = *next;
                *next = if block + 1 == *end { *first } else { block + 1 };
                block
            }
            Order::Random(permutation) => permutation.next(),
        };
        let direction = match &mut self.mix {
            Mix::Only(direction) => *direction,
            Mix::Both { reads, deck } => {
                if deck.next() < *reads {
                    Direction::Read
                } else {
                    Direction::Write
                }
            }
        };
        Some(Io { direction, offset: block * u64::from(self.block), length: self.block })
    }
}

/// First and end block of one worker's slice. Slices tile the area and differ in length by at most one block.
fn slice(blocks: u64, job: u32, jobs: u32) -> (u64, u64) {
    let share = blocks / u64::from(jobs);
    let longer = blocks % u64::from(jobs);
    let first = |job: u64| job * share + job.min(longer);
    (first(job.into()), first(u64::from(job) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::workload::WorkloadKeys;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn workload(rw: Rw, numjobs: u32, rwmixread: u8) -> Workload {
        let keys = WorkloadKeys {
            rw: Some(rw),
            numjobs: Some(numjobs),
            rwmixread: Some(rwmixread),
            ..WorkloadKeys::default()
        };
        keys.complete(&WorkloadKeys::default())
    }

    fn pass(permutation: &mut Permutation, count: u64) -> Vec<u64> {
        (0..count).map(|_| permutation.next()).collect()
    }

    proptest! {
        #[test]
        fn every_pass_visits_every_block_once(count in 1_u64..5000, seed: u64) {
            let mut permutation = Permutation::new(count, SplitMix64::new(seed, Purpose::Offsets, 0));
            for _ in 0..3 {
                let mut seen = pass(&mut permutation, count);
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
            }
        }

        #[test]
        fn slices_tile_the_area(jobs in 1_u32..64, extra in 0_u64..10_000) {
            let blocks = u64::from(jobs) + extra;
            let slices: Vec<_> = (0..jobs).map(|job| slice(blocks, job, jobs)).collect();
            prop_assert_eq!((slices[0].0, slices[slices.len() - 1].1), (0, blocks));
            prop_assert!(slices.windows(2).all(|pair| pair[0].1 == pair[1].0));
            let lengths: HashSet<u64> = slices.iter().map(|(first, end)| end - first).collect();
            prop_assert!(lengths.len() <= 2 && !lengths.contains(&0));
        }

        #[test]
        fn every_hundred_ios_hold_the_exact_share_of_reads(percent in 0_u8..=100, seed: u64) {
            let workload = workload(Rw::RandRw, 1, percent);
            let mut pattern = Pattern::new(&workload, Bytes(1 << 20), 0, seed);
            for _ in 0..5 {
                let reads = (0..100).filter(|_| pattern.next().expect("endless").direction == Direction::Read).count();
                prop_assert_eq!(reads, usize::from(percent));
            }
        }
    }

    #[test]
    fn passes_and_seeds_differ_and_order_has_no_grain() {
        let count = 1 << 16;
        let mut permutation = Permutation::new(count, SplitMix64::new(1, Purpose::Offsets, 0));
        let (first, second) = (pass(&mut permutation, count), pass(&mut permutation, count));
        assert_ne!(first, second);
        assert_ne!(first, pass(&mut Permutation::new(count, SplitMix64::new(2, Purpose::Offsets, 0)), count));
        // In a random order a block follows its neighbour about once in a pass, and the mean distance of successive
        // blocks is a third of the range.
        let steps: Vec<u64> = first.windows(2).map(|pair| pair[0].abs_diff(pair[1])).collect();
        assert!(steps.iter().filter(|step| **step == 1).count() < 20);
        let mean = steps.iter().sum::<u64>() as f64 / steps.len() as f64;
        assert!((mean / count as f64 - 1.0 / 3.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn sequential_jobs_stay_in_their_slice_and_start_over() {
        // Ten blocks among three jobs: 4, 3, 3.
        let offsets = |job| {
            let mut pattern = Pattern::new(&workload(Rw::Read, 3, 50), Bytes(40_960), job, 7);
            (0..5).map(|_| pattern.next().expect("endless").offset / 4096).collect::<Vec<_>>()
        };
        assert_eq!(offsets(0), [0, 1, 2, 3, 0]);
        assert_eq!(offsets(1), [4, 5, 6, 4, 5]);
        assert_eq!(offsets(2), [7, 8, 9, 7, 8]);
    }

    #[test]
    fn a_sequential_mix_shares_one_position() {
        let mut pattern = Pattern::new(&workload(Rw::ReadWrite, 1, 30), Bytes(1 << 20), 0, 7);
        let ios: Vec<_> = (0..256).filter_map(|_| pattern.next()).collect();
        assert!(ios.iter().enumerate().all(|(n, io)| io.offset == n as u64 * 4096));
        assert!(
            ios.iter().any(|io| io.direction == Direction::Read)
                && ios.iter().any(|io| io.direction == Direction::Write)
        );
    }

    #[test]
    fn random_jobs_roam_over_all_in_orders_of_their_own() {
        let offsets = |job| {
            let mut pattern = Pattern::new(&workload(Rw::RandRead, 2, 50), Bytes(1 << 20), job, 7);
            (0..256).map(|_| pattern.next().expect("endless").offset).collect::<Vec<_>>()
        };
        let (one, two) = (offsets(0), offsets(1));
        assert_ne!(one, two);
        assert_eq!(one.iter().collect::<HashSet<_>>(), two.iter().collect::<HashSet<_>>());
        assert_eq!(one, offsets(0), "the seed alone decides");
    }
}
