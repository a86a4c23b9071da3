//! Binary formats: blktrace of both byte orders, and vSCSI.

use std::fs;

use iotax_interop::trace::{open, read};
use iotax_model::trace::{TraceFormat, TracedOperation};

use super::{READ, WRITE, rows};

const READS: u32 = 1 << 16;
const WRITES: u32 = 1 << 17;
const FUA: u32 = 1 << 31;
const NOTIFY: u32 = 1 << 26;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;

/// A record of blktrace.
struct Record {
    at_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
}

fn blktrace(records: &[Record], is_big_endian: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let mut put =
        |bytes: Vec<u8>| file.extend(if is_big_endian { bytes } else { bytes.into_iter().rev().collect() });
    for Record { at_ns, sector, bytes, action } in records {
        put(0x6561_7407_u32.to_be_bytes().to_vec());
        put(1_u32.to_be_bytes().to_vec());
        put(at_ns.to_be_bytes().to_vec());
        put(sector.to_be_bytes().to_vec());
        for word in [*bytes, *action, 42, 8 << 20, 1] {
            put(word.to_be_bytes().to_vec());
        }
        put(0_u16.to_be_bytes().to_vec());
        put(3_u16.to_be_bytes().to_vec());
        put(vec![1, 2, 3]);
    }
    file
}

fn first_cpu() -> [Record; 3] {
    [
        Record { at_ns: 5, sector: 0, bytes: 0, action: NOTIFY },
        Record { at_ns: 100, sector: 8, bytes: 4096, action: READS | ISSUE },
        Record { at_ns: 900, sector: 8, bytes: 4096, action: READS | COMPLETE },
    ]
}

#[test]
fn records_of_either_byte_order_are_the_same() {
    for is_big_endian in [false, true] {
        let all = vec![(100, READ, 4096, 4096, Some(800))];
        assert_eq!(rows(&blktrace(&first_cpu(), is_big_endian)), (TraceFormat::Blktrace, all, None));
    }
}

#[test]
fn the_files_of_all_cpus_are_merged_by_time() {
    let temp = tempfile::tempdir().expect("directory");
    let second = [
        Record { at_ns: 50, sector: 16, bytes: 512, action: WRITES | FUA | ISSUE },
        Record { at_ns: 300, sector: 16, bytes: 512, action: WRITES | FUA | COMPLETE },
    ];
    for (cpu, records) in [(0, &first_cpu()[..]), (1, &second[..])] {
        fs::write(temp.path().join(format!("sda.blktrace.{cpu}")), blktrace(records, false))
            .expect("written");
    }
    fs::write(temp.path().join("sdb.blktrace.0"), b"another trace").expect("written");
    let trace = open(&temp.path().join("sda.blktrace.1")).expect("opened");
    let events: Vec<_> = trace.events.map(|event| event.expect("read")).collect();
    let read_back: Vec<_> =
        events.iter().map(|event| (event.at_ns, event.operation, event.fua, event.latency_ns)).collect();
    assert_eq!(read_back, [(50, WRITE, true, Some(250)), (100, READ, false, Some(800))]);
}

#[test]
fn a_cut_or_foreign_record_is_named_by_its_byte() {
    let whole = blktrace(&first_cpu(), false);
    for (bytes, words) in [
        (whole[..60].to_vec(), "byte 51: the file ends within a record: 9 of 48 bytes"),
        (whole[..50].to_vec(), "byte 0: the file ends within a record's data: 2 of 3 bytes"),
        ([&whole[..51], &[0; 48]].concat(), "byte 51: 0x0 does not begin a record"),
        ([&[9_u8], &whole[1..]].concat(), "byte 0: version 9 of blktrace's format; accepted: 7"),
    ] {
        let (_, _, reason) = rows(&bytes);
        assert!(reason.as_deref().unwrap_or_default().contains(words), "{reason:?}");
    }
}

#[test]
fn both_versions_of_vscsi_are_told_apart() {
    let mut one = Vec::new();
    one.extend(1_u32.to_le_bytes());
    one.extend(4096_u32.to_le_bytes());
    one.extend(1_u32.to_le_bytes());
    one.extend(0x2a_u16.to_le_bytes());
    one.extend(0x0100_u16.to_le_bytes());
    one.extend(8_u64.to_le_bytes());
    one.extend(77_u64.to_le_bytes());
    assert_eq!(rows(&one), (TraceFormat::Vscsi, vec![(77_000, WRITE, 4096, 4096, None)], None));
    let mut two = Vec::new();
    two.extend(0x35_u16.to_le_bytes());
    two.extend(0x0200_u16.to_le_bytes());
    for word in [1_u32, 512, 1] {
        two.extend(word.to_le_bytes());
    }
    for word in [0_u64, 5, 9] {
        two.extend(word.to_le_bytes());
    }
    assert_eq!(
        rows(&two),
        (TraceFormat::Vscsi, vec![(5000, TracedOperation::Flush, 0, 0, Some(9000))], None)
    );
    two.extend([0; 7]);
    assert!(rows(&two).2.expect("cut").contains("byte 40: the file ends within a record: 7 of 40 bytes"));
}

/// Records of oracleGeneral: seconds, object, size, next access.
fn oracle(records: &[(u32, u64, u32, i64)]) -> Vec<u8> {
    let record = |(seconds, object, size, next): &(u32, u64, u32, i64)| {
        [&seconds.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    records.iter().flat_map(record).collect()
}

#[test]
fn oracle_general_is_read_plain_and_compressed() {
    let file = oracle(&[(7, 8, 4096, 2), (7, u64::MAX, 512, -1), (9, 8, 4096, i64::MAX)]);
    let sector = (u64::MAX % (1 << 54)) * 512;
    let all = vec![
        (7_000_000_000, READ, 4096, 4096, None),
        (7_000_000_000, READ, sector, 512, None),
        (9_000_000_000, READ, 4096, 4096, None),
    ];
    assert_eq!(rows(&file), (TraceFormat::OracleGeneral, all.clone(), None));
    let compressed = zstd::encode_all(&file[..], 3).expect("compressed");
    assert_eq!(rows(&compressed), (TraceFormat::OracleGeneral, all, None));
    let (_, found, reason) = rows(&file[..60]);
    assert_eq!(
        (found.len(), reason.as_deref()),
        (2, Some("byte 48: the file ends within a record: 12 of 24 bytes"))
    );
    for strange in [(7, 8, 0, 2), (7, 8, 4096, 0), (7, 8, u32::MAX, 2)] {
        assert!(read(oracle(&[strange])).is_err(), "{strange:?}");
    }
}

#[test]
fn a_compressed_text_is_a_trace_and_a_damaged_one_ends_in_a_sentence() {
    let lines: Vec<String> = (0..200_000_u64).map(|n| format!("3,R,{},4096,{n}\n", n * 4096)).collect();
    let text = lines.concat();
    let mut file = zstd::encode_all(text.as_bytes(), 3).expect("compressed");
    let (format, all, reason) = rows(&file);
    assert_eq!((format, all.len(), reason), (TraceFormat::Alibaba, 200_000, None));
    file.truncate(file.len() / 2);
    let (_, all, reason) = rows(&file);
    assert!(!all.is_empty() && reason.is_some_and(|reason| reason.starts_with("line ")));
    let parquet = zstd::encode_all(&b"PAR1PAR1"[..], 3).expect("compressed");
    assert!(read(parquet).is_err_and(|reason| reason.contains("decompress it: zstd -d")));
    assert!(read(vec![0x28, 0xb5, 0x2f, 0xfd, 1]).is_err_and(|reason| reason.contains("damaged")));
}
