//! Errors of the engine.

use std::io;

use iotax_model::record::ErrorCount;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{IoEngine, Test, Verify, WorkloadError};

/// The reason why a load could not be generated.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The workload's keys contradict each other or have values that cannot be run.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The interval between samples is shorter than 10 ms.
    #[error("interval = {0}: accepted: 10ms and more")]
    Interval(Nanos),
    /// The load ended during the warm-up, so that no I/O was measured.
    #[error(
        "the load was over within ramp_time = {ramp_time}, so nothing was measured{}; use ramp_time = 0s, or more to do",
        listed(errors)
    )]
    NothingMeasured {
        /// Length of the warm-up that the job asked for.
        ramp_time: Nanos,
        /// Failed I/Os of the warm-up, by error.
        errors: Vec<ErrorCount>,
    },
    /// A network measurement could not be prepared, or the network or its server failed; the text has the reason.
    #[error("{0}")]
    Net(String),
    /// The trace of a replay could not be read to its end; the text has the reason.
    #[error("the trace: {0}")]
    Trace(String),
    /// The file or device could not be used as the target.
    #[error("{path}: {reason}")]
    Target {
        /// Path of the file or device.
        path: String,
        /// The reason why it cannot be used.
        reason: OpenRefusal,
    },
    /// The kernel has no io_uring, or does not permit it.
    #[error(
        "io_uring cannot be used here ({error}): the kernel lacks it, or the sysctl kernel.io_uring_disabled or a \
         container's seccomp filter forbids it; hipri and sqthread_poll need it: leave them out, and ioengine = auto \
         takes what there is"
    )]
    NoIoUring {
        /// The error that io_uring_setup(2) returned.
        error: io::Error,
    },
    /// Neither io_uring nor libaio is available, so a job cannot keep more than one I/O in flight.
    #[error(
        "iodepth = {iodepth}: neither io_uring ({io_uring}) nor libaio ({libaio}) can be used here; use iodepth = 1, and \
         numjobs = {iodepth} for as much at once"
    )]
    NotAsynchronous {
        /// The requested queue depth.
        iodepth: u32,
        /// The reason why io_uring cannot be used.
        io_uring: String,
        /// The error that libaio's io_setup(2) returned.
        libaio: io::Error,
    },
    /// The iodepth exceeds the capacity of a virtio queue.
    #[error(
        "iodepth = {iodepth}: a queue of a virtio device holds {most} I/Os; use numjobs for more at once"
    )]
    QueueDepth {
        /// The requested queue depth.
        iodepth: u32,
        /// Maximum number of I/Os in one virtio queue.
        most: u32,
    },
    /// The buffers need more than half of the machine's memory.
    #[error(
        "numjobs x iodepth x bs = {asked} of buffers are more than half of this machine's {memory} of memory; \
         lower one of them"
    )]
    Memory {
        /// Memory that the buffers would need.
        asked: Bytes,
        /// The machine's memory.
        memory: Bytes,
    },
    /// The verifier's table of written blocks needs more than a quarter of the machine's memory.
    #[error(
        "verify keeps 8 bytes for each block of size = {size}, {asked} in all, which is more than a quarter of this \
         machine's {memory} of memory; lower size or raise bs"
    )]
    VerifyMemory {
        /// Size of the area.
        size: Bytes,
        /// Memory that the table would need.
        asked: Bytes,
        /// The machine's memory.
        memory: Bytes,
    },
    /// None of the sampled blocks of the target holds content that a workload with `verify` has written.
    #[error(
        "verify = {0} checks only what a workload with verify wrote, and 64 blocks spread over the area hold nothing of that; leave verify \
         out, or write the area by such a workload first (a new file: --rw=write --verify={0} --keep)"
    )]
    NothingToVerify(Verify),
    /// The workload was imported from another tool's results and cannot be run.
    #[error(
        "workload {0:?} is the work of another tool, of which only results are known: it cannot be repeated"
    )]
    Foreign(String),
    /// The test works on a file or device, but the job has none.
    #[error("test = {0} works on a file or device, and there is none for it here")]
    NoArea(Test),
    /// The test creates files, but the job has no directory for them.
    #[error("test = {0} makes files of its own, and there is no directory for them here")]
    NoDirectory(Test),
    /// A test's directory is not empty; its content would be removed at the end of the test.
    #[error("{0} is not empty; a test makes its files in an empty directory")]
    NotEmpty(String),
    /// The job does not say where PostgreSQL's programs are.
    #[error("test = pgbench needs the directory of PostgreSQL's programs, and the job has none")]
    NoPostgresql,
    /// PostgreSQL or pgbench failed; the text names the program and has its reason.
    #[error("{0}")]
    Postgresql(String),
    /// The system refused an operation that the load needs, such as starting a thread.
    #[error("{doing} failed: {error}")]
    System {
        /// The failed operation and the object that it was applied to.
        doing: String,
        /// The error from the kernel.
        error: io::Error,
    },
    /// The thread of the worker with this number panicked.
    #[error("worker {0} panicked: this is a bug in iotax; the message above names the place")]
    Panicked(u32),
}

impl EngineError {
    /// Returns a function that wraps a system error together with the failed operation.
    pub fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |error| Self::System { doing: doing.into(), error }
    }
}

/// Formats the errors and their counts for a message; empty if there are none.
fn listed(errors: &[ErrorCount]) -> String {
    let each = errors
        .iter()
        .map(|e| format!("; {} x {} on {}, first at byte {}", e.count, e.error, e.direction, e.first_offset));
    each.collect::<Vec<_>>().concat()
}

/// The reason why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenRefusal {
    /// The path does not exist.
    #[error("does not exist; the engine measures only what exists")]
    Missing,
    /// The path is a directory.
    #[error("is a directory; name a file in it, or a block device")]
    Directory,
    /// The path is neither a file nor a block device.
    #[error("is a {0}; a regular file or a block device is needed")]
    Kind(&'static str),
    /// The workload writes to a read-only target.
    #[error(
        "{0} writes, and this target may only be read; use a pattern that only reads, such as rw = randread"
    )]
    ReadOnly(String),
    /// The block device is mounted, part of another device, or opened exclusively.
    #[error(
        "is in use (mounted, part of another device, or opened exclusively); it is not written while it is"
    )]
    InUse,
    /// The path no longer names the file or device that the run began with.
    #[error(
        "another file or device has taken its place since the run began, and is left alone; run again once the name leads \
         to what is meant"
    )]
    Replaced,
    /// Direct I/O was requested but is not available.
    #[error("direct I/O (O_DIRECT) is refused by {0}; use direct = false")]
    NoDirect(&'static str),
    /// Buffered I/O was requested for a virtio device.
    #[error("is a virtio device, whose driver has no page cache; use direct = true")]
    NoCache,
    /// An engine that uses system calls was requested for a virtio device.
    #[error("is a virtio device, which takes no system calls; {0}")]
    NoCalls(String),
    /// The engine for virtio devices was requested for another target.
    #[error(
        "is no virtio device, which ioengine = libblkio is for; use ioengine = auto, or a target with a virtio layer"
    )]
    NoQueues,
    /// The target does not support discard.
    #[error("trims are not possible here: {0}; use an rw that reads or writes")]
    NoTrim(&'static str),
    /// The fallocate or ftruncate engine was requested for a target that is not a file.
    #[error("is a device, whose space and length are given; ioengine = {0} needs a file")]
    NoFile(IoEngine),
    /// Truncating the file would lose data beyond the area.
    #[error(
        "ioengine = ftruncate truncates the file at each offset, and the file is longer than the area; use an area that ends with the file"
    )]
    Cut,
    /// The workload's block sequence has blocks beyond the area.
    #[error(
        "random_distribution = {order} leads beyond an area of size = {size}, which has {blocks} blocks; enlarge size"
    )]
    Sequence {
        /// The requested distribution with its block sequence.
        order: String,
        /// Size of the area.
        size: Bytes,
        /// Number of blocks in the area.
        blocks: u64,
    },
    /// The kernel or device cannot poll for completions.
    #[error(
        "polled I/O is not possible here: {0}; it takes direct = true and a device with such queues, as NVMe has with the \
         module parameter nvme.poll_queues=1; use hipri = false"
    )]
    NoPolling(String),
    /// Offsets or lengths are not aligned for direct I/O.
    #[error(
        "{key} = {value} is not a multiple of {unit}, the unit of direct I/O here; use such a {key}, or direct = false"
    )]
    Alignment {
        /// Name of the workload key with the misaligned value.
        key: &'static str,
        /// The misaligned value.
        value: String,
        /// Alignment in bytes that direct I/O requires of offsets and lengths.
        unit: Bytes,
    },
    /// The area holds fewer blocks than the workload needs.
    #[error(
        "size = {size} holds fewer than {needed} block(s) of bs = {bs}; enlarge size, or lower bs or numjobs"
    )]
    TooSmall {
        /// Size of the area.
        size: Bytes,
        /// Length of the longest I/O.
        bs: Bytes,
        /// Number of blocks needed: 1, or one per job for sequential jobs.
        needed: u32,
    },
    /// The area extends past the end of the target.
    #[error(
        "size = {size} from offset = {offset} is more than its length of {length}; lower size, or fill the target first"
    )]
    TooLong {
        /// Size of the area.
        size: Bytes,
        /// Offset of the area's first byte.
        offset: Bytes,
        /// The target's length.
        length: Bytes,
    },
    /// A system call failed.
    #[error("{doing}: {error}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The error from the kernel.
        error: io::Error,
    },
}
