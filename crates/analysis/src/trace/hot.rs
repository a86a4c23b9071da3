//! Finds the smallest shares of the accessed regions that receive half and 90% of a trace's I/Os.

use std::cmp::Reverse;
use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{Discrete, Poisson};

use super::BLOCK;
use super::reuse::Kind;

/// Maximum number of regions counted separately.
const MOST: usize = 1 << 16;
/// Mean number of I/Os per region above which random differences between regions are neglected.
const MANY: f64 = 1e6;

/// The smallest shares of the touched regions, 0 to 1, that receive half and 90% of the I/Os. With few I/Os, chance
/// alone makes some regions hotter: compare with `half_by_chance`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct HotShare {
    /// Smallest share of the regions that receives half of the I/Os.
    pub half: f64,
    /// Smallest share of the regions that receives 90% of the I/Os.
    pub ninety: f64,
    /// Smallest share of the regions that would receive half of the I/Os if as many I/Os went to as many regions at random.
    pub half_by_chance: f64,
    /// Smallest share of the regions that would receive 90% of the I/Os if as many I/Os went to as many regions at random.
    pub ninety_by_chance: f64,
}

/// Concentration of a trace's I/Os on its busiest regions. An I/O counts in the region where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct HotAreas {
    /// Size of a region in bytes: 4 KiB, doubled until at most 65,536 regions are touched.
    pub region: u64,
    /// Concentration of reads and writes together; absent without any.
    pub all: Option<HotShare>,
    /// Concentration of reads; absent without reads.
    pub reads: Option<HotShare>,
    /// Concentration of writes; absent without writes.
    pub writes: Option<HotShare>,
}

/// Counter of reads and writes by region of the disk; regions grow so that their number stays bounded.
#[derive(Debug)]
pub(super) struct HotCounter {
    most: usize,
    region: u64,
    /// Number of reads and of writes by region number.
    counts: HashMap<u64, [u64; 2]>,
}

impl Default for HotCounter {
    fn default() -> Self {
        Self { most: MOST, region: BLOCK, counts: HashMap::new() }
    }
}

impl HotCounter {
    pub(super) fn add(&mut self, kind: Kind, offset: u64) {
        self.counts.entry(offset / self.region).or_default()[kind as usize] += 1;
        while self.counts.len() > self.most {
            self.region *= 2;
            for (region, [reads, writes]) in std::mem::take(&mut self.counts) {
                let wider = self.counts.entry(region / 2).or_default();
                wider[0] += reads;
                wider[1] += writes;
            }
        }
    }

    pub(super) fn areas(&self) -> HotAreas {
        let share = |count: fn(&[u64; 2]) -> u64| hot_share(self.counts.values().map(count));
        HotAreas {
            region: self.region,
            all: share(|[reads, writes]| reads + writes),
            reads: share(|[reads, _]| *reads),
            writes: share(|[_, writes]| *writes),
        }
    }
}

fn hot_share(counts: impl Iterator<Item = u64>) -> Option<HotShare> {
    let mut counts: Vec<u64> = counts.filter(|count| *count > 0).collect();
    counts.sort_unstable_by_key(|count| Reverse(*count));
    let ios: u64 = counts.iter().sum();
    let regions = counts.len() as f64;
    let hottest =
        |share: f64| smallest(share * ios as f64, counts.iter().map(|count| (1.0, *count as f64))) / regions;
    let mean = ios as f64 / regions;
    (ios > 0).then(|| HotShare {
        half: hottest(0.5),
        ninety: hottest(0.9),
        half_by_chance: by_chance(0.5, mean),
        ninety_by_chance: by_chance(0.9, mean),
    })
}

/// Returns the number of the hottest regions that together receive `ios` I/Os. `regions` holds pairs of a number of regions and the I/Os in
/// each of them, the hottest first.
fn smallest(mut ios: f64, regions: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut taken = 0.0;
    for (count, each) in regions {
        if count * each >= ios {
            return taken + ios / each;
        }
        ios -= count * each;
        taken += count;
    }
    taken
}

/// Returns the share of the touched regions that would receive this share of the I/Os if I/Os went to regions at random, `mean` to each.
/// The counts follow a Poisson distribution without 0, because regions without I/O are unknown.
fn by_chance(share: f64, mean: f64) -> f64 {
    // With at most one I/O per region, or with very many, chance spreads them evenly.
    if mean <= 1.0 || mean > MANY {
        return share;
    }
    let (mut low, mut high) = (mean - 1.0, mean);
    for _ in 0..60 {
        let rate = f64::midpoint(low, high);
        *(if rate / -(-rate).exp_m1() < mean { &mut low } else { &mut high }) = rate;
    }
    let Ok(poisson) = Poisson::new(high) else { return share };
    let touched = -(-high).exp_m1();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count above 0")]
    let largest = (high + 10.0 * high.sqrt() + 20.0) as u64;
    smallest(share * mean, (1..=largest).rev().map(|ios| (poisson.pmf(ios) / touched, ios as f64)))
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn near(share: f64, truth: f64, error: f64) {
        assert!((share - truth).abs() <= error, "{share} and not {truth}");
    }

    #[test]
    fn the_hottest_regions_are_found() {
        let mut counter = HotCounter::default();
        // 10 of 100 regions have 91 reads each, the others one: 1000 reads. A write begins in each.
        for region in 0..100_u64 {
            for _ in 0..if region % 10 == 3 { 91 } else { 1 } {
                counter.add(Kind::Read, region << 20);
            }
            counter.add(Kind::Write, (region << 20) + 512);
        }
        let areas = counter.areas();
        let (reads, writes, all) =
            (areas.reads.expect("reads"), areas.writes.expect("writes"), areas.all.expect("both"));
        assert_eq!(areas.region, 4096);
        near(reads.half, 500.0 / 91.0 / 100.0, 1e-9);
        near(reads.ninety, 900.0 / 91.0 / 100.0, 1e-9);
        near(writes.half, 0.5, 1e-9);
        near(writes.half_by_chance, 0.5, 1e-9);
        // 1100 of them, 92 in each hot region and 2 in each other: 920 and 35 times 2 are 990.
        near(all.half, 550.0 / 92.0 / 100.0, 1e-9);
        near(all.ninety, 0.45, 1e-9);
    }

    #[test]
    fn regions_widen_until_they_are_few_and_lose_no_io() {
        let mut counter = HotCounter { most: 64, ..HotCounter::default() };
        for n in 0..1000_u64 {
            counter.add(Kind::Read, n * 4096);
        }
        // A distant I/O takes one region and does not widen the others.
        counter.add(Kind::Write, u64::MAX);
        assert_eq!((counter.region, counter.counts.len()), (4096 * 16, 63 + 1));
        assert_eq!(counter.counts.values().flatten().sum::<u64>(), 1001);
        near(counter.areas().reads.expect("reads").half, 500.0 / 16.0 / 63.0, 1e-9);
    }

    #[test]
    fn io_at_random_is_as_hot_as_chance_makes_it() {
        for (ios, regions) in [(2_000_u64, 10_000_u64), (10_000, 10_000), (200_000, 10_000)] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(ios);
            let mut counter = HotCounter::default();
            for _ in 0..ios {
                counter.add(Kind::Read, random.random_range(0..regions) * 4096);
            }
            let reads = counter.areas().reads.expect("reads");
            near(reads.half, reads.half_by_chance, 0.01);
            near(reads.ninety, reads.ninety_by_chance, 0.01);
            assert!(reads.half < 0.47, "{reads:?}");
        }
        assert_eq!(HotCounter::default().areas().all, None);
    }
}
