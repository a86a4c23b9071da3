//! Fuzzes verification journals with any bytes or flipped bits: each is read or rejected, and the audit never panics.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Job;
use iotax_model::workload::{Rw, Verify, WorkloadKeys};
use libfuzzer_sys::fuzz_target;

const SIZE: Bytes = Bytes(64 << 10);

/// A directory in memory with a target and the journal of its writes.
static SOUND: LazyLock<(PathBuf, Vec<u8>)> = LazyLock::new(|| {
    let dir = iotax_fuzz::scratch_dir();
    let journal = dir.join("sound");
    std::fs::write(dir.join("target"), vec![0; SIZE.0 as usize]).expect("written");
    iotax_engine::measure(&job(&journal), &dir.join("target"), &mut |_| {}).expect("measured");
    let bytes = std::fs::read(&journal).expect("there");
    // Enough for every kind of record, and quickly read.
    (dir, bytes[..bytes.len().min(4000)].to_vec())
});

fn job(journal: &Path) -> Job {
    let keys = WorkloadKeys {
        rw: Some(Rw::RandWrite),
        runtime: Some(Nanos::from_millis(100)),
        direct: Some(false),
        size: Some(SIZE),
        fsync: Some(4),
        verify: Some(Verify::Crc32c),
        write_journal: Some(journal.display().to_string()),
        ..WorkloadKeys::default()
    };
    Job {
        writable: true,
        ..Job::new(keys.complete(&WorkloadKeys::default()), SIZE, 7, Nanos::from_millis(100))
    }
}

// The first byte selects whether the rest is edits of an intact journal or a journal itself.
fuzz_target!(|bytes: &[u8]| {
    let Some((how, rest)) = bytes.split_first() else { return };
    let (dir, sound) = &*SOUND;
    let bytes = if how % 2 == 0 { iotax_fuzz::edited(sound, rest) } else { rest.to_vec() };
    let journal = dir.join("journal");
    std::fs::write(&journal, bytes).expect("written");
    if let Ok(recovery) = iotax_engine::audit(&dir.join("target"), &journal) {
        assert!(recovery.findings.faulty() <= recovery.findings.checked);
    }
});
