//! The figures of measurements and of cells.

use std::str::FromStr;

use std::collections::BTreeMap;

use iotax_model::net::NetTest;
use iotax_model::record::{DiskActivity, HostActivity, Measurement, Tallies};
use iotax_model::target::LayerKind;
use iotax_model::units::human;
use iotax_model::words::WordError;
use iotax_model::{Histogram, Workload};

use super::percentile::{Percentile, QUANTILES, percentile};
use crate::stats::median;
use crate::stats::quantization::of_two_percentiles;
use crate::store::Run;

/// What targets are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metric {
    /// I/Os per second, both directions.
    Iops,
    /// Bytes per second, both directions.
    BytesPerS,
    /// Mean service time, both directions together, in nanoseconds.
    LatencyMean,
    /// Median service time.
    LatencyP50,
    /// 90th percentile of the service time.
    LatencyP90,
    /// 99th percentile of the service time.
    LatencyP99,
    /// 99.9th percentile of the service time.
    LatencyP999,
    /// CPU time that the whole host was busy for, per I/O, in nanoseconds.
    CpuPerIo,
    /// The same per GiB that a network's streams carried; of nothing else.
    CpuPerGib,
}

impl Metric {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 9] = [
        Self::Iops,
        Self::BytesPerS,
        Self::LatencyMean,
        Self::LatencyP50,
        Self::LatencyP90,
        Self::LatencyP99,
        Self::LatencyP999,
        Self::CpuPerIo,
        Self::CpuPerGib,
    ];

    /// Its name in documents and on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::BytesPerS => "bytes_per_s",
            Self::LatencyMean => "latency_mean",
            Self::LatencyP50 => "latency_p50",
            Self::LatencyP90 => "latency_p90",
            Self::LatencyP99 => "latency_p99",
            Self::LatencyP999 => "latency_p99_9",
            Self::CpuPerIo => "cpu_per_io",
            Self::CpuPerGib => "cpu_per_gib",
        }
    }

    /// Its name in sentences and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::BytesPerS => "bytes/s",
            Self::LatencyMean => "mean latency",
            Self::LatencyP50 => "p50",
            Self::LatencyP90 => "p90",
            Self::LatencyP99 => "p99",
            Self::LatencyP999 => "p99.9",
            Self::CpuPerIo => "host CPU/IO",
            Self::CpuPerGib => "host CPU/GiB",
        }
    }

    /// Whether a larger figure is the better one.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::Iops | Self::BytesPerS)
    }

    /// Whether it is a time in nanoseconds.
    #[must_use]
    pub const fn is_time(self) -> bool {
        !self.more_is_better()
    }

    /// Its figure in words and its unit.
    #[must_use]
    pub fn figure(self, value: f64) -> String {
        match self {
            Self::Iops => human::count(value),
            Self::BytesPerS => human::rate(value),
            _ => human::time(value),
        }
    }

    /// Its name where a workload is known: what crosses a network is no I/O.
    #[must_use]
    pub fn name_on(self, workload: &Workload) -> &'static str {
        match (self, workload.net.as_ref().map(|net| net.test.is_rtt())) {
            (Self::Iops, Some(true)) => "round trips/s",
            (Self::Iops, Some(false)) => "packets/s",
            (Self::BytesPerS, Some(_)) => "bit/s",
            (Self::LatencyMean, Some(_)) => "mean round trip",
            (Self::CpuPerIo, Some(true)) => "host CPU/round trip",
            (Self::CpuPerIo, Some(false)) => "host CPU/packet",
            _ => self.name(),
        }
    }

    /// Its figure in words where a workload is known: networks are told in bits.
    #[must_use]
    pub fn figure_on(self, workload: &Workload, value: f64) -> String {
        if self == Self::BytesPerS && workload.net.is_some() {
            human::bits(value)
        } else {
            self.figure(value)
        }
    }

    /// Whether targets are compared by it on a workload. Streams have no latency. Packets per second are a statement of their own
    /// only of datagrams whose length the workload sets: else it is the path's, and so is the CPU time of one. In a closed loop round
    /// trips per second are the mean's other face, and the CPU time of round trips under load is the load's.
    #[must_use]
    pub fn compares(self, workload: &Workload) -> bool {
        let Some(net) = &workload.net else { return self != Self::CpuPerGib };
        match self {
            Self::BytesPerS | Self::CpuPerGib => !net.test.is_rtt(),
            Self::Iops => net.test == NetTest::Udp && net.length.is_some(),
            Self::CpuPerIo => !net.loaded && (net.test != NetTest::Udp || net.length.is_some()),
            _ => net.test.is_rtt(),
        }
    }

    /// The one that stands for the others where one verdict is to be given.
    #[must_use]
    pub fn leading(workload: &Workload) -> Self {
        if Self::LatencyMean.compares(workload) { Self::LatencyMean } else { Self::BytesPerS }
    }

    /// Whether it is the busy time of the host's CPUs.
    #[must_use]
    pub const fn is_cpu(self) -> bool {
        matches!(self, Self::CpuPerIo | Self::CpuPerGib)
    }

    /// What stands in its place on streams, which have no latency: for the mean what they carry, for the 99th percentile what that
    /// costs.
    #[must_use]
    pub fn or_of_streams(self, workload: &Workload) -> Self {
        match self {
            Self::LatencyMean => Self::leading(workload),
            Self::LatencyP99 if !self.compares(workload) => Self::CpuPerGib,
            _ => self,
        }
    }

    /// What a workload costs in CPU time: per GiB of streams, else per I/O.
    #[must_use]
    pub fn cpu(workload: &Workload) -> Self {
        if Self::CpuPerGib.compares(workload) { Self::CpuPerGib } else { Self::CpuPerIo }
    }

    /// Its name at the head of a narrow column.
    #[must_use]
    pub fn column(self, workload: &Workload) -> &'static str {
        match (self, workload.net.is_some()) {
            (Self::CpuPerGib, _) => "CPU/GiB",
            (Self::CpuPerIo, true) => "CPU/trip",
            (Self::CpuPerIo, false) => "CPU/IO",
            (Self::BytesPerS, true) => "throughput",
            (Self::LatencyMean, false) => "mean latency",
            _ => self.name_on(workload),
        }
    }

    /// Whether it is a percentile, which is known only of enough I/Os.
    #[must_use]
    pub const fn is_percentile(self) -> bool {
        matches!(self, Self::LatencyP50 | Self::LatencyP90 | Self::LatencyP99 | Self::LatencyP999)
    }

    /// The quantile that it is, if it is one.
    #[must_use]
    pub const fn quantile(self) -> Option<f64> {
        match self {
            Self::LatencyP50 => Some(0.5),
            Self::LatencyP90 => Some(0.9),
            Self::LatencyP99 => Some(0.99),
            Self::LatencyP999 => Some(0.999),
            _ => None,
        }
    }

    /// How far the logarithm of a ratio of two of its figures can be off, noise apart: percentiles are read off histograms.
    #[must_use]
    pub fn coarseness(self) -> f64 {
        if self.is_percentile() { of_two_percentiles() } else { 0.0 }
    }

    /// Its figure for one measurement; absent if it is not known or not positive.
    #[must_use]
    pub fn of(self, measurement: &Measurement) -> Option<f64> {
        if let Some(value) = stated(measurement, self) {
            return Some(value).filter(|v| *v > 0.0 && v.is_finite());
        }
        let latency = || measurement.outcome.tallies.latency();
        let value = match self {
            Self::Iops => iops(measurement),
            Self::BytesPerS => bytes_per_s(measurement),
            Self::LatencyMean => latency().mean(),
            Self::LatencyP50 => percentile(&latency(), 0.5),
            Self::LatencyP90 => percentile(&latency(), 0.9),
            Self::LatencyP99 => percentile(&latency(), 0.99),
            Self::LatencyP999 => percentile(&latency(), 0.999),
            Self::CpuPerIo => host_cpu_per_io(measurement),
            Self::CpuPerGib => host_cpu_per_gib(measurement),
        };
        value.filter(|v| *v > 0.0 && v.is_finite())
    }
}

impl FromStr for Metric {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let words = Self::ALL.map(Self::word);
        Self::ALL
            .into_iter()
            .find(|metric| metric.word() == text)
            .ok_or_else(|| WordError::new("metric", text, &words))
    }
}

/// What the source of an imported measurement states.
fn stated(measurement: &Measurement, metric: Metric) -> Option<f64> {
    measurement.stated.as_ref()?.metrics.get(metric.word()).copied()
}

/// I/Os per second over the window by the agent's clock, both directions; absent without a window.
#[must_use]
pub fn iops(measurement: &Measurement) -> Option<f64> {
    rate(measurement, Metric::Iops, measurement.outcome.tallies.ios())
}

/// Bytes per second over the window by the agent's clock, both directions; absent without a window.
#[must_use]
pub fn bytes_per_s(measurement: &Measurement) -> Option<f64> {
    rate(measurement, Metric::BytesPerS, measurement.outcome.tallies.bytes())
}

/// What the source states, of an imported measurement: whose counts may be unknown, which is not nothing.
fn rate(measurement: &Measurement, metric: Metric, count: u64) -> Option<f64> {
    if measurement.stated.is_some() { stated(measurement, metric) } else { per_second(measurement, count) }
}

/// When the window began, in milliseconds since 1970-01-01 UTC; absent where the source of an import does not tell.
pub(crate) fn began(measurement: &Measurement) -> Option<u64> {
    Some(measurement.started_at_ms).filter(|ms| *ms > 0 || measurement.stated.is_none())
}

/// The length of the window in nanoseconds, absent as [`began`] is.
pub(crate) fn lasted(measurement: &Measurement) -> Option<u64> {
    Some(measurement.outcome.duration_ns).filter(|ns| *ns > 0 || measurement.stated.is_none())
}

/// A count per second of the measured window.
pub(crate) fn per_second(measurement: &Measurement, count: u64) -> Option<f64> {
    let ns = measurement.outcome.duration_ns;
    (ns > 0).then(|| count as f64 / (ns as f64 / 1e9))
}

/// Nanoseconds in which the CPUs of the target's machine were busy, with whatever, per I/O; absent if they were not observed, or not for a
/// tick of the kernel's account: nothing works for no time at all.
#[must_use]
pub fn host_cpu_per_io(measurement: &Measurement) -> Option<f64> {
    let busy_ns = measurement.machine()?.cpu?.busy_ns();
    per_io(measurement, busy_ns).filter(|_| busy_ns > 0)
}

/// The same per GiB that streams carried; absent of anything else.
#[must_use]
pub fn host_cpu_per_gib(measurement: &Measurement) -> Option<f64> {
    let busy_ns = measurement.machine()?.cpu?.busy_ns();
    per_gib(measurement, busy_ns).filter(|_| busy_ns > 0)
}

/// CPU nanoseconds of the load generator's process per I/O; absent without I/O.
#[must_use]
pub fn engine_cpu_per_io(measurement: &Measurement) -> Option<f64> {
    // What another tool used was not observed.
    measurement.stated.is_none().then(|| per_io(measurement, measurement.outcome.cpu.total_ns()))?
}

pub(super) fn per_io(measurement: &Measurement, ns: u64) -> Option<f64> {
    let ios = measurement.outcome.tallies.ios();
    (ios > 0).then(|| ns as f64 / ios as f64)
}

/// Of streams; absent without bytes.
pub(super) fn per_gib(measurement: &Measurement, ns: u64) -> Option<f64> {
    let bytes = measurement.outcome.tallies.bytes();
    (is_stream(measurement) && bytes > 0).then(|| ns as f64 / (bytes as f64 / GIB))
}

/// Bytes in a GiB.
const GIB: f64 = (1_u64 << 30) as f64;

/// Whether it carried streams over a network: then bytes are what it did, and packets what they happened to come in.
pub(crate) fn is_stream(measurement: &Measurement) -> bool {
    let carried = measurement.outcome.carried.as_ref();
    carried.is_some_and(|carried| carried.probes.is_none() && !carried.flows.is_empty())
}

/// What a measurement's rate counts: I/Os, bytes of streams.
pub(crate) fn done(measurement: &Measurement, tallies: &Tallies) -> u64 {
    if is_stream(measurement) { tallies.bytes() } else { tallies.ios() }
}

/// What the devices at the bottom of a target's stack did, by name.
///
/// Where the stack names no device that was observed, every observed layer counts, some I/O then more than once: that
/// can hide that a cache answered, never make it up.
pub(crate) fn bottom_disks<'a>(
    run: &'a Run,
    target: &'a str,
    activity: &'a HostActivity,
) -> impl Iterator<Item = (&'a str, &'a DiskActivity)> {
    bottom_of(run, target, &activity.disks)
}

/// The same of some devices' activity.
pub(crate) fn bottom_of<'a>(
    run: &'a Run,
    target: &'a str,
    disks: &'a BTreeMap<String, DiskActivity>,
) -> impl Iterator<Item = (&'a str, &'a DiskActivity)> {
    let is_bottom = move |name: &str| {
        let records = run.targets.iter().filter(|record| record.name == target);
        records.flat_map(|r| &r.layers).any(|layer| layer.kind == LayerKind::Device && layer.name == name)
    };
    let known = disks.keys().any(|name| is_bottom(name));
    disks.iter().filter(move |(name, _)| !known || is_bottom(name)).map(|(name, disk)| (name.as_str(), disk))
}

/// A cell over all its rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The workload's name.
    pub workload: String,
    /// The target's name.
    pub target: String,
    /// Rounds in which it was measured.
    pub rounds: u32,
    /// Median over the rounds of I/Os per second.
    pub iops: Option<f64>,
    /// Median over the rounds of bytes per second.
    pub bytes_per_s: Option<f64>,
    /// Median over the rounds of the host's busy CPU nanoseconds per I/O.
    pub host_cpu_per_io: Option<f64>,
    /// The same per GiB; only of streams.
    pub host_cpu_per_gib: Option<f64>,
    /// Of an imported run: medians over the rounds of what its source states of latencies.
    pub stated: Vec<(Metric, f64)>,
    /// Service times of all rounds and directions together.
    pub latency: Histogram,
    /// [`QUANTILES`] of them with their intervals; those with too few I/Os say so.
    pub percentiles: Vec<Percentile>,
    /// I/Os of all rounds.
    pub tallies: Tallies,
    /// Lengths of all windows together, by the agent's clock.
    pub duration_ns: u64,
}

impl Summary {
    /// Of one cell's measurements; absent if there are none.
    pub(super) fn of(workload: &str, target: &str, measurements: &[&Measurement]) -> Option<Self> {
        if measurements.is_empty() {
            return None;
        }
        let over_rounds = |figure: &dyn Fn(&Measurement) -> Option<f64>| {
            median(&measurements.iter().filter_map(|m| figure(m)).collect::<Vec<_>>())
        };
        let times = Metric::ALL.into_iter().filter(|metric| metric.is_time());
        let stated = times
            .filter_map(|metric| Some((metric, over_rounds(&|m: &Measurement| stated(m, metric))?)))
            .collect();
        let mut tallies = Tallies::default();
        measurements.iter().for_each(|m| tallies.merge(&m.outcome.tallies));
        let latency = tallies.latency();
        Some(Self {
            workload: workload.into(),
            target: target.into(),
            rounds: u32::try_from(measurements.len()).unwrap_or(u32::MAX),
            iops: over_rounds(&iops),
            bytes_per_s: over_rounds(&bytes_per_s),
            host_cpu_per_io: over_rounds(&host_cpu_per_io),
            host_cpu_per_gib: over_rounds(&host_cpu_per_gib),
            stated,
            percentiles: QUANTILES.iter().map(|q| Percentile::of(*q, &latency, measurements)).collect(),
            latency,
            tallies,
            duration_ns: measurements.iter().map(|m| m.outcome.duration_ns).sum(),
        })
    }

    /// A percentile of the pooled service times in nanoseconds, `q` from 0 to 1; absent if fewer than ten values lie
    /// beyond it. What a source states goes first.
    #[must_use]
    pub fn percentile(&self, q: f64) -> Option<f64> {
        let of = |metric: Metric| metric.quantile() == Some(q);
        self.stated_by(of).or_else(|| percentile(&self.latency, q))
    }

    /// The mean service time in nanoseconds: what a source states, or that of all rounds together.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.stated_by(|metric| metric == Metric::LatencyMean).or_else(|| self.latency.mean())
    }

    fn stated_by(&self, is_it: impl Fn(Metric) -> bool) -> Option<f64> {
        self.stated.iter().find(|(metric, _)| is_it(*metric)).map(|(_, ns)| *ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_ten_values_beyond_it() {
        let mut latency = Histogram::new();
        latency.add_many(1000, 100_000);
        assert!(percentile(&latency, 0.9999).is_some());
        let mut fewer = Histogram::new();
        fewer.add_many(1000, 999);
        assert_eq!(percentile(&fewer, 0.99), None);
        assert!(percentile(&fewer, 0.5).is_some());
    }
}
