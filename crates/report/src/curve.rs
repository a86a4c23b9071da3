//! Describes in sentences how latency rises with the offered load.

use iotax_analysis::curve::{Curve, Curves, Located, RatePoint};
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Judgement, Metric};
use iotax_model::CellKey;
use iotax_model::units::human;

use super::figure::{signed_time, title};

/// Formats the heading of a workload's curves: `4k random read: latency against load`.
pub(super) fn heading(curves: &Curves<'_>) -> String {
    format!("{}: latency against load", title(curves.work))
}

/// Load, as a share of a target's capacity, near which its response time is compared with the baseline's.
const HALF: f64 = 0.5;

/// Returns a sentence per target: its capacity, its response time compared with the baseline's, and the knee of its latency curve.
pub(super) fn sentences(judgement: &Judgement, curves: &Curves<'_>, baseline: &str) -> Vec<String> {
    let base = curves.targets.iter().find(|curve| curve.target == baseline);
    curves.targets.iter().map(|curve| sentence(judgement, curves, curve, base)).collect()
}

fn sentence(
    judgement: &Judgement,
    curves: &Curves<'_>,
    curve: &Curve<'_>,
    base: Option<&Curve<'_>>,
) -> String {
    let base = base.filter(|base| base.target != curve.target);
    let mut parts: Vec<String> = Vec::new();
    if let Some((capacity, closed)) = curve.capacity.zip(curve.closed) {
        let less = base.and_then(|base| against(judgement, curves, curve, base)).unwrap_or_default();
        let most = with_interval(&capacity);
        parts.push(if capacity == closed {
            format!("up to {most} IOPS{less}")
        } else {
            format!("up to {most} IOPS; {} in the closed loop{less}", with_interval(&closed))
        });
    }
    parts.extend(base.and_then(|base| at_half(judgement, curve, base)));
    let knee = curve.knee.as_ref();
    let share = |located: &Located| {
        let share =
            curve.capacity.map(|capacity| format!(" ({:.0}% of that)", 100.0 * located.at / capacity.at));
        share.unwrap_or_default()
    };
    if let Some(power) = knee.and_then(|knee| knee.power.as_ref()) {
        parts.push(format!("knee at {}{}", with_interval(power), share(power)));
    }
    if let Some(double) = knee.and_then(|knee| knee.double.as_ref()) {
        parts.push(format!("latency doubled at {}", with_interval(double)));
    }
    if knee.is_none() {
        parts.push("too few rates were sustained to tell where latency rises".into());
    }
    format!("{}: {}.", curve.target, parts.join("; "))
}

/// Compares a target's capacity with the baseline's: `, 38% less than host-file`; `None` if the two were not compared.
fn against(
    judgement: &Judgement,
    curves: &Curves<'_>,
    curve: &Curve<'_>,
    base: &Curve<'_>,
) -> Option<String> {
    let compared =
        judgement.comparison(CellKey { workload: &curves.work.name, target: curve.target }, Metric::IOPS)?;
    let share = curve.capacity?.at / base.capacity?.at;
    let name = base.target;
    Some(match compared.ratio.verdict {
        Verdict::Same => format!(", the same as {name}"),
        Verdict::Slower if share < 1.0 => format!(", {:.0}% less than {name}", 100.0 * (1.0 - share)),
        Verdict::Faster if share > 1.0 => format!(", {:.0}% more than {name}", 100.0 * (share - 1.0)),
        _ => format!(", undecided against {name}"),
    })
}

/// Compares mean response times with the baseline's at the sustained rate nearest to half of this target's capacity: `responses +40.0 us at
/// 5.50k IOPS`. `None` if the capacity is unknown, or if no rate was sustained on both targets and compared.
fn at_half(judgement: &Judgement, curve: &Curve<'_>, base: &Curve<'_>) -> Option<String> {
    let half = curve.capacity?.at * HALF;
    let both = |point: &RatePoint<'_>| -> Option<(f64, f64, String)> {
        let other = base.points.iter().find(|other| other.workload.name == point.workload.name)?;
        let sustained = point.is_sustained() && other.is_sustained();
        let more = point.response_mean()? - other.response_mean()?;
        sustained.then(|| (point.offered, more, point.workload.name.clone()))
    };
    let found = curve.points.iter().filter_map(both);
    let (rate, more, name) = found.min_by(|a, b| (a.0 - half).abs().total_cmp(&(b.0 - half).abs()))?;
    let compared =
        judgement.comparison(CellKey { workload: &name, target: curve.target }, Metric::LATENCY_MEAN)?;
    let rate = human::count(rate);
    Some(match compared.ratio.verdict {
        Verdict::Same => format!("the same latency at {rate} IOPS"),
        Verdict::Slower if more > 0.0 => format!("responses {} at {rate} IOPS", signed_time(more)),
        Verdict::Faster if more < 0.0 => format!("responses {} at {rate} IOPS", signed_time(more)),
        _ => format!("latency at {rate} IOPS undecided"),
    })
}

/// Formats an estimate with its confidence interval: `12.1k [11.9k, 12.3k]`.
pub(super) fn with_interval(located: &Located) -> String {
    let interval = located.interval;
    let interval = interval.map(|ends| format!(" [{}, {}]", human::count(ends.low), human::count(ends.high)));
    human::count(located.at) + &interval.unwrap_or_default()
}

/// Returns the legend below the tables of rates; `has_kept` adds the explanation of the column `kept`.
pub(super) fn legend(has_kept: bool) -> String {
    let kept = if has_kept { KEPT } else { "" };
    format!(
        "Response times count from when each I/O was due.{kept} -: less than 98% of the I/Os due completed in time, or the rate is far above what it can do."
    )
}

/// Explanation of the column `kept` in the legend.
const KEPT: &str = " kept: the share of the I/Os due in a window that completed in it (a random schedule makes a few more or fewer due than the rate says).";
