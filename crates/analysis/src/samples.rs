//! Pairs of targets to compare, and their figures.

use std::collections::{BTreeMap, HashMap};

use iotax_model::net::NetTest;
use iotax_model::record::Measurement;
use iotax_model::{Cell, Plan};

use crate::cell_means::CellMeans;
use crate::comparison::{Comparison, Ratio};
use crate::edges::Edge;
use crate::fidelity::{is_late, may_be_late};
use crate::figures::{TOLERATED_EMPTY, is_empty, may_be_empty};
use crate::metric::{Family, Metric};
use crate::sample::Sample;
use crate::stats::Estimate;
use crate::stats::verdict::{Decision, Verdict};

/// A target and its baseline, as indices into the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) target: usize,
    pub(super) baseline: usize,
    /// True for a step between layers that does not start at the baseline. Steps from the baseline are compared as pairs with the baseline.
    pub(super) is_step: bool,
}

/// Largest relative difference of TCP segment sizes at which the CPU time per segment of two targets is still compared.
const LENGTHS: f64 = 0.05;

impl Pair {
    /// Returns whether the two targets are compared by a metric on a workload. CPU time of a network measurement on this host is a
    /// single sum, so it is not compared if only one path has its server here, or if the targets' neighbours differ.
    pub(super) fn compares(self, plan: &Plan, workload: usize, metric: Metric) -> bool {
        let workload = &plan.workloads[workload];
        let server_and_neighbour = |target: usize| {
            let spec = &plan.targets[target];
            (spec.has_server_here(), &spec.neighbour)
        };
        let is_alike = !workload.kind.is_network()
            || server_and_neighbour(self.target) == server_and_neighbour(self.baseline);
        metric.compares(workload) && (is_alike || !metric.is_cpu())
    }
}

/// Pairs every target with the baseline, then adds the other steps. Returns no pairs if the plan loads all targets at the same time.
pub(super) fn pairs(plan: &Plan, edges: &[Edge]) -> Vec<Pair> {
    let index = |name: &str| plan.targets.iter().position(|target| target.name == name);
    let Some(baseline) = index(&plan.baseline).filter(|_| !plan.is_together()) else { return Vec::new() };
    let others = (0..plan.targets.len()).filter(|target| *target != baseline);
    let mut pairs: Vec<Pair> = others.map(|target| Pair { target, baseline, is_step: false }).collect();
    let steps = edges.iter().filter(|edge| edge.from != plan.baseline);
    pairs.extend(steps.filter_map(|edge| {
        Some(Pair { target: index(&edge.to)?, baseline: index(&edge.from)?, is_step: true })
    }));
    pairs
}

/// Measured figures by workload, target and round, one per metric in use.
#[derive(Debug, Clone)]
pub(super) struct MeasuredFigures {
    metrics: Vec<Metric>,
    by_cell: HashMap<Cell, BTreeMap<u32, Figure>>,
}

/// The decision at the last interim test of a comparison.
#[derive(Debug, Clone)]
pub(super) struct LookDecision {
    /// Number of rounds at that interim test.
    pub(super) rounds: u32,
    pub(super) decision: Decision,
}

impl LookDecision {
    pub(super) fn is_decided(&self) -> bool {
        self.decision.verdict != Verdict::Undecided
    }
}

/// The figures of one measurement, and the properties that decide if they can be used.
#[derive(Debug, Clone)]
struct Figure {
    /// Value of each metric in use; `None` if unknown.
    values: Vec<Option<f64>>,
    /// TCP's maximum segment size in bytes, if known.
    mss: Option<u32>,
    /// The reason why the measurement is unusable for verdicts; `None` if it is usable.
    unusable: Option<String>,
    /// True if the measurement ran to its end, but no I/O completed or failed in it.
    is_empty: bool,
    /// True for a late replay, which comparisons leave out.
    is_late: bool,
}

impl MeasuredFigures {
    pub(super) fn new(metrics: Vec<Metric>) -> Self {
        Self { metrics, by_cell: HashMap::new() }
    }

    /// Adds a measurement's figures, and the reason if it is unusable. Ignores a measurement whose workload or target is not in the plan.
    pub(super) fn add(&mut self, plan: &Plan, measurement: &Measurement, unusable: Option<String>) {
        let target = plan.targets.iter().position(|target| target.name == measurement.target);
        let workload = plan.workloads.iter().position(|workload| workload.name == measurement.workload);
        if let (Some(target), Some(workload)) = (target, workload) {
            let values = self.metrics.iter().map(|metric| metric.of(measurement)).collect();
            let rounds = self.by_cell.entry(Cell { target, workload }).or_default();
            let mss = measurement.outcome.carried.as_ref().and_then(|carried| carried.mss);
            let (is_empty, is_late) = (is_empty(measurement), is_late(measurement));
            rounds.insert(measurement.round, Figure { values, mss, unusable, is_empty, is_late });
        }
    }

    /// Returns whether a workload was measured on a target in a round.
    pub(super) fn has(&self, cell: Cell, round: u32) -> bool {
        self.by_cell.get(&cell).is_some_and(|rounds| rounds.contains_key(&round))
    }

    /// Builds the comparisons of the pairs, by workload, then by pair, then by metric. Leaves out pairs without common figures, the CPU
    /// time per TCP segment of pairs with different or unknown segment sizes, and percentiles that a common round lacks.
    pub(super) fn cases(&self, plan: &Plan, pairs: &[Pair]) -> Vec<PendingComparison> {
        let mut cases = Vec::new();
        for workload in 0..plan.workloads.len() {
            for pair in pairs {
                let compared = |index: &usize| pair.compares(plan, workload, self.metrics[*index]);
                for index in (0..self.metrics.len()).filter(compared) {
                    let by_segment = self.metrics[index] == Metric::CPU_PER_IO
                        && plan.workloads[workload]
                            .kind
                            .traffic()
                            .is_some_and(|net| net.test == NetTest::Tcp);
                    if !by_segment || self.segments_alike(workload, *pair) {
                        cases.extend(self.case(workload, *pair, index));
                    }
                }
            }
        }
        cases
    }

    /// Returns whether TCP's segment sizes are known and about the same for both targets in every common round.
    fn segments_alike(&self, workload: usize, pair: Pair) -> bool {
        let of = |target| self.by_cell.get(&Cell { target, workload });
        let Some((ours, theirs)) = of(pair.target).zip(of(pair.baseline)) else { return false };
        let alike = |our: &Figure, their: &Figure| {
            let (one, other) = (f64::from(our.mss?), f64::from(their.mss?));
            Some((one - other).abs() <= LENGTHS * one.max(other))
        };
        let mut common = ours.iter().filter_map(|(round, our)| Some((our, theirs.get(round)?)));
        common.all(|(our, their)| alike(our, their) == Some(true))
    }

    /// Builds the comparison over the rounds in which both figures are known; `None` if there are no such rounds. A percentile that is
    /// missing in any common round is not compared: the rounds with too few I/Os are the slow ones, and leaving them out would flatter a
    /// slow target.
    fn case(&self, workload: usize, pair: Pair, index: usize) -> Option<PendingComparison> {
        let of = |target| self.by_cell.get(&Cell { target, workload });
        let (ours, theirs) = (of(pair.target)?, of(pair.baseline)?);
        let metric = self.metrics[index];
        let (mut figures, mut unusable) = (Vec::new(), Vec::new());
        let (mut empty, mut late) = (Vec::new(), Vec::new());
        for (round, our) in ours {
            let Some(their) = theirs.get(round) else { continue };
            let mut why_late = None;
            for side in [our, their] {
                let why = side.unusable.as_ref().map(|why| (*round, why.clone()));
                if side.is_empty {
                    empty.extend(why);
                } else if side.is_late {
                    why_late = why_late.or(why);
                } else {
                    unusable.extend(why);
                }
            }
            let is_left_out = why_late.is_some();
            late.extend(why_late);
            match (our.values[index], their.values[index]) {
                (Some(value), Some(base)) => figures.push((*round, value, base)),
                _ if metric.is_percentile() && !is_left_out => return None,
                _ => {}
            }
        }
        (!figures.is_empty()).then_some(PendingComparison {
            workload,
            pair,
            metric,
            figures,
            unusable,
            empty,
            late,
        })
    }
}

/// Returns the entries for the rounds up to and including `until`.
fn until_round(rounds: &[(u32, String)], until: u32) -> &[(u32, String)] {
    &rounds[..rounds.partition_point(|(at, _)| *at <= until)]
}

/// A comparison that is not decided yet, with its figures.
#[derive(Debug, Clone)]
pub(super) struct PendingComparison {
    pub(super) workload: usize,
    pub(super) pair: Pair,
    pub(super) metric: Metric,
    /// Round, target's figure and baseline's figure, by ascending round.
    pub(super) figures: Vec<(u32, f64, f64)>,
    /// Rounds with an unusable measurement, with the reason; one entry for each of target and baseline. Late replays and windows without
    /// I/O are listed separately.
    pub(super) unusable: Vec<(u32, String)>,
    /// Rounds in which the target or the baseline had no I/O, with a description; one entry for each of the two.
    pub(super) empty: Vec<(u32, String)>,
    /// Rounds of late replays, with a description.
    pub(super) late: Vec<(u32, String)>,
}

/// Lists the families of the comparisons, each once. The flag is true for steps between layers.
pub(super) fn families(cases: &[PendingComparison]) -> Vec<(Family, bool)> {
    let mut families = Vec::new();
    for family in cases.iter().map(PendingComparison::family) {
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
}

impl PendingComparison {
    /// Returns the family of the metric, and true for a step between layers, false for a comparison with the baseline.
    pub(super) fn family(&self) -> (Family, bool) {
        (self.metric.family(), self.pair.is_step)
    }

    /// Returns the two cells of the comparison: its workload on the target and on the baseline.
    pub(super) fn cells(&self) -> [Cell; 2] {
        [self.pair.target, self.pair.baseline].map(|target| Cell { target, workload: self.workload })
    }

    /// Returns the reason why no verdict may rest on the rounds up to `until`; `None` if they are usable. Up to a tenth of empty rounds and
    /// half of late replays are tolerated.
    pub(super) fn withheld(&self, until: u32) -> Option<String> {
        let (empty, late) = (until_round(&self.empty, until), until_round(&self.late, until));
        if let Some((_, why)) = until_round(&self.unusable, until).first() {
            return Some(why.clone());
        }
        if let Some((_, why)) = empty.first().filter(|_| self.has_too_many_empty(until)) {
            let (count, needed) = (empty.len(), TOLERATED_EMPTY * empty.len());
            return Some(format!("{why} ({count} without I/O may be left out of {needed} rounds and more)"));
        }
        let too_late = !may_be_late(late.len(), self.all_until(until).len());
        late.first().filter(|_| too_late).map(|(_, why)| why.clone())
    }

    fn has_too_many_empty(&self, until: u32) -> bool {
        let empty = until_round(&self.empty, until).len();
        !may_be_empty(empty, self.all_until(until).len() + empty)
    }

    /// Returns whether no later round can make a verdict possible. More rounds can outweigh a single empty round and late replays, but no
    /// other unusable measurement.
    pub(super) fn is_spoilt(&self, until: u32) -> bool {
        let has_too_many_empty = self.has_too_many_empty(until) && until_round(&self.empty, until).len() != 1;
        has_too_many_empty || !until_round(&self.unusable, until).is_empty()
    }

    /// Returns whether both targets were measured in any round after `after` and up to `until`.
    pub(super) fn has_any(&self, after: u32, until: u32) -> bool {
        self.figures.iter().any(|(round, ..)| (after + 1..=until).contains(round))
    }

    fn all_until(&self, round: u32) -> &[(u32, f64, f64)] {
        &self.figures[..self.figures.partition_point(|(at, ..)| *at <= round)]
    }

    /// Returns the figures of target and baseline in the rounds up to `until`, without late replays and unusable measurements. If nothing
    /// else is left, returns all; the verdict is then withheld.
    fn pairs(&self, until: u32) -> Vec<(f64, f64)> {
        let is_in =
            |rounds: &[(u32, String)], round| rounds.binary_search_by_key(&round, |(at, _)| *at).is_ok();
        let is_usable = |round: u32| !is_in(&self.late, round) && !is_in(&self.unusable, round);
        let all = self.all_until(until);
        let has_usable = all.iter().any(|(round, ..)| is_usable(*round));
        let counted = all.iter().filter(|(round, ..)| !has_usable || is_usable(*round));
        counted.map(|(_, ours, theirs)| (*ours, *theirs)).collect()
    }

    /// Builds the sample of the rounds up to `until`; `None` without such rounds.
    pub(super) fn sample(&self, until: u32) -> Option<Sample> {
        Sample::paired(&self.pairs(until), self.metric)
    }

    /// Builds the comparison in a run that adds rounds. The verdict is undecided before the first look, or if an unusable measurement
    /// precedes the decision.
    pub(super) fn after(
        &self,
        plan: &Plan,
        means: &CellMeans<'_>,
        latest: Option<LookDecision>,
    ) -> Option<Comparison> {
        match latest {
            Some(latest) if latest.is_decided() || self.withheld(u32::MAX).is_none() => {
                let decided_at = latest.is_decided().then_some(latest.rounds);
                let comparison = self.comparison(plan, means, latest.rounds, &latest.decision)?;
                Some(Comparison { decided_at, ..comparison })
            }
            _ => self.comparison(plan, means, u32::MAX, &Decision::none()),
        }
    }

    /// Builds the comparison of all rounds, with the decision on the rounds up to `until`; `None` without any rounds.
    pub(super) fn comparison(
        &self,
        plan: &Plan,
        means: &CellMeans<'_>,
        until: u32,
        decision: &Decision,
    ) -> Option<Comparison> {
        let sample = self.sample(u32::MAX)?;
        let workload = plan.workloads[self.workload].name.as_str();
        let [target, baseline] =
            [self.pair.target, self.pair.baseline].map(|at| plan.targets[at].name.as_str());
        let mean = |name| means.get(workload, name, self.metric);
        let shown = mean(target).zip(mean(baseline)).map(|(ours, theirs)| (ours / theirs, theirs));
        // Percentiles are compared round by round; the percentile of all rounds pooled is a different figure.
        let of_rounds = || {
            let pairs = self.pairs(u32::MAX);
            let theirs = pairs.iter().map(|(_, theirs)| theirs.ln()).sum::<f64>();
            (sample.mean().exp(), (theirs / pairs.len() as f64).exp())
        };
        let figures = shown.unwrap_or_else(of_rounds);
        Some(Comparison {
            workload: workload.to_owned(),
            metric: self.metric,
            target: target.to_owned(),
            baseline: baseline.to_owned(),
            rounds: u32::try_from(sample.rounds()).unwrap_or(u32::MAX),
            ratio: Ratio::new(self.metric, figures, &sample, decision, self.withheld(until)),
            decided_at: None,
        })
    }
}
