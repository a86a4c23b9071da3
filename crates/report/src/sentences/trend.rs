//! Describes the changes in a history of runs.

use iotax_model::units::human::listed;

use crate::figure::{change, change_with, counted, listed_briefly};
use iotax_analysis::compare::Difference;
use iotax_analysis::time::utc;
use iotax_analysis::trend::{PastRun, Trend, TrendChange, TrendGate, Trends};

/// Maximum number of differences listed in a sentence.
const NAMED: usize = 4;

/// Names the run that a point of a trend shows: `run 41`.
pub(crate) fn run(runs: &[PastRun], trend: &Trend, point: usize) -> String {
    format!("run {}", runs[trend.points[point].run].id)
}

/// Returns the UTC date on which a point's run started: `2026-11-20`.
pub(crate) fn day(runs: &[PastRun], trend: &Trend, point: usize) -> String {
    utc(runs[trend.points[point].run].started_at_ms)[..10].to_owned()
}

/// Names the target and workload of a series: `vm-qcow2 on randread-4k`.
pub(crate) fn cell(trend: &Trend) -> String {
    format!("{} on {}", trend.target, trend.workload.name)
}

/// Returns `slower` if the new level is worse, else `faster`.
pub(crate) fn direction(change: &TrendChange) -> &'static str {
    if change.is_worse { "slower" } else { "faster" }
}

/// Describes a change: `Since run 41, 2026-11-20: vm-qcow2 on randread-4k: mean latency +5.2% [+4.1, +6.3], slower: 12 runs against 40
/// before; the machine itself -0.3% [-1.1, +0.4].` The last part is the change of the control target.
pub(crate) fn changed(runs: &[PastRun], trend: &Trend, found: &TrendChange) -> String {
    let gap = if found.last_before + 1 == found.first_after {
        String::new()
    } else {
        format!(
            " (one of runs {} to {})",
            runs[trend.points[found.last_before + 1].run].id,
            runs[trend.points[found.first_after].run].id
        )
    };
    let machine = found.control.map_or(String::new(), |(ratio, interval)| {
        format!("; the machine itself {}", change_with(ratio, Some(interval)))
    });
    format!(
        "Since {}{gap}, {}: {}: {} {}, {}: {} against {} before{machine}.",
        run(runs, trend, found.at),
        day(runs, trend, found.at),
        cell(trend),
        trend.metric.name_on(&trend.workload),
        change_with(found.ratio, Some(found.interval)),
        direction(found),
        counted(found.points.1 as u64, "run"),
        found.points.0,
    )
}

/// Lists for each change the other differences between the runs before and after it, such as settings, users and notes. Identical lines are
/// given once.
pub(crate) fn causes<'a>(
    runs: &[PastRun],
    changes: impl Iterator<Item = (&'a Trend, &'a TrendChange)>,
    all: bool,
) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for (trend, found) in changes {
        let between = format!(
            "Between {} and {}",
            run(runs, trend, found.last_before),
            run(runs, trend, found.first_after)
        );
        let mut parts: Vec<String> = found.causes.iter().map(difference).collect();
        let left = if all { 0 } else { parts.len().saturating_sub(NAMED) };
        parts.truncate(parts.len() - left);
        if left > 0 {
            parts.push(format!("and {left} more (--detail)"));
        }
        if parts.is_empty() {
            parts.push("nothing else that is on record".into());
        }
        let after = &runs[trend.points[found.last_before].run + 1..=trend.points[found.first_after].run];
        let mut users: Vec<String> = after.iter().filter_map(|run| run.environment.user.clone()).collect();
        users.sort();
        users.dedup();
        if !users.is_empty() {
            parts.push(format!("run by {}", listed(&users)));
        }
        let noted = after.iter().filter(|run| !run.note.is_empty());
        parts.extend(noted.map(|run| format!("note of run {}: {:?}", run.id, run.note)));
        let line = format!("{between}: {}.", parts.join("; "));
        if !said.contains(&line) {
            said.push(line);
        }
    }
    said
}

fn difference(difference: &Difference) -> String {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "not there or not known".into());
    format!("{} {} instead of {}", difference.what, side(&difference.b), side(&difference.a))
}

/// Describes a possible change in the newest runs:
/// `vm-raw on randread-4k: mean latency: the last 2 runs are +5.1%; pending: 3 more like them decide.` `None` if the newest runs do not
/// deviate.
pub(crate) fn pending(trend: &Trend) -> Option<String> {
    let found = trend.pending?;
    let (are, them) = if found.points == 1 { ("run is", "it") } else { ("runs are", "them") };
    let count = if found.points == 1 { String::new() } else { format!("{} ", found.points) };
    let decide = found.needed.map_or_else(
        || format!("a dozen more like {them} would not decide, the series strays too much"),
        |more| format!("pending: {more} more like {them} decide"),
    );
    Some(format!(
        "{}: {}: the last {count}{are} {}; {decide}.",
        cell(trend),
        trend.metric.name_on(&trend.workload),
        change(found.ratio)
    ))
}

/// Describes the outcome of each gate (`--fail-if`), one line each.
#[must_use]
pub fn gates(runs: &[PastRun], trends: &Trends) -> Vec<String> {
    let gate = |result: &TrendGate| {
        let tripped: Vec<String> = result
            .tripped
            .iter()
            .map(|(trend, found)| {
                let trend = &trends.trends[*trend];
                let found = &trend.changes[*found];
                let amount = change_with(found.ratio, Some(found.interval));
                format!("{} since {} ({amount})", cell(trend), run(runs, trend, found.at))
            })
            .collect();
        let said = match (tripped.is_empty(), result.judged) {
            (false, _) => format!("tripped by {}", listed_briefly(&tripped)),
            (true, 0) => "nothing to judge: no series of it is long enough".into(),
            (true, judged) => format!("passed by {judged} series"),
        };
        format!("{}: {said}.", result.gate)
    };
    trends.gates.iter().map(gate).collect()
}
