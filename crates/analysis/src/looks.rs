//! Runs that add rounds until their comparisons are decided.
//!
//! One looks at numbers of rounds that the plan alone fixes ([`iotax_model::plan::UntilDecided::looks`]). At a look each family of
//! comparisons goes through Holm's procedure with what is not decided yet: the share `alpha / (m - k + 1)` that Holm gives a
//! comparison is spread over the looks by [`Looks`], and a comparison that is decided stays so and leaves its share to the
//! others (Ye, Li, Liu and Yao, A group sequential Holm procedure with multiple primary endpoints, Statistics in Medicine 32,
//! 2013; Maurer and Bretz, Multiple testing in group sequential trials using graphical approaches, Statistics in
//! Biopharmaceutical Research 5, 2013). So the chance of any false statement in a family, over all looks, is at most alpha.
//!
//! What must be decided is the mean latency, and in a closed loop the I/Os per second, of every target against the baseline and
//! along every edge of the ladder, on every workload. A cell that nothing open needs is left out of the rounds that follow, so
//! that each round still holds both sides of everything that is compared in it. Other metrics are tested at the looks that their
//! cells take part in, each in a family of its own.
//!
//! Everything here follows from the plan and the records, so that the judgement while measuring, after a resume and years later
//! is one.

use std::collections::{HashMap, HashSet};

use iotax_model::record::Measurement;
use iotax_model::workload::Kind;
use iotax_model::{Cell, Plan, WarningKind};

use crate::cells::place;
use crate::checks;
use crate::edges;
use crate::edges::Edge;
use crate::grade;
use crate::metric::Metric;
use crate::samples::{Case, Figures, Pair, Said, pairs, shared_variance};
use crate::standing::{Standing, Stopped};
use crate::stats::ALPHA;
use crate::stats::sequential::Looks;
use crate::stats::verdict::{decide_by, needed_rounds};
use crate::store::{Run, RunState};

/// A comparison is given up when both sides were measured in none of so many rounds, nor since the look before.
const PATIENCE: u32 = 3;

/// The metrics that are waited for: of streams, which have no latency, what they carry.
static DECIDING: [Metric; 3] = [Metric::IOPS, Metric::LATENCY_MEAN, Metric::BYTES_PER_S];

/// The levels of a design, each computed once.
#[derive(Debug, Clone)]
pub(super) struct Levels {
    looks: Looks,
    known: HashMap<(usize, usize), f64>,
}

impl Levels {
    /// Absent for looks that do not rise.
    pub(super) fn new(looks: &[u32]) -> Option<Self> {
        Some(Self { looks: Looks::new(looks)?, known: HashMap::new() })
    }

    /// At a look, for the first of so many comparisons that are not decided.
    fn at(&mut self, look: usize, left: usize) -> f64 {
        let looks = &self.looks;
        *self.known.entry((look, left)).or_insert_with(|| looks.nominal(look, ALPHA / left as f64))
    }
}

/// The looks that the records reach, one after the other.
pub(super) struct Replay<'a> {
    pub(super) plan: &'a Plan,
    pub(super) pairs: &'a [Pair],
    pub(super) cases: &'a [Case],
    /// Whether a cell was tried in a round, with or without success.
    pub(super) tried: &'a dyn Fn(Cell, u32) -> bool,
}

impl Replay<'_> {
    /// What is said of each case, absent before the first look, and how far the looks are.
    pub(super) fn run(&self, levels: &mut Levels) -> (Vec<Option<Said>>, Standing) {
        let looks = levels.looks.rounds().to_vec();
        let mut said: Vec<Option<Said>> = self.cases.iter().map(|_| None).collect();
        let mut cells: Vec<Cell> = (0..self.plan.targets.len())
            .flat_map(|target| (0..self.plan.workloads.len()).map(move |workload| Cell { target, workload }))
            .collect();
        let (mut taken, mut planned, mut before, mut stopped) = (0, 0, 0, None);
        for (look, &rounds) in looks.iter().enumerate() {
            planned += cells.len() * (rounds - before) as usize;
            if !cells.iter().all(|cell| (before + 1..=rounds).all(|round| (self.tried)(*cell, round))) {
                break;
            }
            self.look(look, rounds, &cells, levels, &mut said);
            taken = look + 1;
            let open: Vec<&Case> = self.open(&said).collect();
            let since = before.min(rounds.saturating_sub(PATIENCE));
            let needed: HashSet<Cell> = open
                .iter()
                // More rounds do not mend one that cannot be used.
                .filter(|case| case.withheld(rounds).is_none() && case.has_any(since, rounds))
                .flat_map(|case| case.cells())
                .collect();
            let none_missing = open.is_empty() && self.missing() == 0;
            cells.retain(|cell| needed.contains(cell));
            before = rounds;
            stopped = match (none_missing, taken == looks.len(), cells.is_empty()) {
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
        let open = self.open(&said).count() + self.missing();
        let standing = Standing { looks, taken, comparisons: self.required(), open, cells, planned, stopped };
        (said, standing)
    }

    /// Tests every case that is open and whose cells took part.
    fn look(&self, look: usize, rounds: u32, cells: &[Cell], levels: &mut Levels, said: &mut [Option<Said>]) {
        let last = look + 1 == levels.looks.rounds().len();
        let mut families: Vec<(Metric, bool)> = Vec::new();
        for family in self.cases.iter().map(Case::family) {
            if !families.contains(&family) {
                families.push(family);
            }
        }
        for family in families {
            let members = (0..self.cases.len()).filter(|i| self.cases[*i].family() == family);
            let members: Vec<usize> = members.collect();
            // Of those that were decided before too, so that the calm ones do not leave the others to themselves.
            let usable = members.iter().filter(|i| self.cases[**i].withheld(rounds).is_none());
            let prior = shared_variance(usable.map(|i| &self.cases[*i]), rounds);
            let decided = |i: &usize| said[*i].as_ref().is_some_and(Said::is_decided);
            let (done, open): (Vec<usize>, Vec<usize>) = members.into_iter().partition(decided);
            let present = |i: &usize| {
                let case = &self.cases[*i];
                case.withheld(rounds).is_none() && case.cells().iter().all(|cell| cells.contains(cell))
            };
            let tested: Vec<_> = open
                .into_iter()
                .filter(present)
                .filter_map(|i| Some((i, self.cases[i].logs(rounds)?.map(|logs| logs.with(prior)))))
                .collect();
            // What cannot be tested now is not decided now and keeps its share: how many belong to the family follows from the
            // plan, not from what was measured.
            let pairs = self.pairs.iter().filter(|pair| pair.is_step == family.1);
            let workloads = 0..self.plan.workloads.len();
            let compared = |pair: &Pair| {
                workloads.clone().filter(|workload| pair.compares(self.plan, *workload, family.0)).count()
            };
            let in_family: usize = pairs.map(compared).sum();
            let waiting = (in_family - done.len()).saturating_sub(tested.len());
            let asked: Vec<_> = tested.iter().map(|(_, logs)| (logs, family.0.more_is_better())).collect();
            let level = |left: usize| levels.at(look, left + waiting);
            let margin = self.plan.margin.share();
            for ((i, logs), mut decision) in tested.iter().zip(decide_by(&asked, margin, level)) {
                if last {
                    // Of how many rounds would decide at an earlier look's level nothing follows for the looks to come.
                    decision.needed_rounds = needed_rounds(logs, margin, &decision);
                }
                said[*i] = Some(Said { rounds, decision });
            }
        }
    }

    /// Whether a case is waited for.
    fn is_required(&self, case: &Case) -> bool {
        self.metrics(case.workload).contains(&case.metric)
    }

    /// The metrics that are waited for on a workload: where I/Os are begun by a schedule, their rate is the schedule's.
    fn metrics(&self, workload: usize) -> &'static [Metric] {
        let workload = &self.plan.workloads[workload];
        match workload.kind() {
            Kind::Streams(_) => &DECIDING[2..],
            Kind::RoundTrips(_) => &DECIDING[1..2],
            Kind::Block | Kind::Files(_) if workload.is_open_loop() => &DECIDING[1..2],
            Kind::Block | Kind::Files(_) => &DECIDING[..2],
        }
    }

    /// How many comparisons are waited for.
    fn required(&self) -> usize {
        (0..self.plan.workloads.len()).map(|workload| self.metrics(workload).len() * self.pairs.len()).sum()
    }

    /// How many of them have no figures at all.
    fn missing(&self) -> usize {
        self.required() - self.cases.iter().filter(|case| self.is_required(case)).count()
    }

    /// Those that are waited for and not decided.
    fn open<'b>(&'b self, said: &'b [Option<Said>]) -> impl Iterator<Item = &'b Case> {
        let open = |said: &Option<Said>| !said.as_ref().is_some_and(Said::is_decided);
        let both = self.cases.iter().zip(said);
        both.filter(move |(case, said)| self.is_required(case) && open(said)).map(|(case, _)| case)
    }
}

/// What failed, by the run's own warnings.
pub(super) fn failed(run: &Run) -> HashSet<(Cell, u32)> {
    let place = |target: &str, workload: &str| {
        Some(Cell {
            target: run.plan.targets.iter().position(|known| known.name == target)?,
            workload: run.plan.workloads.iter().position(|known| known.name == workload)?,
        })
    };
    let incomplete = run.warnings.iter().filter(|warning| warning.kind == WarningKind::Incomplete);
    incomplete.filter_map(|w| Some((place(w.target.as_ref()?, w.workload.as_ref()?)?, w.round?))).collect()
}

/// The edges of a run's ladder both of whose ends stand on the same devices, and the others.
pub(super) fn whole_and_broken(run: &Run) -> (Vec<Edge>, Vec<Edge>) {
    edges(&run.plan.targets).into_iter().partition(|edge| super::edges::other_devices(run, edge).is_none())
}

/// A run that adds rounds, while it is carried out: what is to be measured next.
#[derive(Debug)]
pub struct Course {
    /// Without its measurements.
    run: Run,
    pairs: Vec<Pair>,
    figures: Figures,
    failed: HashSet<(Cell, u32)>,
    levels: Levels,
}

impl Course {
    /// From where a run stands whose targets are known; absent if its plan does not add rounds.
    #[must_use]
    pub fn new(run: &Run) -> Option<Self> {
        let until = run.plan.until_decided.as_ref()?;
        let levels = Levels::new(&until.looks(run.plan.repeat))?;
        let pairs = pairs(&run.plan, &whole_and_broken(run).0);
        let (figures, failed) = (Figures::new(DECIDING.to_vec()), failed(run));
        let mut course = Self { run: run.without_measurements(), pairs, figures, failed, levels };
        run.measurements.iter().for_each(|measurement| course.add(measurement));
        Some(course)
    }

    /// Takes a new measurement.
    pub fn add(&mut self, measurement: &Measurement) {
        let findings = checks::of_measurement(&self.run, measurement);
        self.figures.add(&self.run.plan, measurement, grade::withheld(&findings).remove(&place(measurement)));
    }

    /// Takes note that a cell could not be measured in a round.
    pub fn fail(&mut self, cell: Cell, round: u32) {
        self.failed.insert((cell, round));
    }

    /// Whether a cell was measured in a round.
    #[must_use]
    pub fn has(&self, cell: Cell, round: u32) -> bool {
        self.figures.has(cell, round)
    }

    /// How far it is. It ends by time only where whoever carries it out says so.
    pub fn standing(&mut self) -> Standing {
        let plan = &self.run.plan;
        let cases = self.figures.cases(plan, &self.pairs);
        let tried = |cell, round| self.figures.has(cell, round) || self.failed.contains(&(cell, round));
        let replay = Replay { plan, pairs: &self.pairs, cases: &cases, tried: &tried };
        replay.run(&mut self.levels).1
    }
}

/// How a stored run stands: what is complete and still had looks to come was stopped by its time.
pub(super) fn at_rest(run: &Run, standing: Standing) -> Standing {
    if standing.stopped.is_some() || run.state != RunState::Complete {
        return standing;
    }
    let cells = standing.cells.len();
    let ahead = standing.next().map_or(0, |next| (next - standing.rounds()) as usize * cells);
    Standing {
        planned: standing.planned - ahead,
        cells: Vec::new(),
        stopped: Some(Stopped::MaxTime),
        ..standing
    }
}

#[cfg(test)]
mod tests;
