use super::format::MARKER;
use super::*;
use iotax_load::request::IoKind;
use iotax_model::units::Bytes;
use iotax_model::verify_errors::{JournalDamage, JournalState};
use proptest::prelude::*;
use std::fs;
use std::io::{Cursor, Read};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const HEADER: Header = Header { run: 9, block: 4096 };

fn write(generation: u64) -> Io {
    Io { direction: IoKind::Write, offset: generation * 4096, length: 4096 }
}

fn expected(generation: u64) -> Record {
    Record::Write { offset: generation * 4096, length: 4096, generation }
}

const fn flush(records: u64) -> Record {
    Record::Flush { records, after: Nanos(0) }
}

fn all(path: &Path) -> (Header, JournalState, Vec<Record>) {
    parsed(&fs::read(path).expect("read")).expect("a journal")
}

/// Parses the bytes of a journal. Returns its header, its state, and its records in the order of their numbers.
fn parsed(bytes: &[u8]) -> io::Result<(Header, JournalState, Vec<Record>)> {
    let (mut records, mut last) = (Vec::new(), None);
    let (header, state) = read::survey(&mut Cursor::new(bytes), &mut |number, record| {
        assert!(last < Some(number), "{number} after {last:?}");
        last = Some(number);
        // The time of a flush is not known beforehand.
        records.push(if let Record::Flush { records, .. } = record { flush(records) } else { record });
    })?;
    Ok((header, state, records))
}

fn torn(bytes: u64) -> JournalState {
    JournalState { torn_tail: Bytes(bytes), ..JournalState::default() }
}

fn damaged(closed: bool, offset: u64, bytes: u64, records: u64) -> JournalState {
    let damage = JournalDamage { regions: 1, first_offsets: vec![offset], bytes, records };
    JournalState { closed, damage, ..JournalState::default() }
}

fn closed() -> JournalState {
    JournalState { closed: true, ..JournalState::default() }
}

/// Encodes batches with these numbers of records, as the writer does; end frames follow if `ended`.
fn batches(lengths: &[u64], ended: bool) -> (Vec<u8>, Vec<Record>) {
    let (mut bytes, mut records) = (HEADER.frame(0).to_vec(), Vec::new());
    for length in lengths {
        bytes.extend(HEADER.frame(records.len() as u64));
        for _ in 0..*length {
            let number = records.len() as u64;
            let record = if number % 5 == 4 { flush(number) } else { expected(number + 1) };
            bytes.extend(Frame { number, content: Content::Record(record) }.encode(HEADER.run));
            records.push(record);
        }
    }
    if ended {
        let end = Frame { number: records.len() as u64, content: Content::End };
        bytes.extend(end.encode(HEADER.run).repeat(2));
    }
    (bytes, records)
}

#[test]
fn records_come_back_in_order_and_a_torn_tail_is_left_out() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("journal");
    let journal = Journal::create(&path, HEADER).expect("created");
    assert!(Journal::create(&path, HEADER).is_err(), "what exists is not written over");
    for generation in 1..=3 {
        journal.write(&write(generation), generation);
    }
    let covered = journal.records();
    journal.write(&write(4), 4);
    journal.flush(covered);
    journal.finish().expect("on disk");
    let records: Vec<Record> = (1..=4).map(expected).chain([flush(3)]).collect();
    assert_eq!(all(&path), (HEADER, closed(), records));

    let (whole, records) = batches(&[5], false);
    for length in 80..whole.len() {
        let (_, state, kept) = parsed(&whole[..length]).expect("a journal");
        assert_eq!(kept, records[..length / 40 - 2], "of {length} bytes");
        assert_eq!(state, torn(length as u64 % 40));
    }
    for foreign in [&b"{\"schema\": \"iotax/1\"}"[..], &[0; 400], b"", &whole[80..]] {
        let error = parsed(foreign).expect_err("refused").to_string();
        assert!(error.contains("no journal"), "{error}");
    }
}

#[test]
fn what_a_crash_does_not_explain_is_damage() {
    let (open, records) = batches(&[3, 4], false);
    let (whole, _) = batches(&[3, 4], true);
    let without = |lost: std::ops::Range<usize>| [&records[..lost.start], &records[lost.end..]].concat();
    let mut cut_out = whole.clone();
    cut_out.drain(120..160);
    let mut zeros = whole.clone();
    zeros[100..250].fill(0);
    let mut shifted = whole.clone();
    shifted.splice(130..130, [0; 7]);
    let ended = [&whole[..], b"more"].concat();
    let twice = [&whole[..160], &whole[120..]].concat();
    for (what, bytes, state, kept) in [
        ("a record was cut out", &cut_out, damaged(true, 120, 0, 1), without(1..2)),
        ("sectors were lost", &zeros, damaged(true, 80, 200, 4), without(0..4)),
        ("bytes came in between", &shifted, damaged(true, 120, 47, 1), without(1..2)),
        ("there is more behind the end", &ended, damaged(true, whole.len() as u64, 4, 0), records.clone()),
        ("a record is there twice", &twice, damaged(true, 160, 40, 0), records.clone()),
    ] {
        assert_eq!(parsed(bytes).expect(what), (HEADER, state, kept), "{what}");
    }
    // A tail longer than any batch is damage; a shorter one is an incomplete batch.
    assert_eq!(parsed(&open).expect("open"), (HEADER, JournalState::default(), records.clone()));
    let far = [&open[..], &vec![0xA5; 5 << 20]].concat();
    assert_eq!(parsed(&far).expect("far").1, damaged(false, open.len() as u64, 5 << 20, 0));
    let near = [&open[..], &vec![0xA5; 1 << 20]].concat();
    assert_eq!(parsed(&near).expect("near").1, torn(1 << 20));
}

/// Checks that every flipped bit is reported. In the last record of an unclosed journal it is reported as an incomplete record.
#[test]
fn every_flipped_bit_is_told_and_costs_no_more_than_its_record() {
    for is_closed in [true, false] {
        let (whole, records) = batches(&[3, 1, 4], is_closed);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (header, state, kept) = parsed(&bytes).expect("a journal");
            let lost = records.len() - kept.len();
            assert!(lost <= 1 && kept.iter().all(|record| records.contains(record)), "bit {bit}: {kept:?}");
            let last = !is_closed && bit / 8 >= whole.len() - 40;
            let is_reported = if last { state.torn_tail == Bytes(40) } else { state.damage.regions == 1 };
            assert!(header == HEADER && is_reported, "bit {bit} of {}: {state:?}", whole.len());
            assert_eq!(state.damage.records, if last { 0 } else { lost as u64 }, "bit {bit}: {state:?}");
        }
    }
}

proptest! {
    #[test]
    fn of_a_damaged_journal_only_true_records_are_read(
        lengths in prop::collection::vec(1..40_u64, 1..6),
        ended: bool,
        harm in prop::collection::vec((any::<prop::sample::Index>(), 0..600_usize, any::<u8>()), 1..4),
    ) {
        let (mut bytes, records) = batches(&lengths, ended);
        let whole = bytes.clone();
        for (at, length, byte) in harm {
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            bytes[at..end].fill(byte);
        }
        let Ok((header, state, kept)) = parsed(&bytes) else { return Ok(()) };
        prop_assert_eq!(header, HEADER);
        // Records are in order, and none is made up.
        let mut left = records.iter();
        prop_assert!(kept.iter().all(|record| left.any(|one| one == record)), "{:?}", kept);
        let is_reported = state.damage.regions > 0 || state.torn_tail.0 > 0;
        prop_assert_eq!(is_reported, bytes != whole, "{:?}", state);
        prop_assert!(state.damage.regions == 0 || !state.closed || kept.len() as u64 + state.damage.records == records.len() as u64);
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(prop_oneof![Just(b'i'), Just(b'o'), Just(b'j'), Just(b'W'), any::<u8>()], 0..2000), headed: bool) {
        let bytes = if headed { [&HEADER.frame(0)[..], &bytes].concat() } else { bytes };
        if let Ok((_, state, records)) = parsed(&bytes) {
            prop_assert!(records.is_empty() && headed);
            prop_assert_eq!(state.torn_tail, Bytes(bytes.len() as u64 - 40));
        }
    }
}

/// Checks the worst case: data that looks like the beginning of a frame everywhere.
#[test]
fn bytes_that_are_all_markers_are_read_in_linear_time() {
    let bytes: Vec<u8> = MARKER.repeat(2_000_000);
    let begun = Instant::now();
    assert!(parsed(&bytes).is_err());
    let (_, state, _) = parsed(&[&HEADER.frame(0)[..], &bytes].concat()).expect("headed");
    assert_eq!(state.damage.bytes, bytes.len() as u64);
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

#[test]
fn many_writers_lose_no_record() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("journal");
    let journal = Journal::create(&path, HEADER).expect("created");
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let journal = &journal;
            scope.spawn(move || {
                (0..50_000).for_each(|n| assert!(journal.write(&write(1), worker * 50_000 + n + 1)));
            });
        }
    });
    journal.finish().expect("on disk");
    let mut seen = [0_u64; 4];
    for record in all(&path).2 {
        let Record::Write { generation, .. } = record else { panic!("{record:?}") };
        let worker = usize::try_from((generation - 1) / 50_000).expect("small");
        assert!(generation > seen[worker], "in the order of its worker");
        seen[worker] = generation;
    }
    assert_eq!(seen, [50_000, 100_000, 150_000, 200_000]);
}

#[test]
fn a_line_takes_a_journal_and_holds_no_more_of_it_back_than_it_must() {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let journal = Journal::create(Path::new(&path), HEADER).expect("it is open");
    drop(writer);
    let writing = std::thread::spawn(move || {
        for generation in 1..=5000 {
            let Shared { most_pending, state, .. } = &*journal.shared;
            assert!(*most_pending <= 4000 && state.lock().expect("unharmed").pending.len() <= 4000);
            journal.write(&write(generation), generation);
        }
        journal.flush(5000);
        journal.finish()
    });
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("read");
    writing.join().expect("no panic").expect("all of it went over the line");
    let records: Vec<Record> = (1..=5000).map(expected).chain([flush(5000)]).collect();
    assert_eq!(parsed(&bytes).expect("a journal"), (HEADER, closed(), records));
}

#[test]
fn a_line_whose_other_end_is_gone_is_an_error() {
    let (reader, writer) = io::pipe().expect("a pipe");
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let journal = Journal::create(Path::new(&path), HEADER).expect("it is open");
    drop((reader, writer));
    journal.write(&write(1), 1);
    let error = journal.finish().expect_err("nobody reads");
    assert_eq!((error.recorded, error.acknowledged), (0, 1));
}

#[test]
fn a_journal_that_cannot_be_written_is_an_error_at_the_end() {
    let created = Journal::create(Path::new("/dev/full"), HEADER).map(drop);
    assert_eq!(created.map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
}

#[test]
fn a_journal_that_cannot_be_written_to_its_end_says_what_it_lacks() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("journal");
    let journal = Journal::create(&path, HEADER).expect("created");
    (1..=3).for_each(|generation| assert!(journal.write(&write(generation), generation)));
    let patience = Instant::now() + Duration::from_secs(30);
    while journal.shared.lock().synced_writes < 3 {
        assert!(Instant::now() < patience, "three records take a moment");
        std::thread::sleep(Duration::from_millis(1));
    }
    let whole = fs::read(&path).expect("read");
    assert_eq!(parsed(&whole).expect("a journal").1, JournalState::default(), "nothing is missing yet");
    // As the writer does when its storage is full; writes acknowledged afterwards have no record.
    journal.shared.lock().writes = 35;
    journal.shared.mark_incomplete(&journal.sink).expect("there is room for it in its place");
    let (_, state, records) = parsed(&fs::read(&path).expect("read")).expect("a journal");
    assert_eq!((state.acknowledged, records.len()), (Some(35), 3));
}
