//! Compares the workloads of a suite: the results of each target by block size or depth, and the point where the curve bends.

pub mod filecopy;
pub mod knee;
pub mod transition;

use iotax_model::record::Measurement;
use iotax_model::suite::SuiteShape;
use iotax_model::{Bytes, CellKey, Suite, Workload};

pub use knee::OutstandingKnee;
pub use transition::Transition;

use crate::cell_means::CellMeans;
use crate::cells::by_cell;
use crate::checks;
use crate::metric::Metric;
use crate::stats::median;
use iotax_model::Run;

/// The results of one test of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteTest<'a> {
    /// The test's name, with which the names of its workloads begin.
    pub name: &'a str,
    /// The parameter in which the test's workloads differ, such as block size or depth.
    pub shape: SuiteShape,
    /// The test's workloads, in the plan's order.
    pub workloads: Vec<&'a Workload>,
    /// One series per measured target, in the plan's order.
    pub series: Vec<TargetSeries<'a>>,
}

/// The results of one target in one test.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetSeries<'a> {
    /// The target's name.
    pub target: &'a str,
    /// Measured points, ascending by depth or block size if the workloads differ in that, else in the order of the test's workloads.
    pub points: Vec<SuiteCell<'a>>,
    /// Depth beyond which more I/Os only add latency; absent if the workloads do not differ in depth, for fewer than three points, or if a
    /// figure is unknown.
    pub knee: Option<OutstandingKnee>,
    /// Smallest block size at which bandwidth is the limit; absent if the workloads do not differ in block size, for fewer than four
    /// points, or if a figure is unknown.
    pub transition: Option<Transition>,
}

/// The means of one workload on a target over the rounds, as in tables.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteCell<'a> {
    /// The workload that was measured.
    pub workload: &'a Workload,
    /// I/Os per second; absent if unknown.
    pub iops: Option<f64>,
    /// Bytes per second; absent if unknown.
    pub bytes_per_s: Option<f64>,
    /// Mean service time in nanoseconds; absent if unknown.
    pub latency_ns: Option<f64>,
    /// Round, I/Os per second and mean service time of each round in which both figures are known.
    rounds: Vec<(u32, f64, f64)>,
}

impl SuiteCell<'_> {
    /// Returns the block size of the workload.
    #[must_use]
    pub const fn block_size(&self) -> Bytes {
        self.workload.bs
    }

    /// Returns the requested number of outstanding I/Os: queue depth times number of jobs.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        u64::from(self.workload.iodepth) * u64::from(self.workload.numjobs)
    }

    /// Returns the mean number of outstanding I/Os by Little's law: rate times latency. `None` if rate or latency is
    /// unknown. See J. D. C. Little, "A Proof for the Queuing Formula L = λW", Operations Research 9, 1961.
    #[must_use]
    pub fn in_flight(&self) -> Option<f64> {
        Some(self.iops? * self.latency_ns? / 1e9)
    }

    /// Summarizes the measurements of one workload on a target; `None` without measurements.
    fn of<'a>(
        workload: &'a Workload,
        target: &str,
        measurements: &[&Measurement],
        means: &CellMeans<'_>,
    ) -> Option<SuiteCell<'a>> {
        let over_rounds = |metric: Metric| means.get(&workload.name, target, metric);
        let both = |m: &&Measurement| Some((m.round, Metric::IOPS.of(m)?, Metric::LATENCY_MEAN.of(m)?));
        (!measurements.is_empty()).then(|| SuiteCell {
            workload,
            iops: over_rounds(Metric::IOPS),
            bytes_per_s: over_rounds(Metric::BYTES_PER_S),
            latency_ns: over_rounds(Metric::LATENCY_MEAN),
            rounds: measurements.iter().filter_map(both).collect(),
        })
    }
}

/// Collects the measured tests of a run; empty for a run without a suite, or with a suite whose workloads form no series.
#[must_use]
pub fn tests(run: &Run) -> Vec<SuiteTest<'_>> {
    let suite = run
        .plan
        .known_suite()
        .filter(|suite| !matches!(suite.shape, SuiteShape::Each | SuiteShape::Methods | SuiteShape::Limits));
    suite.map(|suite| tests_of(run, suite)).unwrap_or_default()
}

fn tests_of<'a>(run: &'a Run, suite: &Suite) -> Vec<SuiteTest<'a>> {
    let cells = by_cell(run);
    let metrics = [Metric::IOPS, Metric::BYTES_PER_S, Metric::LATENCY_MEAN];
    let means = CellMeans::of(run, &metrics, &checks::of_measurements(run));
    let test = |(name, workloads): (&'a str, Vec<&'a Workload>)| {
        let one = |target: &'a str| {
            let point = |workload: &&'a Workload| {
                SuiteCell::of(
                    workload,
                    target,
                    cells.get(&CellKey { workload: &workload.name, target })?,
                    &means,
                )
            };
            let points: Vec<SuiteCell<'a>> = workloads.iter().filter_map(point).collect();
            (!points.is_empty()).then(|| TargetSeries::of(target, suite.shape, points))
        };
        let series: Vec<TargetSeries<'a>> = run.plan.targets.iter().filter_map(|t| one(&t.name)).collect();
        (!series.is_empty()).then_some(SuiteTest { name, shape: suite.shape, workloads, series })
    };
    suite.tests(&run.plan.workloads).into_iter().filter_map(test).collect()
}

impl<'a> TargetSeries<'a> {
    fn of(target: &'a str, shape: SuiteShape, mut points: Vec<SuiteCell<'a>>) -> Self {
        // A plan may list its workloads in any order.
        match shape {
            SuiteShape::Depths => points.sort_by_key(SuiteCell::outstanding),
            SuiteShape::Sizes => points.sort_by_key(|point| point.block_size().0),
            _ => {}
        }
        let knee = (shape == SuiteShape::Depths).then(|| knee::of(&points)).flatten();
        let transition = (shape == SuiteShape::Sizes).then(|| transition::of(&points)).flatten();
        Self { target, points, knee, transition }
    }
}

/// Median and range of a figure that was computed for each round.
#[derive(Debug, Clone, Copy, PartialEq)]
struct OverRounds {
    median: f64,
    /// Smallest and largest value over the rounds.
    range: (f64, f64),
}

/// Summarizes a figure computed for each round, over the rounds in which every point was measured; `None` for fewer than two.
fn over_rounds(
    points: &[SuiteCell<'_>],
    figure: impl Fn(&[(f64, f64)]) -> Option<f64>,
) -> Option<OverRounds> {
    let rounds = points.first()?.rounds.iter().map(|(round, ..)| *round);
    let of_round = |round: u32| -> Option<Vec<(f64, f64)>> {
        let one = |point: &SuiteCell<'_>| {
            point.rounds.iter().find(|(known, ..)| *known == round).map(|(_, iops, ns)| (*iops, *ns))
        };
        points.iter().map(one).collect()
    };
    let found: Vec<f64> = rounds.filter_map(of_round).filter_map(|pairs| figure(&pairs)).collect();
    let least = found.iter().copied().fold(f64::INFINITY, f64::min);
    let most = found.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let median = median(&found).filter(|_| found.len() > 1)?;
    Some(OverRounds { median, range: (least, most) })
}
