//! Lays out a file before a load: leaves it filled, or makes its area allocated but unwritten, sparse, or empty (`layout`).

use std::fs::File;
use std::io;

use iotax_load::error::EngineError;
use iotax_model::wire::Job;
use iotax_model::workload::{FileLayout, IoEngine};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::backend::PUNCH;
use crate::open::Target;

/// A file that the layout or the load may truncate. Dropping this restores the file's length.
#[derive(Debug)]
pub(crate) struct CutFile {
    file: File,
    length: u64,
}

impl Drop for CutFile {
    fn drop(&mut self) {
        // If this fails, the next measurement says that the file is too short.
        let _ = self.file.set_len(self.length);
    }
}

/// Brings the area of a job's file into the state that the workload's `layout` asks for. Returns the file if its length must be restored
/// afterwards, else `None`. Changes nothing for devices, for the null engine, and if `layout` is filled.
pub(crate) fn lay_out(job: &Job, target: &Target) -> Result<Option<CutFile>, EngineError> {
    let workload = &job.workload;
    let layout = workload.layout;
    if workload.ioengine == IoEngine::Ftruncate && layout == FileLayout::Filled {
        let file = target.file.try_clone().map_err(EngineError::system("opening the file again"))?;
        return Ok(Some(CutFile { file, length: target.length }));
    }
    if layout == FileLayout::Filled || workload.ioengine == IoEngine::Null || target.is_device {
        return Ok(None);
    }
    let length = workload.span(job.size).map_or(0, |span| span.0);
    lay_out_area(&target.file, layout, workload.offset.0, length, target.length)
        .map_err(EngineError::system(format!("laying the file out (layout = {layout})")))
}

fn lay_out_area(
    file: &File,
    layout: FileLayout,
    start: u64,
    length: u64,
    file_length: u64,
) -> io::Result<Option<CutFile>> {
    fallocate(file, PUNCH, start, length)?;
    // Only an area at the end of the file can be cut off.
    let is_last = start + length >= file_length;
    let is_cut = is_last && matches!(layout, FileLayout::KeepSize | FileLayout::Empty);
    // Also restores a file that only the load cuts.
    let cut = if is_last { Some(CutFile { file: file.try_clone()?, length: file_length }) } else { None };
    if is_cut {
        file.set_len(start)?;
    }
    let flags = match layout {
        FileLayout::Allocated => Some(FallocateFlags::empty()),
        FileLayout::KeepSize => Some(FallocateFlags::KEEP_SIZE),
        FileLayout::Filled | FileLayout::Sparse | FileLayout::Empty => None,
    };
    if let Some(flags) = flags {
        match fallocate(file, flags, start, length) {
            // As in fio, a filesystem without fallocate(2) allocates on write.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // So that the journal's work for this is not measured.
    file.sync_all()?;
    Ok(cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    const AREA: u64 = 1 << 20;

    #[test]
    fn an_area_is_left_as_its_layout_says_and_the_rest_as_it_was() {
        let sectors = AREA / 512;
        for (layout, is_last, allocated, length) in [
            (FileLayout::Allocated, true, 2 * sectors, 2 * AREA),
            (FileLayout::Allocated, false, 2 * sectors, 2 * AREA),
            (FileLayout::KeepSize, true, 2 * sectors, AREA),
            (FileLayout::Sparse, true, sectors, 2 * AREA),
            (FileLayout::Empty, true, sectors, AREA),
            (FileLayout::Empty, false, sectors, 2 * AREA),
        ] {
            let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("file");
            file.write_all_at(&[7].repeat(2 << 20), 0).expect("written");
            file.sync_all().expect("synced");
            let start = if is_last { AREA } else { 0 };
            let cut = match lay_out_area(&file, layout, start, AREA, 2 * AREA) {
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    iotax_testkit::skip!("the filesystem here makes no holes")
                }
                cut => cut.expect("laid out"),
            };
            let found = file.metadata().expect("metadata");
            assert_eq!((found.len(), cut.is_some()), (length, is_last), "{layout}");
            assert_eq!(found.blocks(), allocated, "{layout}");
            drop(cut);
            assert_eq!(file.metadata().expect("metadata").len(), 2 * AREA, "{layout}");
            let mut other = [0; 512];
            file.read_exact_at(&mut other, AREA - start).expect("read");
            assert_eq!(other, [7; 512], "{layout}");
        }
    }
}
