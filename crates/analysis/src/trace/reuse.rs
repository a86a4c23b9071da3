//! The share of a trace's reads and writes that find their block in a cache of a given size.

use std::collections::BinaryHeap;

use schemars::JsonSchema;
use serde::Serialize;

use super::BLOCK;
use super::lru_stack::LruStack;

/// Blocks that are followed; a trace that touches no more is followed whole.
const MOST: usize = 1 << 16;
/// Groups of blocks, each of which makes an estimate of its own.
const GROUPS: usize = 16;
/// The 97.5th percentile of Student's t with 15 degrees of freedom: half of a 95% interval from 16 groups.
const T_95: f64 = 2.131;
/// Followed blocks that fit into the smallest cache whose hits are told; fewer do not tell distances apart.
const FEWEST: f64 = 64.0;
/// Bit lengths of a distance: 0 to 64.
const BIT_LENGTHS: usize = 65;

/// The share of 4 KiB blocks read or written that lie in the cache at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct HitShare {
    /// Between 0 and 1.
    pub share: f64,
    /// Half the width of the 95% interval; 0 if every block was followed.
    pub error: f64,
}

/// The hits of one cache, which keeps the blocks read or written last (LRU) and begins empty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct CacheHits {
    /// Size of the cache, in bytes.
    pub cache: u64,
    /// Reads that it answers; absent without reads.
    pub reads: Option<HitShare>,
    /// Writes to blocks that it holds; absent without writes.
    pub writes: Option<HitShare>,
}

/// The hits of caches, estimated from a sample of the blocks (SHARDS; Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015).
/// The share of a cache of n blocks is also the share of reuse distances below n.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Reuse {
    /// Blocks that were followed to the end.
    pub followed: u64,
    /// Share of all blocks that were followed to the end; 1 if the figures are exact.
    pub sampled: f64,
    /// Caches of 4 KiB and its doubles, up to the first that no larger one beats, without those too small for the sample.
    /// Empty if no block is used twice.
    pub caches: Vec<CacheHits>,
}

/// The kinds of I/O that are counted apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Read,
    Write,
}

/// Follows a sample of the blocks.
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

    /// The hits of a cache of 2^`bits` blocks: all I/Os, whose number is known, without the estimated misses. A hot block has few
    /// misses, so that it matters little whether the sample has it. The paper's SHARDS-adj comes to the same.
    fn hits(&self, kind: Kind, bits: usize) -> Option<HitShare> {
        let blocks = self.blocks[kind as usize];
        let share = |sample: &Sample| 1.0 - sample.misses(kind, bits) / blocks as f64;
        (blocks > 0).then(|| HitShare { share: share(&self.all).clamp(0.0, 1.0), error: self.error(&share) })
    }

    /// The groups differ as samples of a sixteenth do. The sample of all is that much better, and exact if it has all blocks.
    fn error(&self, share: &impl Fn(&Sample) -> f64) -> f64 {
        let (count, rate) = (GROUPS as f64, self.all.rate());
        let shares: Vec<f64> = self.groups.iter().map(share).collect();
        let mean = shares.iter().sum::<f64>() / count;
        let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let left = (1.0 - rate) / (1.0 - rate / count);
        (T_95 * (variance / count * left).sqrt()).min(1.0)
    }
}

/// The blocks with the smallest hashes. Each I/O of one stands for as many as blocks are not followed.
#[derive(Debug)]
struct Sample {
    most: usize,
    /// Share of the hashes that come here.
    share: f64,
    /// The largest hash that is followed.
    limit: u64,
    kept: BinaryHeap<u64>,
    stack: LruStack,
    first: [f64; 2],
    /// By the bit length of the distance: a cache of 2^n blocks hits all up to n.
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

    /// Share of all blocks that is followed now.
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

    /// Estimated misses of a cache of 2^`bits` blocks.
    fn misses(&self, kind: Kind, bits: usize) -> f64 {
        self.first[kind as usize] + self.again[kind as usize][bits + 1..].iter().sum::<f64>()
    }

    /// The bit length of the longest distance.
    fn longest(&self) -> Option<usize> {
        (0..BIT_LENGTHS).rev().find(|bits| self.again.iter().any(|kind| kind[*bits] > 0.0))
    }
}

/// Spreads values over all hashes, no two to the same: the finalizer of Steele et al.'s SplitMix ("Fast splittable pseudorandom number generators", 2014).
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests;
