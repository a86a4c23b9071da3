//! Tests of the I/O sequences that workloads produce.

use std::collections::HashSet;

use iotax_model::workload::WorkloadKeys;
use proptest::prelude::*;

use super::*;

/// Builds the workload from keys and their values as text.
fn workload(keys: &[(&str, &str)]) -> Workload {
    let mut own = WorkloadKeys::default();
    for (key, text) in keys {
        own.set(key, text).unwrap_or_else(|error| panic!("{error}"));
    }
    let workload = own.complete(&WorkloadKeys::default());
    workload.check().unwrap_or_else(|error| panic!("{error}"));
    workload
}

fn pattern(keys: &[(&str, &str)], size: u64) -> Pattern {
    Pattern::new(&workload(keys), Bytes(size), 0, 7)
}

fn take(pattern: &mut Pattern, count: usize) -> Vec<Io> {
    std::iter::from_fn(|| pattern.next()).take(count).collect()
}

/// Returns the first `count` offsets of a pattern, in KiB.
fn offsets(keys: &[(&str, &str)], size: u64, count: usize) -> Vec<u64> {
    take(&mut pattern(keys, size), count).iter().map(|io| io.offset / 1024).collect()
}

/// Returns whether `count` of `draws` is within four standard deviations of `share`.
fn is_share(count: usize, draws: usize, share: f64) -> bool {
    let draws = draws as f64;
    (count as f64 - draws * share).abs() <= 4.0 * (draws * share * (1.0 - share)).sqrt()
}

const K: u64 = 1024;

#[test]
fn sequential_jobs_stay_in_their_slice_and_start_over() {
    // Ten blocks among three jobs: 4, 3, 3.
    let workload = workload(&[("rw", "read"), ("numjobs", "3")]);
    let blocks = |job| {
        let mut pattern = Pattern::new(&workload, Bytes(40 * K), job, 7);
        take(&mut pattern, 5).iter().map(|io| io.offset / 4096).collect::<Vec<_>>()
    };
    assert_eq!(blocks(0), [0, 1, 2, 3, 0]);
    assert_eq!(blocks(1), [4, 5, 6, 4, 5]);
    assert_eq!(blocks(2), [7, 8, 9, 7, 8]);
}

#[test]
fn strides_go_backwards_over_gaps_and_nowhere() {
    let read = ("rw", "read");
    assert_eq!(offsets(&[read, ("stride", "-4k")], 17 * K, 6), [12, 8, 4, 0, 12, 8]);
    assert_eq!(offsets(&[read, ("stride", "-12k")], 32 * K, 5), [28, 16, 4, 28, 16]);
    assert_eq!(offsets(&[read, ("stride", "12k")], 32 * K, 5), [0, 12, 24, 0, 12]);
    assert_eq!(offsets(&[read, ("stride", "12k"), ("offset", "8k")], 32 * K, 4), [8, 20, 32, 8]);
    assert_eq!(offsets(&[read, ("stride", "0")], 32 * K, 3), [0, 0, 0]);
    // Overlapping reads, as those of a reader that steps back a little each time.
    assert_eq!(offsets(&[read, ("bs", "8k"), ("stride", "4k")], 16 * K, 4), [0, 4, 8, 0]);
    assert_eq!(offsets(&[read, ("stride", "8000p")], 32 * K, 3), [0, 0, 0]);
    assert_eq!(offsets(&[read, ("stride", "-8000p")], 32 * K, 3), [28, 28, 28]);
}

#[test]
fn backwards_jobs_divide_the_area_too() {
    let workload = workload(&[("rw", "write"), ("numjobs", "2"), ("stride", "-4k")]);
    let mut second = Pattern::new(&workload, Bytes(24 * K), 1, 7);
    assert_eq!(take(&mut second, 4).iter().map(|io| io.offset / K).collect::<Vec<_>>(), [20, 16, 12, 20]);
}

#[test]
fn a_sequential_mix_shares_one_position() {
    let ios = take(&mut pattern(&[("rw", "readwrite"), ("rwmixread", "30")], 1 << 20), 256);
    assert!(ios.iter().enumerate().all(|(n, io)| io.offset == n as u64 * 4096));
    for direction in [IoKind::Read, IoKind::Write] {
        assert!(ios.iter().any(|io| io.direction == direction));
    }
}

#[test]
fn random_jobs_roam_over_all_in_orders_of_their_own() {
    let workload = workload(&[("rw", "randread"), ("numjobs", "2")]);
    let offsets = |job| {
        let mut pattern = Pattern::new(&workload, Bytes(1 << 20), job, 7);
        take(&mut pattern, 256).iter().map(|io| io.offset).collect::<Vec<_>>()
    };
    let (one, two) = (offsets(0), offsets(1));
    assert_ne!(one, two);
    assert_eq!(one.iter().collect::<HashSet<_>>(), two.iter().collect::<HashSet<_>>());
    assert_eq!(one, offsets(0), "the seed alone decides");
}

#[test]
fn frequent_blocks_are_scattered_and_the_same_for_all_jobs() {
    for distribution in ["zipf:1.2", "pareto:0.1"] {
        let workload = workload(&[("numjobs", "2"), ("random_distribution", distribution)]);
        let hottest = |job| {
            let mut pattern = Pattern::new(&workload, Bytes(4 << 20), job, 7);
            let mut seen = [0_u32; 1024];
            take(&mut pattern, 50_000).iter().for_each(|io| seen[(io.offset / 4096) as usize] += 1);
            let mut blocks: Vec<usize> = (0..1024).collect();
            blocks.sort_unstable_by_key(|block| std::cmp::Reverse(seen[*block]));
            blocks[..8].to_vec()
        };
        let blocks = hottest(0);
        assert_eq!(blocks[0], hottest(1)[0]);
        assert!(blocks.iter().any(|block| *block < 512) && blocks.iter().any(|block| *block >= 512));
        assert!(blocks.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "{blocks:?}");
    }
}

#[test]
fn lengths_of_a_range_are_all_equally_likely() {
    let mut pattern = pattern(&[("rw", "randrw"), ("bsrange", "4k-16k,8k-8k")], 1 << 20);
    let ios = take(&mut pattern, 80_000);
    let reads: Vec<u32> =
        ios.iter().filter(|io| io.direction == IoKind::Read).map(|io| io.length / 1024).collect();
    for length in [4, 8, 12, 16] {
        let count = reads.iter().filter(|read| **read == length).count();
        assert!(is_share(count, reads.len(), 0.25), "{count} of {length} KiB");
    }
    for write in ios.iter().filter(|io| io.direction == IoKind::Write) {
        assert_eq!((write.length, write.offset % 8192), (8192, 0));
    }
}

#[test]
fn lengths_of_a_split_have_their_shares() {
    let split = ("bssplit", "4k/10:64k/50:32k/,2k/100");
    let mut pattern = pattern(&[("rw", "randrw"), ("rwmixread", "70"), split], 1 << 20);
    let ios = take(&mut pattern, 100_000);
    let reads: Vec<u64> =
        ios.iter().filter(|io| io.direction == IoKind::Read).map(|io| u64::from(io.length)).collect();
    assert_eq!(reads.len(), 70_000, "the mix is exact for every hundred");
    for (length, share) in [(4, 0.1), (64, 0.5), (32, 0.4)] {
        let count = reads.iter().filter(|read| **read == length * K).count();
        assert!(is_share(count, reads.len(), share), "{count} of {length} KiB");
    }
    assert!(ios.iter().all(|io| io.direction == IoKind::Read || u64::from(io.length) == 2 * K));
}

#[test]
fn every_start_is_drawn_once_per_pass_whatever_the_lengths() {
    // An I/O too long for the space after one of the 64 offsets moves back and still covers that block.
    let mut pattern = pattern(&[("bsrange", "4k-32k")], 256 * K);
    let covered: HashSet<u64> = take(&mut pattern, 64)
        .iter()
        .flat_map(|io| io.offset / 4096..(io.offset + u64::from(io.length)) / 4096)
        .collect();
    assert_eq!(covered.len(), 64);
}

#[test]
fn a_share_of_the_ios_is_random_and_the_others_follow_on() {
    for percent in [0, 30, 75] {
        let text = percent.to_string();
        let mut pattern = pattern(&[("percentage_random", &text)], 1 << 30);
        let ios = take(&mut pattern, 20_000);
        let follow = ios.windows(2).filter(|pair| pair[1].offset == pair[0].offset + 4096).count();
        assert!(is_share(follow, 19_999, 1.0 - f64::from(percent) / 100.0), "{percent}: {follow}");
    }
    assert_eq!(offsets(&[("percentage_random", "0")], 12 * K, 4), [0, 4, 8, 0]);
}

#[test]
fn with_replacement_blocks_recur_before_all_were_visited() {
    let distinct =
        |keys: &[(&str, &str)]| offsets(keys, 4 << 20, 1024).into_iter().collect::<HashSet<_>>().len();
    assert_eq!(distinct(&[]), 1024);
    // A share of 1 - 1/e is expected, with a standard deviation of 10 blocks.
    assert!(distinct(&[("norandommap", "1")]).abs_diff(647) < 40);
}

#[test]
fn so_many_bytes_are_moved_and_no_more() {
    let total = |keys: &[(&str, &str)], size| {
        let mut pattern = pattern(keys, size);
        let bytes = std::iter::from_fn(|| pattern.next()).map(|io| u64::from(io.length)).sum::<u64>();
        assert_eq!(pattern.next(), None, "done is done");
        bytes
    };
    assert_eq!(total(&[("io_size", "40k")], 1 << 20), 40 * K);
    assert_eq!(total(&[("io_size", "2m")], 1 << 20), 2 << 20);
    assert_eq!(total(&[("loops", "1")], 1 << 20), 1 << 20);
    assert_eq!(total(&[("loops", "3"), ("rw", "write"), ("bs", "12k")], 40 * K), 3 * 36 * K);
    assert_eq!(total(&[("loops", "2"), ("io_size", "8k")], 1 << 20), 16 * K);
    // The last one is cut to what is left.
    assert_eq!(total(&[("io_size", "41k"), ("bs", "4k")], 1 << 20), 41 * K);
    assert_eq!(total(&[("io_size", "100k"), ("bssplit", "4k/50:64k/50")], 1 << 20), 100 * K);
    // Each job moves that many bytes; with loops, the bytes of its slice.
    let workload = workload(&[("rw", "read"), ("loops", "1"), ("numjobs", "2")]);
    let mut second = Pattern::new(&workload, Bytes(12 * K), 1, 7);
    assert_eq!(take(&mut second, 9).len(), 1);
}

#[test]
fn flushes_come_after_every_so_many_writes() {
    let directions = |keys: &[(&str, &str)], count| {
        take(&mut pattern(keys, 1 << 20), count).iter().map(|io| io.direction).collect::<Vec<_>>()
    };
    let (write, sync) = (IoKind::Write, IoKind::Sync);
    assert_eq!(
        directions(&[("rw", "write"), ("fsync", "3")], 9),
        [write, write, write, sync, write, write, write, sync, write]
    );
    assert_eq!(
        directions(&[("rw", "randwrite"), ("fdatasync", "1")], 4),
        [write, IoKind::DataSync, write, IoKind::DataSync]
    );
    let range = IoKind::RangeSync(libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER);
    assert_eq!(
        directions(&[("rw", "write"), ("sync_file_range", "write,wait_after:2")], 4),
        [write, write, range, write]
    );
    // The last writes are flushed before the end.
    assert_eq!(
        directions(&[("rw", "write"), ("fsync", "2"), ("io_size", "16k")], 9),
        [write, write, sync, write, write, sync]
    );
    assert!(directions(&[("rw", "read"), ("fsync", "1")], 50).iter().all(|it| *it == IoKind::Read));
    let mut writes = 0;
    for io in take(&mut pattern(&[("rw", "randrw"), ("fsync", "7")], 1 << 20), 5000) {
        match io.direction {
            IoKind::Sync => {
                assert_eq!((writes, io.offset, io.length), (7, 0, 0));
                writes = 0;
            }
            direction => writes += u64::from(direction == write),
        }
        assert!(writes <= 7);
    }
}

#[test]
fn trims_are_all_that_a_trimming_pattern_does() {
    for (rw, offsets_kib) in [("trim", Some([0, 4, 8])), ("randtrim", None)] {
        let ios = take(&mut pattern(&[("rw", rw)], 1 << 20), 3);
        assert!(ios.iter().all(|io| io.direction == IoKind::Trim && io.length == 4096));
        if let Some(expected) = offsets_kib {
            assert_eq!(offsets(&[("rw", rw)], 1 << 20, 3), expected);
        }
    }
}

/// Generates random values of the keys that any workload may have.
fn any_keys() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let rw = prop::sample::select(
        &["read", "write", "randread", "randwrite", "rw", "randrw", "trim", "randtrim"][..],
    );
    let lengths = prop_oneof![
        (1_u32..=64).prop_map(|sectors| ("bs", (sectors * 512).to_string())),
        (1_u32..=16, 1_u32..=8, 1_u32..=16).prop_map(|(min, steps, write)| {
            let (min, write) = (min * 512, write * 512);
            ("bsrange", format!("{min}-{},{write}-{}", min * steps, write * 2))
        }),
        (1_u32..=16, 1_u32..=8, 1_u32..=99).prop_map(|(min, steps, percent)| {
            ("bssplit", format!("{}/{percent}:{},1k/50:7k", min * 512, min * steps * 512))
        }),
    ];
    let distribution = prop_oneof![
        Just("random".to_owned()),
        (1_u32..300).prop_map(|theta| format!("zipf:{}", f64::from(theta) / 100.0)),
        (1_u32..100).prop_map(|h| format!("pareto:{}", f64::from(h) / 100.0)),
        (1_u32..=100).prop_map(|deviation| format!("normal:{deviation}")),
        (1_u32..=99).prop_map(|size| format!("zoned:70/{size}:30/{}", 100 - size)),
    ];
    let order = (distribution, any::<bool>(), 0_u8..=100, prop::option::of(-200_i64..=200));
    let end = (prop::option::of(0_u64..200), prop::option::of(1_u64..3), prop::option::of(1_u64..9));
    (rw, lengths, 0_u8..=100, 1_u32..=4, 0_u64..100, order, end).prop_map(
        |(rw, lengths, mix, jobs, offset, (distribution, map, random, stride), (bytes, loops, fsync))| {
            let mut keys = vec![
                ("rw", rw.to_owned()),
                lengths,
                ("rwmixread", mix.to_string()),
                ("numjobs", jobs.to_string()),
                ("offset", (offset * 512).to_string()),
                ("random_distribution", distribution),
                ("norandommap", u8::from(map).to_string()),
                ("percentage_random", random.to_string()),
            ];
            let optional = [
                (
                    "stride",
                    stride.filter(|_| !rw.starts_with("rand")).map(|sectors| (sectors * 512).to_string()),
                ),
                ("io_size", bytes.map(|sectors| (sectors * 512 + 512).to_string())),
                ("loops", loops.map(|loops| loops.to_string())),
                ("fsync", fsync.map(|writes| writes.to_string())),
            ];
            keys.extend(optional.into_iter().filter_map(|(key, text)| Some((key, text?))));
            keys
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_leaves_the_area(keys in any_keys(), extra in 0_u64..200_000, seed: u64) {
        let keys: Vec<(&str, &str)> = keys.iter().map(|(key, text)| (*key, text.as_str())).collect();
        let workload = workload(&keys);
        let size = workload.max_bs().0 * u64::from(workload.numjobs) + extra;
        let area = workload.offset.0..=workload.offset.0 + size;
        let alignment = workload.bs_unit().0;
        for job in 0..workload.numjobs {
            let mut pattern = Pattern::new(&workload, Bytes(size), job, seed);
            let mut again = pattern.clone();
            let mut moved = 0;
            for io in take(&mut pattern, 300) {
                prop_assert_eq!(again.next(), Some(io), "the same again");
                moved += u64::from(io.length);
                let is_wanted = match io.direction {
                    IoKind::Read => workload.rw.reads(),
                    IoKind::Write | IoKind::DurableWrite => workload.rw.writes(),
                    IoKind::Trim => workload.rw.trims(),
                    IoKind::Sync | IoKind::DataSync | IoKind::RangeSync(_) => workload.fsync.is_some(),
                };
                prop_assert!(is_wanted, "{:?}", io);
                if io.length == 0 {
                    continue;
                }
                let end = io.offset + u64::from(io.length);
                prop_assert!(area.contains(&io.offset) && area.contains(&end), "{:?} outside of {:?}", io, area);
                prop_assert!(u64::from(io.length) <= workload.max_bs().0);
                prop_assert_eq!(io.length % 512, 0);
                if workload.stride.is_none() {
                    prop_assert_eq!((io.offset - area.start()) % alignment, 0, "{:?}", io);
                }
            }
            if let (Some(bytes), None) = (workload.io_size, pattern.next()) {
                prop_assert_eq!(moved, bytes.0 * workload.loops.unwrap_or(1));
            }
        }
    }

    #[test]
    fn every_hundred_ios_hold_the_exact_share_of_reads(percent in 0_u8..=100, seed: u64) {
        let workload = workload(&[("rw", "randrw"), ("rwmixread", &percent.to_string())]);
        let mut pattern = Pattern::new(&workload, Bytes(1 << 20), 0, seed);
        for _ in 0..5 {
            let ios = take(&mut pattern, 100);
            let reads = ios.iter().filter(|io| io.direction == IoKind::Read).count();
            prop_assert_eq!(reads, usize::from(percent));
        }
    }
}
