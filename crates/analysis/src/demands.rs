//! Judges whether each target meets a plan's demands: yes, no or undecided.

use std::collections::HashMap;

use iotax_model::plan::{Demand, DemandOn, Keep, Slo};
use iotax_model::record::Measurement;
use iotax_model::{CellKey, Histogram, Run};
use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF};

use crate::cells::by_cell;
use crate::checks::generator;
use crate::judgement::Judgement;
use crate::levels::Levels;
use crate::metric::Metric;
use crate::percentile::{needed, percentile};
use crate::stats::paired::{Differences, Interval};
use crate::stats::{ALPHA, Estimate};

/// The verdict on one demand for one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The whole interval lies on the good side of the limit.
    Yes,
    /// The whole interval lies beyond the limit, or significantly more I/Os than allowed took longer than the limit.
    No,
    /// The limit lies within the interval, there is no interval, or the load generator's CPU limited the rate.
    Undecided,
}

/// The reason why a demand has no figure, no interval or no decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoFigure {
    /// The measurements of this workload on this target cannot be used.
    Unusable,
    /// A round has too few I/Os for the percentile.
    TooFew {
        /// Number of I/Os that each round needs.
        needed: u64,
        /// Window length in seconds that would have been enough for the slowest round, rounded up; absent if a round did no such I/O.
        seconds: Option<u64>,
    },
    /// A round has too few I/Os for the percentile, but the demand is missed: over all rounds significantly more I/Os than allowed took
    /// longer than the limit (exact binomial test, 2.5%).
    Beyond {
        /// Number of I/Os that took longer than the limit, over all rounds.
        longer: u64,
        /// Number of I/Os that the percentile covers, over all rounds.
        of: u64,
    },
    /// There is a single round, so there is no interval.
    OneRound,
    /// The rate is below the demand, but the load generator's CPU was the limit.
    GeneratorBound,
    /// No I/O of this kind was measured, or a round has too few intervals for a sustained rate.
    NotMeasured,
}

/// A demand of the plan, and whether one target meets it.
#[derive(Debug, Clone, PartialEq)]
pub struct DemandOnTarget<'a> {
    /// The demand as the plan states it.
    pub demand: &'a Demand,
    /// Name of the workload that the demand applies to.
    pub workload: &'a str,
    /// The target's name.
    pub target: &'a str,
    /// Geometric mean of the rounds' figures: nanoseconds, or I/Os or bytes per second. Absent if the figure of any round is unknown or
    /// unusable.
    pub figure: Option<f64>,
    /// 95% interval of `figure`: Student's t on the logarithms of the rounds' figures; absent without `figure`, and for a single round.
    pub interval: Option<Interval>,
    /// The limit that the demand sets, in the unit of `figure`.
    pub limit: f64,
    /// Yes if the demand is met, no if it is missed, else undecided.
    pub kept: Kept,
    /// The reason why there is no figure, no interval or no decision; absent if `kept` follows from the interval alone.
    pub missing: Option<NoFigure>,
}

impl DemandOnTarget<'_> {
    /// Returns the headroom: limit / figure, or figure / limit if more is better. Below 1 the figure misses the limit; `None` without a
    /// figure.
    #[must_use]
    pub fn room(&self) -> Option<f64> {
        let over = self.limit / self.figure?;
        Some(if self.demand.keep.is_rate() { 1.0 / over } else { over })
    }
}

/// Judges the demands of a run's plan on each of its targets, target by target.
#[must_use]
pub fn demands<'a>(run: &'a Run, judgement: &Judgement) -> Vec<DemandOnTarget<'a>> {
    let cells = by_cell(run);
    let of_target = |target: &'a str| {
        run.plan.require.iter().filter_map({
            let cells = &cells;
            move |demand| {
                let first = run.plan.workloads.first()?.name.as_str();
                let workload = demand.workload.as_deref().unwrap_or(first);
                Some(judged(run, judgement, cells, demand, CellKey { workload, target }))
            }
        })
    };
    run.plan.targets.iter().flat_map(|target| of_target(&target.name)).collect()
}

/// Combines the answers to all demands on a target: no if any is missed, yes if all are met, otherwise undecided.
#[must_use]
pub fn all_of(demands: &[DemandOnTarget<'_>], target: &str) -> Kept {
    let mut of_target = demands.iter().filter(|demand| demand.target == target).map(|demand| demand.kept);
    of_target
        .try_fold(Kept::Yes, |so_far, kept| match (so_far, kept) {
            (_, Kept::No) => Err(Kept::No),
            (Kept::Yes, Kept::Yes) => Ok(Kept::Yes),
            _ => Ok(Kept::Undecided),
        })
        .unwrap_or_else(|missed| missed)
}

fn judged<'a>(
    run: &'a Run,
    judgement: &Judgement,
    cells: &HashMap<CellKey<'a>, Vec<&'a Measurement>>,
    demand: &'a Demand,
    cell: CellKey<'a>,
) -> DemandOnTarget<'a> {
    let CellKey { workload, target } = cell;
    let none = Vec::new();
    let measured = cells.get(&cell).unwrap_or(&none);
    let spec = run.plan.workloads.iter().find(|one| one.name == workload);
    let is_direct = spec.is_some_and(|spec| spec.direct);
    let found = match figures(demand.keep, measured, is_direct) {
        _ if measured.is_empty() => Err(NoFigure::NotMeasured),
        _ if judgement.is_unusable(run, cell) => Err(NoFigure::Unusable),
        Err(few @ NoFigure::TooFew { .. }) => Err(beyond(demand.keep, measured, is_direct).unwrap_or(few)),
        figures => figures,
    };
    let logs =
        found.as_ref().ok().map(|figures| figures.iter().map(|figure| figure.ln()).collect::<Vec<_>>());
    let figure = logs.as_ref().map(|logs| (logs.iter().sum::<f64>() / logs.len() as f64).exp());
    let interval =
        logs.and_then(Differences::new).and_then(|logs| logs.interval(ALPHA)).map(|logs| logs.map(f64::exp));
    let (limit, more_is_better) = limit(demand.keep);
    let kept = match interval {
        Some(interval) if more_is_better && interval.low >= limit => Kept::Yes,
        Some(interval) if more_is_better && interval.high < limit => Kept::No,
        Some(interval) if !more_is_better && interval.high <= limit => Kept::Yes,
        Some(interval) if !more_is_better && interval.low > limit => Kept::No,
        None if matches!(found, Err(NoFigure::Beyond { .. })) => Kept::No,
        _ => Kept::Undecided,
    };
    let is_bound = |m: &&Measurement| spec.is_some_and(|spec| generator::saturation(spec, m).is_some());
    let (kept, bound) = if more_is_better && kept == Kept::No && measured.iter().any(is_bound) {
        (Kept::Undecided, Some(NoFigure::GeneratorBound))
    } else {
        (kept, None)
    };
    let missing = found.err().or(bound).or_else(|| interval.is_none().then_some(NoFigure::OneRound));
    DemandOnTarget { demand, workload, target, figure, interval, limit, kept, missing }
}

/// Returns a demand's limit in nanoseconds or per second, and true if more is better.
fn limit(keep: Keep) -> (f64, bool) {
    match keep {
        Keep::Latency { slo: Slo::Percentile { most, .. } | Slo::Mean { most }, .. } => {
            (most.0 as f64, false)
        }
        // No demand uses this condition.
        Keep::Latency { slo: Slo::NoErrors, .. } => (0.0, false),
        Keep::Iops(least) | Keep::Sustained { least, .. } => (least as f64, true),
    }
}

/// Returns the figure of each round, or the reason why one is missing.
fn figures(keep: Keep, measured: &[&Measurement], is_direct: bool) -> Result<Vec<f64>, NoFigure> {
    let of_round = |m: &&Measurement| match keep {
        Keep::Iops(_) => Metric::IOPS.of(m).ok_or(NoFigure::NotMeasured),
        Keep::Sustained { of, .. } => {
            Levels::of(m, of).map(|levels| levels.sustained).ok_or(NoFigure::NotMeasured)
        }
        Keep::Latency { of, slo } => {
            let latency = latency(m, of, is_direct).ok_or(NoFigure::NotMeasured)?;
            match slo {
                Slo::Mean { .. } => latency.mean().ok_or(NoFigure::NotMeasured),
                Slo::Percentile { percent, .. } => {
                    let q = percent / 100.0;
                    let too_few = || too_few(needed(q), of, measured, is_direct);
                    percentile(&latency, q).ok_or_else(too_few)
                }
                Slo::NoErrors => Err(NoFigure::NotMeasured),
            }
        }
    };
    measured.iter().map(of_round).collect()
}

/// Returns the reason for a percentile that needs more I/Os, with the length of a round that would have them.
fn too_few(needed: u64, of: Option<DemandOn>, measured: &[&Measurement], is_direct: bool) -> NoFigure {
    let rate = |m: &&Measurement| {
        let seconds = m.outcome.duration_ns as f64 / 1e9;
        Some(latency(m, of, is_direct)?.count() as f64 / seconds).filter(|rate| *rate > 0.0)
    };
    let slowest = measured.iter().map(rate).reduce(|one, other| Some(one?.min(other?))).flatten();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds, not below zero")]
    let seconds = slowest.map(|rate| (needed as f64 / rate).ceil() as u64);
    NoFigure::TooFew { needed, seconds }
}

/// Tests by an exact binomial test at 2.5%, over all rounds together, if significantly more I/Os exceed the limit than the percentile
/// allows. `None` if not, if a round has no I/O of this kind, or if the demand is not on a percentile.
fn beyond(keep: Keep, measured: &[&Measurement], is_direct: bool) -> Option<NoFigure> {
    let Keep::Latency { of: which, slo: Slo::Percentile { percent, most } } = keep else { return None };
    let (mut longer, mut of) = (0, 0);
    for m in measured {
        let latency = latency(m, which, is_direct)?;
        of += latency.count();
        longer +=
            latency.bars().filter(|(lowest, ..)| *lowest > most.0).map(|(.., count)| count).sum::<u64>();
    }
    let by_chance = Binomial::new(1.0 - percent / 100.0, of).ok()?;
    let is_certain = longer > 0 && by_chance.sf(longer - 1) < ALPHA / 2.0;
    is_certain.then_some(NoFigure::Beyond { longer, of })
}

/// Returns the latencies that a demand limits; `None` if there was no such I/O. For flushes (`sync`) with direct I/O these are the commit
/// times, if recorded. They include the writes before the flush, as the time of a flush does with buffered I/O.
fn latency(m: &Measurement, of: Option<DemandOn>, is_direct: bool) -> Option<Histogram> {
    let tallies = &m.outcome.tallies;
    match of {
        None => Some(tallies.latency()),
        Some(DemandOn::Sync) if is_direct && tallies.commit.is_some() => tallies.commit.clone(),
        Some(of) => {
            let (_, tally) = tallies.each().find(|(word, _)| *word == of.word())?;
            tally.map(|tally| tally.latency.clone())
        }
    }
}
