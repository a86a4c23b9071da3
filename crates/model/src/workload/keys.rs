//! The keys of a workload, each declared once: plan files, the flags of `iotax bench` and JSON follow from the table.

use std::fmt::Display;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BufferPattern, ByDirection, Distribution, FileSize, IoEngine, LengthRange, LengthSplit, RateProcess, Rw,
    Stamps, Stride, SyncMode, Test, Verify,
};
use crate::net::Traffic;
use crate::units::{Bytes, Nanos};

/// A value that a key can have.
pub trait KeyValue: FromStr<Err: Display> {
    /// Whether it is on or off, so that a flag may stand without a value.
    const SWITCH: bool = false;

    /// Reads it as a command line gives it.
    ///
    /// # Errors
    /// A text in words that quotes the input and names the accepted form.
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: Self::Err| error.to_string())
    }
}

impl KeyValue for bool {
    const SWITCH: bool = true;

    /// fio's booleans, and the words.
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "1" | "true" | "yes" => Ok(true),
            "0" | "false" | "no" => Ok(false),
            _ => Err(format!("{text:?} is neither on nor off; accepted: 1 or 0")),
        }
    }
}

/// Values that are read as they are printed.
macro_rules! plain {
    ($($type:ty),+ $(,)?) => { $(impl KeyValue for $type {})+ };
}

/// Whole numbers.
macro_rules! number {
    ($($type:ty),+) => {
        $(impl KeyValue for $type {
            fn from_text(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| {
                    format!("{text:?} is not a number; accepted: a whole number from 0 to {}", Self::MAX)
                })
            }
        })+
    };
}

number!(u8, u32, u64);
plain!(String, Bytes, Nanos, Rw, IoEngine, RateProcess, Stamps, BufferPattern, Verify);
plain!(ByDirection<LengthRange>, ByDirection<LengthSplit>, Distribution, Stride, SyncMode, Test, FileSize);

/// What is known of a key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// fio's name for it, with underscores.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
    /// The form of its value, in capitals.
    pub value: &'static str,
    /// What holds when nothing is said, as text.
    pub default: Option<fn() -> String>,
    /// Whether it is on or off.
    pub switch: bool,
    /// Refuses a text that is no value of it, in words that quote it and name the accepted form.
    pub check: fn(&str) -> Result<(), String>,
}

/// Declares the keys: first those with a default, then those that may be absent. A key is its help text, its name, the
/// form of its value and its type.
macro_rules! keys {
    (
        with_default { $($(#[doc = $help:literal])+ $name:ident $value:literal: $type:ty = $default:expr;)+ }
        optional { $($(#[doc = $opt_help:literal])+ $opt_name:ident $opt_value:literal: $opt_type:ty;)+ }
    ) => {
        /// A workload, complete: every key has its value, or is absent because it has no default.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(from = "WorkloadKeys")]
        pub struct Workload {
            /// Unique within a plan.
            pub name: String,
            /// What is done at the same time on the same target, within the same window: one measurement, of which each has
            /// its share. Warm-up and length are the first one's.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub beside: Vec<Workload>,
            /// What is done over a network; of the keys only runtime and ramp_time then mean something.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub net: Option<Traffic>,
            $($(#[doc = $help])+ pub $name: $type,)+
            $($(#[doc = $opt_help])+
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $opt_name: Option<$opt_type>,)+
        }

        /// The keys of a `[[workload]]` table or of `[defaults]`, each of which may be left out.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct WorkloadKeys {
            /// Unique within a plan [default: what it does, such as randread-4k-qd1]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            /// What is done at the same time on the same target
            #[serde(skip_serializing_if = "Vec::is_empty", default)]
            pub beside: Vec<WorkloadKeys>,
            /// What is done over a network, with runtime and ramp_time
            #[serde(skip_serializing_if = "Option::is_none")]
            pub net: Option<Traffic>,
            $($(#[doc = $help])+
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $name: Option<$type>,)+
            $($(#[doc = $opt_help])+
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $opt_name: Option<$opt_type>,)+
        }

        /// Every key but the name.
        pub const KEYS: &[Key] = &[
            $(Key {
                name: stringify!($name),
                help: concat!($($help),+),
                value: $value,
                default: Some(|| ToString::to_string(&{ let value: $type = $default; value })),
                switch: <$type as KeyValue>::SWITCH,
                check: |text| <$type as KeyValue>::from_text(text).map(drop),
            },)+
            $(Key {
                name: stringify!($opt_name),
                help: concat!($($opt_help),+),
                value: $opt_value,
                default: None,
                switch: <$opt_type as KeyValue>::SWITCH,
                check: |text| <$opt_type as KeyValue>::from_text(text).map(drop),
            },)+
        ];

        impl WorkloadKeys {
            /// The complete workload: own keys first, then `defaults`, then what the table says. Without a name it is called
            /// by what it does, such as `randread-4k-qd1`.
            #[must_use]
            pub fn complete(&self, defaults: &Self) -> Workload {
                let mut workload = Workload {
                    name: self.name.clone().unwrap_or_default(),
                    net: self.net.clone(),
                    beside: self.beside.iter().map(|keys| keys.complete(defaults)).collect(),
                    $($name: self.$name.clone().or_else(|| defaults.$name.clone()).unwrap_or_else(|| $default),)+
                    $($opt_name: self.$opt_name.clone().or_else(|| defaults.$opt_name.clone()),)+
                };
                if workload.net.is_some() {
                    // There is no cache beneath.
                    (workload.direct, workload.invalidate) = (false, false);
                }
                if self.name.is_none() {
                    workload.name = match (&workload.net, workload.test) {
                        (Some(net), _) => net.generated_name(),
                        (None, Some(test)) => test.to_string(),
                        (None, None) => {
                            format!("{}-{}-qd{}", workload.rw, workload.lengths(), workload.iodepth)
                        }
                    };
                }
                workload
            }

            /// Sets one of [`KEYS`] from its text.
            ///
            /// # Errors
            /// A text in words that quotes the input and names the accepted form.
            pub fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
                match key {
                    $(stringify!($name) => self.$name = Some(KeyValue::from_text(text)?),)+
                    $(stringify!($opt_name) => self.$opt_name = Some(KeyValue::from_text(text)?),)+
                    _ => return Err(format!("{key:?} is not a key of a workload")),
                }
                Ok(())
            }
        }
    };
}

keys! {
    with_default {
        /// The pattern: read, write, randread, randwrite, rw, randrw, trim or randtrim
        rw "RW": Rw = Rw::RandRead;
        /// Bytes of one I/O
        bs "SIZE": Bytes = Bytes(4096);
        /// I/Os kept in flight by each job (1 for psync)
        iodepth "N": u32 = 1;
        /// Jobs side by side on the same area; sequential ones divide it among them
        numjobs "N": u32 = 1;
        /// How long is measured
        runtime "TIME": Nanos = Nanos::from_secs(10);
        /// Warm-up before it: done, recorded, not counted
        ramp_time "TIME": Nanos = Nanos::from_secs(1);
        /// Share of reads in a mix, in percent
        rwmixread "PERCENT": u8 = 50;
        /// Where the area begins; size counts from there
        offset "SIZE": Bytes = Bytes(0);
        /// How random offsets are spread: random, zipf:THETA, pareto:H, normal:DEVIATION or zoned:IO/SIZE:IO/SIZE...
        random_distribution "HOW": Distribution = Distribution::Random;
        /// Draw each random offset anew; otherwise every one comes once per pass
        norandommap "0|1": bool = false;
        /// Share of a random pattern's I/Os that are random, in percent; the others follow the one before them
        percentage_random "PERCENT": u8 = 100;
        /// Whether a write is only done when it is safe: none, sync (O_SYNC) or dsync (O_DSYNC)
        sync "HOW": SyncMode = SyncMode::None;
        /// Bypass the page cache (O_DIRECT)
        direct "0|1": bool = true;
        /// Drop caches before the measurement
        invalidate "0|1": bool = true;
        /// Read the area into the page cache before the measurement, after caches were dropped
        pre_read "0|1": bool = false;
        /// Flush (fsync) when a job has done all its work, within the measurement; it has an end only with io_size or loops
        end_fsync "0|1": bool = false;
        /// How I/O is handed to the kernel: auto (the best that works here), io_uring, libaio, psync, pvsync2, mmap or null
        ioengine "ENGINE": IoEngine = IoEngine::Auto;
        /// Poll the device for completions instead of waiting for its interrupt: io_uring (IOPOLL) and pvsync2 (RWF_HIPRI)
        hipri "0|1": bool = false;
        /// Ask first without waiting (RWF_NOWAIT) and count the I/Os that would have had to: pvsync2
        nowait "0|1": bool = false;
        /// Let a thread of the kernel submit (SQPOLL), without system calls, at the cost of a CPU: io_uring
        sqthread_poll "0|1": bool = false;
        /// When the I/Os of a rate are due: linear (evenly) or poisson (at random)
        rate_process "PROCESS": RateProcess = RateProcess::Linear;
        /// What shares a time stamp: the I/Os of one call (batch), or none (io)
        stamps "WHAT": Stamps = Stamps::Batch;
        /// Share of what is written that can be compressed away, in percent
        buffer_compress_percentage "PERCENT": u8 = 0;
        /// Each so many bytes hold that share
        buffer_compress_chunk "SIZE": Bytes = Bytes(512);
        /// Share of writes whose data is that of an earlier one, in percent
        dedupe_percentage "PERCENT": u8 = 0;
        /// Write zeros
        zero_buffers "0|1": bool = false;
        /// Stamp what is written and check what is read, and at the end everything that was written: none, crc32c or xxh3
        verify "HOW": Verify = Verify::None;
    }
    optional {
        /// The CPU that sqthread_poll's thread is bound to
        sqthread_poll_cpu "CPU": u32;
        /// Length of the area [default: the whole of what exists, 1GiB of what is created]
        size "SIZE": Bytes;
        /// Lengths instead of bs, all equally likely: 4k-16k, or for reads, writes and trims 4k-16k,8k-32k
        bsrange "RANGE": ByDirection<LengthRange>;
        /// Lengths instead of bs with their shares in percent: 4k/10:64k/50:32k/40
        bssplit "SPLIT": ByDirection<LengthSplit>;
        /// From where one of numjobs begins to where the next one does: each then has an area of size bytes of its own
        offset_increment "SIZE": Bytes;
        /// Begin so long after the others
        startdelay "TIME": Nanos;
        /// From the start of one sequential I/O to the start of the next: -4k goes backwards, 0 stays [default: its length]
        stride "SIZE": Stride;
        /// Bytes that each job moves before it ends [default: no end]
        io_size "SIZE": Bytes;
        /// How often each job goes through its area, or io_size, before it ends [default: no end]
        loops "N": u64;
        /// Flush data and metadata (fsync) after so many writes
        fsync "N": u64;
        /// Flush data (fdatasync) after so many writes
        fdatasync "N": u64;
        /// Open loop: each job begins so many I/Os a second, whether or not earlier ones are done
        rate_iops "N": u64;
        /// Open loop: as rate_iops, in bytes a second
        rate "SIZE": Bytes;
        /// Pause of a job after each thinktime_blocks I/Os
        thinktime "TIME": Nanos;
        /// I/Os between two pauses [default: 1]
        thinktime_blocks "N": u64;
        /// What is written, or the share of it that can be compressed away: "abc", 0xdeadbeef or 123, repeated
        buffer_pattern "PATTERN": BufferPattern;
        /// Record every acknowledged write in this new file, best on another machine's storage; see iotax verify
        write_journal "FILE": String;
        /// End the measurement, keeping what was measured, when an I/O has been in flight for so long
        stall_timeout "TIME": Nanos;
        /// End the measurement, keeping what was measured, after so many failed I/Os
        max_errors "N": u64;
        /// Something else than plain I/O, as the classic programs do it; iotax suite is made of these
        test "TEST": Test;
        /// Files of each job, for a test of files [default: 1000; 24000 in a tree]
        nrfiles "N": u64;
        /// Size of each of them, or a range of sizes: 0-16k [default: empty; in a tree sizes as of source code, size in all]
        filesize "SIZE": FileSize;
        /// Directories that they are spread over [default: 1; in a tree one for 14 files]
        nrdirs "N": u64;
    }
}

impl From<WorkloadKeys> for Workload {
    fn from(keys: WorkloadKeys) -> Self {
        keys.complete(&WorkloadKeys::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// As the fuzz target of that name.
        #[test]
        fn values(
            key in prop::sample::select(KEYS),
            text in "[a-z_]{0,10}:?[0-9.]{0,6}[kmgGiBs]{0,3}([-:/,][0-9]{1,3}[km]?){0,3}|.{0,16}",
        ) {
            let mut keys = WorkloadKeys::default();
            if keys.set(key.name, &text).is_ok() {
                let json = serde_json::to_string(&keys).expect("keys have a text form");
                prop_assert_eq!(serde_json::from_str::<WorkloadKeys>(&json).expect(&json), keys.clone());
                let _ = keys.complete(&WorkloadKeys::default()).check();
            }
        }
    }

    #[test]
    fn every_default_is_read_back_from_its_text() {
        let mut keys = WorkloadKeys::default();
        for key in KEYS {
            let Some(default) = key.default else { continue };
            keys.set(key.name, &default()).expect(key.name);
        }
        let nothing = WorkloadKeys::default();
        assert_eq!(keys.complete(&nothing), nothing.complete(&nothing));
    }

    #[test]
    fn an_unknown_key_or_value_is_quoted() {
        let mut keys = WorkloadKeys::default();
        for (key, value, words) in [
            ("iodept", "1", "\"iodept\""),
            ("direct", "maybe", "\"maybe\""),
            ("rw", "raed", "\"raed\""),
            ("rate_iops", "100k", "\"100k\" is not a number; accepted: a whole number"),
            ("rwmixread", "300", "from 0 to 255"),
        ] {
            let error = keys.set(key, value).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(keys, WorkloadKeys::default());
    }

    #[test]
    fn a_workload_is_read_back_from_json() {
        let mut keys = WorkloadKeys { name: Some("one".into()), ..WorkloadKeys::default() };
        keys.set("size", "1GiB").expect("a size");
        let workload = keys.complete(&WorkloadKeys::default());
        let text = serde_json::to_string(&workload).expect("serializes");
        assert_eq!(serde_json::from_str::<Workload>(&text).expect("reads back"), workload);
    }
}
