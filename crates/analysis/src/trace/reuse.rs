//! Estimates the share of a trace's reads and writes that would hit a cache of a given size.

use std::collections::BinaryHeap;

use schemars::JsonSchema;
use serde::Serialize;

use super::BLOCK;
use super::lru_stack::LruStack;

/// Maximum number of blocks whose accesses are followed; a trace that accesses no more blocks gives exact figures.
const MOST: usize = 1 << 16;
/// Number of groups of blocks, each of which gives an independent estimate.
const GROUPS: usize = 16;
/// The 97.5th percentile of Student's t with 15 degrees of freedom, for the 95% interval from 16 groups.
const T_95: f64 = 2.131;
/// Minimum number of followed blocks that must fit into a cache for its hits to be reported; with fewer, distances are too coarse.
const FEWEST: f64 = 64.0;
/// Number of possible bit lengths of a distance: 0 to 64.
const BIT_LENGTHS: usize = 65;

/// The share of 4 KiB blocks read or written that are in the cache when they are accessed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct HitShare {
    /// Share of the blocks that hit the cache, 0 to 1.
    pub share: f64,
    /// Half the width of the 95% interval of `share`; 0 if every block was followed.
    pub error: f64,
}

/// The hits of an LRU cache of reads and writes that is empty at first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct CacheHits {
    /// Size of the cache, in bytes.
    pub cache: u64,
    /// Share of blocks read that are in the cache; absent without reads.
    pub reads: Option<HitShare>,
    /// Share of blocks written that are in the cache; absent without writes.
    pub writes: Option<HitShare>,
}

/// The hits of caches, estimated from a sample of the blocks (SHARDS; Waldspurger et al., "Efficient MRC construction
/// with SHARDS", FAST 2015). The hit share of a cache of n blocks is also the share of reuse distances below n.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Reuse {
    /// Number of blocks that were followed to the end.
    pub followed: u64,
    /// Share of all blocks that were followed to the end; 1 if the figures are exact.
    pub sampled: f64,
    /// Hit rates of caches of 4 KiB, 8 KiB and so on, doubling up to the size at which hits no longer increase. Leaves
    /// out sizes too small for the sample. Empty if no block is used twice.
    pub caches: Vec<CacheHits>,
}

/// Kinds of I/O that are counted separately.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Read,
    Write,
}

/// Estimator of cache hits from a sample of the blocks.
#[derive(Debug)]
pub(super) struct ReuseCounter {
    blocks: [u64; 2],
    all: Sample,
    groups: Vec<Sample>,
}

impl Default for ReuseCounter {
    fn default() -> Self {
        Self::following(MOST)
    }
}

impl ReuseCounter {
    fn following(most: usize) -> Self {
        let group = || Sample::new(most / GROUPS, 1.0 / GROUPS as f64);
        Self { blocks: [0; 2], all: Sample::new(most, 1.0), groups: (0..GROUPS).map(|_| group()).collect() }
    }

    pub(super) fn add(&mut self, kind: Kind, block: u64) {
        let hash = mix(block);
        self.blocks[kind as usize] += 1;
        self.all.add(kind, hash);
        self.groups[usize::from(hash.to_le_bytes()[0]) % GROUPS].add(kind, hash);
    }

    pub(super) fn reuse(&self) -> Reuse {
        let sampled = self.all.rate();
        let smallest = if sampled < 1.0 { FEWEST / sampled } else { 1.0 };
        let caches = self.all.longest().map_or(0..0, |bits| 0..bits + 1);
        Reuse {
            followed: self.all.kept.len() as u64,
            sampled,
            caches: caches
                .map(|bits| (bits, u128::from(BLOCK) << bits))
                .filter(|(_, bytes)| *bytes as f64 >= smallest * BLOCK as f64)
                .map(|(bits, bytes)| CacheHits {
                    cache: u64::try_from(bytes).unwrap_or(u64::MAX),
                    reads: self.hits(Kind::Read, bits),
                    writes: self.hits(Kind::Write, bits),
                })
                .collect(),
        }
    }

    /// Returns the hits in an LRU cache of 2^`bits` blocks: the exact number of block accesses minus the estimated misses. A hot block has
    /// few misses, so it matters little if the sample contains it. The paper's SHARDS-adj is equivalent.
    fn hits(&self, kind: Kind, bits: usize) -> Option<HitShare> {
        let blocks = self.blocks[kind as usize];
        let share = |sample: &Sample| 1.0 - sample.misses(kind, bits) / blocks as f64;
        (blocks > 0).then(|| HitShare { share: share(&self.all).clamp(0.0, 1.0), error: self.error(&share) })
    }

    /// Estimates half the width of the 95% interval of a hit share, from the variance between the groups, each a sixteenth of the sample.
    /// The error of the whole sample is smaller than that of a group, and 0 if the sample contains all blocks.
    fn error(&self, share: &impl Fn(&Sample) -> f64) -> f64 {
        let (count, rate) = (GROUPS as f64, self.all.rate());
        let shares: Vec<f64> = self.groups.iter().map(share).collect();
        let mean = shares.iter().sum::<f64>() / count;
        let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let left = (1.0 - rate) / (1.0 - rate / count);
        (T_95 * (variance / count * left).sqrt()).min(1.0)
    }
}

/// A sample of the blocks: those with the smallest hashes. Each access to a sampled block is weighted by 1 / sampling
/// rate, to represent the blocks that are not sampled.
#[derive(Debug)]
struct Sample {
    most: usize,
    /// Share of the hashes that are assigned to this sample.
    share: f64,
    /// Largest hash of a block that is sampled. The limit falls as the sample fills.
    limit: u64,
    kept: BinaryHeap<u64>,
    stack: LruStack,
    first: [f64; 2],
    /// Repeated accesses by kind and by bit length of the reuse distance: those of bit length n or less hit a cache of 2^n blocks.
    again: [[f64; BIT_LENGTHS]; 2],
}

impl Sample {
    fn new(most: usize, share: f64) -> Self {
        Self {
            most,
            share,
            limit: u64::MAX,
            kept: BinaryHeap::new(),
            stack: LruStack::default(),
            first: [0.0; 2],
            again: [[0.0; BIT_LENGTHS]; 2],
        }
    }

    /// Returns the share of all blocks that is currently followed, 0 to 1.
    fn rate(&self) -> f64 {
        self.share * ((self.limit as f64 + 1.0) / 2.0_f64.powi(64))
    }

    fn add(&mut self, kind: Kind, hash: u64) {
        if hash > self.limit {
            return;
        }
        let rate = self.rate();
        if let Some(between) = self.stack.touch(hash) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of blocks")]
            let distance = (between as f64 / rate) as u64;
            self.again[kind as usize][(u64::BITS - distance.leading_zeros()) as usize] += 1.0 / rate;
            return;
        }
        self.first[kind as usize] += 1.0 / rate;
        self.kept.push(hash);
        if self.kept.len() > self.most
            && let Some(largest) = self.kept.pop()
        {
            self.stack.remove(largest);
            self.limit = largest - 1;
        }
    }

    /// Returns the estimated number of misses in an LRU cache of 2^`bits` blocks.
    fn misses(&self, kind: Kind, bits: usize) -> f64 {
        self.first[kind as usize] + self.again[kind as usize][bits + 1..].iter().sum::<f64>()
    }

    /// Returns the bit length of the longest reuse distance; `None` if no block was accessed twice.
    fn longest(&self) -> Option<usize> {
        (0..BIT_LENGTHS).rev().find(|bits| self.again.iter().any(|kind| kind[*bits] > 0.0))
    }
}

/// Maps values one to one onto hashes: the finalizer of Steele et al.'s SplitMix ("Fast splittable pseudorandom number generators", 2014).
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests;
