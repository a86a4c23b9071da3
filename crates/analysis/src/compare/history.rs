//! Follows each workload on each target over several runs.

use super::account::{Account, AccountedTarget};
use super::{Compared, Question, Side, Which, compare, usable_or_all};
use crate::comparison::Ratio;
use crate::metric::Metric;
use crate::stats::paired::{Differences, Interval};
use crate::stats::{ALPHA, Estimate};
use iotax_model::CellKey;

/// One metric of a workload on a target, in one run.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryPoint {
    /// Index of the run in the list of compared runs.
    pub run: usize,
    /// True if the target's CPU was emulated.
    pub emulated: bool,
    /// Number of rounds in the mean.
    pub rounds: u32,
    /// Mean over the rounds, in the metric's unit: as in the run's own tables, but for a percentile the geometric mean of the rounds' values.
    pub mean: f64,
    /// 95% interval of the mean over the rounds in which the workload was measured; absent for a single round.
    pub band: Option<Interval>,
    /// Ratio to the first run that measured the workload on the target; absent for that run, and if the two were not compared.
    pub since_first: Option<Ratio>,
    /// Ratio to the previous run that measured the workload on the target; absent for the first, and if the two were not compared.
    pub since_previous: Option<Ratio>,
}

/// One metric of one target and workload, over all runs that measured it.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// The target's name in the first run of the track.
    pub target: String,
    /// The workload's name in the first run of the track.
    pub workload: String,
    /// The metric whose means the points hold.
    pub metric: Metric,
    /// The points in the order of the runs.
    pub points: Vec<HistoryPoint>,
}

/// Workloads on targets, followed over several runs.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Each run compared with the one before; `None` if the two cannot be compared.
    pub neighbours: Vec<Option<Compared>>,
    /// Tracks in the order of first appearance.
    pub tracks: Vec<Track>,
    /// The margin of practical equivalence, as a fraction: ratios within the margin count as the same.
    pub margin: f64,
}

/// Follows every workload on every target through runs in the given order. Each run is compared with every earlier run, with targets and
/// workloads matched as in [`compare`].
#[must_use]
pub fn history(accounts: &[Account], margin: f64) -> History {
    let question =
        Question { baseline: Which::A, metrics: Metric::compared().collect(), margin, gates: vec![] };
    let against = |i: usize, k: usize| -> Option<Compared> {
        let side = |account| Side { account, target: None };
        compare(&side(&accounts[i]), &side(&accounts[k]), &question).ok()
    };
    // compared[i][k - i - 1] is run k against run i.
    let compared: Vec<Vec<Option<Compared>>> =
        (0..accounts.len()).map(|i| (i + 1..accounts.len()).map(|k| against(i, k)).collect()).collect();
    let between = |i: usize, k: usize| compared[i][k - i - 1].as_ref();
    let mut followed: Vec<Followed> = Vec::new();
    for (run, account) in accounts.iter().enumerate() {
        for workload in &account.workloads {
            for subject in &account.subjects {
                let run_cell = RunCell { run, target: subject.name.clone(), workload: workload.name.clone() };
                let fits = |track: &&mut Followed| {
                    let first = &track.run_cells[0];
                    first.run < run && between(first.run, run).is_some_and(|c| joins(c, first, &run_cell))
                };
                match followed.iter_mut().find(fits) {
                    Some(track) => track.run_cells.push(run_cell),
                    None => followed.push(Followed { run_cells: vec![run_cell] }),
                }
            }
        }
    }
    let tracks = followed
        .iter()
        .flat_map(|track| Metric::compared().filter_map(|metric| track.by(metric, accounts, &between)));
    History {
        margin,
        tracks: tracks.collect(),
        neighbours: (1..accounts.len()).map(|k| between(k - 1, k).cloned()).collect(),
    }
}

/// A workload on a target in one run.
struct RunCell {
    run: usize,
    target: String,
    workload: String,
}

/// A workload on a target, with its names in each run.
struct Followed {
    run_cells: Vec<RunCell>,
}

/// Returns the indices of the target pair and the workload pair that match `a` with `b`; `None` if `a` and `b` do not match.
fn pair(compared: &Compared, a: &RunCell, b: &RunCell) -> Option<(usize, usize)> {
    let target = compared.targets.iter().position(|t| t.a == a.target && t.b == b.target)?;
    let workload = compared.workloads.iter().position(|w| w.a.name == a.workload && w.b == b.workload)?;
    Some((target, workload))
}

fn joins(compared: &Compared, a: &RunCell, b: &RunCell) -> bool {
    pair(compared, a, b).is_some()
}

impl Followed {
    fn by<'a>(
        &self,
        metric: Metric,
        accounts: &[Account],
        between: &dyn Fn(usize, usize) -> Option<&'a Compared>,
    ) -> Option<Track> {
        let change = |a: &RunCell, b: &RunCell| {
            let compared = between(a.run, b.run)?;
            let (target, workload) = pair(compared, a, b)?;
            compared.cell(target, workload, metric).map(|cell| cell.ratio.clone())
        };
        let known = |run_cell: &&RunCell| run_cell.sample(metric, accounts).is_some();
        let measured: Vec<&RunCell> = self.run_cells.iter().filter(known).collect();
        let first = *measured.first()?;
        let points = measured.iter().enumerate().filter_map(|(i, run_cell)| {
            let sample = run_cell.sample(metric, accounts)?;
            let means = accounts[run_cell.run].means(&run_cell.workload, metric);
            let mean = means.get(run_cell.target.as_str()).map_or_else(|| sample.mean(), |mean| mean.ln());
            // The mean over all rounds can differ from that of the rounds in the sample; their scatter is the same.
            let band = sample.interval(ALPHA).map(|i| i.map(|end| (end - sample.mean() + mean).exp()));
            Some(HistoryPoint {
                run: run_cell.run,
                emulated: accounts[run_cell.run]
                    .subject(&run_cell.target)
                    .is_some_and(AccountedTarget::is_emulated),
                rounds: u32::try_from(sample.n()).unwrap_or(u32::MAX),
                mean: mean.exp(),
                band,
                since_first: (i > 0).then(|| change(first, run_cell)).flatten(),
                since_previous: i.checked_sub(1).and_then(|before| change(measured[before], run_cell)),
            })
        });
        Some(Track {
            target: first.target.clone(),
            workload: first.workload.clone(),
            metric,
            points: points.collect(),
        })
    }
}

impl RunCell {
    /// Returns the logarithms of a metric's usable values, one per round; if all are unusable, of all values. `None` without values.
    fn sample(&self, metric: Metric, accounts: &[Account]) -> Option<Differences> {
        let figures = accounts[self.run].cell(CellKey { target: &self.target, workload: &self.workload });
        let logs = figures.filter_map(|f| Some((f.of(metric)?.ln(), f.unusable.is_none())));
        Differences::new(usable_or_all(logs))
    }
}
