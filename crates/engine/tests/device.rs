//! Tests of block devices, with a loop device. Needs root and losetup.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Command;

use iotax_engine::{EngineError, OpenRefusal, fill, measure};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{ByteRange, DiskId, Identity, Job};
use iotax_model::workload::Content;
use iotax_model::workload::{IoEngine, Rw, WorkloadKeys};

const SIZE: u64 = 8 << 20;

/// A loop device with 4 KiB blocks on a temporary file; both are removed on drop.
struct Loop {
    path: PathBuf,
    backing: tempfile::NamedTempFile,
}

impl Loop {
    /// Returns `None` and prints the reason if this machine has no loop devices.
    fn new() -> Option<Self> {
        iotax_testkit::require!(program "losetup");
        let backing = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        backing.as_file().set_len(SIZE).expect("sized");
        let output = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", "4096"])
            .arg(backing.path())
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8(output.stdout).expect("a path").trim().into();
                Some(Self { path, backing })
            }
            failed => iotax_testkit::skip!("no loop device: {failed:?}"),
        }
    }

    fn content(&self) -> Vec<u8> {
        let mut content = vec![0; usize::try_from(SIZE).expect("fits")];
        File::open(&self.path).expect("opened").read_exact_at(&mut content, 0).expect("read");
        content
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.path).status();
        if !detached.is_ok_and(|status| status.success()) {
            eprintln!("{} on {} is left over", self.path.display(), self.backing.path().display());
        }
    }
}

/// An area of the first `size` bytes.
fn area(size: Bytes) -> ByteRange {
    ByteRange { path: None, offset: Bytes(0), size, shared: false, identity: None }
}

/// Backends that do I/O.
const ENGINES: [IoEngine; 5] =
    [IoEngine::IoUring, IoEngine::Libaio, IoEngine::Psync, IoEngine::Pvsync2, IoEngine::Mmap];

fn job(rw: Rw, bs: u64, direct: bool) -> Job {
    job_of(IoEngine::Psync, rw, bs, direct)
}

fn job_of(ioengine: IoEngine, rw: Rw, bs: u64, direct: bool) -> Job {
    let keys = WorkloadKeys {
        rw: Some(rw),
        bs: Some(Bytes(bs)),
        runtime: Some(Nanos::from_millis(100)),
        ramp_time: Some(Nanos(0)),
        numjobs: Some(2),
        direct: Some(direct),
        ioengine: Some(ioengine),
        iodepth: Some(if ioengine.is_synchronous() { 1 } else { 4 }),
        ..WorkloadKeys::default()
    };
    let workload = keys.complete(&WorkloadKeys::default());
    Job { writable: true, ..Job::new(workload, Bytes(SIZE), 1, Nanos::from_millis(100)) }
}

fn refusal(result: Result<impl Sized, EngineError>) -> OpenRefusal {
    match result {
        Err(EngineError::Target { reason, .. }) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn a_device_is_filled_read_and_written_whole() {
    let Some(device) = Loop::new() else { return };
    fill(&device.path, &area(Bytes(SIZE)), &Content::default(), 1, &mut |_| {}).expect("filled");
    let filled = device.content();
    assert!(filled.chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)));
    // Several workers hold a device that one of them claimed.
    for (ioengine, direct) in ENGINES.into_iter().flat_map(|engine| [(engine, false), (engine, true)]) {
        if direct && ioengine == IoEngine::Mmap {
            continue;
        }
        let job = job_of(ioengine, Rw::RandRw, 4096, direct);
        let outcome = measure(&job, &device.path, &mut |_| {}).expect("measured");
        assert_eq!(outcome.errors, [], "{ioengine}");
        assert!(
            [outcome.tallies.read, outcome.tallies.write]
                .into_iter()
                .all(|tally| tally.is_some_and(|tally| tally.ios > 0))
        );
    }
    assert_ne!(device.content(), filled);
    let too_long =
        refusal(fill(&device.path, &area(Bytes(SIZE + 4096)), &Content::default(), 1, &mut |_| {}));
    assert!(matches!(too_long, OpenRefusal::TooLong { length: Bytes(SIZE), .. }), "{too_long}");
}

#[test]
fn direct_io_below_the_logical_block_size_is_refused() {
    let Some(device) = Loop::new() else { return };
    let reason = refusal(measure(&job(Rw::RandRead, 512, true), &device.path, &mut |_| {}));
    assert!(matches!(reason, OpenRefusal::Alignment { unit: Bytes(4096), .. }), "{reason}");
}

#[test]
fn a_device_in_use_is_read_but_not_written() {
    let Some(device) = Loop::new() else { return };
    let holder =
        OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&device.path).expect("claimed");
    let before = device.content();
    let in_use = refusal(measure(&job(Rw::RandWrite, 4096, true), &device.path, &mut |_| {}));
    assert!(matches!(in_use, OpenRefusal::InUse), "{in_use}");
    let in_use = refusal(fill(&device.path, &area(Bytes(SIZE)), &Content::default(), 1, &mut |_| {}));
    assert!(matches!(in_use, OpenRefusal::InUse), "{in_use}");
    assert_eq!(device.content(), before);
    measure(&job(Rw::RandRead, 4096, true), &device.path, &mut |_| {}).expect("read all the same");
    drop(holder);
    measure(&job(Rw::RandWrite, 4096, true), &device.path, &mut |_| {}).expect("free again");
}

#[test]
fn a_trim_gives_the_space_back() {
    let Some(device) = Loop::new() else { return };
    let held = || device.backing.as_file().metadata().expect("metadata").blocks() * 512;
    for ioengine in ENGINES {
        fill(&device.path, &area(Bytes(SIZE)), &Content::default(), 1, &mut |_| {}).expect("filled");
        device.backing.as_file().sync_all().expect("synced");
        assert!(held() >= SIZE, "{ioengine}");
        // Large I/Os: each changes the filesystem below, and a pass over the device must fit into the time.
        let bs = SIZE / 8;
        let mut job = job_of(ioengine, Rw::Trim, bs, ioengine != IoEngine::Mmap);
        job.workload.runtime = Nanos::from_secs(1);
        let outcome = measure(&job, &device.path, &mut |_| {}).expect("measured");
        assert_eq!(outcome.errors, [], "{ioengine}");
        let trim = outcome.tallies.trim.expect("trims");
        assert!(
            trim.ios > 0 && trim.bytes == trim.ios * bs,
            "{ioengine}: {} of {} bytes",
            trim.ios,
            trim.bytes
        );
        assert!(held() < SIZE / 8, "{ioengine}: {} are left", held());
        assert!(device.content().iter().all(|byte| *byte == 0), "{ioengine}");
    }
}

#[test]
fn a_device_that_discards_nothing_is_refused() {
    iotax_testkit::require!(program "unshare", "mount", "truncate", "losetup");
    // Files in ramfs have no holes. The mount is seen by the one process alone; the loop device keeps the file.
    let dir = tempfile::tempdir().expect("directory");
    let attach = "mount -t ramfs none \"$PWD\" && cd \"$PWD\" && truncate -s 8M file && exec losetup --find --show file";
    let attached =
        Command::new("unshare").args(["--mount", "sh", "-c", attach]).current_dir(dir.path()).output();
    let output = match attached {
        Ok(output) if output.status.success() => output,
        failed => iotax_testkit::skip!("no loop device over ramfs: {failed:?}"),
    };
    let path = String::from_utf8(output.stdout).expect("a path").trim().into();
    let device = Loop { path, backing: tempfile::NamedTempFile::new().expect("file") };
    let reason = refusal(measure(&job(Rw::RandTrim, 4096, false), &device.path, &mut |_| {}));
    assert!(reason.to_string().contains("discard_max_bytes is 0"), "{reason}");
}

#[test]
fn a_device_that_took_the_place_of_the_one_that_is_meant_is_left_alone() {
    let (Some(ours), Some(theirs)) = (Loop::new(), Loop::new()) else { return };
    let name = ours.path.file_name().and_then(|name| name.to_str()).expect("a name");
    let sequence = std::fs::read_to_string(format!("/sys/block/{name}/diskseq")).expect("counted");
    let number = std::fs::metadata(&ours.path).expect("there").rdev();
    let disk = DiskId { number, sequence: sequence.trim().parse().ok() };
    let filled = |device: &Loop, disk: DiskId| {
        let meant = ByteRange { identity: Some(Identity::Disk(disk)), ..area(Bytes(65536)) };
        fill(&device.path, &meant, &Content::default(), 1, &mut |_| {}).map_err(|error| error.to_string())
    };
    filled(&ours, disk).expect("filled");
    assert!(ours.content()[..65536].iter().any(|byte| *byte != 0));
    // Another node, and another disk behind the same node.
    let next = DiskId { sequence: disk.sequence.map(|sequence| sequence + 1), ..disk };
    let before = ours.content();
    for (device, disk) in [(&theirs, disk), (&ours, next)] {
        let refused = filled(device, disk).expect_err("refused");
        assert!(refused.contains("another file or device has taken its place"), "{refused}");
    }
    assert!(theirs.content().iter().all(|byte| *byte == 0) && ours.content() == before, "left alone");
    // A read-only target is checked too.
    let job = Job { identity: Some(Identity::Disk(next)), ..job(Rw::RandRead, 4096, false) };
    let refused = measure(&job, &ours.path, &mut |_| {}).expect_err("refused").to_string();
    assert!(refused.contains("another file or device has taken its place"), "{refused}");
}
