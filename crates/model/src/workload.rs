//! What I/O is issued. The keys are fio's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Nanos};

/// An unknown word where one of a few is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} is not a known {what}; accepted: {accepted}{}", nearest.as_ref().map(|n| format!(" (did you mean {n:?}?)")).unwrap_or_default())]
pub struct WordError {
    what: &'static str,
    input: String,
    accepted: String,
    nearest: Option<String>,
}

impl WordError {
    /// An error that quotes the input, lists what is accepted and names the nearest.
    #[must_use]
    pub fn new(what: &'static str, input: &str, accepted: &[&str]) -> Self {
        Self {
            what,
            input: input.to_owned(),
            accepted: accepted.join(", "),
            nearest: nearest(input, accepted.iter().copied()).map(str::to_owned),
        }
    }
}

/// The word most like `input`, if any is like it at all.
pub fn nearest<'a>(input: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    words
        .into_iter()
        .map(|word| (strsim::jaro_winkler(&input.to_lowercase(), word), word))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

/// Declares an enum whose variants are words of the command line and of plan files.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every accepted word.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word for it.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::workload::WordError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text { $($word => Ok(Self::$variant),)+ _ => Err($crate::workload::WordError::new($what, text, Self::WORDS)) }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use words;

words! {
    /// The I/O pattern, under fio's names.
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
        ReadWrite = "rw",
        /// Random reads and writes mixed by `rwmixread`.
        RandRw = "randrw",
    }
}

impl Rw {
    /// Whether any I/O of it reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }

    /// Whether any I/O of it writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    /// Whether offsets are random.
    #[must_use]
    pub const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }
}

words! {
    /// How I/O is handed to the kernel, under fio's names.
    IoEngine, "ioengine" {
        /// Linux io_uring.
        IoUring = "io_uring",
        /// pread and pwrite, one at a time per job.
        Psync = "psync",
        /// No I/O at all: shows the tool's own cost.
        Null = "null",
    }
}

/// A workload, complete: every key has its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Unique within a plan.
    pub name: String,
    /// The pattern.
    pub rw: Rw,
    /// Bytes of one I/O.
    pub bs: Bytes,
    /// I/Os kept in flight by each job (1 for psync).
    pub iodepth: u32,
    /// Threads that do this work side by side on the same area; sequential jobs divide it among them.
    pub numjobs: u32,
    /// Length of the area, from the target's start. Absent: the whole of an existing target.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size: Option<Bytes>,
    /// How long is measured.
    pub runtime: Nanos,
    /// Warm-up before it: done, recorded, not counted.
    pub ramp_time: Nanos,
    /// Share of reads in a mix, in percent.
    pub rwmixread: u8,
    /// Whether the page cache is bypassed (O_DIRECT).
    pub direct: bool,
    /// Whether caches are dropped before the measurement.
    pub invalidate: bool,
    /// How I/O is handed to the kernel.
    pub ioengine: IoEngine,
}

/// The size of a target area that is created when nothing else is said.
pub const DEFAULT_SIZE: Bytes = Bytes(1 << 30);

/// The keys of a `[[workload]]` table or of `[defaults]`, each of which may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of Workload")]
pub struct WorkloadKeys {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rw: Option<Rw>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bs: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iodepth: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numjobs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Nanos>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp_time: Option<Nanos>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rwmixread: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalidate: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ioengine: Option<IoEngine>,
}

impl WorkloadKeys {
    /// The complete workload: own keys first, then `defaults`, then: randread, 4k, iodepth 1, one job, 10 s after a
    /// warm-up of 1 s, 50% reads in a mix, io_uring, direct, caches dropped. Without a name it is called by what it does,
    /// such as `randread-4k-qd1`.
    #[must_use]
    pub fn complete(&self, defaults: &Self) -> Workload {
        let rw = self.rw.or(defaults.rw).unwrap_or(Rw::RandRead);
        let bs = self.bs.or(defaults.bs).unwrap_or(Bytes(4096));
        let iodepth = self.iodepth.or(defaults.iodepth).unwrap_or(1);
        Workload {
            name: self.name.clone().unwrap_or_else(|| format!("{rw}-{bs}-qd{iodepth}")),
            rw,
            bs,
            iodepth,
            numjobs: self.numjobs.or(defaults.numjobs).unwrap_or(1),
            size: self.size.or(defaults.size),
            runtime: self.runtime.or(defaults.runtime).unwrap_or(Nanos::from_secs(10)),
            ramp_time: self.ramp_time.or(defaults.ramp_time).unwrap_or(Nanos::from_secs(1)),
            rwmixread: self.rwmixread.or(defaults.rwmixread).unwrap_or(50),
            direct: self.direct.or(defaults.direct).unwrap_or(true),
            invalidate: self.invalidate.or(defaults.invalidate).unwrap_or(true),
            ioengine: self.ioengine.or(defaults.ioengine).unwrap_or(IoEngine::IoUring),
        }
    }
}

/// A workload that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("workload {name:?}: {key} = {value}: {accepted}")]
pub struct WorkloadError {
    name: String,
    key: &'static str,
    value: String,
    accepted: String,
}

impl Workload {
    /// Refuses what no engine can run.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let refuse = |key, value: &dyn fmt::Display, accepted: String| {
            Err(WorkloadError { name: self.name.clone(), key, value: value.to_string(), accepted })
        };
        if self.bs.0 < 512 || self.bs.0 > 64 << 20 || !self.bs.0.is_multiple_of(512) {
            return refuse("bs", &self.bs, "accepted: a multiple of 512 from 512 to 64MiB".into());
        }
        if self.iodepth == 0 || self.iodepth > 4096 {
            return refuse("iodepth", &self.iodepth, "accepted: 1 to 4096".into());
        }
        if self.ioengine == IoEngine::Psync && self.iodepth > 1 {
            return refuse(
                "iodepth",
                &self.iodepth,
                "psync does one I/O at a time; use iodepth = 1, ioengine = io_uring, or numjobs".into(),
            );
        }
        if self.numjobs == 0 || self.numjobs > 1024 {
            return refuse("numjobs", &self.numjobs, "accepted: 1 to 1024".into());
        }
        if self.rwmixread > 100 {
            return refuse("rwmixread", &self.rwmixread, "accepted: 0 to 100 (percent)".into());
        }
        if self.runtime < Nanos::from_millis(100) {
            return refuse("runtime", &self.runtime, "accepted: 100ms and more".into());
        }
        if let Some(size) = self.size {
            let jobs = if self.rw.is_random() { 1 } else { u64::from(self.numjobs) };
            if size.0 / self.bs.0 < jobs {
                return refuse(
                    "size",
                    &size,
                    format!("at least one block of {} for each job is needed", self.bs),
                );
            }
        }
        Ok(())
    }
}

impl FromStr for Workload {
    type Err = WordError;

    /// One of the named standard workloads, such as `randread-4k-qd1`.
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

/// The workloads of a ladder: name, pattern, bytes, depth.
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
            (Workload { bs: Bytes(100), ..good.clone() }, "bs"),
            (Workload { bs: Bytes(0), ..good.clone() }, "bs"),
            (Workload { iodepth: 0, ..good.clone() }, "iodepth"),
            (Workload { ioengine: IoEngine::Psync, iodepth: 2, ..good.clone() }, "iodepth"),
            (Workload { numjobs: 0, ..good.clone() }, "numjobs"),
            (Workload { rwmixread: 101, ..good.clone() }, "rwmixread"),
            (Workload { runtime: Nanos(1), ..good.clone() }, "runtime"),
            (Workload { size: Some(Bytes(1024)), ..good.clone() }, "size"),
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
