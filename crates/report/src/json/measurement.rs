//! JSON of a measurement.

use std::collections::BTreeMap;

use iotax_analysis::fairness::fairness;
use iotax_analysis::figures::{began, done, lasted};
use iotax_analysis::stats::series::series;
use iotax_analysis::time::utc;
use iotax_analysis::{Grade, Metric};
use iotax_model::record::{
    Carried, CpuPace, CpuTime, ErrorCount, HostActivity, ImportedMetrics, LayerCounters, Measurement,
    NicActivity, Pacing, PageCache, Replayed, Stop,
};
use iotax_model::verify_errors::Findings;
use iotax_model::workload::SteadyResult;
use iotax_model::{IoEngine, Run, WarningKind};
use schemars::JsonSchema;
use serde::Serialize;

use super::certainty::{self, SeriesEntry};
use super::parts::{self, BlockStatsEntry, Directions, FlushEntry, ShareEntry};
use super::{Metrics, UTC, metrics};

/// Results of one cell (target and workload) in one round.
#[derive(Serialize, JsonSchema)]
pub(super) struct MeasurementEntry<'a> {
    target: &'a str,
    workload: &'a str,
    round: u32,
    order: u32,
    #[schemars(regex(pattern = UTC))]
    started_at: Option<String>,
    duration_s: Option<f64>,
    /// Seconds that rates are based on: from the last completion before the window to the last completion in the window. The length of the
    /// window if these completions are unknown or too far from its edges.
    rate_s: Option<f64>,
    /// The I/O engine used, never `auto`. Absent if none was used, if concurrent loads used different ones, and in records of versions that
    /// did not keep it.
    ioengine: Option<IoEngine>,
    #[serde(flatten)]
    directions: Directions,
    /// Punctuality of an open loop; absent in a closed loop.
    pacing: Option<&'a Pacing>,
    /// The fidelity of a replay; absent without one.
    replayed: Option<&'a Replayed>,
    /// Result of verification; absent for a workload that does not verify.
    verify: Option<&'a Findings>,
    /// The reason why the measurement ended early; absent if it did not.
    stop: Option<Stop>,
    /// Result of the workload's `steadystate`; absent without one, and for several concurrent loads, whose results are in `notes`.
    steadystate: Option<SteadyResult>,
    series: Option<SeriesEntry>,
    errors: &'a [ErrorCount],
    notes: &'a [String],
    /// Confidence in the measurement. An unusable measurement yields no verdict; the measurement of another tool is unchecked.
    grade: Grade,
    flush: Option<FlushEntry>,
    /// Sampled bytes of the target that were in the page cache before and after a load with direct I/O. Absent if not sampled, or if the
    /// kernel does not report residency.
    page_cache: Option<&'a PageCache>,
    /// CPU time of the participating programs: the load generator, a network's server, the threads of QEMU and storage daemons. The CPU
    /// time per I/O adds kernel threads and interrupts; if `programs_ns` is absent, it counts all time in which the CPUs were busy.
    programs_ns: Option<u64>,
    /// CPU time that iotax itself used to observe the measurement; absent if not recorded.
    watching_ns: Option<u64>,
    /// CPU frequency and throttling of this host; absent if not recorded.
    pace: Option<&'a CpuPace>,
    /// Kinds of the warnings that name this measurement.
    #[schemars(with = "Vec<WarningKind>")]
    warnings: &'a [&'static str],
    metrics: Metrics,
    /// Metrics that the source of an imported measurement states; absent for a measurement by iotax.
    stated: Option<&'a ImportedMetrics>,
    /// Results of each guest or server, if several ran concurrently.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shares: Vec<ShareEntry<'a>>,
    /// Results of each job over the time in which it ran, if several ran concurrently.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    jobs: Vec<ShareEntry<'a>>,
    /// Jain's fairness index (Jain, Chiu and Hawe, 1984) of the guests' I/Os per second (for streams, bytes), up to 1 for equal rates.
    /// Absent for fewer than two guests, and if it is unknown.
    fairness: Option<f64>,
    neighbour: Option<ShareEntry<'a>>,
    /// Results that only network measurements have. For streams, `write` is the upload and `read` the download, as counted by the receiver. For round
    /// trips, `read` holds the returned messages.
    carried: Option<&'a Carried>,
    /// Activity of the network interfaces, by name; absent if none was observed.
    nics: Option<&'a BTreeMap<String, NicActivity>>,
    qemu: Option<BlockStatsEntry>,
    /// Counts of the target's layers that keep counters, such as a cache's hits.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    counters: &'a [LayerCounters],
    /// Activity of the agent's machine, as the agent sees it; absent if not recorded.
    inside: Option<&'a HostActivity>,
    /// CPU time of QEMU's threads by role, and of storage servers by name; absent if none was observed.
    guest_threads: Option<&'a BTreeMap<String, CpuTime>>,
    /// CPU time of the kernel threads that serve the layers below the target, by name; absent if none was observed.
    kernel_threads: Option<&'a BTreeMap<String, CpuTime>>,
}

/// Builds the JSON of one measurement. `warnings` are the kinds of the warnings about this measurement.
pub(super) fn measurement<'a>(
    run: &Run,
    figures: &[Metric],
    m: &'a Measurement,
    grade: Grade,
    warnings: &'a [&'static str],
) -> MeasurementEntry<'a> {
    let outcome = &m.outcome;
    let host = m.host.as_ref();
    let duration_s = lasted(m).map(|ns| ns as f64 / 1e9);
    MeasurementEntry {
        target: &m.target,
        workload: &m.workload,
        round: m.round,
        order: m.order,
        started_at: began(m).map(utc),
        duration_s,
        rate_s: duration_s.map(|_| outcome.rate_ns() as f64 / 1e9),
        ioengine: outcome.ioengine,
        directions: parts::directions(&outcome.tallies, outcome.rate_ns()),
        pacing: outcome.pacing.as_ref(),
        replayed: outcome.replayed.as_ref(),
        verify: outcome.verify.as_ref(),
        stop: outcome.stop,
        steadystate: outcome.steadystate,
        series: series(&m.samples, |tallies| done(m, tallies)).as_ref().map(certainty::series),
        errors: &outcome.errors,
        notes: &outcome.notes,
        grade,
        flush: parts::flush(run, m),
        page_cache: outcome.page_cache.as_ref(),
        programs_ns: host.and_then(|host| host.programs_ns),
        watching_ns: host.and_then(|host| host.watching_ns),
        pace: host.and_then(|host| host.pace.as_ref()),
        warnings,
        metrics: metrics(figures, |metric| metric.value(m)),
        stated: m.stated.as_ref(),
        shares: m.shares.iter().map(parts::share).collect(),
        jobs: outcome.jobs.iter().map(parts::share).collect(),
        fairness: fairness(m),
        neighbour: m.neighbour.as_ref().map(parts::share),
        carried: outcome.carried.as_ref(),
        nics: host.map(|host| &host.nics).filter(|nics| !nics.is_empty()),
        qemu: m.qemu.as_ref().map(parts::block_stats),
        counters: &m.counters,
        inside: outcome.inside.as_ref(),
        guest_threads: host.map(|host| &host.guest_threads).filter(|threads| !threads.is_empty()),
        kernel_threads: host.map(|host| &host.kernel_threads).filter(|threads| !threads.is_empty()),
    }
}
