//! Latency against offered load, and the highest rates that keep conditions.

use iotax_analysis::ask::{self, Answer, Found};
use iotax_analysis::curve::{self, Curve, Located};
use iotax_analysis::percentile::percentile;
use iotax_model::Run;

use super::{Row, high, known, low};

/// One row per target, work and rate. Rates are I/Os per second; what belongs to the whole curve stands in each of its rows.
pub(super) const CURVES: &[&str] = &[
    "run",
    "target",
    "workload",
    "offered",
    "achieved",
    "sustained",
    "service_mean_ns",
    "response_mean_ns",
    "response_p50_ns",
    "response_p99_ns",
    "response_p99_9_ns",
    "cpu_per_io_ns",
    "capacity",
    "capacity_low_95",
    "capacity_high_95",
    "knee",
    "knee_low_95",
    "knee_high_95",
];

/// One row per target and work that was asked about. Rates are I/Os per second.
pub(super) const ANSWERS: &[&str] = &[
    "run",
    "target",
    "workload",
    "slo",
    "rate",
    "low_95",
    "high_95",
    "at_least",
    "below",
    "limited_by",
    "trials",
    "against_baseline_ratio",
    "against_baseline_low",
    "against_baseline_high",
    "against_baseline_verdict",
];

pub(super) fn curves(run: &Run) -> Vec<Row> {
    let curves = curve::curves(run);
    let each = curves.iter().flat_map(|curves| curves.targets.iter().map(|curve| (&curves.work.name, curve)));
    each.flat_map(|(work, curve)| points(run, work, curve)).collect()
}

fn points(run: &Run, work: &str, curve: &Curve<'_>) -> Vec<Row> {
    let knee = curve.knee.as_ref().and_then(|knee| knee.power);
    let row = |point: &curve::Point<'_>| {
        let response = |q| known(percentile(&point.response, q));
        let mut row = vec![
            run.id.to_string(),
            curve.target.to_owned(),
            work.to_owned(),
            point.offered.to_string(),
            known(point.achieved),
            point.is_sustained().to_string(),
            known(point.service_ns),
            known(point.response_mean()),
            response(0.5),
            response(0.99),
            response(0.999),
            known(point.cpu_per_io),
        ];
        row.extend(located(curve.capacity.as_ref()));
        row.extend(located(knee.as_ref()));
        row
    };
    curve.points.iter().map(row).collect()
}

fn located(located: Option<&Located>) -> [String; 3] {
    let interval = located.and_then(|located| located.interval);
    [known(located.map(|located| located.at)), low(interval), high(interval)]
}

pub(super) fn answers(run: &Run) -> Vec<Row> {
    let Some(asked) = run.plan.ask() else { return Vec::new() };
    let slo = asked.slo.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let answers = ask::answers(run);
    let each = answers.iter().flat_map(|of| of.targets.iter().map(|answer| (&of.work.name, answer)));
    each.map(|(work, found)| answer(run, work, &slo, found)).collect()
}

fn answer(run: &Run, work: &str, slo: &str, answer: &Answer<'_>) -> Row {
    let mut row = vec![run.id.to_string(), answer.target.to_owned(), work.to_owned(), slo.to_owned()];
    let (rate, at_least, below) = match answer.found {
        Found::Rate(rate) => (Some(rate), None, None),
        Found::AtLeast(rate) => (None, Some(rate), None),
        Found::Below(rate) => (None, None, Some(rate)),
        Found::Unknown => (None, None, None),
    };
    row.extend(located(rate.as_ref()));
    row.extend([known(at_least), known(below)]);
    row.push(known(answer.limited_by));
    row.push(answer.trials.to_string());
    let against = answer.against;
    row.push(known(against.map(|against| against.ratio)));
    row.push(low(against.map(|against| against.interval)));
    row.push(high(against.map(|against| against.interval)));
    row.push(known(against.map(|against| against.verdict.word())));
    row
}
