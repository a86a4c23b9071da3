//! Describes the cost of each layer, one line per layer. A ladder step is a pair of targets that differ by one layer or setting; steps with the
//! same name and the same verdicts share a line.

use iotax_analysis::stats::paired::Interval;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Edge, Judgement, Metric};
use iotax_model::units::human;
use iotax_model::units::human::listed;
use iotax_model::{CellKey, Run, TargetSpec};

use super::ranking::Ranking;
use super::speed;
use super::together::{self, Where};
use crate::sentences::{amount, margin};

/// Maximum length of a line in characters. A longer line gives only the number of its workloads, or leaves out bounds or CPU time.
const LONG: usize = 78;

/// Ladder steps (pairs of targets one layer apart) with the same name and the same verdicts; at least one step.
struct Layer<'a> {
    steps: Vec<StepOfTable<'a>>,
}

/// A ladder step with its comparisons by the headline metric, one per workload in the plan's order.
struct StepOfTable<'a> {
    edge: &'a Edge,
    comparisons: Vec<&'a Comparison>,
    /// Comparisons by host CPU time per I/O, in the same order; network workloads have none.
    cpu: Vec<&'a Comparison>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Moved(Verdict, Metric),
    Same,
    Open,
    Withheld,
}

/// Returns a line per layer in the order of the ladder, ranked formats cheapest first. Then come the targets that no ladder step reaches,
/// each compared with the baseline; none of them if there are more than [`MOST_PAIRS`].
pub(super) fn lines(run: &Run, judgement: &Judgement, ranking: &Ranking<'_>) -> Vec<String> {
    let mut edges = judgement.edges.clone();
    ranking.sort(&mut edges, |edge| &edge.to);
    let mut lines = along(run, &edges, |workload, edge, metric| judgement.step(workload, edge, metric));
    let baseline = &run.plan.baseline;
    let is_reached = |target: &TargetSpec| judgement.edges.iter().any(|edge| edge.to == target.name);
    let others = run.plan.targets.iter().filter(|target| target.name != *baseline && !is_reached(target));
    let pair = |target: &TargetSpec| Edge {
        from: baseline.clone(),
        to: target.name.clone(),
        name: format!("{}{AGAINST}{baseline}", target.name),
    };
    let pairs: Vec<Edge> = others.map(pair).collect();
    // With more pairs, the table shows them better than lines would.
    if pairs.len() <= MOST_PAIRS {
        lines.extend(along(run, &pairs, |workload, pair, metric| {
            judgement.comparison(CellKey { workload, target: &pair.to }, metric)
        }));
    }
    lines
}

/// Maximum number of targets outside the ladder for which each gets a line. With more, none gets one: the table shows them better.
const MOST_PAIRS: usize = 3;
/// Separator between the names of a target outside the ladder and the baseline. It also marks such a pair's name.
const AGAINST: &str = " against ";

fn along<'a>(
    run: &'a Run,
    edges: &'a [Edge],
    compared: impl Fn(&str, &Edge, Metric) -> Option<&'a Comparison>,
) -> Vec<String> {
    let mut layers: Vec<Layer<'a>> = Vec::new();
    for edge in edges {
        let workloads = run.plan.workloads.iter();
        let comparisons: Vec<&Comparison> = workloads
            .filter_map(|workload| compared(&workload.name, edge, Metric::headline(workload)))
            .collect();
        if comparisons.is_empty() {
            continue;
        }
        let workloads = run.plan.workloads.iter();
        let on_disk = workloads.filter(|workload| !workload.kind.is_network());
        let cpu = on_disk.filter_map(|workload| compared(&workload.name, edge, Metric::CPU_PER_IO));
        let ladder_step = StepOfTable { edge, comparisons, cpu: cpu.collect() };
        match layers.iter_mut().find(|layer| layer.is_like(&ladder_step)) {
            Some(layer) => layer.steps.push(ladder_step),
            None => layers.push(Layer { steps: vec![ladder_step] }),
        }
    }
    layers.iter().map(|layer| layer.line(run)).collect()
}

fn said(comparison: &Comparison) -> Said {
    match comparison.ratio.verdict {
        _ if comparison.ratio.withheld.is_some() => Said::Withheld,
        Verdict::Same => Said::Same,
        Verdict::Undecided => Said::Open,
        moved => Said::Moved(moved, comparison.metric),
    }
}

impl StepOfTable<'_> {
    fn said(&self) -> Vec<(&str, Said)> {
        self.comparisons.iter().map(|c| (c.workload.as_str(), said(c))).collect()
    }
}

impl Layer<'_> {
    fn is_like(&self, ladder_step: &StepOfTable<'_>) -> bool {
        let first = &self.steps[0];
        first.edge.name == ladder_step.edge.name && first.said() == ladder_step.said()
    }

    fn line(&self, run: &Run) -> String {
        let cpu = self.cpu().map(|cpu| format!("; {cpu}")).unwrap_or_default();
        let fits = |line: &String| line.chars().count() <= LONG;
        let forms = [(false, true), (false, false), (true, true), (true, false)];
        let lines = forms.map(|(brief, bounds)| self.line_with(run, brief, bounds));
        // Prefers any form of the line with the CPU cost to a fuller form without it.
        let with_cpu = lines.iter().map(|line| format!("{line}{cpu}")).find(fits);
        let [.., last] = &lines;
        with_cpu.or_else(|| lines.iter().find(|line| fits(line)).cloned()).unwrap_or_else(|| last.clone())
    }

    /// Describes the CPU cost: `5.40 to 5.50 us more CPU per I/O`; `None` unless CPU time is decided in the same direction on every workload.
    fn cpu(&self) -> Option<String> {
        if self.steps.iter().any(|ladder_step| ladder_step.cpu.len() < ladder_step.comparisons.len()) {
            return None;
        }
        let all = || self.steps.iter().flat_map(|ladder_step| &ladder_step.cpu);
        let taxes: Option<Vec<f64>> = all().map(|c| Some(c.ratio.tax?.ns.abs())).collect();
        let word = [(Verdict::Slower, "more"), (Verdict::Faster, "less")]
            .into_iter()
            .find_map(|(verdict, word)| all().all(|c| c.ratio.verdict == verdict).then_some(word))?;
        Some(format!("{} {word} CPU per I/O", amount::range(&taxes?, human::time)?))
    }

    fn line_with(&self, run: &Run, brief: bool, bounds: bool) -> String {
        let mut kinds: Vec<Said> = Vec::new();
        for (_, said) in self.steps[0].said() {
            if !kinds.contains(&said) {
                kinds.push(said);
            }
        }
        // Costs first, unknowns last.
        kinds.sort_by_key(|kind| match kind {
            Said::Moved(Verdict::Slower, _) => 0,
            Said::Moved(..) => 1,
            Said::Same => 2,
            Said::Open => 3,
            Said::Withheld => 4,
        });
        let parts: Vec<String> =
            kinds.into_iter().map(|kind| self.part(run, kind, (brief, bounds))).collect();
        format!("{}: {}", self.name(), parts.join("; "))
    }

    /// Names the layer: `qcow2 over vm-raw`, for a setting `cache=none instead of writeback (vm-none)`, for a target outside the ladder
    /// `vm-old against vm-raw`; several steps with their targets: `virtio-blk + guest (vm-device, vm-lvm and vm-raw)`.
    fn name(&self) -> String {
        let Edge { from, to, name } = self.steps[0].edge;
        match self.steps.as_slice() {
            [_] if name.contains(" instead of ") => format!("{name} ({to})"),
            [_] if name.contains(AGAINST) => name.clone(),
            [_] => format!("{name} over {from}"),
            several => {
                let targets: Vec<String> =
                    several.iter().map(|ladder_step| ladder_step.edge.to.clone()).collect();
                format!("{name} ({})", listed(&targets))
            }
        }
    }

    /// Formats the largest difference that the undecided comparisons' intervals allow: ` (within 6%)`; empty above [`WIDEST`].
    fn bound(&self) -> String {
        let comparisons = self.steps.iter().flat_map(|ladder_step| &ladder_step.comparisons);
        let open = comparisons.filter(|comparison| said(comparison) == Said::Open);
        let most = open.map(|c| c.ratio.interval.map_or(f64::INFINITY, widest)).fold(0.0, f64::max);
        if most > WIDEST { String::new() } else { format!(" (within {:.0}%)", (most * 100.0 - 1e-9).ceil()) }
    }

    /// Describes the workloads that share the verdict `kind`: `random writes 4.2-9.1% slower`, `same on reads (within 2%)`.
    fn part(&self, run: &Run, kind: Said, (brief, bounds): (bool, bool)) -> String {
        let of_kind = |ladder_step: &StepOfTable<'_>| -> Vec<f64> {
            ladder_step.comparisons.iter().filter(|c| said(c) == kind).map(|c| c.ratio.mean).collect()
        };
        let ratios: Vec<f64> = self.steps.iter().flat_map(of_kind).collect();
        let said_of_each = self.steps[0].said();
        let workloads: Vec<&str> =
            said_of_each.iter().filter(|(_, said)| *said == kind).map(|(workload, _)| *workload).collect();
        let alone = run.plan.workloads.len() == 1;
        let on = together::name(run, &workloads, brief);
        let bound = if bounds { self.bound() } else { String::new() };
        match (kind, on) {
            (Said::Moved(_, metric), on) => around(&speed::range(metric, &ratios), on, alone),
            (Said::Same, Where::Everywhere) if alone => format!("same ({})", margin(run)),
            (Said::Same, Where::Everywhere) => format!("same everywhere ({})", margin(run)),
            (Said::Same, Where::On(on)) => format!("same on {on} ({})", margin(run)),
            (Said::Open, Where::Everywhere) => format!("not decided{bound}"),
            (Said::Open, Where::On(on)) => format!("{on} not decided{bound}"),
            (Said::Withheld, Where::Everywhere) => "not usable".into(),
            (Said::Withheld, Where::On(on)) => format!("{on} not usable"),
        }
    }
}

/// Largest bound of undecided comparisons that is still shown, as a fraction: 0.5 for 50%.
const WIDEST: f64 = 0.5;

/// Returns the largest difference from 1 that an interval of ratios allows, as a fraction.
fn widest(interval: Interval) -> f64 {
    (interval.high - 1.0).max(1.0 - interval.low)
}

fn around(what: &str, on: Where, alone: bool) -> String {
    match on {
        Where::Everywhere if alone => what.into(),
        Where::Everywhere => format!("{what} everywhere"),
        Where::On(on) => format!("{on} {what}"),
    }
}
