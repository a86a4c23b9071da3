//! Sentences on what events cost while a load was held.

pub(super) mod timeouts;

use iotax_analysis::store::Run;
use iotax_analysis::watch::{Effect, Episode, Judged, Recovery, episodes};
use iotax_model::Workload;
use iotax_model::plan::WatchSpec;
use iotax_model::record::Blackout;
use iotax_model::units::human;

use super::figure::{counted, title};

/// `4k random read and write, 50/50, queue depth 64, 1000 I/Os a second on data.img`, and the round if there are several.
pub(super) fn heading(run: &Run, episode: &Episode<'_>) -> String {
    let m = episode.measurement;
    let work = run.plan.workloads.iter().find(|workload| workload.name == m.workload);
    let round = if run.plan.repeat > 1 { format!(", round {}", m.round) } else { String::new() };
    format!("{} on {}{round}", work.map_or_else(|| m.workload.clone(), load), m.target)
}

fn load(work: &Workload) -> String {
    let ios = iotax_analysis::curve::offered(work).map(|rate| format!(", {} IOPS", human::count(rate)));
    let bytes = work.rate.map(|rate| format!(", {}", human::rate(rate.0 as f64)));
    format!("{}{}", title(work), ios.or(bytes).unwrap_or_default())
}

/// All sentences of a watch: what became of the load, of each event and of each requirement.
pub(super) fn all(run: &Run) -> Vec<String> {
    let Some(watch) = &run.plan.watch else { return Vec::new() };
    let of_one = |episode: &Episode<'_>| -> Vec<String> {
        let name = &episode.measurement.target;
        let told = sentences(watch, episode).into_iter().chain(timeouts::line(episode));
        let told = told.chain(episode.verdicts.iter().map(verdict));
        told.map(|sentence| format!("{name}: {sentence}")).collect()
    };
    episodes(run).iter().flat_map(of_one).collect()
}

/// The load as a whole: gaps, late, failed and lost I/Os.
pub(super) fn sentences(watch: &WatchSpec, episode: &Episode<'_>) -> Vec<String> {
    let longest = [true, false].map(|writes| episode.longest_gap_of(writes).map(gap_from));
    let longest: Vec<String> = longest.into_iter().flatten().collect();
    let gap = match (episode.gaps, longest.as_slice()) {
        (None, _) => "gaps unknown: I/Os did not return to the end".into(),
        (Some(_), []) => "no gap".into(),
        (Some(_), all) => format!("longest gap: {}", all.join(", ")),
    };
    let late = format!("{} late (over {})", ios(episode.late), watch.late);
    let more = if episode.gaps.is_some() { "" } else { ", or more" };
    let failed =
        if episode.failed == 0 { "none failed".into() } else { format!("{} failed", ios(episode.failed)) };
    let data = episode.measurement.outcome.verify.as_ref().map(|findings| {
        let checked = counted(findings.checked, "block");
        match (findings.faulty(), findings.unfinished, findings.checked) {
            (0, true, _) => format!("{checked} verified, not all that was written"),
            (0, false, 0) => "no block verified".into(),
            (0, false, _) => format!("all of {checked} verified"),
            (faulty, ..) => {
                let all: Vec<String> = findings.faults.iter().map(ToString::to_string).collect();
                format!("{} NOT AS ACKNOWLEDGED ({})", counted(faulty, "block"), all.join("; "))
            }
        }
    });
    let parts = [Some(gap), Some(format!("{late}, {failed}{more}")), data];
    vec![format!("{}.", parts.into_iter().flatten().collect::<Vec<_>>().join("; "))]
}

/// `writes 3.02 s from 20.0 s on`.
fn gap_from(gap: &Blackout) -> String {
    let end = if gap.ended { "" } else { " to the end" };
    let [length, at] = [gap.duration_ns, gap.at_ns].map(|ns| human::time(ns as f64));
    format!("{} {length} from {at} on{end}", way(gap))
}

/// Of what the gap is.
pub(super) const fn way(gap: &Blackout) -> &'static str {
    if gap.writes { "writes" } else { "reads" }
}

fn ios(count: u64) -> String {
    if count == 0 { "none".into() } else { counted(count, "I/O") }
}

/// `3.25 s`, `at once`, `not within 40.0 s`.
pub(super) fn recovery(effect: &Effect<'_>) -> String {
    match effect.recovery {
        Recovery::Unknown => "unknown".into(),
        Recovery::Unaffected => "unaffected".into(),
        Recovery::After(ns) => human::time(ns as f64),
        Recovery::NotWithin(ns) => format!("not within {}", human::time(ns as f64)),
    }
}

/// `gap < 30s: passed (3.02 s)`.
pub(super) fn verdict(judged: &Judged) -> String {
    let word = match judged.passed {
        Some(true) => "passed",
        Some(false) => "FAILED",
        None => "undecided",
    };
    let value = judged.value.map(|value| {
        let least = if judged.passed.is_none() { "at least " } else { "" };
        let value = if judged.is_time() { human::time(value as f64) } else { value.to_string() };
        format!(" ({least}{value})")
    });
    format!("{}: {word}{}", judged.requirement, value.unwrap_or_default())
}

/// Below the table of events.
pub(super) const LEGEND: &str = "Times from the start of the measured window. Normal: rate and mean response time as before the first event, and staying so; to 250 ms.";
