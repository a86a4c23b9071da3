//! Traces: I/Os that were recorded with their times.

mod offsets;
mod streams;

use crate::words::words;

pub use offsets::{OffsetMap, OffsetMapBuilder};
pub use streams::SequentialStreams;

words! {
    /// The kind of a traced I/O.
    TracedOperation, "operation" {
        /// Reads data.
        Read = "read",
        /// Writes data.
        Write = "write",
        /// Discards data.
        Trim = "trim",
        /// Makes earlier writes durable.
        Flush = "flush",
    }
}

words! {
    /// The format of a trace.
    TraceFormat, "trace format" {
        /// Parquet, as `iotax record` writes it.
        Parquet = "parquet",
        /// The iolog of fio, version 2 or 3.
        Iolog = "iolog",
        /// Text output of blkparse.
        Blkparse = "blkparse",
        /// Binary files of blktrace, one for each CPU.
        Blktrace = "blktrace",
        /// CSV with a header, as iotax writes it.
        Csv = "csv",
        /// CSV of the traces of MSR Cambridge (SNIA).
        Msr = "msr",
        /// CSV of the Alibaba block traces.
        Alibaba = "alibaba",
        /// CSV of the Storage Performance Council (SPC) traces.
        Spc = "spc",
        /// CloudPhysics vSCSI traces, version 1 or 2.
        Vscsi = "vscsi",
        /// CSV of the Tencent block traces.
        Tencent = "tencent",
        /// Text of the traces of Florida International University (SNIA).
        Fiu = "fiu",
        /// Binary format of libCacheSim.
        OracleGeneral = "oracleGeneral",
    }
}

impl TraceFormat {
    /// Describes the information that this format lacks and the assumption that a replay makes instead; `None` if it lacks none.
    #[must_use]
    pub const fn caveat(self) -> Option<&'static str> {
        match self {
            Self::Tencent => {
                Some("its times are whole seconds: the I/Os of a second are due at once, in their order")
            }
            Self::OracleGeneral => Some(
                "it has no direction: all are taken for reads; its times are whole seconds: the I/Os of a second are due at once, in their \
                 order; an object's number is taken for its sector",
            ),
            _ => None,
        }
    }
}

words! {
    /// The rule for the offsets of a replay on a target of another size.
    ReplayOffsets, "replay_offsets" {
        /// Offsets stay; those beyond the target's end are wrapped.
        Wrap = "wrap",
        /// Offsets from the first to the last I/O are scaled down until they fit.
        Compress = "compress",
        /// The 4 KiB blocks that the trace reads or writes follow one another, without those between them.
        WorkingSet = "working_set",
    }
}

words! {
    /// A format that traces are written in.
    TraceExport, "format" {
        /// fio's iolog, version 3.
        Iolog = "iolog",
        /// Parquet, as `iotax record` writes it.
        Parquet = "parquet",
        /// CSV with a header.
        Csv = "csv",
    }
}

/// An I/O recorded in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedIo {
    /// Time of issue in nanoseconds from the start of the trace.
    pub at_ns: u64,
    /// Time from issue to completion in nanoseconds; `None` if the trace does not record it.
    pub latency_ns: Option<u64>,
    /// The kind of I/O.
    pub operation: TracedOperation,
    /// Offset in bytes; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub length: u64,
    /// True for a write with FUA, which is durable when it completes.
    pub fua: bool,
    /// Id of the process that issued the I/O; `None` if the trace does not record it.
    pub process: Option<u32>,
    /// Number of the I/O's queue or volume in the trace; `None` if the trace does not record it.
    pub queue: Option<u32>,
}

/// The I/Os of a trace in order of time. An error describes damage to the trace and is the last item.
pub type Events = Box<dyn Iterator<Item = Result<TracedIo, String>> + Send>;

/// Maximum length in bytes of a read or write that is replayed, the same as for any workload.
pub const LONGEST: u64 = 64 << 20;

/// Counts and extremes of a trace, for planning a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceSummary {
    /// Time of the first I/O in nanoseconds from the start of the trace; `None` for an empty trace.
    pub first_ns: Option<u64>,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of trims.
    pub trims: u64,
    /// Number of flushes.
    pub flushes: u64,
    /// Nanoseconds from the issue of the first I/O to the issue of the last.
    pub duration_ns: u64,
    /// Length in bytes of the longest read or write that can be replayed.
    pub longest: u64,
    /// Highest byte offset at which a read, write or trim ends.
    pub reach: u64,
    /// Number of I/Os whose completion time the trace records.
    pub completed: u64,
    /// Queue or volume of the first I/O that has one.
    pub first_queue: Option<u32>,
    /// True if I/Os belong to different queues or volumes.
    pub has_several_queues: bool,
}

impl TraceSummary {
    /// Adds an I/O to the summary. I/Os must be added in order of time.
    pub fn add(&mut self, event: &TracedIo) {
        let first = *self.first_ns.get_or_insert(event.at_ns);
        self.duration_ns = self.duration_ns.max(event.at_ns.saturating_sub(first));
        match event.operation {
            TracedOperation::Read => self.reads += 1,
            TracedOperation::Write => self.writes += 1,
            TracedOperation::Trim => self.trims += 1,
            TracedOperation::Flush => self.flushes += 1,
        }
        if matches!(event.operation, TracedOperation::Read | TracedOperation::Write)
            && event.length <= LONGEST
        {
            self.longest = self.longest.max(event.length);
        }
        self.reach = self.reach.max(event.offset.saturating_add(event.length));
        self.completed += u64::from(event.latency_ns.is_some());
        if let Some(queue) = event.queue {
            self.has_several_queues |= *self.first_queue.get_or_insert(queue) != queue;
        }
    }

    /// Returns the number of reads, writes, trims and flushes together.
    #[must_use]
    pub const fn ios(&self) -> u64 {
        self.reads + self.writes + self.trims + self.flushes
    }
}
