//! Transactions of PostgreSQL by pgbench as a workload: its settings, and the checks of its keys.

use std::fmt::Display;

use super::{DEFAULT_BS, Kind, PgbenchScript, RateProcess, SynchronousCommit, Test, Workload, WorkloadError};
use crate::units::{Bytes, Nanos};

/// Largest scale: 160 GB of accounts.
pub(super) const MOST_SCALE: u64 = 10_000;
/// Bytes of the tables and indexes of one unit of scale.
const UNIT: u64 = 16 << 20;
/// Space of a new cluster without tables, and of the WAL that PostgreSQL keeps by default (max_wal_size).
const CLUSTER: u64 = (64 << 20) + (1 << 30);
/// Time to make a cluster and start its server, and to fill each unit of scale; with idle CPUs.
const CLUSTER_TIME: Nanos = Nanos::from_millis(1250);
const UNIT_TIME: Nanos = Nanos::from_millis(250);
/// Minimum warm-up, in which the clients connect.
const LEAST_RAMP: Nanos = Nanos::from_millis(500);
/// The unit of pgbench's latency limit, in nanoseconds.
const MILLISECOND: u64 = 1_000_000;
/// Error text for keys that ask for flushes.
const FLUSHES: &str = "PostgreSQL flushes by itself at each commit; leave it out, or set synchronous_commit";

impl Workload {
    /// Returns whether the work is pgbench's, which needs PostgreSQL where it runs.
    #[must_use]
    pub fn is_pgbench(&self) -> bool {
        self.kind == Kind::Files(Test::Pgbench)
    }

    /// Returns pgbench's script, by default `tpcb-like`, which is also pgbench's default.
    #[must_use]
    pub fn pgbench_script(&self) -> PgbenchScript {
        self.builtin.unwrap_or(PgbenchScript::TpcbLike)
    }

    /// Returns pgbench's scale, by default 1.
    #[must_use]
    pub fn pgbench_scale(&self) -> u32 {
        self.scale.unwrap_or(1)
    }

    /// Returns whether the server's commits wait until they are durable, as by default.
    #[must_use]
    pub fn commits_are_durable(&self) -> bool {
        self.synchronous_commit != Some(SynchronousCommit::Off)
    }

    /// Returns the bytes of pgbench's tables.
    pub(super) fn size_of_accounts(&self) -> Bytes {
        Bytes(u64::from(self.pgbench_scale()) * UNIT)
    }

    /// Estimates the time to make pgbench's cluster in nanoseconds; 0 for other workloads.
    pub(super) fn time_of_cluster(&self) -> u64 {
        let is_pgbench = self.is_pgbench();
        if is_pgbench { CLUSTER_TIME.0 + u64::from(self.pgbench_scale()) * UNIT_TIME.0 } else { 0 }
    }

    /// Returns the space that PostgreSQL's cluster takes at most.
    pub(super) fn room_of_cluster(&self) -> Bytes {
        // Every row may get a second version before the first is vacuumed.
        Bytes(self.size_of_accounts().0 * 2 + CLUSTER)
    }

    /// Rejects pgbench's keys in other workloads, and keys that have no effect on pgbench.
    pub(super) fn check_pgbench(&self) -> Result<(), WorkloadError> {
        let refuse = |key, value: &dyn Display, accepted: &str| Err(self.refusal(key, value, accepted));
        if !self.is_pgbench() {
            const NEEDED: &str = "only test = pgbench has it; leave it out";
            return match (self.builtin, self.scale, self.synchronous_commit, self.latency_limit) {
                (Some(script), ..) => refuse("builtin", &script, NEEDED),
                (_, Some(scale), ..) => refuse("scale", &scale, NEEDED),
                (.., Some(when), _) => refuse("synchronous_commit", &when, NEEDED),
                (.., Some(limit)) => refuse("latency_limit", &limit, NEEDED),
                _ => Ok(()),
            };
        }
        self.check_transactions(FLUSHES, "PostgreSQL goes through the page cache; use direct = false")?;
        if self.bs != DEFAULT_BS {
            return refuse("bs", &self.bs, "PostgreSQL's pages have 8k; leave it out");
        }
        if let Some(size) = self.size {
            return refuse("size", &size, "use scale, of which each unit is about 16 MiB");
        }
        if self.ramp_time < LEAST_RAMP {
            let accepted = format!("pgbench's clients connect in this time; accepted: {LEAST_RAMP} and more");
            return refuse("ramp_time", &self.ramp_time, &accepted);
        }
        if self.rate_iops.is_some() && self.rate_process != RateProcess::Poisson {
            let accepted = "pgbench starts the transactions of a rate at random; use rate_process = poisson";
            return refuse("rate_process", &self.rate_process, accepted);
        }
        match self.latency_limit {
            Some(limit) if self.rate_iops.is_none() => {
                let accepted = "it counts from the start that a rate schedules; give rate_iops, or judge by the percentiles";
                refuse("latency_limit", &limit, accepted)
            }
            Some(limit) if limit.0 < MILLISECOND || limit.0 % MILLISECOND != 0 => {
                refuse("latency_limit", &limit, "accepted: whole milliseconds, 1ms and more")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadKeys;

    fn workload(keys: &[(&str, &str)]) -> Workload {
        let mut own = WorkloadKeys::default();
        let all = [("direct", "0")];
        all.iter().chain(keys).for_each(|(key, text)| own.set(key, text).expect(text));
        own.complete(&WorkloadKeys::default())
    }

    const RATE: (&str, &str) = ("rate_iops", "50");
    const POISSON: (&str, &str) = ("rate_process", "poisson");

    #[test]
    fn keys_that_mean_nothing_to_pgbench_are_refused() {
        for (keys, refusal) in [
            (&[("builtin", "select-only")][..], "builtin = select-only: only test = pgbench"),
            (&[("test", "sqlite"), ("scale", "2")], "scale = 2: only test = pgbench"),
            (&[("test", "pgbench"), ("scale", "10001")], "scale = 10001: accepted: 1 to 10000"),
            (&[("test", "pgbench"), ("fsync", "1")], "fsync = 1: PostgreSQL flushes by itself"),
            (&[("test", "pgbench"), ("io_size", "1m")], "io_size = 1m: transactions are committed until"),
            (&[("test", "pgbench"), ("direct", "1")], "direct = true: PostgreSQL goes through"),
            (&[("test", "pgbench"), ("bs", "8k")], "bs = 8k: PostgreSQL's pages have 8k; leave it out"),
            (&[("test", "pgbench"), ("size", "1g")], "size = 1GiB: use scale"),
            (&[("test", "pgbench"), ("ramp_time", "0s")], "ramp_time = 0ns: pgbench's clients connect"),
            (&[("test", "pgbench"), ("rate", "1m")], "rate = 1m: means nothing in a test"),
            (&[("test", "pgbench"), ("rate_iops", "50")], "rate_process = linear: pgbench starts"),
            (&[("test", "pgbench"), ("synchronous", "off")], "synchronous = off: only test = sqlite"),
            (
                &[("test", "sqlite"), ("synchronous_commit", "off")],
                "synchronous_commit = off: only test = pgbench",
            ),
            (&[("test", "sqlite"), ("latency_limit", "5ms")], "latency_limit = 5ms: only test = pgbench"),
            (
                &[("test", "pgbench"), ("latency_limit", "5ms")],
                "latency_limit = 5ms: it counts from the start that a rate",
            ),
            (
                &[("test", "pgbench"), RATE, POISSON, ("latency_limit", "2500us")],
                "whole milliseconds, 1ms and more",
            ),
            (
                &[("test", "pgbench"), RATE, POISSON, ("latency_limit", "0s")],
                "whole milliseconds, 1ms and more",
            ),
        ] {
            let error = workload(keys).check().expect_err(refusal).to_string();
            assert!(error.contains(refusal), "{error}");
        }
        let rate = [RATE, POISSON, ("latency_limit", "5ms"), ("numjobs", "4"), ("scale", "10")];
        let taken = workload(&[&[("test", "pgbench")][..], &rate].concat());
        assert_eq!(taken.check(), Ok(()));
        assert_eq!(
            (taken.default_size(), taken.pgbench_script()),
            (Bytes(160 << 20), PgbenchScript::TpcbLike)
        );
        // A warm-up of 1 s and a window of 10 s, after a cluster of scale 10 was made.
        assert_eq!(taken.expected_time(), Nanos::from_millis(14_750));
        assert!(taken.commits_are_durable());
        assert!(!workload(&[("test", "pgbench"), ("synchronous_commit", "off")]).commits_are_durable());
        assert_eq!(taken.room(), Bytes((320 + 64 + 1024) << 20));
    }
}
