//! Traces: recorded I/Os with their times.

use crate::words::words;

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
        /// iotax's own, in Parquet.
        Parquet = "parquet",
        /// fio's iolog, version 2 or 3.
        Iolog = "iolog",
        /// blkparse's text.
        Blkparse = "blkparse",
        /// blktrace's binary files, one for each CPU.
        Blktrace = "blktrace",
        /// CSV with a header, as iotax writes it.
        Csv = "csv",
        /// CSV of the traces of MSR Cambridge (SNIA).
        Msr = "msr",
        /// CSV of Alibaba's block traces.
        Alibaba = "alibaba",
        /// CSV of the Storage Performance Council's traces.
        Spc = "spc",
        /// CloudPhysics' traces of vSCSI, version 1 or 2.
        Vscsi = "vscsi",
        /// CSV of Tencent's block traces.
        Tencent = "tencent",
        /// Text of the traces of Florida International University (SNIA).
        Fiu = "fiu",
        /// libCacheSim's binary format.
        OracleGeneral = "oracleGeneral",
    }
}

impl TraceFormat {
    /// The information that this trace format lacks, with the assumption that a replay makes instead; `None` if it lacks none.
    #[must_use]
    pub const fn caveat(self) -> Option<&'static str> {
        match self {
            Self::Tencent => {
                Some("its times are whole seconds: the I/Os of a second are due at once, in their order")
            }
            Self::OracleGeneral => Some(
                "it tells no direction: all are taken for reads; its times are whole seconds: the I/Os of a second are due at once, in their \
                 order; an object's number is taken for its sector",
            ),
            _ => None,
        }
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
    /// The process that issued it.
    pub process: Option<u32>,
    /// The queue or volume of the I/O, as numbered in the trace.
    pub queue: Option<u32>,
}

/// I/Os in order of time. An error describes damage to the trace and ends the sequence.
pub type Events = Box<dyn Iterator<Item = Result<TracedIo, String>> + Send>;

/// Maximum length of a replayed read or write in bytes, which is that of any workload.
pub const LONGEST: u64 = 64 << 20;

/// The figures of a trace that a replay is planned from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceSummary {
    /// The time of the first I/O; absent for an empty trace.
    pub first_ns: Option<u64>,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Trims.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
    /// Nanoseconds from the first issue to the last.
    pub duration_ns: u64,
    /// Length in bytes of the longest read or write that can be replayed.
    pub longest: u64,
    /// The highest end offset of a read, write or trim, in bytes.
    pub reach: u64,
    /// I/Os whose completion time is recorded.
    pub completed: u64,
}

impl TraceSummary {
    /// Counts an I/O. I/Os must be added in order of time.
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
    }

    /// The number of I/Os of all kinds.
    #[must_use]
    pub const fn ios(&self) -> u64 {
        self.reads + self.writes + self.trims + self.flushes
    }
}
