use super::*;
use iotax_load::random::Purpose;
use iotax_model::units::Bytes;
use std::collections::HashSet;

const SECTOR: usize = 512;

fn payload(content: &Content, worker: u64) -> Payload {
    Payload::new(content, 1, false, SplitMix64::new(7, Purpose::Payload, worker))
}

/// Returns the concatenated bytes of `writes` writes of `length` bytes.
fn written(content: &Content, length: usize, writes: usize) -> Vec<u8> {
    let mut payload = payload(content, 0);
    let mut written = Vec::with_capacity(length * writes);
    let mut buffer = vec![0xA5; length];
    for _ in 0..writes {
        refresh(&mut payload, &mut buffer);
        written.extend_from_slice(&buffer);
    }
    written
}

fn refresh(payload: &mut Payload, buffer: &mut [u8]) {
    payload.refresh(0, buffer);
}

/// Returns the percentage by which zstd shrinks the data if each block is compressed separately, as arrays and filesystems do.
fn saved(data: &[u8], block: usize) -> f64 {
    let compressed: usize =
        data.chunks(block).map(|block| zstd::bulk::compress(block, 3).expect("compresses").len()).sum();
    100.0 - compressed as f64 * 100.0 / data.len() as f64
}

fn distinct(data: &[u8], block: usize) -> usize {
    data.chunks(block).collect::<HashSet<_>>().len()
}

#[test]
fn nothing_is_left_to_compress_or_to_deduplicate() {
    let written = written(&Content::default(), 4096, 512);
    let compressed = zstd::bulk::compress(&written, 19).expect("compresses").len();
    assert!(compressed >= written.len(), "{compressed} of {}", written.len());
    // Nothing recurs even at a granularity of 32 bytes.
    assert_eq!(distinct(&written, 32), written.len() / 32);
}

#[test]
fn long_writes_share_no_sector_and_do_not_compress() {
    let written = written(&Content::default(), LONG, 4);
    for write in written.chunks(LONG) {
        let compressed = zstd::bulk::compress(write, 3).expect("compresses").len();
        assert!(compressed >= LONG, "{compressed}");
    }
    assert_eq!(distinct(&written, SECTOR), 4 * LONG / SECTOR);
}

#[test]
fn the_asked_share_compresses_away_in_blocks_of_any_size() {
    for length in [4096, 64 << 10, 1 << 20] {
        for percent in [0, 5, 25, 50, 75, 95, 100] {
            for chunk in [512, 4096] {
                let content =
                    Content { filler_percentage: percent, chunk: Bytes(chunk), ..Content::default() };
                let written = written(&content, length, (4 << 20) / length);
                // Whole writes, and the shorter blocks of a layer below.
                for block in [length, 4096] {
                    let saved = saved(&written, block);
                    let case = format!("{percent}% of {chunk} in {length}, by {block}: {saved:.1}%");
                    eprintln!("{case}");
                    assert!((saved - f64::from(percent)).abs() < 2.0, "{case}");
                }
                if percent < 100 && chunk == 512 {
                    assert_eq!(distinct(&written, SECTOR), written.len() / SECTOR, "{length} {percent}");
                }
            }
        }
    }
}

#[test]
fn the_asked_share_of_writes_repeats_an_earlier_one() {
    for (length, writes) in [(4096, 10_000), (64 << 10, 1_000), (1 << 20, 100)] {
        for percent in [0, 10, 50, 90] {
            let content = Content { dedupe_percentage: percent, ..Content::default() };
            let mut payload = payload(&content, 0);
            let mut buffer = vec![0; length];
            let mut seen = HashSet::new();
            for _ in 0..writes {
                refresh(&mut payload, &mut buffer);
                // A few places represent the content, so that a gigabyte need not be hashed.
                let samples = [0, length / 2, length - 16]
                    .map(|at| u128::from_ne_bytes(buffer[at..at + 16].try_into().expect("16 bytes")));
                seen.insert(samples);
            }
            let share = 100.0 - seen.len() as f64 * 100.0 / f64::from(writes);
            eprintln!("{percent}% of writes of {length}: {share:.1}%");
            assert!((share - f64::from(percent)).abs() < 2.0, "{share} for {percent} at {length}");
        }
    }
    // A duplicate equals its original in every byte.
    let all = written(&Content { dedupe_percentage: 100, ..Content::default() }, 1 << 20, 3);
    assert_eq!(distinct(&all, 1 << 20), 1);
}

#[test]
fn what_is_compressible_may_repeat_too() {
    let content = Content { filler_percentage: 50, dedupe_percentage: 30, ..Content::default() };
    let written = written(&content, 4096, 4000);
    let unique = distinct(&written, 4096);
    assert_eq!(unique, 2800);
    assert!((saved(&written, 4096) - 50.0).abs() < 2.0);
}

#[test]
fn a_pattern_fills_what_is_not_random_and_runs_on_over_sectors() {
    let pattern = |text: &str| Some(text.parse().expect("a pattern"));
    let whole = Content { filler_percentage: 100, filler: pattern("\"abc\""), ..Content::default() };
    let written_whole = written(&whole, 8192, 2);
    for write in written_whole.chunks(8192) {
        assert!(write.iter().zip(b"abc".iter().cycle()).all(|(byte, expected)| byte == expected));
    }
    let half = Content { filler_percentage: 50, filler: pattern("0xdeadbeef"), ..Content::default() };
    let block = written(&half, 4096, 1);
    for sector in block.chunks(SECTOR) {
        assert!(sector[256..].chunks(4).all(|word| word == b"\xde\xad\xbe\xef"));
        assert_ne!(sector[..4], *b"\xde\xad\xbe\xef");
    }
    let zeros = Content { filler_percentage: 100, ..Content::default() };
    assert!(written(&zeros, 4096, 2).iter().all(|byte| *byte == 0));
}

#[test]
fn reads_into_the_same_buffer_leave_nothing_in_what_is_written_next() {
    for content in [Content::default(), Content { filler_percentage: 100, ..Content::default() }] {
        let mut payload = Payload::new(&content, 1, true, SplitMix64::new(7, Purpose::Payload, 0));
        let mut buffer = vec![0; LONG];
        for _ in 0..3 {
            refresh(&mut payload, &mut buffer);
            let spoilt = buffer.chunks(8).filter(|word| **word == [0xEE; 8]).count();
            assert_eq!(spoilt, 0);
            buffer.fill(0xEE);
        }
    }
}

#[test]
fn a_short_write_before_a_long_one_is_no_hole_in_it() {
    let mut payload = payload(&Content::default(), 0);
    let mut buffer = vec![0; 2 * LONG];
    for length in [4096, LONG, 2 * LONG, LONG] {
        refresh(&mut payload, &mut buffer[..length]);
        assert!(buffer[..length].chunks(16).all(|part| part != [0; 16]), "{length}");
    }
}

#[test]
fn number_and_generator_decide() {
    let content = |worker, number| {
        let mut block = [0; 4096];
        payload(&Content::default(), worker).source.put(number, &mut block);
        block
    };
    assert_eq!(content(0, 5), content(0, 5));
    assert_ne!(content(0, 5), content(1, 5));
    assert_ne!(content(0, 5), content(0, 6));
}
