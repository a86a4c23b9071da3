//! Compares the cost of an event on one target with that on the baseline, and that of an operation with its alternative's, round by round.
//!
//! The figures are those of the event's own seconds on each target, as in [`super::price`]. All comparisons over events, workloads and
//! targets form one family of Holm's procedure, because a reader may pick the one that looks worst.

use iotax_model::plan::WatchSpec;
use iotax_model::{CellKey, MeasurementKey, Plan, Run, TargetSpec, Workload};
use schemars::JsonSchema;
use serde::Serialize;

use super::price::{Seconds, longest_gap, span};
use super::{Episode, EventEffect};
use crate::comparison::Ratio;
use crate::percentile::percentile;
use crate::sample::{ComparedFigure, Sample, decide_family};
use crate::stats::quantization::of_two_percentiles;
use crate::stats::verdict::Decision;
use crate::{checks, grade};

/// A figure of an event by which targets are compared. Less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub enum EventFigure {
    /// Duration of the event's command or operation, in nanoseconds.
    #[serde(rename = "took_ns")]
    Took,
    /// The longest gap during the event, in nanoseconds; without a gap, the shortest length that counts as one, which is an upper bound.
    #[serde(rename = "gap_ns")]
    Gap,
    /// Mean response time during the event, in nanoseconds.
    #[serde(rename = "response_mean_ns")]
    ResponseMean,
    /// 99th percentile of response times during the event, in nanoseconds.
    #[serde(rename = "response_p99_ns")]
    ResponseP99,
    /// Mean response time during the event, divided by that in the same seconds of the control, a window without events.
    #[serde(rename = "slowdown")]
    Slowdown,
}

impl EventFigure {
    /// All figures, in the order of tables and documents.
    pub const ALL: [Self; 5] = [Self::Took, Self::Gap, Self::ResponseMean, Self::ResponseP99, Self::Slowdown];
}

impl ComparedFigure for EventFigure {
    fn coarseness(self) -> f64 {
        if self == Self::ResponseP99 { of_two_percentiles() } else { 0.0 }
    }

    fn more_is_better(self) -> bool {
        false
    }

    fn is_time(self) -> bool {
        self != Self::Slowdown
    }
}

/// One figure of an event on one target compared with the baseline, or with that of another event on the same target.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceComparison<'a> {
    /// The workload's name.
    pub workload: &'a str,
    /// The event's name.
    pub event: &'a str,
    /// The figure that is compared.
    pub figure: EventFigure,
    /// The target's name.
    pub target: &'a str,
    /// Name of the target compared with: the baseline, or the same target.
    pub baseline: &'a str,
    /// Name of the event compared with: the same event, or the alternative to its operation.
    pub baseline_event: &'a str,
    /// Geometric means of the target's and the baseline's figures, in nanoseconds; for the slowdown, ratios.
    pub values: (f64, f64),
    /// Ratio of the target's figure to the baseline's.
    pub ratio: Ratio,
    /// Number of rounds in which both sides were measured.
    pub rounds: u32,
}

impl PriceComparison<'_> {
    /// Returns whether two events on one target are compared, not one event on two targets.
    #[must_use]
    pub fn is_of_events(&self) -> bool {
        self.event != self.baseline_event
    }
}

/// An event on a target, by name.
#[derive(Clone, Copy)]
struct Side<'a> {
    target: &'a str,
    event: &'a str,
}

/// Lists the pairs that are compared under a load: first every event on every target with the same event on the
/// baseline, then every operation with its alternative on the same target.
fn sides<'a>(plan: &'a Plan, watch: &'a WatchSpec, load: &Workload) -> Vec<[Side<'a>; 2]> {
    let (mut all, baseline) = (Vec::new(), plan.baseline.as_str());
    for (_, event) in watch.scheduled(load.runtime) {
        let others = plan.targets.iter().filter(|target| target.name != baseline);
        all.extend(
            others.map(|other| {
                [other.name.as_str(), baseline].map(|target| Side { target, event: &event.name })
            }),
        );
    }
    for pair in watch.alternatives() {
        let of = |target: &'a TargetSpec| pair.map(|event| Side { target: &target.name, event: &event.name });
        all.extend(plan.targets.iter().map(of));
    }
    all
}

/// Compares the cost of every event on every target with that on the baseline, and alternative operations with each other on every target.
/// Empty without a watch, for a single round, or if the watch measures all targets in one window.
///
/// A figure that is unknown in any common round is not compared.
#[must_use]
pub fn price_comparisons<'a>(run: &'a Run, episodes: &[Episode<'a>]) -> Vec<PriceComparison<'a>> {
    let plan = &run.plan;
    let Some(watch) = plan.watch().filter(|_| plan.repeat > 1 && !plan.is_together()) else {
        return Vec::new();
    };
    let findings = checks::of_measurements(run);
    let unusable = grade::withheld(&findings);
    let find = |target: &str, workload: &str, round: u32| {
        let key = MeasurementKey { cell: CellKey { workload, target }, round };
        episodes.iter().find(|episode| episode.measurement.key() == key)
    };
    let window = |side: Side<'a>, load: &str, round: u32| {
        let control = watch.control.as_deref().and_then(|control| find(side.target, control, round));
        Some(EventWindow { event: side.event, episode: find(side.target, load, round)?, control })
    };
    let mut all: Vec<(PriceComparison<'a>, Sample)> = Vec::new();
    for workload in plan.workloads.iter().filter(|workload| !watch.is_control(&workload.name)) {
        for [ours, theirs] in sides(plan, watch, workload) {
            let of = |side, round| window(side, &workload.name, round);
            let rounds: Vec<[EventWindow<'_, '_>; 2]> =
                (1..=plan.repeat).filter_map(|round| Some([of(ours, round)?, of(theirs, round)?])).collect();
            let mut both = rounds.iter().flatten();
            let withheld = both.find_map(|one| {
                let reason = unusable.get(&one.episode.measurement.key()).cloned();
                reason.or_else(|| one.failure())
            });
            for figure in EventFigure::ALL {
                let pairs = rounds.iter().map(|[ours, theirs]| {
                    Some((ours.figure(figure, workload)?, theirs.figure(figure, workload)?))
                });
                let sample = pairs
                    .collect::<Option<Vec<(f64, f64)>>>()
                    .and_then(|pairs| Some((Sample::paired(&pairs, figure)?, geometric_mean(&pairs))));
                let Some((sample, values)) = sample else { continue };
                let ratio =
                    Ratio::new(figure, ratio_of(values), &sample, &Decision::none(), withheld.clone());
                let comparison = PriceComparison {
                    workload: &workload.name,
                    event: ours.event,
                    figure,
                    target: ours.target,
                    baseline: theirs.target,
                    baseline_event: theirs.event,
                    values,
                    ratio,
                    rounds: u32::try_from(rounds.len()).unwrap_or(u32::MAX),
                };
                all.push((comparison, sample));
            }
        }
    }
    // Comparisons of targets come first, then those of events, because each kind has its own table.
    all.sort_by_key(|(one, _)| one.is_of_events());
    decide(&mut all, plan.margin.share());
    all.into_iter().map(|(comparison, _)| comparison).collect()
}

/// Decides as one family all comparisons whose verdict is not withheld.
fn decide(all: &mut [(PriceComparison<'_>, Sample)], margin: f64) {
    let members: Vec<_> = all.iter_mut().filter(|(one, _)| one.ratio.withheld.is_none()).collect();
    let samples = members.iter().map(|(one, sample)| (one.figure, sample.clone())).collect();
    for ((one, sample), decision) in members.into_iter().zip(decide_family(samples, margin)) {
        one.ratio = Ratio::new(one.figure, ratio_of(one.values), sample, &decision, None);
    }
}

const fn ratio_of((ours, theirs): (f64, f64)) -> (f64, f64) {
    (ours / theirs, theirs)
}

fn geometric_mean(pairs: &[(f64, f64)]) -> (f64, f64) {
    let mean = |of: fn(&(f64, f64)) -> f64| {
        (pairs.iter().map(|pair| of(pair).ln()).sum::<f64>() / pairs.len() as f64).exp()
    };
    (mean(|pair| pair.0), mean(|pair| pair.1))
}

/// An event in one window, with the control of the same round, which is a window without events.
struct EventWindow<'a, 'e> {
    event: &'a str,
    episode: &'e Episode<'a>,
    control: Option<&'e Episode<'a>>,
}

impl<'a, 'e> EventWindow<'a, 'e> {
    fn effect(&self) -> Option<&'e EventEffect<'a>> {
        self.episode.effects.iter().find(|effect| effect.name == self.event && !effect.is_mark)
    }

    /// Returns the reason why the figures do not show the event; `None` if the event happened and was observed to its end.
    fn failure(&self) -> Option<String> {
        let why = match self.effect() {
            None => "did not happen",
            Some(effect) if effect.failure.is_some() => "failed",
            Some(effect) if effect.unseen_ns > 0 => "was not seen to its end",
            Some(_) => return None,
        };
        let m = self.episode.measurement;
        Some(format!("{}, round {}: {} {why}", m.target, m.round, self.event))
    }

    /// Returns a figure of the event, in nanoseconds, or a ratio for the slowdown; `None` if it is unknown or not positive.
    fn figure(&self, figure: EventFigure, workload: &Workload) -> Option<f64> {
        let effect = self.effect()?;
        let response = |episode: &Episode<'_>| Seconds::of(episode.measurement, span(effect)).response;
        let mean = |episode: &Episode<'_>| response(episode).mean();
        let value = match figure {
            EventFigure::Took => effect.duration_ns? as f64,
            EventFigure::Gap => {
                let shortest = workload.blackout?.0;
                longest_gap(self.episode, span(effect))?.max(shortest) as f64
            }
            EventFigure::ResponseMean => mean(self.episode)?,
            EventFigure::ResponseP99 => percentile(&response(self.episode), 0.99)?,
            EventFigure::Slowdown => mean(self.episode)? / mean(self.control?)?,
        };
        Some(value).filter(|value| *value > 0.0)
    }
}
