//! Tests of measurements on targets that lose acknowledged writes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use iotax_engine::{EngineError, audit, fill, measure};
use iotax_model::record::{Outcome, Stop};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::verify_errors::{Fault, FaultKind, Findings};
use iotax_model::wire::{ByteRange, Event, Job, StampedFill};
use iotax_model::workload::{IoEngine, Rw, SyncMode, Verify, Workload, WorkloadKeys};
use tempfile::NamedTempFile;

/// An area of the first `size` bytes.
fn area(size: Bytes) -> ByteRange {
    ByteRange { path: None, offset: Bytes(0), size, shared: false, identity: None }
}

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;
const SIZE: Bytes = Bytes((BLOCK * BLOCKS) as u64);

fn workload(rw: Rw, ioengine: IoEngine, verify: Verify) -> Workload {
    let keys = WorkloadKeys {
        rw: Some(rw),
        runtime: Some(Nanos::from_millis(200)),
        ramp_time: Some(Nanos::from_millis(50)),
        iodepth: Some(if ioengine == IoEngine::Psync { 1 } else { 16 }),
        numjobs: Some(2),
        direct: Some(false),
        ioengine: Some(ioengine),
        verify: Some(verify),
        ..WorkloadKeys::default()
    };
    keys.complete(&WorkloadKeys::default())
}

fn job(workload: Workload) -> Job {
    Job { writable: true, ..Job::new(workload, SIZE, 7, Nanos::from_millis(100)) }
}

/// A file in which every block is stamped.
fn filled(workload: &Workload) -> NamedTempFile {
    filled_by(workload, 1)
}

fn filled_by(workload: &Workload, seed: u64) -> NamedTempFile {
    let file = NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
    fill(file.path(), &area(SIZE), &workload.content(), seed, &mut |_| {}).expect("filled");
    file
}

/// A job that knows the content its target was filled with.
fn job_on_filled(workload: Workload) -> Job {
    Job { filled: Some(StampedFill { seed: 1, end: SIZE }), ..job(workload) }
}

/// The kinds of faults with their first blocks.
fn faults(findings: &Findings) -> Vec<(FaultKind, Vec<u64>)> {
    let blocks = |fault: &Fault| fault.first_offsets.iter().map(|offset| offset / BLOCK as u64).collect();
    findings.faults.iter().map(|fault| (fault.kind, blocks(fault))).collect()
}

/// Measures. Returns `None` and prints a message without io_uring.
fn outcome(job: &Job, path: &Path, events: &mut dyn FnMut(Event)) -> Option<Outcome> {
    match measure(job, path, events) {
        Ok(outcome) => Some(outcome),
        Err(error @ EngineError::NoIoUring { .. }) => iotax_testkit::skip!("{error}"),
        Err(error) => panic!("{error}"),
    }
}

fn block(file: &File, number: usize) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    file.read_exact_at(&mut block, (number * BLOCK) as u64).expect("read");
    block
}

fn put(file: &File, number: usize, at: usize, bytes: &[u8]) {
    file.write_all_at(bytes, (number * BLOCK + at) as u64).expect("written");
}

#[test]
fn a_target_that_keeps_its_word_passes_whatever_the_pattern() {
    for ioengine in [IoEngine::IoUring, IoEngine::Psync] {
        for rw in [Rw::Write, Rw::RandWrite, Rw::ReadWrite, Rw::RandRw, Rw::Read, Rw::RandRead] {
            for verify in [Verify::Crc32c, Verify::Xxh3] {
                // 32 I/Os in flight on 64 blocks: many wait for one another.
                let workload =
                    Workload { runtime: Nanos::from_millis(100), ..workload(rw, ioengine, verify) };
                let file = filled(&workload);
                let Some(outcome) = outcome(&job(workload), file.path(), &mut |_| {}) else { continue };
                let case = format!("{ioengine} {rw} {verify}");
                let findings = outcome.verify.expect("verified");
                assert_eq!((findings.uncertain, &findings.faults), (0, &vec![]), "{case}");
                let reads = outcome.tallies.read.map_or(0, |tally| tally.ios);
                match (rw.reads(), rw.writes()) {
                    // Reads of the warm-up and of the end are checked too.
                    (true, false) => assert!(findings.checked >= reads, "{case}"),
                    (false, _) => assert_eq!(findings.checked, BLOCKS as u64, "{case}"),
                    (true, true) => assert!(findings.checked > BLOCKS as u64, "{case}"),
                }
                assert!(outcome.tallies.write.is_none_or(|tally| tally.ios > BLOCKS as u64), "{case}");
            }
        }
    }
}

#[test]
fn what_is_not_verified_says_nothing_of_it() {
    let workload =
        Workload { verify: Verify::None, ..workload(Rw::RandWrite, IoEngine::Psync, Verify::Xxh3) };
    let outcome = outcome(&job(workload.clone()), filled(&workload).path(), &mut |_| {}).expect("psync");
    assert_eq!(outcome.verify, None);
}

/// Damages the file after its last write, using an earlier copy of its content.
fn findings(spoil: impl Fn(&File, &[Vec<u8>])) -> Findings {
    // Without I/O in flight nothing writes over the damage.
    let workload = workload(Rw::RandWrite, IoEngine::Psync, Verify::Xxh3);
    let temp = filled(&workload);
    let file = temp.reopen().expect("opened");
    let mut earlier = Vec::new();
    let mut samples = 0;
    let outcome = outcome(&job(workload), temp.path(), &mut |event| match event {
        Event::Measuring => earlier = (0..BLOCKS).map(|number| block(&file, number)).collect(),
        Event::Sample(_) => {
            samples += 1;
            if samples == 2 {
                spoil(&file, &earlier);
            }
        }
        _ => {}
    });
    outcome.expect("psync").verify.expect("verified")
}

#[test]
fn every_kind_of_damage_is_found_and_named_with_its_offset() {
    let at = |blocks: &[usize]| blocks.iter().map(|number| (number * BLOCK) as u64).collect::<Vec<_>>();
    let found = findings(|file, earlier| {
        let flipped = block(file, 3)[1000] ^ 4;
        put(file, 3, 1000, &[flipped]);
        put(file, 10, 0, &earlier[10]);
        put(file, 11, 0, &earlier[11]);
        put(file, 20, 0, &[0; BLOCK]);
        let other = block(file, 30);
        put(file, 31, 0, &other);
        put(file, 40, BLOCK / 2, &earlier[40][BLOCK / 2..]);
        put(file, 63, 0, &earlier[63][..512]);
        put(file, 50, 0, &[0x5A; BLOCK]);
    });
    let faults: Vec<_> =
        found.faults.iter().map(|f| (f.kind, f.count, f.first_offsets.clone(), f.last_offset)).collect();
    let fault = |kind, blocks: &[usize]| {
        let offsets = at(blocks);
        (kind, blocks.len() as u64, offsets.clone(), *offsets.last().expect("one"))
    };
    assert_eq!(
        faults,
        [
            fault(FaultKind::Corrupt, &[3]),
            fault(FaultKind::LostWrite, &[10, 11, 20]),
            fault(FaultKind::Misdirected, &[31]),
            fault(FaultKind::Torn, &[40, 63]),
            fault(FaultKind::Foreign, &[50]),
        ]
    );
    assert_eq!((found.checked, found.faulty()), (BLOCKS as u64, 8));
}

#[test]
fn what_can_no_longer_be_read_is_named_too() {
    let found = findings(|file, _| file.set_len(SIZE.0 - 2 * BLOCK as u64).expect("cut"));
    let [fault] = found.faults.as_slice() else { panic!("{:?}", found.faults) };
    assert_eq!((fault.kind, fault.count), (FaultKind::Unreadable, 2));
    assert_eq!(fault.last_offset, SIZE.0 - BLOCK as u64);
}

#[test]
fn reads_alone_find_what_was_damaged_before() {
    let workload = workload(Rw::Read, IoEngine::Psync, Verify::Crc32c);
    let temp = filled(&workload);
    let file = temp.reopen().expect("opened");
    put(&file, 5, 4000, b"!");
    put(&file, 6, 0, &[0; BLOCK]);
    let other = block(&file, 8);
    put(&file, 7, 0, &other);
    let outcome = outcome(&job(workload), temp.path(), &mut |_| {}).expect("psync");
    let found = outcome.verify.expect("verified");
    let kinds: Vec<_> = found.faults.iter().map(|f| (f.kind, f.first_offsets.as_slice())).collect();
    let block = BLOCK as u64;
    assert_eq!(
        kinds,
        [
            (FaultKind::Corrupt, &[5 * block][..]),
            (FaultKind::Misdirected, &[7 * block]),
            // Nothing in the block identifies its former content.
            (FaultKind::Foreign, &[6 * block]),
        ]
    );
    assert!(found.faulty() < found.checked, "the other blocks are fine");
}

#[test]
fn a_mix_finds_damage_when_it_reads_it() {
    let workload = Workload { rwmixread: 95, ..workload(Rw::RandRw, IoEngine::Psync, Verify::Xxh3) };
    let temp = filled(&workload);
    let file = temp.reopen().expect("opened");
    let outcome = outcome(&job(workload), temp.path(), &mut |event| {
        if let Event::Measuring = event {
            // Some of it is written over before it is read.
            (0..BLOCKS).for_each(|number| put(&file, number, 2222, b"?"));
        }
    });
    let found = outcome.expect("psync").verify.expect("verified");
    assert_eq!(found.faults.iter().map(|f| f.kind).collect::<Vec<_>>(), [FaultKind::Corrupt]);
}

#[test]
fn what_was_filled_and_not_written_since_is_read_back_at_the_end() {
    // A few blocks are written, or none.
    let few = Workload {
        numjobs: 1,
        io_size: Some(Bytes(8 * BLOCK as u64)),
        ramp_time: Nanos(0),
        ..workload(Rw::Write, IoEngine::Psync, Verify::Xxh3)
    };
    let older = filled_by(&few, 2).reopen().expect("opened");
    for workload in [few.clone(), Workload { rw: Rw::RandRead, ..few }] {
        let temp = filled(&workload);
        let file = temp.reopen().expect("opened");
        let outcome = outcome(&job_on_filled(workload.clone()), temp.path(), &mut |event| {
            if let Event::Over = event {
                (20..24).for_each(|number| put(&file, number, 0, &[0; BLOCK]));
                put(&file, 31, 0, &block(&file, 30));
                put(&file, 40, 1000, &[block(&file, 40)[1000] ^ 4]);
                put(&file, 50, 0, &block(&older, 50));
            }
        });
        let findings = outcome.expect("psync").verify.expect("verified");
        let expected = [
            (FaultKind::Corrupt, vec![40]),
            (FaultKind::LostWrite, vec![20, 21, 22, 23]),
            (FaultKind::Misdirected, vec![31]),
        ];
        assert_eq!(faults(&findings), expected, "{}", workload.rw);
        assert_eq!((findings.faulty(), findings.faults[1].last_offset), (7, 50 * BLOCK as u64));
        let reads = if workload.rw.reads() { 8 } else { 0 };
        assert_eq!(findings.checked, BLOCKS as u64 + reads, "{}", workload.rw);
    }
}

#[test]
fn zeros_that_are_read_for_a_while_are_found_although_they_are_gone_at_the_end() {
    let base = workload(Rw::RandRw, IoEngine::Psync, Verify::Xxh3);
    let workload = Workload { rwmixread: 100, ramp_time: Nanos(0), ..base };
    let temp = filled(&workload);
    let file = temp.reopen().expect("opened");
    let content: Vec<Vec<u8>> = (0..BLOCKS).map(|number| block(&file, number)).collect();
    let outcome = outcome(&job_on_filled(workload), temp.path(), &mut |event| match event {
        Event::Measuring => (0..BLOCKS).for_each(|number| put(&file, number, 0, &[0; BLOCK])),
        Event::Sample(_) => (0..).zip(&content).for_each(|(number, whole)| put(&file, number, 0, whole)),
        _ => {}
    });
    let findings = outcome.expect("psync").verify.expect("verified");
    let kinds: Vec<FaultKind> = findings.faults.iter().map(|fault| fault.kind).collect();
    assert!(kinds.contains(&FaultKind::LostWrite), "{findings:?}");
    assert!(findings.faulty() + BLOCKS as u64 <= findings.checked, "at the end all is there: {findings:?}");
}

#[test]
fn what_an_earlier_workload_wrote_is_no_loss_of_the_fill() {
    let workload = workload(Rw::RandWrite, IoEngine::Psync, Verify::Xxh3);
    let temp = filled(&workload);
    let longer = Workload {
        bs: Bytes(16384),
        io_size: Some(Bytes(65536)),
        numjobs: 1,
        ramp_time: Nanos(0),
        ..workload.clone()
    };
    for workload in [workload, longer] {
        let case = format!("{workload:?}");
        let outcome = outcome(&job_on_filled(workload), temp.path(), &mut |_| {}).expect("psync");
        let findings = outcome.verify.expect("verified");
        assert_eq!(findings.faults, [], "{case}");
        assert!(findings.checked >= BLOCKS as u64 / 4, "{case}");
    }
}

#[test]
fn writes_of_any_length_and_place_are_told_apart() {
    let base = || workload(Rw::RandRw, IoEngine::IoUring, Verify::Xxh3);
    let lengths = |text: &str| Some(text.parse().expect("a range"));
    for workload in [
        Workload { bsrange: lengths("512-16k"), ..base() },
        Workload { bsrange: lengths("4k-8k,2k-32k"), rw: Rw::ReadWrite, ..base() },
        Workload { offset: Bytes(1536), ..base() },
        Workload { io_size: Some(Bytes(150_528)), rw: Rw::Write, ramp_time: Nanos(0), ..base() },
        Workload { stride: Some("6k".parse().expect("a stride")), rw: Rw::Write, ..base() },
    ] {
        let file = filled(&workload);
        let job = Job { size: Bytes(SIZE.0 - 8192), ..job(workload) };
        let Some(outcome) = outcome(&job, file.path(), &mut |_| {}) else { continue };
        let findings = outcome.verify.expect("verified");
        assert!(findings.checked > 0, "{:?}", job.workload);
        assert_eq!((findings.uncertain, findings.faults), (0, vec![]), "{:?}", job.workload);
    }
}

#[test]
fn what_was_flushed_is_on_record_as_durable() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
    let base = || workload(Rw::RandWrite, IoEngine::Psync, Verify::Crc32c);
    for (name, workload) in [
        ("fsync", Workload { fsync: Some(8), ..base() }),
        ("fdatasync", Workload { fdatasync: Some(1), ..base() }),
        ("sync", Workload { sync: SyncMode::DSync, ..base() }),
    ] {
        let journal = dir.path().join(name);
        let workload = Workload { write_journal: Some(journal.display().to_string()), ..workload };
        let file = filled(&workload);
        outcome(&job(workload), file.path(), &mut |_| {}).expect("psync");
        let recovery = audit(file.path(), &journal).expect("audited");
        // The two jobs may each leave fewer writes unflushed than their interval.
        let most = match name {
            "fsync" => 2 * 8,
            "fdatasync" => 2,
            _ => 0,
        };
        assert!(recovery.durable_writes > 0, "{name}");
        assert!(recovery.writes - recovery.durable_writes <= most, "{name}: {recovery:?}");
        assert_eq!((recovery.findings.faulty(), recovery.durable.faulty()), (0, 0), "{name}");
    }
}

#[test]
fn the_journal_of_a_measurement_agrees_with_its_target() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
    let journal = dir.path().join("journal");
    let workload = Workload {
        write_journal: Some(journal.display().to_string()),
        ..workload(Rw::RandWrite, IoEngine::IoUring, Verify::Xxh3)
    };
    let temp = filled(&workload);
    let job = job(workload);
    let Some(outcome) = outcome(&job, temp.path(), &mut |_| {}) else { return };
    assert_eq!(outcome.verify.expect("verified").faults, []);
    assert!(outcome.notes.iter().any(|note| note.contains("own filesystem")), "{:?}", outcome.notes);
    let writes = outcome.tallies.write.expect("writes").ios + outcome.ramp_ios;
    let recovery = audit(temp.path(), &journal).expect("audited");
    // Those in flight at the end were acknowledged and are on record, but count nowhere.
    assert!((writes..=writes + 32).contains(&recovery.writes), "{} for {writes}", recovery.writes);
    assert_eq!((recovery.findings.checked, recovery.findings.faulty()), (BLOCKS as u64, 0));
    assert_eq!((recovery.durable_writes, recovery.durable.checked), (0, 0), "nothing was flushed");

    let file = temp.reopen().expect("opened");
    put(&file, 9, 0, &[0; BLOCK]);
    let faults = audit(temp.path(), &journal).expect("audited").findings.faults;
    assert_eq!(
        faults.iter().map(|f| (f.kind, f.last_offset)).collect::<Vec<_>>(),
        [(FaultKind::LostWrite, 9 * BLOCK as u64)]
    );
    let error = measure(&job, temp.path(), &mut |_| {}).expect_err("refused").to_string();
    assert!(error.contains("beginning the journal") && error.contains("exists"), "{error}");
}

#[test]
fn a_journal_that_takes_no_more_ends_a_measurement_that_allows_no_errors() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
    let pipe = dir.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a pipe");
    let run = |max_errors| {
        let workload = Workload {
            write_journal: Some(pipe.display().to_string()),
            ramp_time: Nanos(0),
            runtime: Nanos::from_secs(if max_errors == Some(1) { 60 } else { 1 }),
            max_errors,
            ..workload(Rw::RandWrite, IoEngine::Psync, Verify::Xxh3)
        };
        let temp = filled(&workload);
        let pipe = pipe.clone();
        // Takes some records, and is gone.
        let reader = std::thread::spawn(move || {
            let mut some = [0; 40 * 100];
            std::io::Read::read_exact(&mut std::fs::File::open(pipe).expect("opened"), &mut some)
        });
        let outcome = outcome(&job(workload), temp.path(), &mut |_| {}).expect("psync");
        reader.join().expect("no panic").expect("records");
        outcome
    };
    let ended = run(Some(1));
    assert_eq!((ended.stop, ended.errors.as_slice()), (Some(Stop::Errors), &[][..]));
    let journal = ended.verify.and_then(|findings| findings.journal).expect("incomplete");
    assert!(journal.error.contains("Broken pipe"), "{journal:?}");
    // At most the I/Os in flight have neither a record nor room in the queue.
    assert!(journal.acknowledged < 100_000, "{journal:?}");
    let goes_on = run(None);
    assert!(goes_on.stop.is_none() && goes_on.duration_ns >= 900_000_000, "{:?}", goes_on.stop);
    assert!(goes_on.verify.is_some_and(|findings| findings.journal.is_some()));
}
