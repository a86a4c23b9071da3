use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

/// Returns the hits of reads in a cache of 2^`bits` blocks.
fn read_hits(reuse: &Reuse, bits: usize) -> HitShare {
    let cache = reuse.caches.iter().find(|cache| cache.cache == BLOCK << bits).or(reuse.caches.last());
    cache.and_then(|cache| cache.reads).expect("reads")
}

/// Draws ranks by Zipf's law, and maps each rank to a distinct, distant block.
fn zipf(block_count: usize, theta: f64, count: usize, seed: u64) -> Vec<u64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=block_count)
        .map(|rank| {
            sum += (rank as f64).powf(-theta);
            sum
        })
        .collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..count)
        .map(|_| {
            let point = random.random::<f64>() * sum;
            (sums.partition_point(|sum| *sum < point) as u64 + seed) * 977
        })
        .collect()
}

/// Simulates an LRU cache block by block, and returns its hits.
fn simulated(blocks: &[u64], size: usize) -> f64 {
    let (mut order, mut last) = (std::collections::BTreeMap::new(), std::collections::HashMap::new());
    let mut hits = 0;
    for (now, block) in blocks.iter().enumerate() {
        if let Some(before) = last.insert(*block, now) {
            order.remove(&before);
            hits += 1;
        } else if order.len() == size {
            let (_, oldest) = order.pop_first().expect("full");
            last.remove(&oldest);
        }
        order.insert(now, *block);
    }
    f64::from(hits) / blocks.len() as f64
}

fn counted(blocks: &[u64], most: usize) -> Reuse {
    let mut counter = ReuseCounter::following(most);
    blocks.iter().for_each(|block| counter.add(Kind::Read, *block));
    counter.reuse()
}

#[test]
fn a_scan_in_a_circle_hits_nothing_in_a_cache_that_is_one_block_short() {
    // All distances are blocks - 1: 4096 blocks fit into 2^12, 4097 do not.
    for (blocks, bits) in [(1, 0), (2, 1), (4095, 12), (4096, 12), (4097, 13)] {
        let touched: Vec<u64> = (0..blocks * 4).map(|n| n % blocks * 31).collect();
        let reuse = counted(&touched, MOST);
        assert_eq!((reuse.followed, reuse.sampled), (blocks, 1.0));
        assert_eq!(reuse.caches.len(), bits + 1, "{blocks}");
        assert_eq!(reuse.caches[bits].cache, 4096 << bits);
        for (index, cache) in reuse.caches.iter().enumerate() {
            let share = if index == bits { 0.75 } else { 0.0 };
            assert_eq!(cache.reads, Some(HitShare { share, error: 0.0 }), "{blocks} in {}", cache.cache);
            assert_eq!(cache.writes, None);
        }
    }
}

#[test]
fn a_scan_of_more_than_is_followed_shows_its_edge() {
    let touched: Vec<u64> = (0..400_000).map(|n| n % 100_000).collect();
    let reuse = counted(&touched, 4096);
    assert!(reuse.followed == 4096 && (reuse.sampled * 100_000.0 / 4096.0 - 1.0).abs() < 0.06, "{reuse:?}");
    // 100,000 lies between 2^16 and 2^17.
    for (bits, truth) in [(15, 0.0), (16, 0.0), (17, 0.75)] {
        let hits = read_hits(&reuse, bits);
        assert!((hits.share - truth).abs() < 0.02 && hits.error < 0.06, "{bits}: {hits:?}");
    }
}

#[test]
fn a_small_set_is_counted_exactly() {
    let blocks = zipf(3000, 0.9, 50_000, 1);
    let reuse = counted(&blocks, MOST);
    assert!((reuse.sampled - 1.0).abs() < f64::EPSILON);
    for bits in 0..12 {
        let truth = simulated(&blocks, 1 << bits);
        let hits = read_hits(&reuse, bits);
        assert!((hits.share - truth).abs() < 1e-9 && hits.error == 0.0, "{bits}: {hits:?}, {truth}");
    }
}

#[test]
fn a_sample_comes_within_two_points_of_the_truth_and_its_intervals_hold_it() {
    let (mut held, mut seen) = (0, 0);
    for (theta, seed) in [(0.7, 1), (0.9, 2), (1.1, 3)] {
        let blocks = zipf(200_000, theta, 400_000, seed);
        let reuse = counted(&blocks, 16_384);
        assert!(reuse.sampled < 0.4, "{}", reuse.sampled);
        let smallest = reuse.caches[0].cache / BLOCK;
        assert!(
            (FEWEST / reuse.sampled..2.0 * FEWEST / reuse.sampled).contains(&(smallest as f64)),
            "{smallest}"
        );
        for cache in &reuse.caches {
            let size = usize::try_from(cache.cache / BLOCK).expect("small");
            let (truth, hits) = (simulated(&blocks, size), cache.reads.expect("reads"));
            let off = (hits.share - truth).abs();
            assert!(off < 0.02, "theta {theta}, {size} blocks: {hits:?}, truly {truth}");
            assert!(hits.error < 0.06, "{hits:?}");
            held += u32::from(off <= hits.error);
            seen += 1;
        }
    }
    assert!(held * 10 >= seen * 8, "{held} of {seen} intervals hold the truth");
}

#[test]
fn reads_and_writes_share_a_cache_and_are_counted_apart() {
    let mut counter = ReuseCounter::default();
    // Each block is written and then read, with one other block between.
    for block in 0..1000 {
        counter.add(Kind::Write, block);
        counter.add(Kind::Write, block + 5000);
        counter.add(Kind::Read, block);
    }
    let reuse = counter.reuse();
    let shares: Vec<_> = reuse
        .caches
        .iter()
        .map(|cache| (cache.reads.map(|hits| hits.share), cache.writes.map(|hits| hits.share)))
        .collect();
    assert_eq!(shares, [(Some(0.0), Some(0.0)), (Some(1.0), Some(0.0))]);
    assert_eq!(ReuseCounter::default().reuse(), Reuse { followed: 0, sampled: 1.0, caches: vec![] });
}
