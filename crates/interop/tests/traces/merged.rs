//! Tests of merging several traces into one.

use std::fs;
use std::path::{Path, PathBuf};

use iotax_interop::trace::{TraceFacts, merged, write};
use iotax_model::trace::{TraceExport, TracedIo, TracedOperation};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).expect("written");
    path
}

fn iolog(directory: &Path, name: &str, lines: &str) -> PathBuf {
    file(directory, name, &format!("fio version 3 iolog\n0 /d add\n0 /d open\n{lines}"))
}

/// Time, offset and queue of each I/O.
fn read(paths: &[PathBuf]) -> Vec<(u64, u64, Option<u32>)> {
    let (_, events) = merged(paths).expect("opened");
    events.map(|event| event.expect("read")).map(|event| (event.at_ns, event.offset, event.queue)).collect()
}

#[test]
fn traces_are_merged_by_time_each_behind_the_reach_of_those_before() {
    let at = tempfile::tempdir().expect("a directory");
    let one =
        iolog(at.path(), "one", "5000 /d read 0 4096\n5010 /d read 1048576 4096\n5030 /d datasync 0 0\n");
    let two = iolog(at.path(), "two", "70 /d write 8192 4096\n90 /d write 0 4096\n");
    assert_eq!(
        read(&[one.clone(), two.clone(), two.clone()]),
        [
            (0, 0, Some(0)),
            (0, 2 * MIB + 8192, Some(1)),
            (0, 3 * MIB + 8192, Some(2)),
            (10_000, MIB, Some(0)),
            (20_000, 2 * MIB, Some(1)),
            (20_000, 3 * MIB, Some(2)),
            (30_000, 0, Some(0)),
        ]
    );
    let (facts, _) = merged(&[one.clone(), two.clone()]).expect("opened");
    assert_eq!(facts.source, Some(format!("{} + {}", one.display(), two.display())));
    assert_eq!(facts.lost, None, "nobody counted");
}

#[test]
fn a_recording_begins_where_it_was_begun() {
    let at = tempfile::tempdir().expect("a directory");
    let event = TracedIo {
        at_ns: 7_000,
        latency_ns: Some(5),
        operation: TracedOperation::Read,
        offset: 0,
        length: 512,
        fua: false,
        process: Some(3),
        queue: None,
    };
    let recording = |name: &str, lost| {
        let facts = TraceFacts {
            source: Some(name.into()),
            began_at_ms: Some(1),
            lost: Some(lost),
            ..TraceFacts::default()
        };
        let path = at.path().join(name);
        let file = fs::File::create(&path).expect("created");
        write(TraceExport::Parquet, &facts, [Ok(event)].into_iter(), file).expect("written");
        path
    };
    let late = iolog(at.path(), "late", "5 /d read 0 512\n");
    assert_eq!(
        read(&[recording("vda", 2), late]),
        [(0, MIB, Some(1)), (7_000, 0, Some(0))],
        "the pause before its first I/O is part of it"
    );
    let (facts, events) = merged(&[recording("vdb", 2), recording("vdc", 3)]).expect("opened");
    assert_eq!((facts.source.as_deref(), facts.lost), (Some("vdb + vdc"), Some(5)));
    let first = events.map(|event| event.expect("read")).next().expect("an I/O");
    assert_eq!((first.latency_ns, first.process), (Some(5), Some(3)));
}

#[test]
fn what_cannot_be_merged_is_refused_by_its_name() {
    let at = tempfile::tempdir().expect("a directory");
    let good = iolog(at.path(), "good", "5 /d read 0 512\n");
    let refused = |path: PathBuf| merged(&[good.clone(), path]).err().expect("refused").to_string();
    let cut = refused(iolog(at.path(), "cut", "5 /d read 0 512\n9 /d read 0\n"));
    assert!(cut.contains("/cut: line 5: the length is"), "{cut}");
    let empty = refused(iolog(at.path(), "empty", ""));
    assert!(empty.ends_with("/empty: it has no I/O"), "{empty}");
    let far = refused(iolog(at.path(), "far", "5 /d read 9223372036854775296 512\n"));
    assert!(far.contains("/far: it reaches up to byte 9223372036854775808, behind 1048576"), "{far}");
    assert!(refused(at.path().join("none")).contains("/none: "), "no such file");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn each_trace_keeps_its_order_pauses_and_distances(
        traces in prop::collection::vec(prop::collection::vec((0_u64..1000, 0_u64..1 << 30), 1..40), 1..5),
    ) {
        let at = tempfile::tempdir().expect("a directory");
        let mut own = Vec::new();
        let paths: Vec<PathBuf> = traces.iter().enumerate().map(|(number, gaps)| {
            let mut now = 0;
            let ios: Vec<(u64, u64)> = gaps.iter().map(|(gap, offset)| { now += gap; (now, *offset) }).collect();
            let lines: Vec<String> = ios.iter().map(|(at, offset)| format!("{at} /d write {offset} 4096")).collect();
            own.push(ios);
            iolog(at.path(), &number.to_string(), &(lines.join("\n") + "\n"))
        }).collect();
        let all = read(&paths);
        prop_assert!(all.is_sorted_by_key(|(at, ..)| *at));
        let mut begin = 0;
        for (number, ios) in (0..).zip(own) {
            let part = all.iter().filter(|(.., queue)| *queue == Some(number));
            let part: Vec<(u64, u64)> = part.map(|(at, offset, _)| (*at, offset - begin)).collect();
            let expected: Vec<(u64, u64)> = ios.iter().map(|(at, offset)| ((at - ios[0].0) * 1000, *offset)).collect();
            prop_assert_eq!(part, expected);
            let reach = ios.iter().map(|(_, offset)| offset + 4096).max().expect("an I/O");
            begin = (begin + reach).next_multiple_of(MIB);
        }
    }
}
