//! Workloads: the I/O or network traffic of a measurement. Keys that fio also has have fio's names.

mod beside;
mod classic;
mod content;
mod distribution;
mod files;
mod keys;
mod kind;
mod layout;
mod lengths;
mod memory;
mod pattern;
mod pgbench;
mod placement;
mod priorities;
mod replay;
mod sqlite;
mod steady;
mod stride;
mod sync_range;
mod test;
mod text;
mod tolerated;

use std::fmt;
use std::str::FromStr;

use crate::net::Traffic;
use crate::units::{Bytes, Nanos};
use crate::words::{WordError, words};

pub use self::content::{BufferPattern, Content, DedupeMode, PatternError, Verify, WorkingSet};
pub use self::distribution::{AbsoluteZone, BlockSequence, Distribution, Zone};
pub use self::files::FileSize;
pub use self::keys::{KEYS, KeyValue, Workload, WorkloadKey, WorkloadKeys};
pub use self::kind::Kind;
pub use self::layout::{AccessHint, FileLayout};
pub use self::lengths::{ByDirection, LengthRange, LengthSplit};
pub use self::memory::Memory;
pub use self::placement::{CpuPolicy, MemoryPolicy, NumberList};
pub use self::priorities::{Priority, PriorityShareOfLength, PrioritySplit};
pub use self::steady::{SteadyCriterion, SteadyFigure, SteadyLimit, SteadyResult};
pub use self::stride::Stride;
pub use self::sync_range::SyncFileRange;
pub use self::test::{PgbenchScript, SynchronousCommit, Test};
pub use self::text::TextError;
pub use self::tolerated::{Tolerated, ToleratedErrors};

words! {
    /// The access pattern, under fio's names.
    Rw, "rw" {
        /// Sequential reads.
        Read = "read",
        /// Sequential writes.
        Write = "write",
        /// Random reads.
        RandRead = "randread",
        /// Random writes.
        RandWrite = "randwrite",
        /// Sequential reads and writes mixed by `rwmixread`.
        ReadWrite = "rw" | "readwrite",
        /// Random reads and writes mixed by `rwmixread`.
        RandRw = "randrw",
        /// Sequential trims: discard the data.
        Trim = "trim",
        /// Random trims.
        RandTrim = "randtrim",
    }
}

impl Rw {
    /// Returns whether the pattern includes reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::RandRead | Self::ReadWrite | Self::RandRw)
    }

    /// Returns whether the pattern includes writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandWrite | Self::ReadWrite | Self::RandRw)
    }

    /// Returns whether the pattern consists of trims.
    #[must_use]
    pub const fn trims(self) -> bool {
        matches!(self, Self::Trim | Self::RandTrim)
    }

    /// Returns whether the pattern changes the target's data, by writes or trims.
    #[must_use]
    pub const fn modifies(self) -> bool {
        self.writes() || self.trims()
    }

    /// Returns whether the pattern accesses random offsets.
    #[must_use]
    pub const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw | Self::RandTrim)
    }
}

words! {
    /// The interface for I/O, under fio's names.
    IoEngine, "ioengine" {
        /// io_uring; where it is missing or forbidden, psync at an iodepth of 1 and libaio at higher ones.
        Auto = "auto",
        /// Linux io_uring; where it is missing or forbidden, the choice of `auto`.
        IoUring = "io_uring",
        /// Linux native asynchronous I/O, which is asynchronous for direct I/O only.
        Libaio = "libaio",
        /// pread and pwrite, one at a time per job.
        Psync = "psync",
        /// preadv2 and pwritev2, one at a time per job.
        Pvsync2 = "pvsync2",
        /// Copies from and to a memory-mapped file, one at a time per job.
        Mmap = "mmap",
        /// The queues of a virtio block device, driven like a guest driver does; always used for a target with a `virtio` layer, and only for one.
        Libblkio = "libblkio",
        /// Allocates and punches space with fallocate, one range at a time per job: moves no data.
        Falloc = "falloc",
        /// Truncates or extends the file to each offset with ftruncate, one call at a time: moves no data.
        Ftruncate = "ftruncate",
        /// No I/O: shows the engine's overhead.
        Null = "null",
    }
}

impl IoEngine {
    /// Returns whether the engine has at most one I/O of each job in flight.
    #[must_use]
    pub const fn is_synchronous(self) -> bool {
        matches!(self, Self::Psync | Self::Pvsync2 | Self::Mmap | Self::Falloc | Self::Ftruncate)
    }

    /// Returns whether the engine's reads and writes transfer data, unlike those of the null, falloc and ftruncate engines.
    #[must_use]
    pub const fn moves_data(self) -> bool {
        !matches!(self, Self::Null | Self::Falloc | Self::Ftruncate)
    }
}

words! {
    /// Durability of each write. The first three have fio's names.
    SyncMode, "sync" {
        /// A write completes when the kernel has it.
        None = "none" | "0",
        /// A write completes when its data and the file's metadata are durable (O_SYNC).
        Sync = "sync" | "1",
        /// A write completes when its data is durable (O_DSYNC).
        DSync = "dsync",
        /// A write completes when its data is durable, as requested with each write (RWF_DSYNC) instead of once for the file.
        RwfDSync = "rwf_dsync",
    }
}

words! {
    /// Arrival process of an open loop, under fio's names.
    RateProcess, "rate_process" {
        /// I/Os arrive at even intervals.
        Linear = "linear",
        /// I/Os arrive at random, with exponentially distributed gaps, as from many independent users.
        Poisson = "poisson",
    }
}

words! {
    /// The rule for starting the I/Os of a replay.
    ReplayPace, "replay_pace" {
        /// I/Os start at their recorded times.
        Recorded = "recorded",
        /// Each I/O waits for the I/Os that had completed before it in the trace, then for the recorded pause since the last completion.
        Dependency = "dependency",
        /// I/Os start as soon as fewer than `iodepth` I/Os are in flight.
        NoStall = "no_stall",
    }
}

words! {
    /// Granularity of I/O time stamps: per system call or per I/O.
    Stamps, "stamps" {
        /// One time stamp for all I/Os of a submission call, and one for all I/Os that a call completes.
        Batch = "batch",
        /// Two time stamps for each I/O: at submission and at completion.
        Io = "io",
    }
}

/// Length of an I/O if a workload has none.
const DEFAULT_BS: Bytes = Bytes(4096);

/// Size of a created target if no workload has a size.
pub const DEFAULT_SIZE: Bytes = Bytes(1 << 30);

/// Throughput in bytes per second that time estimates assume.
pub const ASSUMED: u64 = 200_000_000;

/// The reason why a workload is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("workload {name:?}: {key} = {value}: {accepted}")]
pub struct WorkloadError {
    pub(crate) name: String,
    /// The key at fault, as spelled in a plan.
    pub key: &'static str,
    value: String,
    pub(crate) accepted: String,
}

impl WorkloadError {
    /// Returns the reason for the error, with the key and value but without the workload's name.
    #[must_use]
    pub fn reason(&self) -> String {
        format!("{} = {}: {}", self.key, self.value, self.accepted)
    }
}

impl Workload {
    /// Returns whether I/Os start on a schedule: at a rate, or by the times of a replayed trace. False for a replay with `no_stall`.
    #[must_use]
    pub const fn is_open_loop(&self) -> bool {
        let is_timed = !matches!(self.replay_pace, ReplayPace::NoStall);
        self.rate_iops.is_some() || self.rate.is_some() || self.read_iolog.is_some() && is_timed
    }

    /// Returns whether this job does something, by its test or by the direction of its plain I/O; false for the work of another tool.
    fn does(&self, test: fn(Test) -> bool, plain: fn(Rw) -> bool) -> bool {
        !self.foreign && self.test.map_or_else(|| plain(self.rw), test)
    }

    /// Returns whether this or a concurrent job reads.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.jobs().any(|job| job.does(Test::reads, Rw::reads))
    }

    /// Returns whether this or a concurrent job writes, to the area or to files that it creates.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.jobs().any(|job| job.does(Test::writes, Rw::writes))
    }

    /// Returns whether this or a concurrent job trims.
    #[must_use]
    pub fn trims(&self) -> bool {
        self.jobs().any(|job| job.does(|_| false, Rw::trims))
    }

    /// Returns whether this job accesses random offsets.
    #[must_use]
    pub const fn is_random(&self) -> bool {
        match self.test {
            Some(test) => matches!(test, Test::Seeks),
            None => self.rw.is_random(),
        }
    }

    /// Formats the key that determines the workload's operation, for error messages: `rw = randread`, `test = stat`.
    #[must_use]
    pub fn doing(&self) -> String {
        match (&self.net, self.test) {
            (Some(net), _) => format!("net.test = {}", net.test),
            (None, Some(test)) => format!("test = {test}"),
            (None, None) => match &self.read_iolog {
                Some(trace) => format!("read_iolog = {trace}"),
                None => format!("rw = {}", self.rw),
            },
        }
    }

    /// Returns whether this or a concurrent job writes to the target's area or trims it.
    #[must_use]
    pub fn modifies(&self) -> bool {
        self.jobs().any(|job| job.does(Test::modifies_area, Rw::modifies))
    }

    /// Returns whether this job writes and calls fsync, fdatasync or sync_file_range within the measurement, after a number of its writes
    /// or at its end.
    #[must_use]
    pub fn flushes(&self) -> bool {
        self.flush_call().is_some() || self.end_fsync && self.does(Test::writes, Rw::writes)
    }

    /// Returns the name of the system call that the job issues after a number of writes (fsync, fdatasync or sync_file_range), and that
    /// number; `None` without such calls.
    #[must_use]
    pub fn flush_call(&self) -> Option<(&'static str, u64)> {
        let call = |name, writes: Option<u64>| writes.map(|writes| (name, writes));
        let writes = self.does(Test::writes, Rw::writes);
        call("fsync", self.fsync)
            .or_else(|| call("fdatasync", self.fdatasync))
            .or_else(|| call("sync_file_range", self.sync_file_range.map(|range| range.writes)))
            .filter(|_| writes)
    }

    /// Returns the number of writes after which data is durable: 1 if each write is durable when it completes. `None` for a test, for a
    /// workload that does not write, and if data is flushed only at the end or never.
    #[must_use]
    pub fn writes_per_commit(&self) -> Option<u64> {
        let writes = self.kind() == Kind::Block && self.rw.writes();
        let by_itself = (self.sync != SyncMode::None).then_some(1);
        by_itself.or(self.fsync).or(self.fdatasync).filter(|_| writes)
    }

    /// Returns the suffix of a default name for the flushes: `-fdatasync` if one follows each write, `-fsync8` if one follows every 8
    /// writes.
    fn flushes_in_name(&self) -> String {
        match self.flush_call() {
            None => String::new(),
            Some((call, 1)) => format!("-{call}"),
            Some((call, writes)) => format!("-{call}{writes}"),
        }
    }

    /// Returns the total bytes that this job's `numjobs` workers transfer until they end by themselves; `None` if only the runtime ends
    /// them.
    #[must_use]
    pub fn amount(&self) -> Option<Bytes> {
        // In a test, io_size is the length of one pass, and only loops ends it.
        let has_end = self.loops.is_some() || self.io_size.is_some() && self.test.is_none();
        let once = self.io_size.or(self.size).unwrap_or(DEFAULT_SIZE).0;
        // Sequential jobs divide the area.
        let divided = self.io_size.is_none() && !self.rw.is_random() && self.offset_increment.is_none();
        let jobs = if divided { 1 } else { u64::from(self.numjobs) };
        let all = once.saturating_mul(self.loops.unwrap_or(1)).saturating_mul(jobs);
        has_end.then_some(Bytes(all))
    }

    pub(crate) fn refusal(
        &self,
        key: &'static str,
        value: &dyn fmt::Display,
        accepted: &str,
    ) -> WorkloadError {
        let (name, value, accepted) = (self.name.clone(), value.to_string(), accepted.to_owned());
        WorkloadError { name, key, value, accepted }
    }

    /// Rejects keys of storage I/O in a network workload, a runtime of 0, and network settings that are not valid.
    fn check_net(&self, net: &Traffic) -> Result<(), WorkloadError> {
        if let Some(test) = self.test {
            return Err(self.refusal("test", &test, "net has a test of its own"));
        }
        if self.runtime.0 == 0 {
            return Err(self.refusal("runtime", &self.runtime, "accepted: more than 0s"));
        }
        let meant = WorkloadKeys {
            name: Some(self.name.clone()),
            net: self.net.clone(),
            runtime: Some(self.runtime),
            ramp_time: Some(self.ramp_time),
            blackout: self.blackout,
            ..WorkloadKeys::default()
        };
        if meant.complete(&WorkloadKeys::default()) != *self {
            let remedy = "beside net only name, runtime, ramp_time and blackout mean something; leave all other keys out, also of [defaults]";
            return Err(self.refusal("net", &net.test, remedy));
        }
        if let Some(least) = self.blackout.filter(|_| !net.test.is_rtt() || net.rate.is_none()) {
            return Err(self.refusal(
                "blackout",
                &least,
                "needs round trips at a rate: net.test = \"icmp-rtt\" or another, and net.rate",
            ));
        }
        net.check().map_err(|reason| self.refusal("net", &net.test, &reason))
    }

    /// Rejects a workload that no engine can run. The error names the key and the accepted values.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let refuse =
            |key, value: &dyn fmt::Display, accepted: String| Err(self.refusal(key, value, &accepted));
        self.check_beside()?;
        if let Some(net) = &self.net {
            return self.check_net(net);
        }
        if self.foreign {
            // The keys are those that another tool states of its work.
            return Ok(());
        }
        self.check_ranges()?;
        if let Some(test) = self.test {
            self.check_test(test)?;
        }
        self.check_pattern()?;
        self.check_content()?;
        self.check_files()?;
        self.check_sqlite()?;
        self.check_pgbench()?;
        self.check_file()?;
        self.check_mapping()?;
        self.check_space()?;
        self.check_placement()?;
        self.check_replay()?;
        self.check_steady()?;
        if self.ioengine.is_synchronous() && self.iodepth > 1 {
            return refuse(
                "iodepth",
                &self.iodepth,
                format!(
                    "{} does one I/O at a time; use iodepth = 1, ioengine = io_uring, or numjobs",
                    self.ioengine
                ),
            );
        }
        if self.pre_read && self.direct {
            let remedy = "direct I/O does not look into the page cache; use direct = false";
            return refuse("pre_read", &true, remedy.into());
        }
        let takes = |engines: &[IoEngine]| engines.contains(&self.ioengine);
        let polling = [IoEngine::Auto, IoEngine::IoUring, IoEngine::Pvsync2, IoEngine::Libblkio];
        if self.hipri && !(self.direct && takes(&polling)) {
            return refuse(
                "hipri",
                &true,
                "devices are polled for direct = true only, with ioengine = io_uring, pvsync2 or libblkio"
                    .into(),
            );
        }
        if self.libblkio_write_zeroes_on_trim && !(self.rw.trims() && takes(&[IoEngine::Libblkio])) {
            let remedy = "needs rw = trim or randtrim, and ioengine = libblkio";
            return refuse("libblkio_write_zeroes_on_trim", &true, remedy.into());
        }
        if self.sync == SyncMode::RwfDSync && !takes(&[IoEngine::Pvsync2]) {
            return refuse(
                "sync",
                &self.sync,
                "needs ioengine = pvsync2; sync = dsync is for every engine".into(),
            );
        }
        if self.nowait && !takes(&[IoEngine::Pvsync2]) {
            return refuse("nowait", &true, "needs ioengine = pvsync2".into());
        }
        if self.sqthread_poll && !takes(&[IoEngine::Auto, IoEngine::IoUring]) {
            return refuse("sqthread_poll", &true, "needs ioengine = io_uring".into());
        }
        if let (Some(cpu), false) = (self.sqthread_poll_cpu, self.sqthread_poll) {
            return refuse("sqthread_poll_cpu", &cpu, "needs sqthread_poll = true".into());
        }
        if self.runtime < Nanos::from_millis(100) {
            return refuse("runtime", &self.runtime, "accepted: 100ms and more".into());
        }
        if self.rate == Some(Bytes(0)) {
            return refuse("rate", &0, "accepted: bytes a second, such as 10m".into());
        }
        if let (Some(_), Some(bytes)) = (self.rate_iops, self.rate) {
            return refuse("rate", &bytes, "rate_iops is given too; use one of them".into());
        }
        if self.rate_process == RateProcess::Poisson && self.rate_iops.is_none() && self.rate.is_none() {
            return refuse("rate_process", &self.rate_process, "needs rate_iops or rate".into());
        }
        if let (Some(pause), true) = (self.thinktime, self.is_open_loop()) {
            return refuse("thinktime", &pause, "a rate decides when I/Os begin; use one of them".into());
        }
        if let (Some(blocks), None) = (self.thinktime_blocks, self.thinktime) {
            return refuse("thinktime_blocks", &blocks, "needs a thinktime".into());
        }
        if let Some(patience) = self.stall_timeout.filter(|patience| *patience < Nanos::from_millis(100)) {
            return refuse("stall_timeout", &patience, "accepted: 100ms and more".into());
        }
        if let Some(least) = self.blackout.filter(|least| *least < Nanos::from_millis(1)) {
            return refuse("blackout", &least, "accepted: 1ms and more".into());
        }
        if let (Some(least), true) = (self.blackout, self.numjobs > 1 || !self.beside.is_empty()) {
            return refuse(
                "blackout",
                &least,
                "accepted: one job; it keeps up to iodepth I/Os outstanding".into(),
            );
        }
        Ok(())
    }
}

impl FromStr for Workload {
    type Err = WordError;

    /// Parses the name of one of the [`STANDARD`] workloads, such as `randread-4k-qd1`.
    fn from_str(text: &str) -> Result<Self, WordError> {
        let names: Vec<&str> = STANDARD.iter().map(|(name, ..)| *name).collect();
        STANDARD
            .iter()
            .find(|(name, ..)| *name == text)
            .map(|&(name, rw, bs, iodepth)| {
                WorkloadKeys {
                    name: Some(name.into()),
                    rw: Some(rw),
                    bs: Some(Bytes(bs)),
                    iodepth: Some(iodepth),
                    ..WorkloadKeys::default()
                }
                .complete(&WorkloadKeys::default())
            })
            .ok_or_else(|| WordError::new("workload", text, &names))
    }
}

/// The standard workloads of `iotax ladder`: name, pattern, block size in bytes, queue depth.
pub const STANDARD: [(&str, Rw, u64, u32); 5] = [
    ("randread-4k-qd1", Rw::RandRead, 4096, 1),
    ("randread-4k-qd32", Rw::RandRead, 4096, 32),
    ("randwrite-4k-qd32", Rw::RandWrite, 4096, 32),
    ("seqread-1m", Rw::Read, 1 << 20, 8),
    ("seqwrite-1m", Rw::Write, 1 << 20, 8),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_keys_come_before_defaults() {
        let defaults = WorkloadKeys { bs: Some(Bytes(8192)), iodepth: Some(4), ..WorkloadKeys::default() };
        let own = WorkloadKeys { iodepth: Some(16), ..WorkloadKeys::default() };
        let workload = own.complete(&defaults);
        assert_eq!(
            (workload.bs, workload.iodepth, workload.name.as_str()),
            (Bytes(8192), 16, "randread-8k-qd16")
        );
    }

    #[test]
    fn a_generated_name_tells_of_flushes() {
        for (key, writes, rw, name) in [
            ("fdatasync", "1", Rw::Write, "write-4k-qd1-fdatasync"),
            ("fsync", "8", Rw::RandWrite, "randwrite-4k-qd1-fsync8"),
            ("fsync", "8", Rw::RandRead, "randread-4k-qd1"),
            ("sync_file_range", "write:2", Rw::Write, "write-4k-qd1-sync_file_range2"),
        ] {
            let mut keys = WorkloadKeys { rw: Some(rw), ..WorkloadKeys::default() };
            keys.set(key, writes).expect("a number");
            assert_eq!(keys.complete(&WorkloadKeys::default()).name, name);
        }
    }

    #[test]
    fn a_job_flushes_its_own_writes_alone() {
        let job = |rw, end_fsync| {
            let keys = WorkloadKeys { rw: Some(rw), end_fsync: Some(end_fsync), ..WorkloadKeys::default() };
            keys.complete(&WorkloadKeys::default())
        };
        assert!(job(Rw::Write, true).flushes() && !job(Rw::Read, true).flushes());
        let mut reader = job(Rw::Read, true);
        reader.fsync = Some(1);
        reader.beside = vec![job(Rw::Write, false)];
        assert!(reader.writes() && !reader.flushes(), "what is written is the other's");
    }

    #[test]
    fn an_unknown_word_names_the_nearest() {
        let error = "randraed".parse::<Rw>().expect_err("misspelt").to_string();
        assert!(error.contains("\"randraed\"") && error.contains("did you mean \"randread\""), "{error}");
        assert!("seqread-4k".parse::<Workload>().expect_err("unknown").to_string().contains("seqread-1m"));
    }

    #[test]
    fn what_no_engine_can_run_is_refused() {
        let good = WorkloadKeys::default().complete(&WorkloadKeys::default());
        assert_eq!(good.check(), Ok(()));
        for (bad, key) in [
            (Workload { iodepth: 0, ..good.clone() }, "iodepth"),
            (Workload { ioengine: IoEngine::Psync, iodepth: 2, ..good.clone() }, "iodepth"),
            (Workload { ioengine: IoEngine::Mmap, ..good.clone() }, "direct"),
            (
                Workload { ioengine: IoEngine::Mmap, direct: false, sync: SyncMode::DSync, ..good.clone() },
                "sync",
            ),
            (Workload { pre_read: true, ..good.clone() }, "pre_read"),
            (Workload { hipri: true, direct: false, ..good.clone() }, "hipri"),
            (Workload { hipri: true, ioengine: IoEngine::Libaio, ..good.clone() }, "hipri"),
            (Workload { nowait: true, ..good.clone() }, "nowait"),
            (Workload { sync: SyncMode::RwfDSync, ..good.clone() }, "sync"),
            (Workload { sqthread_poll: true, ioengine: IoEngine::Psync, ..good.clone() }, "sqthread_poll"),
            (Workload { sqthread_poll_cpu: Some(0), ..good.clone() }, "sqthread_poll_cpu"),
            (Workload { numjobs: 0, ..good.clone() }, "numjobs"),
            (Workload { runtime: Nanos(1), ..good.clone() }, "runtime"),
        ] {
            assert!(bad.check().expect_err(key).to_string().contains(key));
        }
    }

    #[test]
    fn every_standard_workload_runs() {
        for (name, ..) in STANDARD {
            assert_eq!(name.parse::<Workload>().expect("known").check(), Ok(()));
        }
    }
}
