//! The JSON of a suite: the figures of its tests at each size or depth, and their knees and transitions.

use iotax_model::suite::SuiteShape;
use serde_json::Value;

use super::{any, filled, number, object};
use iotax_analysis::suite::filecopy;
use iotax_analysis::suite::{Knee, Point, TargetSeries, Test, Transition, tests};
use iotax_model::Run;

/// The suite of a run; absent for a run of none.
pub(super) fn suite(run: &Run) -> Option<Value> {
    let name = run.plan.suite.as_deref()?;
    let remarks = run.plan.known_suite().map(|suite| {
        suite.remarks.iter().map(|remark| {
            let tests = remark.tests.iter().map(|test| Value::from(*test)).collect();
            object([("tests", filled(tests)), ("text", Some(remark.text.into()))])
        })
    });
    Some(object([
        ("name", Some(name.into())),
        ("remarks", remarks.and_then(|remarks| filled(remarks.collect()))),
        ("tests", filled(tests(run).iter().flat_map(courses).collect())),
        ("indexes", filled(filecopy::indexes(run).iter().filter_map(any).collect())),
    ]))
}

/// One entry for each test and target.
fn courses<'a>(test: &'a Test<'_>) -> impl Iterator<Item = Value> + 'a {
    test.series.iter().map(|course| {
        object([
            ("test", Some(test.name.into())),
            ("target", Some(course.target.into())),
            ("points", Some(course.points.iter().map(|found| point(test.shape, found)).collect())),
            ("knee", course.knee.as_ref().map(|found| knee(course, found))),
            ("transition", course.transition.as_ref().map(transition)),
        ])
    })
}

fn point(shape: SuiteShape, point: &Point<'_>) -> Value {
    let file = point.workload.size.filter(|_| shape == SuiteShape::Files);
    let depth = shape == SuiteShape::Depths;
    object([
        ("workload", Some(point.workload.name.as_str().into())),
        ("block_size", Some(point.block_size().0.into())),
        ("file_size", file.map(|file| file.0.into())),
        ("outstanding", depth.then(|| point.outstanding().into())),
        ("in_flight", number(point.in_flight().filter(|_| depth))),
        ("iops", number(point.iops)),
        ("bytes_per_s", number(point.bytes_per_s)),
        ("latency_mean_ns", number(point.latency_ns)),
    ])
}

fn knee(course: &TargetSeries<'_>, knee: &Knee) -> Value {
    let beyond = knee.beyond.map(|(iops, latency)| {
        object([("iops_ratio", number(Some(iops))), ("latency_ratio", number(Some(latency)))])
    });
    object([
        ("outstanding", number(Some(knee.outstanding))),
        ("low", number(knee.range.map(|(low, _)| low))),
        ("high", number(knee.range.map(|(_, high)| high))),
        ("least_latency_ns", number(Some(knee.least_latency_ns))),
        ("ceiling_iops", number(Some(knee.ceiling_iops))),
        ("at", knee.at.map(|at| course.points[at].workload.name.as_str().into())),
        ("beyond", beyond),
    ])
}

fn transition(found: &Transition) -> Value {
    object([
        ("size", number(found.size)),
        ("low", number(found.range.map(|(low, _)| low))),
        ("high", number(found.range.map(|(_, high)| high))),
        ("fixed_ns", number(Some(found.fixed_ns))),
        ("bytes_per_s", number(found.bytes_per_s)),
        ("misfit", number(Some(found.misfit))),
    ])
}
