//! Parts that several targets share.

use std::path::PathBuf;

/// A new directory of this process; scripts/fuzz sets TMPDIR to a place in memory.
#[must_use]
pub fn scratch_dir() -> PathBuf {
    let scratch_dir = std::env::temp_dir().join(format!("iotax-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&scratch_dir).expect("a directory");
    scratch_dir
}

/// A sound file with edits, four bytes each: where, and the bits that flip there. 0 flips none and cuts the end off.
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
