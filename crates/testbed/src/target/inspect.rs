//! Inspects a target's storage before it is measured: allocation, and content that iotax did not write.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use fiemap::{Fiemap, FiemapExtentFlags, FiemapFlags};
use iotax_model::record::{Allocation, Mapper, SampledContent};
use iotax_model::target::Format;

use crate::guest::image;

/// Maximum number of blocks to sample.
const BLOCKS: u64 = 64;
/// Length of a sampled block in bytes.
const BLOCK: u64 = 16 << 10;
/// zstd compression level: fast, and similar to inline compression by storage systems.
const ZSTD_LEVEL: i32 = 1;

/// Returns the bytes of a file or image that are written, preallocated, or in holes. `None` for a raw block device, or if they are not
/// reported: by the filesystem for a raw file, by qemu-img for other formats.
#[must_use]
pub fn allocation(path: &Path, format: Format) -> Option<Allocation> {
    match format {
        Format::Raw => of_file(path).ok().flatten(),
        _ => of_image(path, format),
    }
}

/// Returns the allocation that the filesystem reports for a file, after syncing it. `None` for a block device.
fn of_file(path: &Path) -> io::Result<Option<Allocation>> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(None);
    }
    let length = found.len();
    let mut all = nothing(Mapper::Fiemap);
    for extent in Fiemap::with_flags(&file, FiemapFlags::SYNC) {
        let extent = extent?;
        // Ignores allocation beyond the end of the file.
        let bytes = extent.fe_length.min(length.saturating_sub(extent.fe_logical));
        let is = |flag| extent.fe_flags.contains(flag);
        if is(FiemapExtentFlags::UNWRITTEN) {
            all.unwritten += bytes;
            continue;
        }
        all.written += bytes;
        if is(FiemapExtentFlags::SHARED) {
            all.shared += bytes;
        }
        if is(FiemapExtentFlags::ENCODED) && !is(FiemapExtentFlags::DATA_ENCRYPTED) {
            all.compressed += bytes;
        }
    }
    all.holes = length.saturating_sub(all.written + all.unwritten);
    Ok(Some(all))
}

/// Returns the allocation of the disk in an image, as reported by `qemu-img map`; `None` if it fails.
fn of_image(path: &Path, format: Format) -> Option<Allocation> {
    let mut all = nothing(Mapper::QemuImg);
    for stretch in image::map(path, format).ok()? {
        let sum = match (stretch.present, stretch.data) {
            (false, _) => &mut all.holes,
            (true, false) => &mut all.unwritten,
            (true, true) => &mut all.written,
        };
        *sum += stretch.length;
        if stretch.data && stretch.depth > 0 {
            all.shared += stretch.length;
        }
        if stretch.compressed {
            all.compressed += stretch.length;
        }
    }
    Some(all)
}

const fn nothing(source: Mapper) -> Allocation {
    Allocation { written: 0, unwritten: 0, holes: 0, shared: 0, compressed: 0, source }
}

/// Samples up to 64 blocks of 16 KiB, spread evenly over a file or device, for zeros and compressibility. `None` if it cannot be read or is
/// shorter than a block.
#[must_use]
pub fn found(path: &Path) -> Option<SampledContent> {
    let mut file = File::open(path).ok()?;
    let length = file.seek(SeekFrom::End(0)).ok()?;
    let blocks = (length / BLOCK).min(BLOCKS);
    let mut content = vec![0; usize::try_from(blocks * BLOCK).ok()?];
    let mut zeros = 0;
    for (number, block) in (0..).zip(content.chunks_exact_mut(usize::try_from(BLOCK).ok()?)) {
        // Block-aligned, for direct I/O.
        let offset = length / BLOCK * number / blocks * BLOCK;
        file.read_exact_at(block, offset).ok()?;
        if block.iter().all(|byte| *byte == 0) {
            zeros += BLOCK;
        }
    }
    let compressed = zstd::bulk::compress(&content, ZSTD_LEVEL).ok()?.len() as u64;
    (blocks > 0).then_some(SampledContent { bytes: blocks * BLOCK, zeros, compressed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::ProcessLock;
    use iotax_model::target::FileSpec;
    use iotax_model::units::Bytes;
    use rustix::fs::{FallocateFlags, fallocate};

    /// Returns half a MiB of incompressible data.
    fn noise(seed: u64) -> Vec<u8> {
        let mut state = seed;
        let words = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32).to_le_bytes()
        });
        words.flat_map(|word| word.into_iter().take(4)).take(512 << 10).collect()
    }

    #[test]
    fn holes_and_what_was_never_written_are_told_from_data() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        file.as_file().set_len(4 << 20).expect("sized");
        let Some(hole) = allocation(file.path(), Format::Raw) else {
            iotax_testkit::skip!("this filesystem has no FIEMAP");
        };
        assert_eq!((hole.written, hole.unwritten, hole.holes), (0, 0, 4 << 20));
        fallocate(file.as_file(), FallocateFlags::empty(), 1 << 20, 1 << 20).expect("allocated");
        file.as_file().write_all_at(&noise(1), 0).expect("written");
        let some = allocation(file.path(), Format::Raw).expect("told");
        assert_eq!(
            (some.written, some.unwritten, some.holes),
            (512 << 10, 1 << 20, (4 << 20) - (1536 << 10))
        );
        assert_eq!((some.shared, some.compressed, some.source), (0, 0, Mapper::Fiemap));
        (0..8).for_each(|part| file.as_file().write_all_at(&noise(part), part << 19).expect("written"));
        let full = allocation(file.path(), Format::Raw).expect("told");
        assert_eq!((full.written, full.unwritten, full.holes), (4 << 20, 0, 0));
        assert_eq!(allocation(Path::new("/dev/null"), Format::Raw), None);
    }

    #[test]
    fn an_images_clusters_are_its_own() {
        iotax_testkit::require!(program "qemu-img");
        let dir = tempfile::tempdir().expect("a directory");
        let lock = ProcessLock::take(&dir.path().join("lock")).expect("a lock").expect("free");
        let (base, top) = (dir.path().join("base"), dir.path().join("top"));
        let qcow2 = FileSpec { format: Format::Qcow2, ..FileSpec::default() };
        image::create(&base, &qcow2, Bytes(1 << 20), &lock).expect("made");
        let empty = allocation(&base, Format::Qcow2).expect("told");
        assert_eq!((empty.written, empty.unwritten + empty.holes), (0, 1 << 20));
        let raw = dir.path().join("raw");
        std::fs::write(&raw, [noise(1), noise(2)].concat()).expect("written");
        image::create_overlay(&top, &raw, Format::Raw, &qcow2, &lock).expect("made");
        let above = allocation(&top, Format::Qcow2).expect("told");
        assert_eq!((above.written, above.shared, above.source), (1 << 20, 1 << 20, Mapper::QemuImg));
    }

    /// QEMU looks up a relative name in its working directory.
    #[test]
    fn a_data_file_with_a_relative_name_is_beside_its_image() {
        iotax_testkit::require!(program "qemu-img");
        let dir = tempfile::tempdir().expect("a directory");
        let arguments = ["create", "-q", "-f", "qcow2", "-o", "data_file=data", "image", "1M"];
        let made = std::process::Command::new("qemu-img").args(arguments).current_dir(&dir).status();
        assert!(made.expect("qemu-img starts").success());
        let path = dir.path().join("image");
        let empty = allocation(&path, Format::Qcow2).expect("told");
        assert_eq!((empty.written, empty.unwritten + empty.holes), (0, 1 << 20));
    }

    #[test]
    fn what_an_area_holds_is_seen_in_a_few_blocks() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(found(file.path()), None, "nothing");
        file.as_file().set_len(8 << 20).expect("sized");
        let zeros = found(file.path()).expect("read");
        assert_eq!((zeros.bytes, zeros.zeros), (1 << 20, 1 << 20));
        assert!(zeros.compressed < 1000, "{zeros:?}");
        (0..16).for_each(|part| file.as_file().write_all_at(&noise(part), part << 19).expect("written"));
        let full = found(file.path()).expect("read");
        assert_eq!((full.bytes, full.zeros), (1 << 20, 0));
        assert!(full.compressed > 900 << 10, "{full:?}");
        assert_eq!(found(Path::new("/no/such/file")), None);
    }
}
