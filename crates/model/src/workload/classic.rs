//! Checks the keys of workloads with a `test`, which is an operation of the classic benchmarks.

use std::fmt::Display;

use super::{
    Distribution, IoEngine, RateProcess, Rw, Stamps, Test, Verify, Workload, WorkloadError, WorkloadKeys,
};
use crate::units::Nanos;

/// Error text for keys that only apply to plain I/O, such as `rate`, in a workload with a `test`.
const OF_PLAIN_IO: &str = "means nothing in a test; leave it out";

impl Workload {
    /// Rejects keys that contradict the workload's test or have no effect in it.
    pub(super) fn check_test(&self, test: Test) -> Result<(), WorkloadError> {
        let refuse = |key, value: &dyn Display, accepted: &str| Err(self.refusal(key, value, accepted));
        if let Some((key, value)) = self.meaningless() {
            return refuse(key, &value, OF_PLAIN_IO);
        }
        if !matches!(self.ioengine, IoEngine::Auto | IoEngine::Psync) {
            let accepted = "a test makes its system calls one at a time; use ioengine = psync, or auto";
            return refuse("ioengine", &self.ioengine, accepted);
        }
        if self.iodepth > 1 {
            let accepted = "a test does one I/O at a time; use iodepth = 1, and numjobs";
            return refuse("iodepth", &self.iodepth, accepted);
        }
        let is_in_bytes = matches!(test, Test::Putc | Test::Getc | Test::StdioWrite | Test::StdioRead);
        if self.direct && (is_in_bytes || test.is_on_files()) {
            let accepted = format!("test = {test} goes through the page cache; use direct = false");
            return refuse("direct", &true, &accepted);
        }
        // A copy continues on the same two files, and a database on the same tables.
        let continues = test == Test::Copy || test.is_of_transactions();
        if self.ramp_time > Nanos(0) && test.needs_directory() && !continues {
            let accepted = format!("what test = {test} makes is new once only; use ramp_time = 0s");
            return refuse("ramp_time", &self.ramp_time, &accepted);
        }
        if self.offset.0 > 0 && test.needs_directory() {
            let accepted = format!("test = {test} makes files of its own; leave it out");
            return refuse("offset", &self.offset, &accepted);
        }
        for (key, times) in [("fsync", self.fsync), ("fdatasync", self.fdatasync)] {
            if let (Some(times), false) = (times, test.writes()) {
                return refuse(key, &times, &format!("test = {test} writes nothing; leave it out"));
            }
        }
        if let Some(range) = self.sync_file_range {
            return refuse(
                "sync_file_range",
                &range,
                &format!("test = {test} has flushes of its own; leave it out"),
            );
        }
        if self.end_fsync && !test.writes() {
            return refuse("end_fsync", &true, &format!("test = {test} writes nothing; leave it out"));
        }
        Ok(())
    }

    /// Returns the name and value of the first key that is set although it has no effect in a test; `None` if there is no such key.
    fn meaningless(&self) -> Option<(&'static str, String)> {
        // `rw` selects sequential or random order in tests on single files.
        let has_order = self.kind.test().is_some_and(|test| test.is_on_files() && !test.is_on_trees());
        let has_rate = self.is_pgbench();
        let plain = WorkloadKeys::default().complete(&WorkloadKeys::default());
        let text = |value: &dyn Display| Some(value.to_string());
        let on = |is_on: bool| is_on.then(|| true.to_string());
        [
            ("rw", (self.rw != Rw::RandRead && !has_order).then(|| self.rw.to_string())),
            ("rwmixread", (self.rwmixread != plain.rwmixread).then(|| self.rwmixread.to_string())),
            (
                "random_distribution",
                (self.random_distribution != Distribution::Random)
                    .then(|| self.random_distribution.to_string()),
            ),
            ("norandommap", on(self.norandommap)),
            (
                "percentage_random",
                (self.percentage_random != plain.percentage_random)
                    .then(|| self.percentage_random.to_string()),
            ),
            ("bsrange", self.bsrange.as_ref().and_then(|value| text(value))),
            ("bssplit", self.bssplit.as_ref().and_then(|value| text(value))),
            ("offset_increment", self.offset_increment.as_ref().and_then(|value| text(value))),
            ("startdelay", self.startdelay.as_ref().and_then(|value| text(value))),
            ("stride", self.stride.as_ref().and_then(|value| text(value))),
            ("hipri", on(self.hipri)),
            ("libblkio_write_zeroes_on_trim", on(self.libblkio_write_zeroes_on_trim)),
            ("rate", self.rate.as_ref().and_then(|value| text(value))),
            ("rate_iops", self.rate_iops.as_ref().filter(|_| !has_rate).and_then(|value| text(value))),
            (
                "rate_process",
                (self.rate_process != RateProcess::Linear && !has_rate)
                    .then(|| self.rate_process.to_string()),
            ),
            ("thinktime", self.thinktime.as_ref().and_then(|value| text(value))),
            ("stamps", (self.stamps != Stamps::Batch).then(|| self.stamps.to_string())),
            ("verify", (self.verify != Verify::None).then(|| self.verify.to_string())),
            ("write_journal", self.write_journal.clone()),
        ]
        .into_iter()
        .find_map(|(key, value)| Some((key, value?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(test: &str, keys: &[(&str, &str)]) -> Workload {
        let mut all = WorkloadKeys::default();
        for (key, text) in [("ramp_time", "0s"), ("direct", "0"), ("test", test)].iter().chain(keys) {
            all.set(key, text).expect(key);
        }
        all.complete(&WorkloadKeys::default())
    }

    #[test]
    fn what_means_nothing_in_a_test_is_refused_by_name() {
        for (test, key, text) in [
            ("getc", "rw", "read"),
            ("pack", "rw", "read"),
            ("create", "rw", "trim"),
            ("getc", "rwmixread", "70"),
            ("getc", "stride", "8k"),
            ("getc", "rate_iops", "10"),
            ("getc", "thinktime", "1ms"),
            ("getc", "verify", "crc32c"),
            ("getc", "bssplit", "4k/50:8k/50"),
            ("getc", "ioengine", "io_uring"),
            ("getc", "iodepth", "2"),
            ("getc", "direct", "1"),
            ("getc", "fsync", "1"),
            ("getc", "end_fsync", "1"),
            ("putc", "offset", "1m"),
            ("putc", "ramp_time", "1s"),
            ("create", "direct", "1"),
            ("create", "ramp_time", "1s"),
        ] {
            let error = with(test, &[(key, text)]).check().expect_err(key).to_string();
            assert!(error.contains(&format!("{key} = ")), "{error}");
        }
    }

    #[test]
    fn what_means_something_in_a_test_is_taken() {
        for (test, key, text) in [
            ("getc", "offset", "1m"),
            ("getc", "ramp_time", "1s"),
            ("copy", "ramp_time", "1s"),
            ("copy", "bs", "256"),
            ("putc", "fsync", "100"),
            ("write-new", "end_fsync", "1"),
            ("write-new", "direct", "1"),
            ("seeks", "io_size", "8k"),
            ("rewrite", "numjobs", "4"),
            ("stat", "loops", "3"),
            ("stat", "rw", "read"),
            ("create", "rw", "randwrite"),
        ] {
            assert_eq!(with(test, &[(key, text)]).check(), Ok(()), "{test} {key}");
        }
        let foreign = Workload { kind: super::super::Kind::Foreign, ..with("stat", &[("bs", "0")]) };
        assert_eq!(foreign.check(), Ok(()), "it is what it was");
    }
}
