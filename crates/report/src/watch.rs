//! Sentences on what events cost while a load was held.

use iotax_analysis::store::Run;
use iotax_analysis::watch::{Effect, Episode, Gap, Judged, Machine, Recovery, Sight, Stalled, episodes};
use iotax_model::Workload;
use iotax_model::plan::WatchSpec;
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
        let told = sentences(watch, episode).into_iter().chain(episode.verdicts.iter().map(verdict));
        told.map(|sentence| format!("{name}: {sentence}")).collect()
    };
    episodes(run).iter().flat_map(of_one).collect()
}

/// The load as a whole: gaps, late, failed and lost I/Os.
pub(super) fn sentences(watch: &WatchSpec, episode: &Episode<'_>) -> Vec<String> {
    let longest = [Stalled::Guest, Stalled::Writes, Stalled::Reads];
    let longest: Vec<String> =
        longest.iter().filter_map(|of| episode.longest_gap_of(*of)).map(gap_from).collect();
    let gap = match (&episode.gaps, longest.as_slice()) {
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
    let whole = format!("{}.", parts.into_iter().flatten().collect::<Vec<_>>().join("; "));
    [Some(whole), origin(episode)].into_iter().flatten().collect()
}

/// The layer in which the longest gap arose.
fn origin(episode: &Episode<'_>) -> Option<String> {
    let gap = episode.longest_gap().filter(|gap| gap.of != Stalled::Guest)?;
    let origin = episode.origin(gap)?;
    let Some((sight, hung)) = origin.lowest.and_then(|place| {
        let sight = origin.sights.get(place)?;
        Some((sight, sight.hung?))
    }) else {
        let top = device(origin.sights.last()?, &origin.sights);
        return Some(format!("No block device stalled: the gap of {} arose above {top}.", gap.of.word()));
    };
    let [length, at] = [hung.duration_ns, hung.at_ns].map(|ns| human::time(ns as f64));
    let name = device(sight, &origin.sights);
    Some(format!("Lowest layer that stalled: {name}, whose {} hung {length} from {at} on.", hung.of.word()))
}

/// `the guest's vda`, or `vda` if there is no guest.
pub(super) fn device(sight: &Sight<'_>, all: &[Sight<'_>]) -> String {
    match sight.machine {
        Machine::Guest => format!("the guest's {}", sight.device),
        Machine::Host if all.iter().any(|one| one.machine == Machine::Guest) => {
            format!("the host's {}", sight.device)
        }
        Machine::Host => sight.device.into(),
    }
}

/// The longest gap of reads or writes as each layer saw it, from the load down: where, when it began and ended, and its length.
pub(super) fn sights(episode: &Episode<'_>) -> Vec<[String; 4]> {
    let Some(gap) = episode.longest_gap() else { return Vec::new() };
    let Some(origin) = episode.origin(gap) else { return Vec::new() };
    let row = |name: String, gap: Option<Gap>| {
        let Some(gap) = gap else { return [name, "did not stall".into(), String::new(), String::new()] };
        let end = if gap.ended { human::time(gap.end_ns() as f64) } else { "after the end".into() };
        [name, human::time(gap.at_ns as f64), end, human::time(gap.duration_ns as f64)]
    };
    let below = origin.sights.iter().rev().map(|sight| row(device(sight, &origin.sights), sight.hung));
    [row(format!("the load's {}", gap.of.word()), Some(*gap))].into_iter().chain(below).collect()
}

/// The columns of [`sights`].
pub(super) const SIGHTS: [&str; 4] = ["longest gap at", "from", "to", "length"];

/// `writes 3.02 s from 20.0 s on`.
fn gap_from(gap: &Gap) -> String {
    let end = if gap.ended { "" } else { " to the end" };
    let [length, at] = [gap.duration_ns, gap.at_ns].map(|ns| human::time(ns as f64));
    format!("{} {length} from {at} on{end}", gap.of.word())
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
