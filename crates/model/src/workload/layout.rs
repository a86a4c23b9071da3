//! The state of a created file at the start of a measurement: filled, allocated, sparse or empty.

use super::{IoEngine, SyncMode, Workload, WorkloadError};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// The state of a workload's area on a created file. Devices, and files in guests, are always filled.
    FileLayout, "layout" {
        /// Every block was written before.
        Filled = "filled",
        /// Space is allocated and was never written (fallocate): a first write marks its blocks as written.
        Allocated = "allocated",
        /// Space is allocated beyond the file's end (fallocate with KEEP_SIZE): a first write moves the end too.
        KeepSize = "keep",
        /// The file has its length and no space: a first write allocates.
        Sparse = "sparse",
        /// The file is empty: a first write allocates and moves the end.
        Empty = "empty",
    }
}

words! {
    /// The access pattern announced to the kernel (posix_fadvise), under fio's names.
    AccessHint, "fadvise_hint" {
        /// None: the kernel guesses from the I/O.
        None = "0" | "none",
        /// The workload's: random or sequential.
        Pattern = "1",
        /// Random: nothing is read ahead.
        Random = "random",
        /// Sequential: twice as much is read ahead.
        Sequential = "sequential",
    }
}

impl Workload {
    /// Returns whether this job needs its area filled before the measurement; its concurrent jobs do not count. The null engine never needs
    /// filling.
    #[must_use]
    pub fn needs_filling(&self) -> bool {
        self.layout == FileLayout::Filled && self.ioengine != IoEngine::Null
    }

    /// Returns whether the area of this or a concurrent job must not be filled before the measurement, such as a sparse file.
    #[must_use]
    pub fn lays_out(&self) -> bool {
        self.jobs().any(|job| job.layout != FileLayout::Filled)
    }

    /// Returns whether this or a concurrent job frees blocks, by trims or by truncating the file.
    #[must_use]
    pub fn frees_space(&self) -> bool {
        self.trims() || self.jobs().any(|job| job.ioengine == IoEngine::Ftruncate)
    }

    /// Returns the highest end of the areas of the jobs that match `is_meant`, at most `size`. A job without a size ends at `size`. Returns
    /// 0 if no job matches.
    pub(crate) fn end_of(&self, size: Bytes, is_meant: impl Fn(&Self) -> bool) -> Bytes {
        let end = |job: &Self| match job.size {
            Some(own) => job.span(own).map_or(size, |span| Bytes(span.0.saturating_add(job.offset.0))),
            None => size,
        };
        self.jobs().filter(|job| is_meant(job)).map(end).max().unwrap_or_default().min(size)
    }

    /// Rejects keys about caches and file layout that exclude each other.
    pub(super) fn check_file(&self) -> Result<(), WorkloadError> {
        if self.invalidate_machine && !self.invalidate {
            return Err(self.refusal(
                "invalidate_machine",
                &true,
                "it says which caches are dropped; use invalidate = true",
            ));
        }
        if self.invalidate_each_pass && (self.direct || !self.invalidate) {
            let remedy =
                "it drops what buffered I/O left in the cache; use direct = false and invalidate = true";
            return Err(self.refusal("invalidate_each_pass", &true, remedy));
        }
        if self.layout != FileLayout::Filled {
            let remedy = if self.kind.test().is_some() || !self.rw.writes() || self.rw.reads() {
                "what reads or discards needs filled files; use rw = write or randwrite, or layout = filled"
            } else if matches!(self.ioengine, IoEngine::Mmap) {
                "a mapping has no room to grow; use another ioengine, or layout = filled"
            } else {
                return Ok(());
            };
            return Err(self.refusal("layout", &self.layout, remedy));
        }
        Ok(())
    }

    /// Rejects keys that the mmap engine does not support.
    pub(super) fn check_mapping(&self) -> Result<(), WorkloadError> {
        if self.ioengine != IoEngine::Mmap {
            return Ok(());
        }
        if self.direct {
            let remedy = "mmap goes through the page cache; use direct = false";
            return Err(self.refusal("direct", &true, remedy));
        }
        if self.sync != SyncMode::None {
            let remedy = "a copy into a mapping is never synchronous; use fsync = 1, or another ioengine";
            return Err(self.refusal("sync", &self.sync, remedy));
        }
        Ok(())
    }
}

impl Workload {
    /// Rejects keys that the falloc and ftruncate engines do not support.
    pub(super) fn check_space(&self) -> Result<(), WorkloadError> {
        let refuse = |remedy: &str| Err(self.refusal("ioengine", &self.ioengine, remedy));
        match self.ioengine {
            IoEngine::Falloc if self.rw.reads() => {
                refuse("space is allocated or freed, not read; use rw = write, randwrite, trim or randtrim")
            }
            IoEngine::Ftruncate if self.rw.reads() || self.rw.trims() => {
                refuse("a length is set, not read or discarded; use rw = write or randwrite")
            }
            IoEngine::Ftruncate if self.numjobs > 1 || !self.beside.is_empty() => {
                refuse("a file has one length; use numjobs = 1 and no job at the same time")
            }
            IoEngine::Falloc | IoEngine::Ftruncate if self.sync != SyncMode::None => {
                let remedy = format!("{} writes no data; use fsync = 1", self.ioengine);
                Err(self.refusal("sync", &self.sync, &remedy))
            }
            _ if self.beside.iter().any(|job| job.ioengine == IoEngine::Ftruncate) => {
                refuse("a job beside it sets the file's length (ftruncate); measure that one alone")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::units::Bytes;
    use crate::workload::{Workload, WorkloadKeys};

    fn workload(keys: &[(&str, &str)]) -> Workload {
        let mut own = WorkloadKeys::default();
        keys.iter().for_each(|(key, text)| own.set(key, text).expect(text));
        own.complete(&WorkloadKeys::default())
    }

    #[test]
    fn what_reads_needs_filled_files() {
        for (keys, refusal) in [
            (&[("layout", "allocated")][..], "layout = allocated: what reads or discards"),
            (&[("layout", "sparse"), ("rw", "rw")], "layout = sparse: what reads or discards"),
            (&[("layout", "empty"), ("rw", "trim")], "layout = empty: what reads or discards"),
            (
                &[("layout", "keep"), ("rw", "write"), ("ioengine", "mmap"), ("direct", "0")],
                "a mapping has no room",
            ),
            (&[("invalidate_machine", "1"), ("invalidate", "0")], "use invalidate = true"),
            (&[("invalidate_each_pass", "1")], "invalidate_each_pass = true: it drops what buffered"),
            (&[("invalidate_each_pass", "1"), ("direct", "0"), ("invalidate", "0")], "invalidate = true"),
        ] {
            let error = workload(keys).check().expect_err(refusal).to_string();
            assert!(error.contains(refusal), "{error}");
        }
        assert_eq!(workload(&[("layout", "empty"), ("rw", "randwrite")]).check(), Ok(()));
    }

    #[test]
    fn engines_for_space_move_nothing() {
        for (keys, refusal) in [
            (&[("ioengine", "falloc")][..], "ioengine = falloc: space is allocated or freed, not read"),
            (&[("ioengine", "falloc"), ("rw", "rw")], "not read; use rw = write"),
            (&[("ioengine", "ftruncate"), ("rw", "trim")], "ioengine = ftruncate: a length is set"),
            (&[("ioengine", "ftruncate"), ("rw", "write"), ("numjobs", "2")], "a file has one length"),
            (&[("ioengine", "falloc"), ("rw", "write"), ("iodepth", "2")], "falloc does one I/O at a time"),
            (
                &[("ioengine", "falloc"), ("rw", "write"), ("sync", "dsync")],
                "falloc writes no data; use fsync",
            ),
            (
                &[("ioengine", "falloc"), ("rw", "write"), ("verify", "xxh3")],
                "ioengine = falloc stores nothing",
            ),
        ] {
            let error = workload(keys).check().expect_err(refusal).to_string();
            assert!(error.contains(refusal), "{error}");
        }
        for rw in ["write", "randwrite", "trim", "randtrim"] {
            assert_eq!(workload(&[("ioengine", "falloc"), ("rw", rw)]).check(), Ok(()));
        }
        let length = workload(&[("ioengine", "ftruncate"), ("rw", "write"), ("size", "1m")]);
        let mut both = workload(&[("rw", "randread"), ("size", "1m")]);
        both.beside = vec![Workload { name: "length".into(), ..length }];
        let error = both.check().expect_err("one length").to_string();
        assert!(error.contains("a job beside it sets the file's"), "{error}");
    }

    #[test]
    fn only_what_is_meant_counts_toward_the_end() {
        let mut one = workload(&[("rw", "write"), ("size", "4m"), ("layout", "empty")]);
        one.beside = vec![workload(&[("size", "1m"), ("offset", "4m")])];
        let size = Bytes(8 << 20);
        assert_eq!(one.end_of(size, Workload::needs_filling), Bytes(5 << 20));
        one.beside[0].ioengine = crate::workload::IoEngine::Null;
        assert_eq!(one.end_of(size, Workload::needs_filling), Bytes(0));
        assert_eq!(one.end_of(size, |_| true), Bytes(5 << 20));
        assert_eq!(workload(&[]).end_of(size, Workload::needs_filling), size, "no size is all of it");
        assert!(one.lays_out() && !workload(&[]).lays_out());
    }
}
