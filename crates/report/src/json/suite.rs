//! JSON of a suite: the figures of its tests at each size or depth, and their knees and transitions.

use iotax_analysis::suite::filecopy::{self, Index};
use iotax_analysis::suite::{OutstandingKnee, SuiteCell, SuiteTest, TargetSeries, Transition};
use iotax_model::Run;
use iotax_model::suite::{SuiteRemark, SuiteShape};
use schemars::JsonSchema;
use serde::Serialize;

/// The suite that the workloads belong to; absent for other workloads.
#[derive(Serialize, JsonSchema)]
pub(super) struct SuiteEntry<'a> {
    name: &'a str,
    /// Notes on tests whose figures need explanation.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    remarks: &'static [SuiteRemark],
    /// One entry for each test and target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tests: Vec<TargetSeriesEntry<'a>>,
    /// UnixBench's index of its file copies, for each target of suite filecopy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<Index>,
}

/// The figures of one target in one test of a suite.
#[derive(Serialize, JsonSchema)]
struct TargetSeriesEntry<'a> {
    test: &'a str,
    target: &'a str,
    points: Vec<SuitePoint<'a>>,
    knee: Option<DepthKnee<'a>>,
    transition: Option<SizeTransition>,
}

/// Figures of one workload of the test; geometric means over the rounds.
#[derive(Serialize, JsonSchema)]
struct SuitePoint<'a> {
    workload: &'a str,
    block_size: u64,
    file_size: Option<u64>,
    /// I/Os that the workload keeps in flight: iodepth x numjobs; only for tests over queue depths.
    outstanding: Option<u64>,
    /// Mean number of I/Os in flight by Little's law (1961): rate x latency; only for tests over queue depths.
    in_flight: Option<f64>,
    iops: Option<f64>,
    bytes_per_s: Option<f64>,
    latency_mean_ns: Option<f64>,
}

/// The number of outstanding I/Os above which only latency grows, not throughput.
#[derive(Serialize, JsonSchema)]
struct DepthKnee<'a> {
    /// I/Os in flight at the knee: highest IOPS x latency at the smallest depth; median over the rounds.
    outstanding: f64,
    /// The smallest `outstanding` of a single round; absent for fewer than two rounds with figures at every depth.
    low: Option<f64>,
    /// The largest `outstanding` of a single round; absent for fewer than two rounds with figures at every depth.
    high: Option<f64>,
    /// Latency at the smallest depth.
    least_latency_ns: f64,
    /// The highest IOPS at any depth.
    ceiling_iops: f64,
    /// Name of the workload with the smallest depth that reaches 90% of `ceiling_iops`; absent if only the greatest depth does.
    at: Option<&'a str>,
    beyond: Option<BeyondKnee>,
}

/// The greatest depth compared with the smallest depth that reaches 90% of the highest IOPS.
#[derive(Serialize, JsonSchema)]
struct BeyondKnee {
    /// Ratio of the IOPS; 1 means that the additional depth gains nothing.
    iops_ratio: f64,
    /// Ratio of the mean latencies.
    latency_ratio: f64,
}

/// The block size above which bandwidth, not the cost per I/O, limits throughput.
#[derive(Serialize, JsonSchema)]
struct SizeTransition {
    /// Bytes at which the fixed time of an I/O equals its transfer time; 0 if bandwidth is the limit at every size. Absent if the size makes no
    /// difference.
    size: Option<f64>,
    /// The smallest `size` of a single round; absent for fewer than two rounds with figures at every size.
    low: Option<f64>,
    /// The largest `size` of a single round; absent for fewer than two rounds with figures at every size.
    high: Option<f64>,
    /// Fixed time per I/O in nanoseconds: the part of the time between two completions that does not depend on the block size.
    fixed_ns: f64,
    /// Bandwidth that large blocks approach, in bytes per second; absent if the time of an I/O does not depend on its size.
    bytes_per_s: Option<f64>,
    /// Largest relative deviation, over all sizes, of the model (fixed time plus transfer time) from the measured time: 0.05 for 5%.
    misfit: f64,
}

/// Builds the entry of the suite that a run belongs to; `None` for other runs.
pub(super) fn suite<'a>(run: &'a Run, tests: &'a [SuiteTest<'a>]) -> Option<SuiteEntry<'a>> {
    Some(SuiteEntry {
        name: run.plan.suite.as_deref()?,
        remarks: run.plan.known_suite().map_or(&[], |suite| suite.remarks),
        tests: tests.iter().flat_map(of_targets).collect(),
        indexes: filecopy::indexes(run),
    })
}

fn of_targets<'a>(test: &'a SuiteTest<'a>) -> impl Iterator<Item = TargetSeriesEntry<'a>> {
    test.series.iter().map(|series| TargetSeriesEntry {
        test: test.name,
        target: series.target,
        points: series.points.iter().map(|found| point(test.shape, found)).collect(),
        knee: series.knee.as_ref().map(|found| knee(series, found)),
        transition: series.transition.as_ref().map(transition),
    })
}

fn point<'a>(shape: SuiteShape, point: &SuiteCell<'a>) -> SuitePoint<'a> {
    let file = point.workload.size.filter(|_| shape == SuiteShape::Files);
    let is_of_depths = shape == SuiteShape::Depths;
    SuitePoint {
        workload: &point.workload.name,
        block_size: point.block_size().0,
        file_size: file.map(|file| file.0),
        outstanding: is_of_depths.then(|| point.outstanding()),
        in_flight: point.in_flight().filter(|_| is_of_depths),
        iops: point.iops,
        bytes_per_s: point.bytes_per_s,
        latency_mean_ns: point.latency_ns,
    }
}

fn knee<'a>(series: &TargetSeries<'a>, knee: &OutstandingKnee) -> DepthKnee<'a> {
    DepthKnee {
        outstanding: knee.outstanding,
        low: knee.range.map(|(low, _)| low),
        high: knee.range.map(|(_, high)| high),
        least_latency_ns: knee.least_latency_ns,
        ceiling_iops: knee.ceiling_iops,
        at: knee.at.map(|at| series.points[at].workload.name.as_str()),
        beyond: knee.beyond.map(|(iops_ratio, latency_ratio)| BeyondKnee { iops_ratio, latency_ratio }),
    }
}

fn transition(found: &Transition) -> SizeTransition {
    SizeTransition {
        size: found.size,
        low: found.range.map(|(low, _)| low),
        high: found.range.map(|(_, high)| high),
        fixed_ns: found.fixed_ns,
        bytes_per_s: found.bytes_per_s,
        misfit: found.misfit,
    }
}
