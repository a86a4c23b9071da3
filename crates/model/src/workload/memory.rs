//! Kinds of memory from which I/O buffers are allocated.

use super::Workload;
use crate::words::words;

words! {
    /// The kind of memory for a job's buffers, under fio's names; `thp` is iotax's addition.
    #[derive(Default)]
    Memory, "mem" {
        /// Anonymous memory, in transparent huge pages from 2 MiB on if the kernel has some free. fio has no such setting.
        #[default]
        Thp = "thp",
        /// Anonymous memory from malloc(3), in pages that the kernel chooses. fio's default.
        Malloc = "malloc",
        /// Anonymous memory from mmap(2).
        Mmap = "mmap",
        /// Reserved huge pages (hugetlbfs).
        MmapHuge = "mmaphuge",
        /// Shared anonymous memory, like `mmapshared`.
        Shm = "shm",
        /// Shared memory in reserved huge pages.
        ShmHuge = "shmhuge",
        /// Shared memory from mmap(2).
        MmapShared = "mmapshared",
    }
}

/// Size of a huge page in bytes. A job's buffers use huge pages only if all of them together are at least this large.
const HUGE: u64 = 2 << 20;

impl Workload {
    /// Returns whether each job requests transparent huge pages for its buffers.
    #[must_use]
    pub fn asks_for_huge_pages(&self) -> bool {
        self.mem == Memory::Thp && self.max_bs().0.saturating_mul(self.iodepth.into()) >= HUGE
    }
}
