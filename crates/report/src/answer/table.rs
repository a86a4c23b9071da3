//! Shows all cells of a run in one table: each target's figure on each workload, and the change from the baseline.

use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Judgement, Metric};
use iotax_model::Workload;
use iotax_model::target::VirtioSpec;
use iotax_model::units::human;
use iotax_model::workload::Kind;
use iotax_model::{CellKey, Run};

use super::ranking::Ranking;
use super::speed;
use crate::figure::{UNKNOWN, megabytes, microseconds, or_unknown, rate};
use crate::marks;
use crate::sentences::margin;

/// Minimum block size in bytes of workloads whose cells show bytes per second instead of IOPS.
const LARGE: u64 = 64 << 10;

/// A table with a row per target and a column per workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    /// Names of the workloads with the units of their figures.
    pub(crate) workloads: Vec<(String, &'static str)>,
    /// Names of the targets, each with one cell per workload.
    pub(crate) targets: Vec<(String, Vec<Cell>)>,
    /// Explanation of the marks that occur in the table.
    pub(crate) legend: String,
}

/// Figure of a target on a workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell {
    /// The figure as text, in the workload's unit; a mark if the target was lost or the figure is unknown.
    pub(crate) value: String,
    /// Change from the baseline; `None` if there is no comparison, as for the baseline itself. [`Change::Withheld`] if a measurement is
    /// unusable, also the baseline's.
    pub(crate) change: Option<Change>,
}

/// Change of a target's figure from the baseline's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Change {
    /// The whole interval of the difference is within the margin.
    Same,
    /// Decided as slower or faster, with the ratio to the baseline.
    Decided(Verdict, f64),
    /// Undecided, with the measured ratio: more rounds may move it to either side of the margin.
    Open(f64),
    /// No verdict, because a measurement is unusable.
    Withheld,
}

impl Change {
    /// Formats the change: `-31%`, `=` (same), `-3.1%?` (undecided), `!` (not usable).
    pub(crate) fn text(self) -> String {
        match self {
            Self::Same => "=".into(),
            Self::Decided(_, ratio) => speed::change(ratio),
            Self::Open(ratio) => format!("{}?", speed::change(ratio)),
            Self::Withheld => "!".into(),
        }
    }

    pub(crate) const fn verdict(self) -> Verdict {
        match self {
            Self::Same => Verdict::Same,
            Self::Decided(verdict, _) => verdict,
            Self::Open(_) | Self::Withheld => Verdict::Undecided,
        }
    }
}

/// Builds the table; `None` if nothing was measured.
pub(super) fn of(run: &Run, judgement: &Judgement, ranking: &Ranking<'_>) -> Option<Table> {
    let measured = |w: &&Workload| judgement.cells.iter().any(|cell| cell.workload == w.name);
    let workloads: Vec<&Workload> = run.plan.workloads.iter().filter(measured).collect();
    if workloads.is_empty() {
        return None;
    }
    let row = |target: &str| workloads.iter().map(|w| cell(run, judgement, w, target)).collect();
    let mut targets: Vec<(String, Vec<Cell>)> =
        run.plan.targets.iter().map(|target| (target.name.clone(), row(&target.name))).collect();
    ranking.sort(&mut targets, |(name, _)| name);
    let legend = legend(run, &targets, ranking);
    let workloads = workloads.into_iter().map(|w| (w.name.clone(), shown(w).1)).collect();
    Some(Table { workloads, targets, legend })
}

/// Returns the metric shown in a workload's cells, its unit and its format.
fn shown(workload: &Workload) -> (Metric, &'static str, fn(f64) -> String) {
    let headline = Metric::headline(workload);
    match &workload.kind {
        _ if headline == Metric::LATENCY_MEAN => (headline, "us", microseconds),
        Kind::Streams(_) => (headline, rate(workload).0, rate(workload).1),
        Kind::Block if workload.bs.0 >= LARGE => (Metric::BYTES_PER_S, "MB/s", megabytes),
        _ => (headline, Metric::IOPS.column(workload), human::count),
    }
}

fn cell(run: &Run, judgement: &Judgement, workload: &Workload, target: &str) -> Cell {
    let (metric, _, words) = shown(workload);
    let key = CellKey { workload: &workload.name, target };
    let Some(summary) = judgement.summary(key) else {
        let lost = marks::is_lost(run, target);
        return Cell { value: if lost { marks::LOST.into() } else { UNKNOWN.into() }, change: None };
    };
    let comparison = judgement.comparison(key, Metric::headline(workload));
    let unusable = judgement.is_unusable(run, key).then_some(Change::Withheld);
    let change = comparison.map(change).or(unusable);
    Cell { value: or_unknown(summary.of(metric), words), change }
}

fn change(comparison: &Comparison) -> Change {
    match comparison.ratio.verdict {
        _ if comparison.ratio.withheld.is_some() => Change::Withheld,
        Verdict::Same => Change::Same,
        Verdict::Undecided => Change::Open(comparison.ratio.mean),
        decided => Change::Decided(decided, comparison.ratio.mean),
    }
}

/// Explains the marks that occur in the table.
fn legend(run: &Run, targets: &[(String, Vec<Cell>)], ranking: &Ranking<'_>) -> String {
    let has = |is: fn(Change) -> bool| {
        targets.iter().flat_map(|(_, cells)| cells).filter_map(|cell| cell.change).any(is)
    };
    let marks = [
        (has(|change| change == Change::Same), format!("= same, {}", margin(run))),
        (has(|change| matches!(change, Change::Open(_))), "? not decided".into()),
        (has(|change| change == Change::Withheld), "! not usable".into()),
        (
            has(
                |change| matches!(change, Change::Open(ratio) | Change::Decided(_, ratio) if speed::is_part(ratio)),
            ),
            "1/20 a twentieth".into(),
        ),
        (
            ranking.is_some(),
            "formats cheapest first, by the mean of all workloads; undecided ones in no certain order".into(),
        ),
        (
            run.plan.targets.iter().any(|target| target.stack.has::<VirtioSpec>()),
            "virtio is a guest's disk without the guest: no kernel of its own, no exits, no interrupts"
                .into(),
        ),
    ];
    let mut parts = vec![format!("Change against {}", run.plan.baseline)];
    parts.extend(marks.into_iter().filter_map(|(occurs, text)| occurs.then_some(text)));
    parts.join("; ")
}
