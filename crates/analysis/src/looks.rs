//! Runs that add rounds until their comparisons are decided.
//!
//! A look is an interim test of all open comparisons. The plan alone fixes after how many rounds looks happen
//! ([`iotax_model::plan::UntilDecided::looks`]). At a look each family of comparisons goes through Holm's procedure with the undecided
//! ones: the share `alpha / (m - k + 1)` that Holm gives a comparison is spread over the looks by [`Looks`]. A decided comparison stays
//! decided and passes its share to the others (Ye, Li, Liu and Yao, A group sequential Holm procedure with multiple primary endpoints,
//! Statistics in Medicine 32, 2013; Maurer and Bretz, Multiple testing in group sequential trials using graphical approaches, Statistics in
//! Biopharmaceutical Research 5, 2013). So the probability of any false statement in a family, over all looks, is at most alpha.
//!
//! The run continues until the metric in the tables ([`Metric::headline`]) is decided on every workload, for every target against the
//! baseline and along every edge between targets. A cell, which is a workload on a target, is left out of later rounds once no open
//! comparison needs it; each round still measures both sides of every open comparison. Other metrics are tested at the looks for which
//! their cells were measured.
//!
//! All results follow from the plan and the records, so the judgement is the same while measuring, after a resume and years later.

use std::collections::{HashMap, HashSet};

use iotax_model::record::Measurement;
use iotax_model::{Cell, Plan, WarningKind};

use crate::checks;
use crate::edges;
use crate::edges::Edge;
use crate::grade;
use crate::metric::Metric;
use crate::sample::{Sample, share_variances};
use crate::samples::{LookDecision, MeasuredFigures, Pair, PendingComparison, families, pairs};
use crate::sequential_status::{SequentialStatus, Stopped};
use crate::stats::ALPHA;
use crate::stats::sequential::Looks;
use crate::stats::verdict::{Decision, decide_by, needed_rounds};
use iotax_model::{Run, RunState};

/// Number of last rounds after which a comparison is abandoned, if neither these nor any round since the previous look measured both
/// targets.
const PATIENCE: u32 = 3;

/// Metrics that decide when a run ends: one of them for each workload.
const DECIDING: [Metric; 3] = [Metric::IOPS, Metric::LATENCY_MEAN, Metric::BYTES_PER_S];

/// Significance levels of a group-sequential design, each computed once.
#[derive(Debug, Clone)]
pub(super) struct Levels {
    looks: Looks,
    known: HashMap<(usize, usize), f64>,
}

impl Levels {
    /// Creates the levels for looks after these numbers of rounds; `None` if the list is empty or not ascending.
    pub(super) fn new(looks: &[u32]) -> Option<Self> {
        Some(Self { looks: Looks::new(looks)?, known: HashMap::new() })
    }

    /// Returns the significance level at the interim test `look` (from 0) for the next comparison, if `left` comparisons are undecided.
    fn at(&mut self, look: usize, left: usize) -> f64 {
        let looks = &self.looks;
        *self.known.entry((look, left)).or_insert_with(|| looks.nominal(look, ALPHA / left as f64))
    }
}

/// Replay of the tests of all looks whose rounds are recorded, in order.
pub(super) struct Replay<'a> {
    pub(super) plan: &'a Plan,
    pub(super) pairs: &'a [Pair],
    pub(super) cases: &'a [PendingComparison],
    /// Predicate that is true if a workload on a target was attempted in a round, successfully or not.
    pub(super) tried: &'a dyn Fn(Cell, u32) -> bool,
}

impl Replay<'_> {
    /// Returns the last decision on each comparison, `None` if it was never tested, and the run's progress.
    pub(super) fn run(&self, levels: &mut Levels) -> (Vec<Option<LookDecision>>, SequentialStatus) {
        let looks = levels.looks.rounds().to_vec();
        let mut latest: Vec<Option<LookDecision>> = self.cases.iter().map(|_| None).collect();
        let mut cells: Vec<Cell> = (0..self.plan.targets.len())
            .flat_map(|target| (0..self.plan.workloads.len()).map(move |workload| Cell { target, workload }))
            .collect();
        let (mut taken, mut planned, mut before, mut stopped) = (0, 0, 0, None);
        for (look, &rounds) in looks.iter().enumerate() {
            planned += cells.len() * (rounds - before) as usize;
            if !cells.iter().all(|cell| (before + 1..=rounds).all(|round| (self.tried)(*cell, round))) {
                break;
            }
            self.decide_at(look, rounds, &cells, levels, &mut latest);
            taken = look + 1;
            let open: Vec<&PendingComparison> = self.open(&latest).collect();
            let since = before.min(rounds.saturating_sub(PATIENCE));
            let needed: HashSet<Cell> = open
                .iter()
                // More rounds cannot help an unusable comparison.
                .filter(|case| !case.is_spoilt(rounds) && case.has_any(since, rounds))
                .flat_map(|case| case.cells())
                .collect();
            let all_decided = self.open_pairs(&latest) == 0;
            cells.retain(|cell| needed.contains(cell));
            before = rounds;
            stopped = match (all_decided, taken == looks.len(), cells.is_empty()) {
                (true, ..) => Some(Stopped::Decided),
                (false, true, _) => Some(Stopped::MaxRounds),
                (false, false, true) => Some(Stopped::Failed),
                (false, false, false) => None,
            };
            if stopped.is_some() {
                cells.clear();
                break;
            }
        }
        let comparisons = self.plan.workloads.len() * self.pairs.len();
        let open = self.open_pairs(&latest);
        let status = SequentialStatus { looks, taken, comparisons, open, cells, planned, stopped };
        (latest, status)
    }

    /// Tests every undecided comparison whose two targets are still measured on its workload.
    fn decide_at(
        &self,
        look: usize,
        rounds: u32,
        cells: &[Cell],
        levels: &mut Levels,
        latest: &mut [Option<LookDecision>],
    ) {
        let last = look + 1 == levels.looks.rounds().len();
        for family in families(self.cases) {
            let members = (0..self.cases.len()).filter(|i| self.cases[*i].family() == family);
            let members: Vec<usize> = members.collect();
            // Decided comparisons still contribute their variances, otherwise only the noisy ones would remain.
            let usable = members.iter().copied().filter(|i| self.cases[*i].withheld(rounds).is_none());
            let (usable, mut samples): (Vec<usize>, Vec<_>) = usable
                .filter_map(|i| Some((i, (self.cases[i].metric, self.cases[i].sample(rounds)?))))
                .unzip();
            share_variances(&mut samples);
            let is_decided = |i: &usize| latest[*i].as_ref().is_some_and(LookDecision::is_decided);
            let is_present = |i: usize| self.cases[i].cells().iter().all(|cell| cells.contains(cell));
            let done = members.iter().filter(|i| is_decided(i)).count();
            let tested: Vec<(usize, (Metric, Sample))> =
                usable.into_iter().zip(samples).filter(|(i, _)| !is_decided(i) && is_present(*i)).collect();
            // A case that cannot be tested now stays undecided and keeps its share: the size of the family follows from the plan,
            // not from the measurements.
            let pairs = self.pairs.iter().filter(|pair| pair.is_step == family.1);
            let workloads = 0..self.plan.workloads.len();
            let of_plan = Metric::compared().filter(|metric| metric.family() == family.0);
            let of_family: HashSet<Metric> =
                of_plan.chain(members.iter().map(|i| self.cases[*i].metric)).collect();
            let compared = |pair: &Pair| {
                let of_workload = |workload| {
                    of_family.iter().filter(move |metric| pair.compares(self.plan, workload, **metric))
                };
                workloads.clone().flat_map(of_workload).count()
            };
            let in_family: usize = pairs.map(compared).sum();
            let waiting = (in_family - done).saturating_sub(tested.len());
            let asked: Vec<_> =
                tested.iter().map(|(_, (metric, sample))| (sample, metric.more_is_better())).collect();
            let at_the_end = levels.at(levels.looks.rounds().len() - 1, in_family - done);
            let level = |left: usize| levels.at(look, left + waiting);
            let margin = self.plan.margin.share();
            for ((i, (_, sample)), mut decision) in tested.iter().zip(decide_by(&asked, margin, level)) {
                // The needed rounds are computed at the level of the last look, because the looks to come have other levels than this one.
                let alpha = if last { decision.alpha } else { Some(at_the_end) };
                decision.needed_rounds =
                    needed_rounds(sample, margin, &Decision { alpha, ..decision.clone() });
                latest[*i] = Some(LookDecision { rounds, decision });
            }
        }
    }

    /// Returns whether the run must decide this comparison before it ends.
    fn is_required(&self, case: &PendingComparison) -> bool {
        case.metric == self.metric(case.workload)
    }

    /// Returns the metric that must be decided on a workload: the one shown in tables.
    fn metric(&self, workload: usize) -> Metric {
        Metric::headline(&self.plan.workloads[workload])
    }

    /// Counts the (pair of targets, workload) combinations whose comparison by the workload's headline metric is not
    /// decided yet.
    fn open_pairs(&self, latest: &[Option<LookDecision>]) -> usize {
        let is_decided = |workload: usize, pair: &Pair, metric: Metric| {
            let mut known = self.cases.iter().zip(latest);
            known.any(|(case, latest)| {
                (case.workload, case.pair, case.metric) == (workload, *pair, metric)
                    && latest.as_ref().is_some_and(LookDecision::is_decided)
            })
        };
        let is_open = |workload: usize, pair: &Pair| !is_decided(workload, pair, self.metric(workload));
        let workloads = 0..self.plan.workloads.len();
        workloads.map(|workload| self.pairs.iter().filter(|pair| is_open(workload, pair)).count()).sum()
    }

    /// Iterates over the undecided comparisons that the run must decide before it ends.
    fn open<'b>(&'b self, latest: &'b [Option<LookDecision>]) -> impl Iterator<Item = &'b PendingComparison> {
        let open = |latest: &Option<LookDecision>| !latest.as_ref().is_some_and(LookDecision::is_decided);
        let both = self.cases.iter().zip(latest);
        both.filter(move |(case, latest)| self.is_required(case) && open(latest)).map(|(case, _)| case)
    }
}

/// Collects the failed measurements, by workload and target and by round, from the run's own warnings.
pub(super) fn failed(run: &Run) -> HashSet<(Cell, u32)> {
    let cell_of = |target: &str, workload: &str| {
        Some(Cell {
            target: run.plan.targets.iter().position(|known| known.name == target)?,
            workload: run.plan.workloads.iter().position(|known| known.name == workload)?,
        })
    };
    let incomplete = run.warnings.iter().filter(|warning| warning.kind == WarningKind::Incomplete);
    incomplete.filter_map(|w| Some((cell_of(w.target.as_ref()?, w.workload.as_ref()?)?, w.round?))).collect()
}

/// Splits the edges between a plan's targets: first those whose ends are not known to be on different devices, then the others. Leaves out
/// edges to the baseline.
pub(super) fn whole_and_broken(run: &Run) -> (Vec<Edge>, Vec<Edge>) {
    // A step to the baseline is the inverse of the comparison with the baseline.
    let steps = edges(&run.plan.targets).into_iter().filter(|edge| edge.to != run.plan.baseline);
    steps.partition(|edge| super::edges::other_devices(run, edge).is_none())
}

/// The state of an unfinished run that adds rounds until its comparisons are decided. It determines the cells to measure in the next
/// rounds.
#[derive(Debug)]
pub struct SequentialState {
    /// The run without its measurements, to save memory.
    run: Run,
    pairs: Vec<Pair>,
    figures: MeasuredFigures,
    failed: HashSet<(Cell, u32)>,
    levels: Levels,
}

impl SequentialState {
    /// Creates the state of a run whose target records are known; `None` if its plan does not add rounds until comparisons are decided.
    #[must_use]
    pub fn new(run: &Run) -> Option<Self> {
        let until = run.plan.until_decided()?;
        let levels = Levels::new(&until.looks(run.plan.repeat))?;
        let pairs = pairs(&run.plan, &whole_and_broken(run).0);
        let (figures, failed) = (MeasuredFigures::new(DECIDING.to_vec()), failed(run));
        let mut state = Self { run: run.without_measurements(), pairs, figures, failed, levels };
        run.measurements.iter().for_each(|measurement| state.add(measurement));
        Some(state)
    }

    /// Adds a new measurement's figures, and the reason if it is unusable.
    pub fn add(&mut self, measurement: &Measurement) {
        let findings = checks::of_measurement(&self.run, measurement);
        self.figures.add(&self.run.plan, measurement, grade::withheld(&findings).remove(&measurement.key()));
    }

    /// Records that a workload could not be measured on a target in a round.
    pub fn fail(&mut self, cell: Cell, round: u32) {
        self.failed.insert((cell, round));
    }

    /// Returns whether a workload was measured on a target in a round.
    #[must_use]
    pub fn has(&self, cell: Cell, round: u32) -> bool {
        self.figures.has(cell, round)
    }

    /// Returns the run's progress. The time limit is not considered here; the runner applies it.
    pub fn status(&mut self) -> SequentialStatus {
        let plan = &self.run.plan;
        let cases = self.figures.cases(plan, &self.pairs);
        let tried = |cell, round| self.figures.has(cell, round) || self.failed.contains(&(cell, round));
        let replay = Replay { plan, pairs: &self.pairs, cases: &cases, tried: &tried };
        replay.run(&mut self.levels).1
    }
}

/// Returns the progress of a stored run: a complete run with interim tests left was stopped by its time limit.
pub(super) fn stored_status(run: &Run, status: SequentialStatus) -> SequentialStatus {
    if status.stopped.is_some() || run.state != RunState::Complete {
        return status;
    }
    let cells = status.cells.len();
    let ahead = status.next().map_or(0, |next| (next - status.rounds()) as usize * cells);
    SequentialStatus {
        planned: status.planned - ahead,
        cells: Vec::new(),
        stopped: Some(Stopped::MaxTime),
        ..status
    }
}

#[cfg(test)]
mod tests;
