//! The metrics of a measurement, each defined once: name, unit, direction of improvement, value, and the workloads on which targets are
//! compared by it. Tables, charts and documents iterate over this list; a new metric takes one [`Definition`] and an entry in
//! [`Metric::ALL`].

mod names;

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use iotax_model::Workload;
use iotax_model::net::NetTest;
use iotax_model::record::Measurement;
use iotax_model::units::human;
use iotax_model::words::WordError;
use iotax_model::workload::Kind;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

pub use self::names::Names;
use self::names::RATES;
use crate::figures::{
    bytes_per_s, cpu_per_gib, cpu_per_io, engine_cpu_per_io, errors, iops, latency_mean, latency_quantile,
};
use crate::packets::Packets;
use crate::stats::quantization::of_two_percentiles;

/// A reported figure. Two metrics are equal if their ids are.
#[derive(Clone, Copy)]
pub struct Metric(&'static Definition);

/// The definition of a figure.
pub struct Definition {
    /// Name in JSON, CSV and on the command line.
    pub id: &'static str,
    /// Unit of the values.
    pub unit: Unit,
    /// Direction in which the value improves.
    pub better: Better,
    /// Name in sentences and tables.
    pub name: Names,
    /// Name at the head of a narrow column.
    pub column: Names,
    /// One-line description for self-describing documents, without a full stop.
    pub help: &'static str,
    /// Function that computes the value for one measurement; `None` if unknown.
    pub of: fn(&Measurement) -> Option<f64>,
    /// The method that summarizes the values of several rounds.
    pub over_rounds: OverRounds,
    /// Predicate that is true if targets are compared by this metric on a workload; absent if targets are never compared by it.
    pub compares: Option<fn(&Workload) -> bool>,
}

/// Units of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Unit {
    /// Time in nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Events, such as I/Os or packets, per second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Bytes per second; shown as bits per second for networks.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Number of events, such as lost packets.
    #[serde(rename = "count")]
    Count,
}

impl Unit {
    /// Returns the suffix that names the unit in a column's name; empty if the metric's id already does.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Nanoseconds => "_ns",
            Self::PerSecond | Self::BytesPerSecond | Self::Count => "",
        }
    }

    /// Formats a value for reading: times and bytes per second with a unit, events and events per second as plain numbers.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Nanoseconds => human::time(value),
            Self::PerSecond | Self::Count => human::count(value),
            Self::BytesPerSecond => human::rate(value),
        }
    }
}

/// Direction in which a figure improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// A higher value is better.
    More,
    /// A lower value is better.
    Less,
}

/// The method that combines the values of several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OverRounds {
    /// The geometric mean of the rounds' values, as in comparisons: the ratio of two targets' figures is the ratio of their comparison.
    GeometricMean,
    /// The median of the rounds' values.
    Median,
    /// The sum of the rounds' values.
    Sum,
    /// A quantile of the I/Os of all rounds, 0 to 1.
    PooledQuantile(f64),
}

/// Families of metrics whose comparisons share one application of Holm's procedure.
///
/// In a closed loop, I/Os per second, bytes per second and mean latency express the same result in three units, so each
/// forms its own family. Percentiles and CPU time are further results. They share a family, because a reader may pick
/// the one that looks worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// A family of this metric alone.
    Of(Metric),
    /// The common family of all other metrics: percentiles and CPU time.
    Further,
}

impl Metric {
    /// I/Os, packets or round trips per second, all directions together; flushes do not count.
    pub const IOPS: Self = Self(&Definition {
        id: "iops",
        unit: Unit::PerSecond,
        better: Better::More,
        name: RATES,
        column: RATES,
        help: "I/Os, packets or round trips completed per second",
        of: iops,
        over_rounds: OverRounds::GeometricMean,
        compares: Some(|workload| match &workload.kind {
            Kind::Block | Kind::Files(_) | Kind::Foreign => true,
            // The rate of datagrams of a length set by the path adds nothing to bytes per second.
            Kind::Streams(net) => net.test == NetTest::Udp && net.length.is_some(),
            // In a closed loop the rate restates the mean latency.
            Kind::RoundTrips(_) => false,
        }),
    });
    /// Bytes per second, all directions together.
    pub const BYTES_PER_S: Self = Self(&Definition {
        id: "bytes_per_s",
        unit: Unit::BytesPerSecond,
        better: Better::More,
        name: Names::net("bytes/s", "bit/s"),
        column: Names::net("bytes/s", "throughput"),
        help: "bytes moved per second",
        of: bytes_per_s,
        over_rounds: OverRounds::GeometricMean,
        compares: Some(|workload| match &workload.kind {
            Kind::RoundTrips(_) => false,
            Kind::Files(test) => !test.is_of_transactions(),
            Kind::Block | Kind::Foreign | Kind::Streams(_) => true,
        }),
    });
    /// Mean service time in nanoseconds, all directions together; flushes do not count.
    pub const LATENCY_MEAN: Self = Self(&Definition {
        id: "latency_mean",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        name: Names::net("mean latency", "mean round trip"),
        column: Names::net("mean latency", "mean round trip"),
        help: "mean service time of an I/O, or mean round trip",
        of: latency_mean,
        over_rounds: OverRounds::GeometricMean,
        compares: Some(has_latency),
    });
    /// Median service time in nanoseconds.
    pub const LATENCY_P50: Self =
        Self(&percentile("latency_p50", "p50", "median service time", 0.5, |m| latency_quantile(m, 0.5)));
    /// 90th percentile of the service time in nanoseconds.
    pub const LATENCY_P90: Self =
        Self(&percentile("latency_p90", "p90", "90th percentile of the service time", 0.9, |m| {
            latency_quantile(m, 0.9)
        }));
    /// 99th percentile of the service time in nanoseconds.
    pub const LATENCY_P99: Self =
        Self(&percentile("latency_p99", "p99", "99th percentile of the service time", 0.99, |m| {
            latency_quantile(m, 0.99)
        }));
    /// 99.9th percentile of the service time in nanoseconds.
    pub const LATENCY_P99_9: Self =
        Self(&percentile("latency_p99_9", "p99.9", "99.9th percentile of the service time", 0.999, |m| {
            latency_quantile(m, 0.999)
        }));
    /// CPU nanoseconds of the host per I/O: programs that take part in the measurement, kernel threads and interrupts; all busy CPU time if
    /// one of these is unknown.
    pub const CPU_PER_IO: Self = Self(&Definition {
        id: "cpu_per_io",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        name: Names {
            io: "host CPU/IO",
            transactions: "host CPU/transaction",
            streams: "host CPU/packet",
            trips: "host CPU/round trip",
        },
        column: Names {
            io: "CPU/IO",
            transactions: "CPU/transaction",
            streams: "CPU/packet",
            trips: "CPU/trip",
        },
        help: "CPU time per I/O, packet or round trip of the host's programs that take part, its kernel threads and interrupts; where one of them is not known, all in which its CPUs were busy",
        of: cpu_per_io,
        over_rounds: OverRounds::GeometricMean,
        compares: Some(|workload| match &workload.kind {
            Kind::Block | Kind::Files(_) | Kind::Foreign => true,
            Kind::Streams(net) => net.test != NetTest::Udp || net.length.is_some(),
            // Under load, the CPU time includes that of the load.
            Kind::RoundTrips(net) => !net.loaded,
        }),
    });
    /// CPU nanoseconds of the host per GiB that network streams carried; unknown for other work.
    pub const CPU_PER_GIB: Self = Self(&Definition {
        id: "cpu_per_gib",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        name: Names::all("host CPU/GiB"),
        column: Names::all("CPU/GiB"),
        help: "the same CPU time per GiB of a network's streams",
        of: cpu_per_gib,
        over_rounds: OverRounds::GeometricMean,
        compares: Some(|workload| matches!(workload.kind, Kind::Streams(_))),
    });
    /// CPU nanoseconds of the load generator's process per I/O.
    pub const ENGINE_CPU_PER_IO: Self = Self(&Definition {
        id: "engine_cpu_per_io",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        name: Names::all("engine CPU/IO"),
        column: Names::all("engine CPU"),
        help: "CPU time of the load generator itself, per I/O",
        of: engine_cpu_per_io,
        over_rounds: OverRounds::GeometricMean,
        compares: None,
    });
    /// Datagrams, or messages of round trips, that never arrived.
    pub const LOST: Self =
        Self(&events("lost", "datagrams or messages that never arrived", |m| Packets::of(m).lost.map(count)));
    /// Reordering: datagrams or messages that arrived after a later one.
    pub const OUT_OF_ORDER: Self =
        Self(&events("out_of_order", "datagrams or messages that a later one overtook", |m| {
            Packets::of(m).out_of_order.map(count)
        }));
    /// Duplicates: datagrams or messages that arrived more than once.
    pub const DUPLICATES: Self =
        Self(&events("duplicates", "datagrams or messages that arrived again", |m| {
            Packets::of(m).duplicates.map(count)
        }));
    /// TCP segments that were retransmitted.
    pub const RETRANSMITS: Self = Self(&events("retransmits", "segments that TCP sent again", |m| {
        Packets::of(m).retransmits.map(count)
    }));
    /// Jitter of datagrams by RFC 3550 in nanoseconds, mean of the streams.
    pub const JITTER: Self = Self(&Definition {
        id: "jitter",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        name: Names::all("jitter"),
        column: Names::all("jitter"),
        help: "jitter of datagrams by RFC 3550, mean of the streams",
        of: |m| Packets::of(m).jitter_ns,
        over_rounds: OverRounds::Median,
        compares: None,
    });
    /// Transactions that took longer than their limit; unknown without a limit.
    pub const LATE: Self = Self(&events(
        "late",
        "transactions that took longer than latency_limit from their scheduled start",
        |m| m.outcome.pacing?.late.map(count),
    ));
    /// Transactions that were due too long ago to be started; unknown without a limit.
    pub const SKIPPED: Self = Self(&events(
        "skipped",
        "transactions that were not started, due longer ago than latency_limit",
        |m| m.outcome.pacing?.skipped.map(count),
    ));
    /// Failed I/Os, flushes and I/Os of the warm-up included.
    pub const ERRORS: Self = Self(&Definition {
        id: "errors",
        unit: Unit::Count,
        better: Better::Less,
        name: Names::all("errors"),
        column: Names::all("errors"),
        help: "I/Os that failed",
        of: errors,
        over_rounds: OverRounds::Sum,
        compares: None,
    });

    /// All metrics, in the order of tables.
    pub const ALL: &[Self] = &[
        Self::IOPS,
        Self::BYTES_PER_S,
        Self::LATENCY_MEAN,
        Self::LATENCY_P50,
        Self::LATENCY_P90,
        Self::LATENCY_P99,
        Self::LATENCY_P99_9,
        Self::CPU_PER_IO,
        Self::CPU_PER_GIB,
        Self::ENGINE_CPU_PER_IO,
        Self::LOST,
        Self::OUT_OF_ORDER,
        Self::DUPLICATES,
        Self::RETRANSMITS,
        Self::JITTER,
        Self::LATE,
        Self::SKIPPED,
        Self::ERRORS,
    ];
}

/// Defines a metric for the quantile `q` of the service time.
const fn percentile(
    id: &'static str,
    name: &'static str,
    help: &'static str,
    q: f64,
    of: fn(&Measurement) -> Option<f64>,
) -> Definition {
    Definition {
        id,
        unit: Unit::Nanoseconds,
        better: Better::Less,
        name: Names::all(name),
        column: Names::all(name),
        help,
        of,
        over_rounds: OverRounds::PooledQuantile(q),
        compares: Some(has_latency),
    }
}

/// Defines a metric that counts events. Targets are not compared by it.
const fn events(id: &'static str, help: &'static str, of: fn(&Measurement) -> Option<f64>) -> Definition {
    Definition {
        id,
        unit: Unit::Count,
        better: Better::Less,
        name: Names::all(id),
        column: Names::all(id),
        help,
        of,
        over_rounds: OverRounds::Sum,
        compares: None,
    }
}

/// Returns whether latency is measured on the workload: always, except for network streams.
fn has_latency(workload: &Workload) -> bool {
    !matches!(workload.kind, Kind::Streams(_))
}

const fn count(count: u64) -> f64 {
    count as f64
}

impl Metric {
    /// Creates a metric from its definition.
    #[must_use]
    pub const fn new(definition: &'static Definition) -> Self {
        Self(definition)
    }

    /// Returns the metric's definition.
    #[must_use]
    pub const fn definition(self) -> &'static Definition {
        self.0
    }

    /// Returns the metric's name in JSON, CSV and on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        self.0.id
    }

    /// Iterates over the metrics by which targets are compared on some workload.
    pub fn compared() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|metric| metric.is_compared())
    }

    /// Returns whether targets are compared by this metric on any workload.
    #[must_use]
    pub const fn is_compared(self) -> bool {
        self.0.compares.is_some()
    }

    /// Returns the metric's name for I/O on disks and files, as in sentences and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0.name.io
    }

    /// Returns the metric's name on a workload; network traffic is not called I/O.
    #[must_use]
    pub fn name_on(self, workload: &Workload) -> &'static str {
        self.0.name.on(workload)
    }

    /// Returns the metric's name at the head of a narrow column.
    #[must_use]
    pub fn column(self, workload: &Workload) -> &'static str {
        self.0.column.on(workload)
    }

    /// Returns the metric's id with its unit, as the name of a CSV column.
    #[must_use]
    pub fn id_with_unit(self) -> String {
        format!("{}{}", self.0.id, self.0.unit.suffix())
    }

    /// Returns whether a larger figure is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self.0.better, Better::More)
    }

    /// Returns whether the metric is a time in nanoseconds.
    #[must_use]
    pub const fn is_time(self) -> bool {
        matches!(self.0.unit, Unit::Nanoseconds)
    }

    /// Formats a value for reading, see [`Unit::show`].
    #[must_use]
    pub fn figure(self, value: f64) -> String {
        self.0.unit.show(value)
    }

    /// Formats a figure with its unit for a known workload: bits for networks.
    #[must_use]
    pub fn figure_on(self, workload: &Workload, value: f64) -> String {
        match self.0.unit {
            Unit::BytesPerSecond if workload.kind.is_network() => human::bits(value),
            unit => unit.show(value),
        }
    }

    /// Returns whether targets are compared by this metric on a workload.
    #[must_use]
    pub fn compares(self, workload: &Workload) -> bool {
        self.0.compares.is_some_and(|compares| compares(workload))
    }

    /// Returns the family in which the metric's comparisons are corrected together.
    pub(crate) fn family(self) -> Family {
        let is_answer = [Self::IOPS, Self::BYTES_PER_S, Self::LATENCY_MEAN].contains(&self);
        if is_answer { Family::Of(self) } else { Family::Further }
    }

    /// Returns the metric for a single verdict on a workload: mean latency, or throughput for streams.
    #[must_use]
    pub fn leading(workload: &Workload) -> Self {
        if Self::LATENCY_MEAN.compares(workload) { Self::LATENCY_MEAN } else { Self::BYTES_PER_S }
    }

    /// Returns the metric for tables with one number per workload and target: throughput for network streams, the mean latency for round
    /// trips and for I/O at a scheduled rate, otherwise I/Os per second.
    #[must_use]
    pub fn headline(workload: &Workload) -> Self {
        match &workload.kind {
            Kind::Streams(_) => Self::BYTES_PER_S,
            Kind::RoundTrips(_) => Self::LATENCY_MEAN,
            Kind::Block | Kind::Files(_) | Kind::Foreign if workload.is_open_loop() => Self::LATENCY_MEAN,
            Kind::Block | Kind::Files(_) | Kind::Foreign => Self::IOPS,
        }
    }

    /// Returns whether the metric is the host's CPU time, per I/O or per GiB.
    #[must_use]
    pub fn is_cpu(self) -> bool {
        self == Self::CPU_PER_IO || self == Self::CPU_PER_GIB
    }

    /// Returns the substitute for streams, which have no latency: throughput for the mean latency, CPU time per GiB for the 99th
    /// percentile. Returns `self` for other metrics and workloads.
    #[must_use]
    pub fn or_of_streams(self, workload: &Workload) -> Self {
        if self == Self::LATENCY_MEAN {
            Self::leading(workload)
        } else if self == Self::LATENCY_P99 && !self.compares(workload) {
            Self::CPU_PER_GIB
        } else {
            self
        }
    }

    /// Returns the CPU cost metric of a workload: per GiB for streams, otherwise per I/O.
    #[must_use]
    pub fn cpu(workload: &Workload) -> Self {
        if Self::CPU_PER_GIB.compares(workload) { Self::CPU_PER_GIB } else { Self::CPU_PER_IO }
    }

    /// Returns whether the metric is a percentile, which needs enough I/Os.
    #[must_use]
    pub const fn is_percentile(self) -> bool {
        self.quantile().is_some()
    }

    /// Returns the quantile, 0 to 1, if the metric is a percentile.
    #[must_use]
    pub const fn quantile(self) -> Option<f64> {
        if let OverRounds::PooledQuantile(q) = self.0.over_rounds { Some(q) } else { None }
    }

    /// Returns the largest systematic error of the log ratio of two values: that of histogram buckets for percentiles, else 0.
    #[must_use]
    pub fn coarseness(self) -> f64 {
        if self.is_percentile() { of_two_percentiles() } else { 0.0 }
    }

    /// Returns the value for one measurement; `None` if unknown. A value stated by an import's source takes precedence.
    #[must_use]
    pub fn value(self, measurement: &Measurement) -> Option<f64> {
        let value = match stated(measurement, self) {
            None => (self.0.of)(measurement),
            stated => stated,
        };
        value.filter(|value| value.is_finite())
    }

    /// Returns the value for comparisons; `None` if unknown or not positive.
    #[must_use]
    pub fn of(self, measurement: &Measurement) -> Option<f64> {
        self.value(measurement).filter(|value| *value > 0.0)
    }
}

/// Returns the value that the source of an imported measurement states; `None` if it states none, or without an import.
pub(crate) fn stated(measurement: &Measurement, metric: Metric) -> Option<f64> {
    measurement.stated.as_ref()?.metrics.get(metric.word()).copied()
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Metric {}

impl Hash for Metric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.id)
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl JsonSchema for Metric {
    fn schema_name() -> Cow<'static, str> {
        "Metric".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<&str> = Self::ALL.iter().map(|metric| metric.word()).collect();
        json_schema!({ "type": "string", "enum": words })
    }
}

impl FromStr for Metric {
    type Err = WordError;

    /// Parses the id of a metric by which targets are compared; latencies also in short form: `latency_p99` or `p99`, `latency_p99_9` or
    /// `p99.9`.
    fn from_str(text: &str) -> Result<Self, WordError> {
        let words: Vec<&str> = Self::compared().map(Self::word).collect();
        let id = text.replace('.', "_");
        let is_meant = |metric: &Self| {
            metric.word() == id || metric.word().strip_prefix("latency_") == Some(id.as_str())
        };
        Self::compared().find(is_meant).ok_or_else(|| WordError::new("metric", text, &words))
    }
}
