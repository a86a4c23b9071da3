use super::*;
use crate::verify::journal::{Header, Journal};
use crate::verify::stamp::write_stamps;
use iotax_load::request::{Io, IoKind};
use iotax_model::verify_errors::{Fault, Findings, JournalState};
use iotax_model::workload::Verify;
use std::fs::File;
use std::os::unix::fs::FileExt;

const RUN: u64 = 77;
const BLOCK: u64 = 4096;

struct AuditedDisk {
    dir: tempfile::TempDir,
    target: File,
    journal: Journal,
}

impl AuditedDisk {
    /// Creates an area of 64 blocks of zeros, with a journal.
    fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
        let target = File::create_new(dir.path().join("target")).expect("created");
        target.set_len(64 * BLOCK).expect("sized");
        let header = Header { run: RUN, block: BLOCK };
        let journal = Journal::create(&dir.path().join("journal"), header).expect("created");
        Self { dir, target, journal }
    }

    /// Writes `blocks` blocks from number `block` on, without a record in the journal. Returns the I/O.
    fn write(&self, block: u64, blocks: u64, generation: u64) -> Io {
        let length = u32::try_from(blocks * BLOCK).expect("short");
        let io = Io { direction: IoKind::Write, offset: block * BLOCK, length };
        let mut buffer = vec![0xC3; length as usize];
        write_stamps(&mut buffer, &io, Mark { run: RUN, generation }, Verify::Crc32c);
        self.target.write_all_at(&buffer, io.offset).expect("written");
        io
    }

    fn acknowledged(&self, block: u64, blocks: u64, generation: u64) {
        let io = self.write(block, blocks, generation);
        self.journal.write(&io, generation);
    }

    fn audit(&self) -> Recovery {
        self.journal.finish().expect("on disk");
        audit(&self.dir.path().join("target"), &self.dir.path().join("journal")).expect("audited")
    }
}

fn fault(kind: FaultKind, blocks: &[u64]) -> Fault {
    let first_offsets: Vec<u64> = blocks.iter().map(|block| block * BLOCK).collect();
    Fault {
        kind,
        count: blocks.len() as u64,
        last_offset: *first_offsets.last().expect("one"),
        first_offsets,
    }
}

#[test]
fn what_is_there_is_fine_and_so_is_what_was_in_flight() {
    let disk = AuditedDisk::new();
    for block in 0..32 {
        disk.acknowledged(block, 1, block + 1);
    }
    disk.acknowledged(40, 8, 33);
    disk.journal.flush(disk.journal.records());
    disk.acknowledged(0, 1, 34);
    // Never acknowledged: a later write, and half of one.
    disk.write(1, 1, 35);
    let mut old = vec![0; 2048];
    disk.target.read_exact_at(&mut old, 2 * BLOCK).expect("read");
    disk.write(2, 1, 36);
    disk.target.write_all_at(&old, 2 * BLOCK).expect("torn");
    let clean = |checked| Findings { checked, ..Findings::default() };
    let recovery = disk.audit();
    assert!(recovery.last_flush.is_some_and(|after| after.0 > 0), "{recovery:?}");
    assert_eq!(
        recovery,
        Recovery {
            last_flush: recovery.last_flush,
            writes: 34,
            durable_writes: 33,
            journal: JournalState { closed: true, ..JournalState::default() },
            findings: clean(40),
            durable: clean(40),
            lost_from: None,
            reordered: 0,
        }
    );
}

#[test]
fn lost_writes_are_named_and_those_that_were_durable_apart() {
    let disk = AuditedDisk::new();
    for block in 0..8 {
        disk.acknowledged(block, 1, block + 1);
    }
    disk.journal.flush(disk.journal.records());
    for block in 4..12 {
        disk.acknowledged(block, 1, block + 100);
    }
    // Two durable writes are lost, one of them replaced by an older state; an acknowledged write is lost; one
    // block is damaged; one holds another block's data.
    disk.target.write_all_at(&[0; 4096], 3 * BLOCK).expect("erased");
    disk.write(5, 1, 6);
    disk.target.write_all_at(&[0; 4096], 10 * BLOCK).expect("erased");
    disk.target.write_all_at(b"!", BLOCK + 777).expect("damaged");
    let mut other = vec![0; 4096];
    disk.target.read_exact_at(&mut other, 7 * BLOCK).expect("read");
    disk.target.write_all_at(&other, 2 * BLOCK).expect("astray");
    let recovery = disk.audit();
    assert_eq!((recovery.writes, recovery.durable_writes), (16, 8));
    assert_eq!(recovery.findings.checked, 12);
    // The damaged block was the second to be written.
    assert_eq!(recovery.lost_from, Some(1));
    assert_eq!(
        recovery.findings.faults,
        [
            fault(FaultKind::Corrupt, &[1]),
            fault(FaultKind::LostWrite, &[3, 5, 10]),
            fault(FaultKind::Misdirected, &[2]),
        ]
    );
    assert_eq!(recovery.durable.checked, 8);
    assert_eq!(
        recovery.durable.faults,
        [
            fault(FaultKind::Corrupt, &[1]),
            fault(FaultKind::LostWrite, &[3]),
            fault(FaultKind::Misdirected, &[2]),
        ]
    );
}

#[test]
fn work_is_lost_from_the_first_write_that_came_after_what_is_there() {
    let lost_from = |lose: &dyn Fn(&AuditedDisk)| {
        let disk = AuditedDisk::new();
        // Ten passes over eight blocks: block 5 has the generations 6, 14, 22 ... 78.
        for generation in 1..=80 {
            disk.acknowledged((generation - 1) % 8, 1, generation);
        }
        lose(&disk);
        disk.audit().lost_from
    };
    let erase = |disk: &AuditedDisk, block: u64, bytes: usize| {
        disk.target.write_all_at(&vec![0; bytes], block * BLOCK).expect("erased");
    };
    assert_eq!(lost_from(&|_| {}), None);
    assert_eq!(lost_from(&|disk| (0..8).for_each(|block| erase(disk, block, 4096))), Some(0), "all is gone");
    assert_eq!(lost_from(&|disk| erase(disk, 5, 4096)), Some(5), "one block is gone");
    assert_eq!(lost_from(&|disk| erase(disk, 5, 512)), Some(5), "a part of it is gone");
    let back_to = |disk: &AuditedDisk, block, generation| {
        disk.write(block, 1, generation);
    };
    assert_eq!(lost_from(&|disk| back_to(disk, 5, 22)), Some(29), "the first missing one is number 30");
    assert_eq!(
        lost_from(&|disk| {
            back_to(disk, 5, 70);
            back_to(disk, 2, 11);
        }),
        Some(18),
        "the older of two"
    );
    let torn = |disk: &AuditedDisk| {
        let mut newest = vec![0; 2048];
        disk.target.read_exact_at(&mut newest, 5 * BLOCK).expect("read");
        back_to(disk, 5, 46);
        disk.target.write_all_at(&newest, 5 * BLOCK).expect("torn");
    };
    assert_eq!(lost_from(&torn), Some(53), "a half is of write 46");
}

#[test]
fn a_write_is_reordered_if_one_is_there_that_began_after_its_acknowledgement() {
    let disk = AuditedDisk::new();
    // Three under way at once: the third is acknowledged first.
    for (block, generation) in [(2, 3), (0, 1), (1, 2), (3, 4), (4, 5), (5, 6), (6, 7)] {
        disk.acknowledged(block, 1, generation);
    }
    let erase = |block: u64| disk.target.write_all_at(&[0; 4096], block * BLOCK).expect("erased");
    // The newest are gone, so the order was kept.
    erase(6);
    erase(5);
    assert_eq!(disk.audit().reordered, 0);
    // The fifth may have begun before the fourth was acknowledged; it began after the first.
    erase(3);
    assert_eq!(disk.audit().reordered, 0);
    erase(2);
    let recovery = disk.audit();
    assert_eq!((recovery.reordered, recovery.findings.faulty()), (1, 4));
}

#[test]
fn a_target_that_lost_its_end_is_unreadable_there() {
    let disk = AuditedDisk::new();
    for block in [0, 1, 62, 63] {
        disk.acknowledged(block, 1, block + 1);
    }
    disk.target.set_len(63 * BLOCK).expect("cut");
    let recovery = disk.audit();
    assert_eq!(recovery.findings.checked, 4);
    assert_eq!(recovery.findings.faults, [fault(FaultKind::Unreadable, &[63])]);
}

/// Checks that later writes do not count as durable if records before them are lost.
#[test]
fn a_lost_record_makes_no_write_durable() {
    let disk = AuditedDisk::new();
    for block in 0..4 {
        disk.acknowledged(block, 1, block + 1);
    }
    disk.journal.flush(disk.journal.records());
    disk.acknowledged(4, 1, 5);
    disk.target.write_all_at(&[0; 4096], 4 * BLOCK).expect("erased");
    disk.journal.finish().expect("on disk");
    let path = disk.dir.path().join("journal");
    let mut bytes = std::fs::read(&path).expect("read");
    // Between the first write and the second there may be the header of another batch.
    let mut writes = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"iojW"));
    let second = writes.nth(1).expect("a second write");
    bytes[second + 20] ^= 4;
    std::fs::write(&path, bytes).expect("damaged");
    let recovery = disk.audit();
    assert_eq!(recovery.journal.damage.records, 1);
    assert_eq!((recovery.writes, recovery.durable_writes), (4, 3));
    assert_eq!(recovery.findings.faults, [fault(FaultKind::LostWrite, &[4])]);
    assert_eq!((recovery.durable.checked, recovery.durable.faulty()), (3, 0));
}
