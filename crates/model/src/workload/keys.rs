//! The keys of a workload. The table in this module generates the keys of plan files, the flags of `iotax bench`, and the JSON form.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, IntoDeserializer, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::files::MOST_FILES;
use super::pgbench::MOST_SCALE;
use super::replay::REPLAY;
use super::{
    AccessHint, BufferPattern, ByDirection, CpuPolicy, DEFAULT_BS, DedupeMode, Distribution, FileLayout,
    FileSize, IoEngine, Kind, LengthRange, LengthSplit, Memory, MemoryPolicy, NumberList, PgbenchScript,
    PrioritySplit, RateProcess, ReplayPace, Rw, Stamps, SteadyCriterion, Stride, SyncFileRange, SyncMode,
    SynchronousCommit, Test, ToleratedErrors, Verify, WorkloadError,
};
use crate::crash::{JournalMode, Synchronous};
use crate::net::Traffic;
use crate::number;
use crate::trace::ReplayOffsets;
use crate::units::{Bytes, Nanos};

/// A type of value that a workload key can have.
pub trait KeyValue: FromStr<Err: Display> + DeserializeOwned {
    /// True for booleans, whose command-line flag needs no value.
    const SWITCH: bool = false;
    /// Accepted words of an enumerated type, for shell completion; empty for other types.
    const WORDS: &'static [&'static str] = &[];

    /// Parses a value given on the command line.
    ///
    /// # Errors
    /// The text is no valid value. The message quotes it and names the accepted form.
    fn from_text(text: &str, _: &Form) -> Result<Self, String> {
        text.parse().map_err(|error: Self::Err| error.to_string())
    }

    /// Deserializes a value given in a plan file.
    ///
    /// # Errors
    /// The value has another type, or is a text that cannot be parsed.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }

    /// Returns the value as a number, for range checks; `None` for types that are not numeric.
    fn number(&self) -> Option<u64> {
        None
    }
}

/// Deserializes a key of a plan file that may be absent.
fn read<'de, D: Deserializer<'de>, T: KeyValue>(from: D) -> Result<Option<T>, D::Error> {
    struct Read<T>(T);

    impl<'de, T: KeyValue> Deserialize<'de> for Read<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            T::read(from).map(Self)
        }
    }

    Ok(Option::<Read<T>>::deserialize(from)?.map(|Read(value)| value))
}

/// Deserializes a whole number, or a number in quotes in the form that flags accept, such as `"10k"`.
struct NumberOrText<T>(PhantomData<T>);

impl<T: DeserializeOwned + TryFrom<u64>> Visitor<'_> for NumberOrText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::any::type_name::<T>())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        T::deserialize(number.into_deserializer())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::deserialize(number.into_deserializer())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        // Only percentages are u8. Numbers outside a key's range are rejected later, with the range.
        let is_percentage = size_of::<T>() == 1;
        let read = if is_percentage { number::percentage } else { number::whole };
        read(text, &(0..=u64::MAX)).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// Range of the numbers that a key accepts, and whether they are percentages.
#[derive(Debug)]
pub struct Form {
    range: RangeInclusive<u64>,
    is_percentage: bool,
}

impl Form {
    fn new(value: &str, range: RangeInclusive<u64>) -> Self {
        Self { range, is_percentage: value == "PERCENT" }
    }
}

impl KeyValue for bool {
    const SWITCH: bool = true;

    /// Parses `1`, `true` or `yes` as true, and `0`, `false` or `no` as false.
    fn from_text(text: &str, _: &Form) -> Result<Self, String> {
        match text {
            "1" | "true" | "yes" => Ok(true),
            "0" | "false" | "no" => Ok(false),
            _ => Err(format!("{text:?} is neither on nor off; accepted: 1 or 0")),
        }
    }
}

/// Implements [`KeyValue`] for types that parse their values themselves.
macro_rules! plain {
    ($($type:ty),+ $(,)?) => { $(impl KeyValue for $type {})+ };
}

/// Implements [`KeyValue`] for enums that are declared with `words!`.
macro_rules! word {
    ($($type:ty),+ $(,)?) => {
        $(impl KeyValue for $type {
            const WORDS: &'static [&'static str] = <$type>::WORDS;
        })+
    };
}

/// Implements [`KeyValue`] for types of whole numbers.
macro_rules! number {
    ($($type:ty),+) => {
        $(impl KeyValue for $type {
            fn from_text(text: &str, form: &Form) -> Result<Self, String> {
                let read = if form.is_percentage { number::percentage } else { number::whole };
                read(text, &form.range)
            }

            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(NumberOrText(PhantomData))
            }

            fn number(&self) -> Option<u64> {
                Some((*self).into())
            }
        })+
    };
}

number!(u8, u16, u32, u64);
plain!(
    String,
    Bytes,
    Nanos,
    BufferPattern,
    ByDirection<LengthRange>,
    ByDirection<LengthSplit>,
    ByDirection<PrioritySplit>
);
plain!(Distribution, Stride, FileSize, MemoryPolicy, NumberList);
plain!(SteadyCriterion, SyncFileRange, ToleratedErrors);
word!(Rw, IoEngine, RateProcess, ReplayOffsets, ReplayPace, Stamps, Verify, SyncMode, Test);
word!(AccessHint, FileLayout, Memory, CpuPolicy, DedupeMode, JournalMode, Synchronous);
word!(SynchronousCommit, PgbenchScript);

/// Description of a workload key, for generating flags and help texts.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadKey {
    /// Name of the key, as in plan files.
    pub name: &'static str,
    /// Help text, one sentence.
    pub help: &'static str,
    /// Placeholder for the value in the help, in capitals.
    pub value: &'static str,
    /// Formats the default value; `None` for a key without a default.
    pub default: Option<fn() -> String>,
    /// True if the value is a boolean.
    pub switch: bool,
    /// Accepted words of an enumerated key; empty for other keys.
    pub words: &'static [&'static str],
    /// Checks the text of a value. The error quotes the text and names the accepted form.
    pub check: fn(&str) -> Result<(), String>,
}

/// Range of a numeric key: the range in its declaration, else that of `u64`.
macro_rules! range {
    () => {
        0..=u64::MAX
    };
    (($least:literal ..= $most:expr)) => {
        $least..=$most
    };
}

/// Declares the keys: first those with a default, then the optional ones. A declaration consists of help text, name, placeholder for the value,
/// range of a number, and type.
macro_rules! keys {
    (
        of_kind {
            $(#[doc = $kind_help:literal])+ $kind_name:ident $kind_value:literal: $kind_type:ty;
        }
        with_default {
            $($(#[doc = $help:literal])+ $name:ident $value:literal $(in $range:tt)?: $type:ty = $default:expr;)+
        }
        optional {
            $($(#[doc = $opt_help:literal])+ $opt_name:ident $opt_value:literal $(in $opt_range:tt)?: $opt_type:ty;)+
        }
    ) => {
        /// A complete workload: defaults are filled in.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "WorkloadKeys")]
        pub struct Workload {
            /// Name of the workload, unique within a plan.
            pub name: String,
            /// Concurrent jobs on the same target in the same window. They share one measurement, which has results for each job, and the warm-up of
            /// the first job.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub beside: Vec<Workload>,
            /// The kind of work, from the keys `net`, `foreign` and `test`.
            #[serde(flatten)]
            pub kind: Kind,
            $($(#[doc = $help])+ pub $name: $type,)+
            $($(#[doc = $opt_help])+
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $opt_name: Option<$opt_type>,)+
        }

        /// The keys of a `[[workload]]` table or of `[defaults]`; all are optional.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(transform = number::or_text)]
        pub struct WorkloadKeys {
            /// Name, unique within a plan [default: made from other keys, such as randread-4k-qd1]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            /// Concurrent jobs on the same target
            #[serde(skip_serializing_if = "Vec::is_empty", default)]
            pub beside: Vec<WorkloadKeys>,
            /// Network traffic instead of I/O; with it only name, runtime, ramp_time and blackout have an effect
            #[serde(skip_serializing_if = "Option::is_none")]
            pub net: Option<Traffic>,
            /// Set in imported results alone: work of another tool, known by name
            #[serde(skip_serializing_if = "std::ops::Not::not", default)]
            #[schemars(skip)]
            pub foreign: bool,
            $(#[doc = $kind_help])+
            #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "read")]
            pub $kind_name: Option<$kind_type>,
            $($(#[doc = $help])+
            #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "read")]
            pub $name: Option<$type>,)+
            $($(#[doc = $opt_help])+
            #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "read")]
            pub $opt_name: Option<$opt_type>,)+
        }

        /// Descriptions of all keys except `name`, `beside` and `net`.
        pub const KEYS: &[WorkloadKey] = &[
            WorkloadKey {
                name: stringify!($kind_name),
                help: concat!($($kind_help),+),
                value: $kind_value,
                default: None,
                switch: false,
                words: <$kind_type as KeyValue>::WORDS,
                check: |text| <$kind_type as KeyValue>::from_text(text, &Form::new($kind_value, range!())).map(drop),
            },
            $(WorkloadKey {
                name: stringify!($name),
                help: concat!($($help),+),
                value: $value,
                default: Some(|| ToString::to_string(&{ let value: $type = $default; value })),
                switch: <$type as KeyValue>::SWITCH,
                words: <$type as KeyValue>::WORDS,
                check: |text| {
                    <$type as KeyValue>::from_text(text, &Form::new($value, range!($($range)?))).map(drop)
                },
            },)+
            $(WorkloadKey {
                name: stringify!($opt_name),
                help: concat!($($opt_help),+),
                value: $opt_value,
                default: None,
                switch: <$opt_type as KeyValue>::SWITCH,
                words: <$opt_type as KeyValue>::WORDS,
                check: |text| {
                    let form = Form::new($opt_value, range!($($opt_range)?));
                    <$opt_type as KeyValue>::from_text(text, &form).map(drop)
                },
            },)+
        ];

        impl WorkloadKeys {
            /// Completes the workload: its own keys take precedence over `defaults`, and `defaults` over built-in defaults. A workload
            /// without a name is named after its pattern (`randread-4k-qd1`), test or network traffic; a replay is named `replay`.
            #[must_use]
            pub fn complete(&self, defaults: &Self) -> Workload {
                let mut workload = Workload {
                    name: self.name.clone().unwrap_or_default(),
                    kind: Kind::of_keys(self.foreign, self.net.clone(), self.$kind_name.or(defaults.$kind_name)),
                    beside: self.beside.iter().map(|keys| keys.complete(defaults)).collect(),
                    $($name: self.$name.clone().or_else(|| defaults.$name.clone()).unwrap_or_else(|| $default),)+
                    $($opt_name: self.$opt_name.clone().or_else(|| defaults.$opt_name.clone()),)+
                };
                if workload.kind.is_network() {
                    // Network traffic does not use the page cache.
                    (workload.direct, workload.invalidate) = (false, false);
                }
                workload.complete_replay(self, defaults);
                if self.name.is_none() {
                    workload.name = match &workload.kind {
                        _ if workload.read_iolog.is_some() => REPLAY.into(),
                        Kind::Streams(net) | Kind::RoundTrips(net) => net.generated_name(),
                        Kind::Files(test) => test.to_string(),
                        Kind::Block | Kind::Foreign => {
                            let flushes = workload.flushes_in_name();
                            format!("{}-{}-qd{}{flushes}", workload.rw, workload.lengths(), workload.iodepth)
                        }
                    };
                }
                workload
            }

            /// Sets one of [`KEYS`] from a text. [`Workload::check`] checks the ranges of numbers later.
            ///
            /// # Errors
            /// The key is not known, or the text is no valid value. The message names the accepted form.
            pub fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
                let form = |value| Form::new(value, range!());
                match key {
                    stringify!($kind_name) => {
                        self.$kind_name = Some(KeyValue::from_text(text, &form($kind_value))?);
                    }
                    $(stringify!($name) => self.$name = Some(KeyValue::from_text(text, &form($value))?),)+
                    $(stringify!($opt_name) => {
                        self.$opt_name = Some(KeyValue::from_text(text, &form($opt_value))?);
                    })+
                    _ => return Err(format!("{key:?} is not a key of a workload")),
                }
                Ok(())
            }
        }

        impl Workload {
            /// Rejects numbers outside the ranges that the keys declare.
            pub(super) fn check_ranges(&self) -> Result<(), WorkloadError> {
                let check = |key, number: Option<u64>, range: RangeInclusive<u64>| match number {
                    Some(number) if !range.contains(&number) => {
                        let accepted = format!("accepted: {}", number::accepted(&range));
                        Err(self.refusal(key, &number, &accepted))
                    }
                    _ => Ok(()),
                };
                $($(check(stringify!($name), self.$name.number(), range!($range))?;)?)+
                $($(
                    let number = self.$opt_name.as_ref().and_then(KeyValue::number);
                    check(stringify!($opt_name), number, range!($opt_range))?;
                )?)+
                Ok(())
            }
        }
    };
}

keys! {
    of_kind {
        /// An operation other than plain I/O, as in the classic benchmarks; iotax suite uses these
        test "TEST": Test;
    }
    with_default {
        /// Access pattern: read, write, randread, randwrite, rw, randrw, trim or randtrim
        rw "RW": Rw = Rw::RandRead;
        /// Block size of an I/O
        bs "SIZE": Bytes = DEFAULT_BS;
        /// I/Os in flight per job (1 for sync engines)
        iodepth "N" in (1..=4096): u32 = 1;
        /// Concurrent jobs on the same area; sequential jobs divide it among themselves
        numjobs "N" in (1..=1024): u32 = 1;
        /// Length of the measurement
        runtime "TIME": Nanos = Nanos::from_secs(10);
        /// Warm-up before the measurement; its I/Os do not count
        ramp_time "TIME": Nanos = Nanos::from_secs(1);
        /// Percentage of reads in a mix
        rwmixread "PERCENT" in (0..=100): u8 = 50;
        /// Start of the area; size counts from there
        offset "SIZE": Bytes = Bytes(0);
        /// Distribution of random offsets: random, zipf:THETA, pareto:H, normal:DEVIATION, zoned:IO/SIZE:IO/SIZE...,
        /// zoned_abs:IO/BYTES:IO/BYTES..., sequence:BLOCK,BLOCK... or sequence_stride:BLOCK,BLOCK...
        random_distribution "HOW": Distribution = Distribution::Random;
        /// Draw random offsets independently; otherwise each block comes once per pass
        norandommap "0|1": bool = false;
        /// Percentage of random I/Os in a random pattern; the others start where the previous I/O ended
        percentage_random "PERCENT" in (0..=100): u8 = 100;
        /// Durability of each write: none, sync (O_SYNC), dsync (O_DSYNC) or rwf_dsync (RWF_DSYNC, with ioengine = pvsync2)
        sync "HOW": SyncMode = SyncMode::None;
        /// Bypass the page cache (O_DIRECT)
        direct "0|1": bool = true;
        /// Drop the caches of the target's own files and devices before the measurement
        invalidate "0|1": bool = true;
        /// Drop the caches of the whole machine, not only the target's: pages, dentries and inodes; file operations always do
        invalidate_machine "0|1": bool = false;
        /// Drop the area's cache again whenever a job begins another pass over it, as fio does; buffered I/O only
        invalidate_each_pass "0|1": bool = false;
        /// Read the area into the page cache before the measurement, after dropping caches
        pre_read "0|1": bool = false;
        /// Access pattern announced to the kernel (posix_fadvise): 0 (none), 1 (the workload's), random or sequential
        fadvise_hint "HINT": AccessHint = AccessHint::None;
        /// State of a created file that is only written: filled, allocated, keep, sparse or empty; see docs/jobs.md
        layout "STATE": FileLayout = FileLayout::Filled;
        /// Flush (fsync) when a job is done, within the measurement; needs io_size or loops
        end_fsync "0|1": bool = false;
        /// Interface for I/O: auto (the best that works here), io_uring, libaio, psync, pvsync2, mmap, falloc, ftruncate, null, or libblkio
        /// for a virtio device without a guest
        ioengine "ENGINE": IoEngine = IoEngine::Auto;
        /// Memory of the buffers: thp (huge pages from 2 MiB on, where the kernel has some), malloc, mmap, mmaphuge, shm, shmhuge or mmapshared
        mem "MEMORY": Memory = Memory::Thp;
        /// Poll the device for completions instead of using interrupts: io_uring (IOPOLL), pvsync2 (RWF_HIPRI) and libblkio
        hipri "0|1": bool = false;
        /// Write zeroes in place of each trim (rw = trim or randtrim), as a guest's blkdiscard -z does: libblkio
        libblkio_write_zeroes_on_trim "0|1": bool = false;
        /// Try each I/O without blocking first (RWF_NOWAIT) and count those that would block: pvsync2
        nowait "0|1": bool = false;
        /// Submit from a kernel thread (SQPOLL), without system calls, at the cost of a CPU: io_uring
        sqthread_poll "0|1": bool = false;
        /// Arrival of the I/Os of a rate: linear (evenly) or poisson (at random)
        rate_process "PROCESS": RateProcess = RateProcess::Linear;
        /// Time stamps: one for the I/Os of a call (batch), or one for each (io)
        stamps "WHAT": Stamps = Stamps::Batch;
        /// Percentage of written data that is compressible
        buffer_compress_percentage "PERCENT" in (0..=100): u8 = 0;
        /// Unit of data to which buffer_compress_percentage applies
        buffer_compress_chunk "SIZE": Bytes = Bytes(512);
        /// Percentage of writes that repeat the data of an earlier one
        dedupe_percentage "PERCENT" in (0..=100): u8 = 0;
        /// Data that a duplicate repeats: that of any earlier write (repeat), or one of a fixed set (working_set)
        dedupe_mode "MODE": DedupeMode = DedupeMode::Repeat;
        /// Share the fixed set of dedupe_mode = working_set among all jobs
        dedupe_global "0|1": bool = false;
        /// Write zeros
        zero_buffers "0|1": bool = false;
        /// Stamp writes and check reads, and at the end check everything written: none, crc32c or xxh3
        verify "HOW": Verify = Verify::None;
        /// Read back and check at the end what was written; otherwise verify only stamps writes and checks the reads of the load
        do_verify "0|1": bool = true;
        /// End all concurrent jobs when this job is done
        exitall "0|1": bool = false;
        /// Speed of a replay: 100 is that of the trace, 200 twice as fast
        replay_time_scale "N" in (1..=100_000): u32 = 100;
        /// Start of I/Os in a replay: recorded (at their recorded times), dependency (after the I/Os that they waited for in the trace, and the
        /// recorded pause) or no_stall (as fast as iodepth allows)
        replay_pace "PACE": ReplayPace = ReplayPace::Recorded;
        /// Offsets of a replay on a smaller target: wrap (those beyond its end), compress (all scaled down) or working_set (without the blocks that
        /// the trace neither reads nor writes)
        replay_offsets "HOW": ReplayOffsets = ReplayOffsets::Wrap;
    }
    optional {
        /// Bind the kernel thread of sqthread_poll to this CPU
        sqthread_poll_cpu "CPU" in (0..=8191): u32;
        /// Length of the area [default: all of an existing target, 1GiB of a created one or an overwritten device]
        size "SIZE": Bytes;
        /// Range of block sizes instead of bs, uniform: 4k-16k, or for reads, writes and trims 4k-16k,8k-32k
        bsrange "RANGE": ByDirection<LengthRange>;
        /// Block sizes instead of bs, with percentages: 4k/10:64k/50:32k/40
        bssplit "SPLIT": ByDirection<LengthSplit>;
        /// Distance between the starts of numjobs' areas: each job then has an area of size bytes
        offset_increment "SIZE": Bytes;
        /// Alignment of random offsets [default: the shortest block size]
        blockalign "SIZE": Bytes;
        /// Bytes that a job moves within one zone of the area before it goes on to the next
        zonesize "SIZE": Bytes;
        /// Length of a zone [default: zonesize]
        zonerange "SIZE": Bytes;
        /// Bytes between the end of a zone and the start of the next [default: 0]
        zoneskip "SIZE": Bytes;
        /// Weight of this job: concurrent jobs with a weight do I/Os in proportion to it
        flow "WEIGHT": u64;
        /// Pause of a job that is ahead of its share by flow [default: 50us]
        flow_sleep "TIME": Nanos;
        /// CPUs that the job's threads may use, such as 0-3,8
        cpus_allowed "CPUS": NumberList;
        /// CPUs of cpus_allowed for each thread: all of them (shared) or one, in turn (split) [default: shared]
        cpus_allowed_policy "POLICY": CpuPolicy;
        /// NUMA nodes whose CPUs the job's threads may use
        numa_cpu_nodes "NODES": NumberList;
        /// NUMA nodes of the job's memory: default, local, prefer:NODE, bind:NODES or interleave:NODES
        numa_mem_policy "POLICY": MemoryPolicy;
        /// Priority of the job's I/O within its class: 0 (first) to 7
        prio "LEVEL" in (0..=7): u16;
        /// Class of the job's I/O priority: 1 (real time), 2 (best effort) or 3 (idle)
        prioclass "CLASS" in (1..=3): u16;
        /// Percentage of I/Os with the priority of cmdprio_class and cmdprio, with io_uring or libaio
        cmdprio_percentage "PERCENT" in (0..=100): u8;
        /// Priorities by length instead of cmdprio_percentage, LENGTH/PERCENT[/CLASS/LEVEL[/HINT]]: 64k/25/1/1:64k/75/3/2
        cmdprio_bssplit "SPLIT": ByDirection<PrioritySplit>;
        /// Priority class of the I/Os of cmdprio_percentage or cmdprio_bssplit, with prioclass's values [default: 1]
        cmdprio_class "CLASS" in (1..=3): u16;
        /// Priority level of the I/Os of cmdprio_percentage or cmdprio_bssplit, with prio's values [default: 0]
        cmdprio "LEVEL" in (0..=7): u16;
        /// Size of the fixed set of dedupe_mode = working_set, as a percentage of the area [default: 5]
        dedupe_working_set_percentage "PERCENT" in (0..=100): u8;
        /// Failed I/Os that do not count toward max_errors: directions with errors, such as read,write:ENOSPC
        tolerated_errors "LIST": ToleratedErrors;
        /// Start this job this long after the start of the load, which concurrent jobs share
        startdelay "TIME": Nanos;
        /// Distance between the starts of sequential I/Os: -4k goes backwards, 0 stays [default: the block size]
        stride "SIZE": Stride;
        /// Bytes that each job transfers before it ends [default: no limit]
        io_size "SIZE": Bytes;
        /// Passes of each job over its area, or io_size, before it ends [default: no limit]
        loops "N" in (1..=u64::MAX): u64;
        /// Flush data and metadata (fsync) after this many writes
        fsync "N" in (1..=u64::MAX): u64;
        /// Flush data (fdatasync) after this many writes
        fdatasync "N" in (1..=u64::MAX): u64;
        /// Write dirty pages out after N writes, which makes nothing durable: wait_before, write, wait_after and N, such as write,wait_after:1
        sync_file_range "FLAGS:N": SyncFileRange;
        /// Open loop: each job starts this many I/Os per second, even if earlier ones are not done, with up to iodepth in flight
        rate_iops "N" in (1..=u64::MAX): u64;
        /// Open loop: like rate_iops, in bytes per second
        rate "SIZE": Bytes;
        /// Pause of a job after each thinktime_blocks I/Os
        thinktime "TIME": Nanos;
        /// I/Os between two pauses of thinktime [default: 1]
        thinktime_blocks "N" in (1..=u64::MAX): u64;
        /// Content of writes, or of their compressible part: "abc", 0xdeadbeef or 123, repeated
        buffer_pattern "PATTERN": BufferPattern;
        /// Record every acknowledged write in this new file, best on another machine's storage; see iotax verify
        write_journal "FILE": String;
        /// End the measurement, keeping its results, when an I/O has been in flight this long
        stall_timeout "TIME": Nanos;
        /// Record each period of at least this length in which no I/O completes
        blackout "TIME": Nanos;
        /// End the measurement, keeping its results, after this many failed I/Os
        max_errors "N" in (1..=u64::MAX): u64;
        /// End the measurement once its rate or latency is steady: iops, iops_slope, bw, bw_slope, lat or lat_slope and a limit, such as
        /// iops:2% (of the mean) or bw:10m
        steadystate "CRITERION": SteadyCriterion;
        /// Time over which the criterion of steadystate must hold
        steadystate_duration "TIME": Nanos;
        /// Time at the start of the window that steadystate leaves out [default: 0s]
        steadystate_ramp_time "TIME": Nanos;
        /// Time between two values of steadystate's figure [default: 1s]
        steadystate_check_interval "TIME": Nanos;
        /// Journal of test = sqlite: delete, truncate or wal [default: wal]
        journal_mode "MODE": JournalMode;
        /// Flushes of test = sqlite: full (at each commit), normal or off [default: full]
        synchronous "WHEN": Synchronous;
        /// Script of test = pgbench: tpcb-like, simple-update or select-only [default: tpcb-like]
        builtin "NAME": PgbenchScript;
        /// Commits of test = pgbench that wait until they are durable: on or off [default: on]
        synchronous_commit "WHEN": SynchronousCommit;
        /// Longest time of a transaction of test = pgbench with a rate, in whole milliseconds: those that took longer are counted as late, and
        /// those that would start later are skipped
        latency_limit "TIME": Nanos;
        /// Scale of test = pgbench: 100,000 accounts, about 16 MiB, each [default: 1]
        scale "N" in (1..=MOST_SCALE): u32;
        /// Files of each job, for a file test [default: 1000; 24000 in a tree]
        nrfiles "N" in (1..=MOST_FILES): u64;
        /// Size of each file, or a range: 0-16k [default: empty; in a tree, sizes as in source code, size in total]
        filesize "SIZE": FileSize;
        /// Directories of each job [default: 1; in a tree, one per 14 files]
        nrdirs "N" in (1..=MOST_FILES): u64;
        /// Replay this trace instead of rw, paced by replay_pace: fio's iolog, blktrace or another format of iotax trace
        read_iolog "FILE": String;
    }
}

impl TryFrom<WorkloadKeys> for Workload {
    type Error = String;

    /// Completes the workload with built-in defaults.
    ///
    /// # Errors
    /// The keys select two kinds of work.
    fn try_from(keys: WorkloadKeys) -> Result<Self, String> {
        match (&keys.net, keys.test) {
            (Some(_), Some(test)) => Err(format!("test = {test}: net has a test of its own")),
            _ => Ok(keys.complete(&WorkloadKeys::default())),
        }
    }
}

#[cfg(test)]
mod tests;
