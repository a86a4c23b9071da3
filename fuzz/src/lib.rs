//! Helpers for several fuzz targets.

use std::path::PathBuf;

/// Creates a directory for this process; scripts/fuzz sets TMPDIR to a directory in memory.
#[must_use]
pub fn scratch_dir() -> PathBuf {
    let scratch_dir = std::env::temp_dir().join(format!("iotax-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&scratch_dir).expect("a directory");
    scratch_dir
}

/// Applies edits of four bytes each to an intact file: position and bits to flip; 0 truncates the file there.
#[must_use]
pub fn edited(sound: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for edit in edits.chunks_exact(4) {
        let at = usize::from(edit[0]) << 16 | usize::from(edit[1]) << 8 | usize::from(edit[2]);
        let at = at % bytes.len();
        match edit[3] {
            0 => bytes.truncate(at.max(1)),
            bits => bytes[at] ^= bits,
        }
    }
    bytes
}
