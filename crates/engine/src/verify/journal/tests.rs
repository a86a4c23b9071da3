use super::*;
use crate::pattern::Direction;
use std::fs;

const HEADER: Header = Header { run: 9, block: 4096 };

fn write(generation: u64) -> Io {
    Io { direction: Direction::Write, offset: generation * 4096, length: 4096 }
}

fn expected(generation: u64) -> Record {
    Record::Write { offset: generation * 4096, length: 4096, generation }
}

fn all(path: &Path) -> (Header, u64, Vec<Record>) {
    let mut records = Vec::new();
    let (header, tail) = read(path, &mut |record| records.push(record)).expect("read");
    (header, tail, records)
}

#[test]
fn records_come_back_in_order_and_a_torn_tail_is_left_out() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("journal");
    let journal = Journal::create(&path, HEADER).expect("created");
    assert!(Journal::create(&path, HEADER).is_err(), "what exists is not written over");
    assert_eq!(all(&path), (HEADER, 0, vec![]), "the beginning is there at once");
    for generation in 1..=3 {
        journal.write(&write(generation), generation);
    }
    let covered = journal.writes();
    journal.write(&write(4), 4);
    journal.flush(covered);
    journal.finish().expect("on disk");
    let records: Vec<Record> = (1..=4).map(expected).chain([Record::Flush { writes: 3 }]).collect();
    assert_eq!(all(&path), (HEADER, 0, records.clone()));

    let whole = fs::read(&path).expect("read");
    for length in 40..whole.len() {
        fs::write(&path, &whole[..length]).expect("cut");
        let (_, tail, kept) = all(&path);
        assert_eq!(kept, records[..length / 40 - 1], "of {length} bytes");
        assert_eq!(tail, length as u64 % 40);
    }
    // Of a batch that was not synced later pages may be there and earlier ones not.
    let mut gap = whole.clone();
    gap[100] ^= 1;
    fs::write(&path, &gap).expect("damaged");
    assert_eq!(all(&path), (HEADER, 4 * 40, records[..1].to_vec()));
    for foreign in [&b"{\"schema\": \"iotax/1\"}"[..], &[0; 400], &whole[1..]] {
        fs::write(&path, foreign).expect("written");
        let error = read(&path, &mut |_| {}).expect_err("refused").to_string();
        assert!(error.contains("no journal"), "{error}");
    }
}

#[test]
fn many_writers_lose_no_record() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("journal");
    let journal = Journal::create(&path, HEADER).expect("created");
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let journal = &journal;
            scope.spawn(move || (0..50_000).for_each(|n| journal.write(&write(1), worker * 50_000 + n + 1)));
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
fn a_journal_that_cannot_be_written_is_an_error_at_the_end() {
    let full = Path::new("/dev/full");
    let mut file = File::options().write(true).open(full).expect("a device that is full");
    let shared = Shared { state: Mutex::default(), filled: Condvar::new(), drained: Condvar::new() };
    shared.add(expected(1));
    assert_eq!(shared.write_all(&mut file).map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
}
