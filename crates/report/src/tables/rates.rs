//! Tables of latency against offered load, and of the highest rates that meet the conditions.

use iotax_analysis::Judgement;
use iotax_analysis::ask::{self, Answer, HighestRate};
use iotax_analysis::curve::{self, Curve, Located, RatePoint};
use iotax_analysis::percentile::percentile;
use iotax_analysis::stats::paired::Interval;
use iotax_model::Run;

use super::{high, low};
use crate::columns;
use crate::table::{DataTable, run_number};

struct PointRow<'a> {
    run: &'a Run,
    work: &'a str,
    curve: &'a Curve<'a>,
    point: &'a RatePoint<'a>,
}

impl PointRow<'_> {
    fn knee(&self) -> Option<&Located> {
        self.curve.knee.as_ref()?.power.as_ref()
    }

    fn response(&self, q: f64) -> Option<f64> {
        percentile(&self.point.response, q)
    }
}

/// Builds a table with one row per target, workload and rate. Rates are in I/Os per second; figures of a whole curve are repeated in each of its
/// rows.
#[must_use]
pub fn curves(runs: &[(Run, Judgement)]) -> DataTable {
    let curves: Vec<_> = runs.iter().map(|(run, _)| (run, curve::curves(run))).collect();
    let columns = columns!(PointRow<'_>, |row|
        "run" => run_number(row.run),
        "target" => row.curve.target,
        "workload" => row.work,
        "offered" => row.point.offered,
        "achieved" => row.point.achieved,
        "sustained" => row.point.is_sustained(),
        "service_mean_ns" => row.point.service_ns,
        "response_mean_ns" => row.point.response_mean(),
        "response_p50_ns" => row.response(0.5),
        "response_p99_ns" => row.response(0.99),
        "response_p99_9_ns" => row.response(0.999),
        "cpu_per_io_ns" => row.point.cpu_per_io,
        "capacity" => row.curve.capacity.as_ref().map(|found| found.at),
        "capacity_low_95" => low(interval(row.curve.capacity.as_ref())),
        "capacity_high_95" => high(interval(row.curve.capacity.as_ref())),
        "knee" => row.knee().map(|found| found.at),
        "knee_low_95" => low(interval(row.knee())),
        "knee_high_95" => high(interval(row.knee())),
    );
    let rows = curves.iter().flat_map(|(run, of_run)| {
        of_run.iter().flat_map(move |of_work| {
            let work = of_work.work.name.as_str();
            of_work.targets.iter().flat_map(move |curve| {
                curve.points.iter().map(move |point| PointRow { run, work, curve, point })
            })
        })
    });
    DataTable::new(columns, rows)
}

fn interval(located: Option<&Located>) -> Option<Interval> {
    located.and_then(|located| located.interval)
}

struct AnswerRow<'a> {
    run: &'a Run,
    work: &'a str,
    answer: &'a Answer<'a>,
}

impl AnswerRow<'_> {
    fn rate(&self) -> Option<&Located> {
        if let HighestRate::Rate(rate) = &self.answer.found { Some(rate) } else { None }
    }

    fn slo(&self) -> Option<String> {
        let slo = &self.run.plan.ask()?.slo;
        Some(slo.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}

/// Builds a table with one row per target and workload of a rate search. Rates are in I/Os per second.
#[must_use]
pub fn answers(runs: &[(Run, Judgement)]) -> DataTable {
    let asked = runs.iter().filter(|(run, _)| run.plan.ask().is_some());
    let answers: Vec<_> = asked.map(|(run, _)| (run, ask::answers(run))).collect();
    let columns = columns!(AnswerRow<'_>, |row|
        "run" => run_number(row.run),
        "target" => row.answer.target,
        "workload" => row.work,
        "slo" => row.slo(),
        "rate" => row.rate().map(|found| found.at),
        "low_95" => low(interval(row.rate())),
        "high_95" => high(interval(row.rate())),
        "at_least" => if let HighestRate::AtLeast(rate) = row.answer.found { Some(rate) } else { None },
        "below" => if let HighestRate::Below(rate) = row.answer.found { Some(rate) } else { None },
        "limited_by" => row.answer.limited_by.as_ref().map(ToString::to_string),
        "trials" => row.answer.trials as u64,
        "against_baseline_ratio" => row.answer.against.map(|against| against.ratio),
        "against_baseline_low" => row.answer.against.map(|against| against.interval.low),
        "against_baseline_high" => row.answer.against.map(|against| against.interval.high),
        "against_baseline_verdict" => row.answer.against.map(|against| against.verdict.word()),
    );
    let rows = answers.iter().flat_map(|(run, of_run)| {
        of_run.iter().flat_map(move |of_work| {
            let work = of_work.work.name.as_str();
            of_work.targets.iter().map(move |answer| AnswerRow { run, work, answer })
        })
    });
    DataTable::new(columns, rows)
}
