//! Tests of traces written by iotax.

use iotax_interop::trace::{TraceFacts, TraceWriter, read, write};
use iotax_model::trace::{TraceExport, TraceFormat, TracedIo, TracedOperation};
use proptest::prelude::*;

fn event() -> impl Strategy<Value = TracedIo> {
    let operation = prop::sample::select(vec![
        TracedOperation::Read,
        TracedOperation::Write,
        TracedOperation::Trim,
        TracedOperation::Flush,
    ]);
    let number = 0..i64::MAX.cast_unsigned();
    let small = prop::option::of(any::<u32>());
    (
        number.clone(),
        prop::option::of(number.clone()),
        operation,
        number.clone(),
        number,
        any::<bool>(),
        small.clone(),
        small,
    )
        .prop_map(|(at_ns, latency_ns, operation, offset, length, fua, process, queue)| TracedIo {
            at_ns,
            latency_ns,
            operation,
            offset,
            length,
            fua,
            process,
            queue,
        })
}

fn written(format: TraceExport, events: &[TracedIo]) -> Vec<u8> {
    let mut file = Vec::new();
    let ios =
        write(format, &TraceFacts::default(), events.iter().copied().map(Ok), &mut file).expect("written");
    assert_eq!(ios, events.len() as u64);
    file
}

fn read_back(file: Vec<u8>) -> (TraceFormat, Vec<TracedIo>) {
    let (format, events) = read(file).expect("recognised");
    (format, events.map(|event| event.expect("read")).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn parquet_and_csv_are_read_back_as_they_were(mut events in prop::collection::vec(event(), 0..200)) {
        events.sort_by_key(|event| event.at_ns);
        prop_assert_eq!(read_back(written(TraceExport::Parquet, &events)), (TraceFormat::Parquet, events.clone()));
        prop_assert_eq!(read_back(written(TraceExport::Csv, &events)), (TraceFormat::Csv, events));
    }

    /// Tests that a file damaged at any position gives rows or an error message.
    #[test]
    fn a_damaged_file_ends_in_a_sentence(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let events: Vec<TracedIo> = (0..500).map(|n| TracedIo {
            at_ns: n * 1000, latency_ns: Some(n), operation: TracedOperation::Read, offset: n * 4096, length: 4096,
            fua: false, process: Some(1), queue: None,
        }).collect();
        let mut file = written(TraceExport::Parquet, &events);
        let cut_at = at.index(file.len());
        if cut { file.truncate(cut_at) } else { file[cut_at] = byte }
        if let Ok((_, events)) = read(file) {
            let _ = events.take(100_000).filter_map(Result::err).count();
        }
    }
}

#[test]
fn a_footer_that_declares_more_rows_than_there_are_is_an_error() {
    let event = |n: u64| TracedIo {
        at_ns: n,
        latency_ns: None,
        operation: TracedOperation::Read,
        offset: 0,
        length: 4096,
        fua: false,
        process: None,
        queue: None,
    };
    let events: Vec<TracedIo> = (0..500).map(event).collect();
    let mut file = written(TraceExport::Parquet, &events);
    // In the footer's compact encoding, a count is a field header and a zigzag number: 500 becomes 1,000.
    let (counted, doubled) = ([0x16, 0xe8, 0x07], [0x16, 0xd0, 0x0f]);
    for at in (0..file.len() - counted.len()).rev() {
        if file[at..].starts_with(&counted) {
            file[at..at + doubled.len()].copy_from_slice(&doubled);
        }
    }
    let (_, events) = read(file).expect("recognised");
    let errors: Vec<String> = events.filter_map(Result::err).collect();
    assert!(matches!(&errors[..], [error] if error.contains("declares 1000 rows")), "{errors:?}");
}

#[test]
fn many_rows_make_several_groups_and_little_of_each() {
    let mut writer = TraceWriter::new(Vec::new()).expect("begun");
    let rows = 300_000_u64;
    for n in 0..rows {
        let event = TracedIo {
            at_ns: n * 20_000 + n * 7919 % 1000,
            latency_ns: Some(80_000 + n * 104_729 % 5000),
            operation: if n % 3 == 0 { TracedOperation::Write } else { TracedOperation::Read },
            offset: n * 7919 % 100_000 * 4096,
            length: 4096,
            fua: false,
            process: Some(4242),
            queue: Some(0),
        };
        writer.add(event).expect("taken");
    }
    let facts = TraceFacts {
        source: Some("sda".into()),
        lost: Some(0),
        size: Some(1 << 40),
        ..TraceFacts::default()
    };
    let (file, ios) = writer.finish(&facts).expect("ended");
    // blktrace takes 48 bytes for the issue alone.
    let each = file.len() as u64 / rows;
    assert!(ios == rows && each < 10, "{each} bytes an I/O");
    let (format, events) = read(file).expect("recognised");
    assert_eq!((format, events.filter_map(Result::ok).count() as u64), (TraceFormat::Parquet, rows));
}

#[test]
fn an_iolog_is_read_back_to_the_microsecond() {
    let base = TracedIo {
        at_ns: 1_234_567,
        latency_ns: Some(5),
        operation: TracedOperation::Write,
        offset: 4096,
        length: 512,
        fua: true,
        process: None,
        queue: None,
    };
    let events = [
        base,
        TracedIo { at_ns: 2_000_000, operation: TracedOperation::Flush, offset: 0, length: 0, ..base },
    ];
    let (format, read) = read_back(written(TraceExport::Iolog, &events));
    assert_eq!(format, TraceFormat::Iolog);
    let again: Vec<_> =
        read.iter().map(|event| (event.at_ns, event.operation, event.offset, event.length)).collect();
    assert_eq!(
        again,
        [(1_234_000, TracedOperation::Write, 4096, 512), (2_000_000, TracedOperation::Flush, 0, 0)]
    );
}

#[test]
fn a_number_that_a_column_does_not_hold_is_refused() {
    let event = TracedIo {
        at_ns: 0,
        latency_ns: None,
        operation: TracedOperation::Read,
        offset: 1 << 63,
        length: 512,
        fua: false,
        process: None,
        queue: None,
    };
    let refused = write(TraceExport::Parquet, &TraceFacts::default(), [Ok(event)].into_iter(), Vec::new());
    assert!(refused.expect_err("too large").contains("I/O 1: 9223372036854775808 is beyond 2^63"));
}
