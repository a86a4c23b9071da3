//! Kinds of memory from which I/O buffers are allocated.

use super::Workload;
use crate::words::words;

words! {
    /// The kind of memory for a job's buffers, under fio's names; only `thp` is a name of iotax.
    #[derive(Default)]
    Memory, "mem" {
        /// Anonymous memory, in transparent huge pages from 2 MiB on if the kernel has some free. fio has no name for it.
        #[default]
        Thp = "thp",
        /// Anonymous memory by malloc(3), in pages that the kernel chooses. fio's default.
        Malloc = "malloc",
        /// Anonymous memory by mmap(2).
        Mmap = "mmap",
        /// Huge pages that were reserved for this (hugetlbfs).
        MmapHuge = "mmaphuge",
        /// Shared memory.
        Shm = "shm",
        /// Shared memory in reserved huge pages.
        ShmHuge = "shmhuge",
        /// Shared memory by mmap(2).
        MmapShared = "mmapshared",
    }
}

/// Size of a huge page in bytes. A job's buffers only use huge pages if they are at least this large together.
const HUGE: u64 = 2 << 20;

impl Workload {
    /// Returns whether each job requests transparent huge pages for its buffers.
    #[must_use]
    pub fn asks_for_huge_pages(&self) -> bool {
        self.mem == Memory::Thp && self.max_bs().0.saturating_mul(self.iodepth.into()) >= HUGE
    }
}
