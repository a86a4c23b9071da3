use proptest::prelude::*;

use super::*;

fn event(operation: TracedOperation, offset: u64, length: u64) -> TracedIo {
    TracedIo { at_ns: 0, latency_ns: None, operation, offset, length, fua: false, process: None, queue: None }
}

fn read(offsets: ReplayOffsets, ios: &[(u64, u64)]) -> OffsetMap {
    let events = ios.iter().map(|(offset, length)| Ok(event(TracedOperation::Read, *offset, *length)));
    OffsetMap::read(offsets, events).expect("few areas")
}

fn mapped(map: &OffsetMap, offset: u64, size: u64) -> u64 {
    map.map_offset(TracedOperation::Write, (offset, BLOCK), size).expect("placed").0
}

#[test]
fn a_working_set_leaves_out_what_lies_between_its_blocks() {
    let far = 64 << 30;
    let map = read(ReplayOffsets::WorkingSet, &[(far, 8192), (8192, 4096), (far + 4096, 8192), (512, 512)]);
    assert_eq!(map.size(u64::MAX), 5 * BLOCK);
    let size = 5 * BLOCK;
    assert_eq!([512, 8192, far, far + 8192].map(|at| mapped(&map, at, size)), [512, 4096, 8192, 16384]);
    // A block that the trace did not touch when it was read goes where it would be.
    assert_eq!(mapped(&map, 1 << 20, size), 8192);
    let trim = |offset, length| map.map_offset(TracedOperation::Trim, (offset, length), size);
    assert_eq!(trim(0, far + 4096), Some((0, 3 * BLOCK)), "shorter, as its blocks are fewer");
    assert_eq!(trim(far + 512, 1024), Some((2 * BLOCK + 512, 1024)));
    assert_eq!(trim(1 << 20, 1 << 20), None, "nothing of it is read or written");
}

#[test]
fn what_cannot_be_replayed_is_in_no_working_set() {
    let events = [
        event(TracedOperation::Trim, 0, 1 << 40),
        event(TracedOperation::Flush, 0, 0),
        event(TracedOperation::Read, 0, 0),
        event(TracedOperation::Write, 0, LONGEST + 1),
        event(TracedOperation::Write, u64::MAX - 10, 4096),
    ];
    for offsets in [ReplayOffsets::WorkingSet, ReplayOffsets::Compress] {
        let map = OffsetMap::read(offsets, events.map(Ok).into_iter()).expect("one area");
        assert_eq!(map.size(0), BLOCK, "{offsets}");
    }
    let nothing = read(ReplayOffsets::Compress, &[]);
    assert_eq!((nothing.size(7), mapped(&nothing, 12_345, 4096)), (0, 12_345));
}

#[test]
fn a_trace_that_fits_is_moved_to_the_begin_and_not_stretched() {
    let map = read(ReplayOffsets::Compress, &[(1 << 40, 4096), ((1 << 40) + (1 << 20), 4096)]);
    assert_eq!(map.size(u64::MAX), (1 << 20) + BLOCK);
    assert_eq!(mapped(&map, (1 << 40) + (1 << 20) + 512, 1 << 30), (1 << 20) + 512);
    assert_eq!(mapped(&map, (1 << 40) + (1 << 20), 1 << 19), (1 << 19) - BLOCK, "half of the room");
}

#[test]
fn more_areas_than_memory_is_kept_for_are_refused() {
    let mut runs = TouchedRuns::default();
    let refused = (0..1_u64 << 23).find_map(|run| runs.add(run * 2, run * 2 + 1).err()).expect("too many");
    assert!(refused.contains("4194304 separate areas") && refused.contains("compress"), "{refused}");
}

/// I/Os near one another and far apart.
fn ios() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let offset = prop_oneof![0_u64..1 << 20, any::<u64>(), (1_u64 << 40)..(1 << 40) + (1 << 24)];
    prop::collection::vec((offset, 1_u64..1 << 18), 1..60)
}

#[test]
fn a_compressed_trim_is_no_larger_than_its_share() {
    let map = read(ReplayOffsets::Compress, &[(1 << 20, 4096), (65 << 20, 4096)]);
    let trim = |offset, length, size| map.map_offset(TracedOperation::Trim, (offset, length), size);
    assert_eq!(trim(1 << 20, 32 << 20, 1 << 20), Some((0, 511 << 10 & !4095)));
    assert_eq!(trim(0, 1 << 40, 1 << 20), Some((0, 1 << 20)), "what lies before and beyond is left out");
    assert_eq!(trim(0, 1 << 20, 1 << 20), None);
    assert_eq!(trim(66 << 20, 1 << 20, 1 << 20), None);
    assert_eq!(trim((1 << 20) + 512, 1024, 128 << 20), Some((512, 1024)));
}

proptest! {
    #[test]
    fn a_working_set_is_dense_and_holds_each_block_once(ios in ios()) {
        let map = read(ReplayOffsets::WorkingSet, &ios);
        let mut blocks: Vec<u64> =
            ios.iter().flat_map(|(offset, length)| { let (from, to) = blocks_of(*offset, *length); from..to }).collect();
        blocks.sort_unstable();
        blocks.dedup();
        prop_assert_eq!(map.size(0), blocks.len() as u64 * BLOCK);
        let mut offsets_mapped: Vec<u64> = blocks.iter().map(|block| mapped(&map, block * BLOCK, u64::MAX) / BLOCK).collect();
        prop_assert!(offsets_mapped.is_sorted(), "in their order");
        offsets_mapped.dedup();
        prop_assert_eq!(offsets_mapped, (0..blocks.len() as u64).collect::<Vec<_>>());
        // So an I/O is as long as it was.
        for (offset, length) in ios {
            prop_assert!(mapped(&map, offset, u64::MAX) + length.min(u64::MAX - offset) <= map.size(0));
        }
    }

    #[test]
    fn compressing_keeps_the_order_of_offsets_within_the_target(ios in ios(), size in BLOCK..1 << 42) {
        let map = read(ReplayOffsets::Compress, &ios);
        let mut offsets: Vec<u64> = ios.iter().map(|(offset, _)| *offset).collect();
        offsets.sort_unstable();
        let offsets_mapped: Vec<u64> = offsets.iter().map(|offset| mapped(&map, *offset, size)).collect();
        prop_assert!(offsets_mapped.is_sorted(), "{offsets_mapped:?}");
        prop_assert!(offsets_mapped.iter().all(|offset| *offset < size));
    }

    #[test]
    fn wrapping_is_left_to_the_target(offset in any::<u64>(), length in any::<u64>(), size in any::<u64>()) {
        let offsets_mapped = OffsetMap::Wrap.map_offset(TracedOperation::Read, (offset, length), size);
        prop_assert_eq!(offsets_mapped, Some((offset, length)));
    }
}
