//! Tests of workloads on many files and on trees.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iotax_engine::measure;
use iotax_model::record::{Outcome, Tally};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::{Rw, Test, WorkloadKeys};

/// A job in an empty directory, on a filesystem on disk.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Self {
        Self(tempfile::TempDir::new_in(env!("CARGO_MANIFEST_DIR")).expect("directory"))
    }

    fn job(&self, test: Test, keys: WorkloadKeys) -> Job {
        let keys = WorkloadKeys {
            test: Some(test),
            runtime: Some(Nanos::from_secs(60)),
            ramp_time: Some(Nanos(0)),
            direct: Some(false),
            ..keys
        };
        Job {
            writable: true,
            directory: Some(self.0.path().display().to_string()),
            ..Job::new(keys.complete(&WorkloadKeys::default()), Bytes(1 << 20), 7, Nanos::from_millis(500))
        }
    }

    /// Measures. Returns the outcome, and the contents of the first worker's directory before and after the work.
    fn measure(&self, test: Test, keys: WorkloadKeys) -> (Outcome, Found, Found) {
        let own = self.0.path().join("0");
        let (mut before, mut after) = (Found::new(), Found::new());
        let outcome = measure(&self.job(test, keys), Path::new("/nowhere"), &mut |event| match event {
            Event::Ready => before = found(&own),
            Event::Sample(_) => after = found(&own),
            _ => {}
        })
        .expect("measured");
        assert_eq!(fs::read_dir(self.0.path()).expect("read").count(), 0, "what a test made is removed");
        assert_eq!(
            (outcome.errors.len(), outcome.notes.as_slice()),
            (0, [].as_slice()),
            "{:?}",
            outcome.errors
        );
        assert!(outcome.flush_ns.is_some() && outcome.duration_ns < 60_000_000_000);
        (outcome, before, after)
    }
}

/// Returns the paths below a directory, with the contents of files.
type Found = BTreeMap<PathBuf, Option<Vec<u8>>>;

fn found(root: &Path) -> Found {
    let (mut all, mut folders) = (Found::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let content = fs::read(&path).ok();
            if content.is_none() {
                folders.push(path.clone());
            }
            all.insert(path.strip_prefix(root).expect("below").to_owned(), content);
        }
    }
    all
}

fn ios(tally: Option<&Tally>) -> (u64, u64) {
    let tally = tally.expect("counted");
    assert_eq!(tally.ios, tally.latency.count());
    (tally.ios, tally.bytes)
}

fn files(count: u64) -> WorkloadKeys {
    WorkloadKeys { nrfiles: Some(count), ..WorkloadKeys::default() }
}

#[test]
fn as_many_files_are_created_as_were_asked_for() {
    let fixture = Fixture::new();
    let (outcome, before, after) = fixture.measure(Test::Create, files(1000));
    assert_eq!((before.len(), after.len()), (0, 1000));
    assert_eq!(ios(outcome.tallies.meta.as_ref()), (1000, 0));
    assert!(after.values().all(|content| content.as_ref().is_some_and(Vec::is_empty)));

    let keys = WorkloadKeys {
        numjobs: Some(2),
        nrdirs: Some(4),
        filesize: "1000-9000".parse().ok(),
        fsync: Some(50),
        end_fsync: Some(true),
        rw: Some(Rw::Write),
        ..files(100)
    };
    let (outcome, before, after) = fixture.measure(Test::Create, keys);
    assert_eq!((before.len(), after.len()), (4, 104), "one worker's directories, then its files");
    assert_eq!(ios(outcome.tallies.meta.as_ref()), (200, 0));
    assert_eq!(ios(outcome.tallies.sync.as_ref()).0, 2 * (2 + 1));
    let sizes: Vec<u64> = after.values().flatten().map(|content| content.len() as u64).collect();
    assert!(sizes.iter().all(|size| (1000..=9000).contains(size)));
    let written = ios(outcome.tallies.write.as_ref());
    assert!(written.0 > 200 && written.1 > sizes.iter().sum(), "{written:?}");
}

#[test]
fn every_file_is_opened_asked_renamed_and_deleted_once() {
    let fixture = Fixture::new();
    for rw in [Rw::Read, Rw::RandRead] {
        for test in [Test::Open, Test::Stat, Test::Rename, Test::Delete] {
            let keys = WorkloadKeys { rw: Some(rw), nrdirs: Some(2), ..files(300) };
            let (outcome, before, after) = fixture.measure(test, keys);
            assert_eq!(before.len(), 302, "{test}");
            assert_eq!(ios(outcome.tallies.meta.as_ref()), (300, 0), "{test}");
            match test {
                Test::Delete => assert_eq!(after.len(), 2),
                Test::Rename => {
                    let renamed =
                        after.keys().filter(|path| path.extension().is_some_and(|end| end == "new"));
                    assert_eq!((after.len(), renamed.count()), (302, 300));
                }
                _ => assert_eq!(before, after),
            }
        }
    }
    let keys = WorkloadKeys { loops: Some(3), invalidate: Some(false), ..files(200) };
    assert_eq!(ios(fixture.measure(Test::Stat, keys).0.tallies.meta.as_ref()), (600, 0));
}

/// A tree of 301 entries, 262144 bytes in all.
fn tree() -> WorkloadKeys {
    let size = Some(Bytes(256 << 10));
    WorkloadKeys { nrdirs: Some(22), size, bs: Some(Bytes(10_240)), ..files(280) }
}

#[test]
fn a_tree_is_walked_and_deleted_entry_by_entry() {
    let fixture = Fixture::new();
    let (outcome, before, after) = fixture.measure(Test::Walk, tree());
    assert_eq!((ios(outcome.tallies.meta.as_ref()), before.len()), ((301, 0), 301));
    assert_eq!(before, after);
    let (outcome, before, after) = fixture.measure(Test::RemoveTree, tree());
    assert_eq!((ios(outcome.tallies.meta.as_ref()), before.len(), after.len()), ((301, 0), 301, 0));
}

#[test]
fn a_tree_is_packed_into_what_others_can_read_and_unpacked_into_the_same_tree() {
    let fixture = Fixture::new();
    let (outcome, tree_before, mut after) = fixture.measure(Test::Pack, tree());
    let archive = after.remove(Path::new(".archive.cpio")).flatten().expect("an archive");
    assert_eq!(tree_before, after, "the tree stays as it was");
    let tallies = &outcome.tallies;
    assert_eq!(ios(tallies.meta.as_ref()).0, 301);
    assert_eq!(ios(tallies.read.as_ref()).1, 256 << 10);
    assert_eq!(ios(tallies.write.as_ref()), ((archive.len() as u64).div_ceil(10_240), archive.len() as u64));

    let (mut rest, mut read) = (archive.as_slice(), Found::new());
    loop {
        let mut entry = cpio::NewcReader::new(rest).expect("an entry");
        if entry.entry().is_trailer() {
            break;
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("content");
        let is_file = entry.entry().mode() & 0o170_000 == 0o100_000;
        read.insert(entry.entry().name().into(), is_file.then_some(content));
        rest = entry.finish().expect("the next");
    }
    assert_eq!(read, tree_before);

    let (outcome, before, mut after) = fixture.measure(Test::Unpack, tree());
    assert_eq!(after.remove(Path::new(".archive.cpio")), before.into_values().next());
    assert_eq!(after, tree_before, "the seed decides the tree");
    let tallies = &outcome.tallies;
    assert_eq!(ios(tallies.meta.as_ref()).0, 301);
    assert_eq!(ios(tallies.write.as_ref()).1, 256 << 10);
    assert_eq!(ios(tallies.read.as_ref()).1, archive.len() as u64);
}

#[test]
fn files_that_are_gone_are_errors_and_the_others_are_counted() {
    let fixture = Fixture::new();
    let own = fixture.0.path().join("0");
    let outcome = measure(&fixture.job(Test::Delete, files(100)), Path::new("/nowhere"), &mut |event| {
        if event == Event::Ready {
            found(&own).keys().take(30).for_each(|path| fs::remove_file(own.join(path)).expect("removed"));
        }
    })
    .expect("measured");
    let [error] = outcome.errors.as_slice() else { panic!("{:?}", outcome.errors) };
    assert_eq!((error.error.as_str(), error.direction.as_str(), error.count), ("ENOENT", "meta", 30));
    assert_eq!(ios(outcome.tallies.meta.as_ref()).0, 70);
}

/// Compares with tar(1) on the same tree in the page cache.
#[test]
fn packing_takes_about_as_long_as_it_takes_tar() {
    iotax_testkit::require!(program "tar");
    // In memory, so that only the cost of the two programs is compared.
    let fixture = Fixture(tempfile::TempDir::new_in("/dev/shm").expect("directory"));
    let own = fixture.0.path().join("0");
    let mut tar = Vec::new();
    let keys = WorkloadKeys {
        invalidate: Some(false),
        bs: Some(Bytes(10_240)),
        size: Some(Bytes(64 << 20)),
        ..files(5000)
    };
    let mut ours = Vec::new();
    for _ in 0..3 {
        let job = fixture.job(Test::Pack, keys.clone());
        let outcome = measure(&job, Path::new("/nowhere"), &mut |event| {
            if event == Event::Ready {
                let archive = fixture.0.path().join("tar");
                let begun = Instant::now();
                let mut command = Command::new("tar");
                command.arg("-cf").arg(&archive).arg("-C").arg(&own).arg(".");
                let ended = command.stdout(Stdio::null()).status().expect("tar runs");
                assert!(ended.success());
                tar.push(begun.elapsed());
            }
        });
        ours.push(Duration::from_nanos(outcome.expect("measured").duration_ns));
    }
    let (ours, tar) = (ours.iter().min().expect("three"), tar.iter().min().expect("three"));
    println!("packing 5000 files: {ours:?}, tar {tar:?}");
    assert!(*ours < 3 * *tar && *tar < 5 * *ours, "{ours:?}, tar {tar:?}");
}
