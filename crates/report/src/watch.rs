//! Describes the cost of events, such as a snapshot or a failover, while a load was running.

pub(super) mod price_comparison;
pub(super) mod timeouts;

use iotax_analysis::watch::{
    CompletionGap, DeviceOwner, Episode, EventEffect, FigureChange, FirstWrites, Judged, Price, RecoveryTime,
    SHORTEST_NS, Sight, Stalled, episodes, price_comparisons, prices,
};
use iotax_model::Workload;
use iotax_model::plan::{Limit, Requirement, WatchSpec};
use iotax_model::record::Stop;
use iotax_model::units::human;
use iotax_model::{CellKey, Run};

use super::figure::{UNKNOWN, change_with, counted, title};

/// Describes the load of a window: `4k random read and write, 50/50, queue depth 64, 1.00k IOPS on data.img`; with several rounds also the round.
pub(super) fn heading(run: &Run, episode: &Episode<'_>) -> String {
    let m = episode.measurement;
    let work = run.plan.workloads.iter().find(|workload| workload.name == m.workload);
    let round = if run.plan.repeat > 1 { format!(", round {}", m.round) } else { String::new() };
    let is_control = run.plan.watch().is_some_and(|watch| watch.is_control(&m.workload));
    let without = if is_control { ", without events" } else { "" };
    format!("{} on {}{round}{without}", work.map_or_else(|| m.workload.clone(), load), m.target)
}

fn load(work: &Workload) -> String {
    let ios = iotax_analysis::curve::offered(work).map(|rate| format!(", {} IOPS", human::count(rate)));
    let bytes = work.rate.map(|rate| format!(", {}", human::rate(rate.0 as f64)));
    format!("{}{}", title(work), ios.or(bytes).unwrap_or_default())
}

/// Returns all sentences of a watch: the outcome of the load, of each event and of each requirement; empty for other runs.
pub(super) fn all(run: &Run) -> Vec<String> {
    let Some(watch) = run.plan.watch() else { return Vec::new() };
    let episodes = episodes(run);
    if is_repeated(run) {
        let prices = prices(run, &episodes);
        let compared = price_comparisons(run, &episodes);
        let rows: Vec<_> = price_comparison::tables(&compared).flat_map(price_comparison::rows).collect();
        let against = rows.iter().map(|row| price_comparison::sentence(run, row));
        let prices =
            prices.iter().flat_map(|price| [price_sentence(price)].into_iter().chain(first_writes(price)));
        return prices.chain(against).chain(summary(run, watch, &episodes)).collect();
    }
    let of_one = |episode: &Episode<'_>| -> Vec<String> {
        let name = &episode.measurement.target;
        let described = sentences(run, watch, episode).into_iter().chain(timeouts::line(episode));
        let described = described.chain(episode.verdicts.iter().map(verdict));
        described.map(|sentence| format!("{name}: {sentence}")).collect()
    };
    episodes.iter().flat_map(of_one).collect()
}

/// Returns whether any target was measured in several windows, so that a summary over the windows is shown.
pub(super) fn is_repeated(run: &Run) -> bool {
    let mut all = run.plan.workloads.iter();
    let first = all.next();
    run.plan.repeat > 1 || !all.all(|other| first.is_some_and(|first| run.plan.share_a_window(first, other)))
}

/// Returns whether all targets were measured in one common window, so that their results are shown side by side.
pub(super) fn is_side_by_side(run: &Run) -> bool {
    run.plan.is_together() && !is_repeated(run)
}

/// Describes all loads of a common window: `4k random read, queue depth 1, 1.00k IOPS on each of a, b; ICMP round trips, 100/s to host; at the same
/// time`.
pub(super) fn heading_of_all(run: &Run) -> String {
    let of = |workload: &Workload| {
        let is_network = workload.kind.is_network();
        let targets = run.plan.targets.iter().filter(|target| target.network().is_some() == is_network);
        let names: Vec<&str> = targets.map(|target| target.name.as_str()).collect();
        let preposition = if is_network { "to" } else { "on" };
        let each = if names.len() > 1 { "each of " } else { "" };
        format!("{} {preposition} {each}{}", load(workload), names.join(", "))
    };
    let loads: Vec<String> = run.plan.workloads.iter().map(of).collect();
    format!("{}; at the same time", loads.join("; "))
}

/// Column heads of [`side_by_side`].
pub(super) const SIDE_BY_SIDE: [&str; 7] = ["target", "longest gap", "from", "to", "late", "failed", "lost"];

/// Returns a row per target: its longest gap, on a common clock that starts with the first window, and its late, failed and lost I/Os.
pub(super) fn side_by_side(run: &Run, all: &[Episode<'_>]) -> Vec<[String; 7]> {
    let began = all.iter().map(|episode| episode.measurement.started_at_ms).min().unwrap_or_default();
    let row = |episode: &Episode<'_>| {
        let m = episode.measurement;
        let after = (m.started_at_ms - began) * 1_000_000;
        let seconds = |ns: u64| format!("{:.3} s", (after + ns) as f64 / 1e9);
        let [length, from, to] = match (&episode.gaps, episode.longest_gap()) {
            (None, _) => [UNKNOWN; 3].map(str::to_owned),
            (Some(_), None) => ["none".into(), String::new(), String::new()],
            (Some(_), Some(gap)) => [
                format!("{} ({})", human::time(gap.duration_ns as f64), gap.of.word()),
                seconds(gap.at_ns),
                if gap.ended { seconds(gap.end_ns()) } else { "after the end".into() },
            ],
        };
        let least =
            |count: u64| if episode.gaps.is_some() { count.to_string() } else { format!("{count} or more") };
        let lost = match episode.lost {
            _ if episode.is_network() => String::new(),
            Some(lost) => lost.to_string(),
            None => UNKNOWN.into(),
        };
        [m.target.clone(), length, from, to, least(episode.late), least(episode.failed), lost]
    };
    // In the plan's order, not that of the round.
    let of = |name: &str| all.iter().find(|episode| episode.measurement.target == name);
    run.plan.targets.iter().filter_map(|target| of(&target.name)).map(row).collect()
}

/// Returns the verdict on each requirement over the windows of all targets.
pub(super) fn verdicts_of_all(watch: &WatchSpec, all: &[Episode<'_>]) -> Vec<String> {
    watch.require.iter().map(|requirement| verdicts(all, requirement)).collect()
}

/// Describes the cost of an event: `commit on vm-qcow2: p99 3.10 ms → 9.30 ms (+200% [+180, +220]), longest gap none → 3.02 s in the 19.0 s
/// that it takes, 5 rounds.`
fn price_sentence(price: &Price<'_>) -> String {
    if price.rounds == 0 {
        let why = match price.took_ns {
            None => "it was carried out in no round".into(),
            Some(ns) => format!(
                "it takes {} and was seen to its end in no round; give a longer runtime",
                human::time(ns)
            ),
        };
        return format!("{} on {}: no price: {why}.", price.event, price.target);
    }
    let took = price.took_ns.map(|ns| format!(" in the {} that it takes", human::time(ns)));
    let change = |name: &str, change: Option<&FigureChange>, unit: fn(f64) -> String| {
        let change = change?;
        let by = change_with(change.ratio(), change.interval);
        Some(format!("{name} {} → {} ({by})", unit(change.without), unit(change.with)))
    };
    let gap = price.gap_ns.map(|(without, with)| format!("longest gap {}", gap_from_to(without, with)));
    let parts = [
        change("p99", price.p99.as_ref(), human::time),
        change("mean response time", price.mean.as_ref(), human::time),
        gap,
        price.recovery_ns.map(|ns| {
            if ns == 0.0 { recovery_of_price(ns) } else { format!("normal after {}", human::time(ns)) }
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!(
        "{} on {}: {}{}, {}.",
        price.event,
        price.target,
        parts.join(", "),
        took.unwrap_or_default(),
        counted(price.rounds as u64, "round")
    )
}

/// Describes the writes after a snapshot: `snapshot on vm: writes in the 5.00 s after it 451 us → 1.40 ms (+210% [+150, +280]), slower for
/// 3 s.`; `None` for other events.
pub(super) fn first_writes(price: &Price<'_>) -> Option<String> {
    let FirstWrites { mean, span_ns, slower_ns } = price.first_writes.as_ref()?;
    let lasts = match slower_ns {
        _ if price.first_writes.is_some_and(|writes| writes.outlasts()) => {
            "slower to the end of it".to_owned()
        }
        0 => "slower in no second for certain".to_owned(),
        ns => format!("slower for {}", human::time(*ns as f64)),
    };
    Some(format!(
        "{} on {}: writes in the {} after it {} → {} ({}), {lasts}.",
        price.event,
        price.target,
        human::time(*span_ns as f64),
        human::time(mean.without),
        human::time(mean.with),
        change_with(mean.ratio(), mean.interval)
    ))
}

/// Formats the longest gap without and with an event: `none → 3.02 s`; `none` if there was no gap at all.
pub(super) fn gap_from_to(without: f64, with: f64) -> String {
    if without == 0.0 && with == 0.0 {
        "none".into()
    } else {
        format!("{} → {}", gap_time(without), gap_time(with))
    }
}

/// Formats a time to recovery that is given in nanoseconds; `unaffected` for 0.
pub(super) fn recovery_of_price(ns: f64) -> String {
    if ns == 0.0 { "unaffected".into() } else { human::time(ns) }
}

/// Formats the length of a gap in nanoseconds; `none` for 0.
fn gap_time(ns: f64) -> String {
    if ns == 0.0 { "none".into() } else { human::time(ns) }
}

/// Formats a figure without and with the event: `3.10 ms → 41.0 ms`, with a question mark if the difference may be chance.
pub(super) fn from_to(change: Option<&FigureChange>, unit: fn(f64) -> String) -> String {
    let Some(change) = change else { return UNKNOWN.into() };
    let mark = if change.is_decided() { "" } else { " ?" };
    format!("{} → {}{mark}", unit(change.without), unit(change.with))
}

/// Returns a line per load and target, and a line per requirement, over all rounds.
pub(super) fn summary(run: &Run, watch: &WatchSpec, all: &[Episode<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    for target in &run.plan.targets {
        for workload in &run.plan.workloads {
            let cell = CellKey { workload: &workload.name, target: &target.name };
            let of = |episode: &&Episode<'_>| episode.measurement.cell() == cell;
            let ours: Vec<&Episode<'_>> = all.iter().filter(of).collect();
            if !ours.is_empty() {
                let what = if watch.is_control(&workload.name) { " without events" } else { "" };
                lines.push(format!(
                    "{}{what}, {}: {}.",
                    target.name,
                    counted(ours.len() as u64, "window"),
                    over(watch, &ours)
                ));
            }
        }
    }
    lines.extend(verdicts_of_all(watch, all));
    lines
}

/// Summarises several windows of one load: the longest gap, and the totals of late, failed and lost I/Os.
fn over(watch: &WatchSpec, all: &[&Episode<'_>]) -> String {
    let longest = all.iter().filter_map(|episode| episode.longest_gap()).max_by_key(|gap| gap.duration_ns);
    let unknown = all.iter().filter(|episode| episode.gaps.is_none()).count();
    let gap = match longest {
        Some(gap) => Some(format!("longest gap {} ({})", human::time(gap.duration_ns as f64), gap.of.word())),
        None if unknown == 0 => Some("no gap".into()),
        None if unknown < all.len() => Some(format!("no gap in {}", all.len() - unknown)),
        None => None,
    };
    let unknown = (unknown > 0).then(|| format!("gaps unknown in {unknown}: I/Os did not return"));
    let late: u64 = all.iter().map(|episode| episode.late).sum();
    let failed: u64 = all.iter().map(|episode| episode.failed).sum();
    let lost: u64 = all.iter().filter_map(|episode| episode.lost).sum();
    let lost = all.iter().any(|episode| episode.lost.is_some()).then(|| {
        if lost == 0 { "none lost".into() } else { format!("{} NOT AS ACKNOWLEDGED", counted(lost, "block")) }
    });
    let is_network = all.iter().any(|episode| episode.is_network());
    let events = all.iter().filter(|episode| episode.has_failed_events()).count();
    let events = (events > 0).then(|| format!("an event FAILED in {events}"));
    let outlasts = |episode: &&&Episode<'_>| episode.effects.iter().any(|effect| effect.unseen_ns > 0);
    let outlasted = all.iter().filter(outlasts).count();
    let outlasted = (outlasted > 0)
        .then(|| format!("an event went on after the load in {outlasted} (give a longer runtime)"));
    let parts = [
        gap,
        unknown,
        Some(format!("{} late (over {})", ios(late, is_network), watch.late)),
        Some(format!("{} failed", ios(failed, is_network))),
        lost,
        events,
        outlasted,
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Summarises the verdicts on a requirement: `gap < 30s: passed in 9 windows, FAILED in 1 (round 3 on vm-raw: 31.2 s)`. The round is left out if
/// the run has only one.
fn verdicts(all: &[Episode<'_>], requirement: &Requirement) -> String {
    let of_this = |judged: &&Judged| judged.requirement == *requirement;
    let judged = || all.iter().filter_map(|episode| Some((episode, episode.verdicts.iter().find(of_this)?)));
    let of = |passed: Option<bool>| judged().filter(move |(_, judged)| judged.passed == passed);
    let part = |word: &str, passed: Option<bool>| {
        let count = of(passed).count() as u64;
        let (first, judged) = of(passed).next()?;
        let m = first.measurement;
        let round = if all.iter().any(|one| one.measurement.round > 1) {
            format!("round {} on ", m.round)
        } else {
            String::new()
        };
        let value = judged.value.filter(|_| passed != Some(true));
        let value =
            value.map(|value| if judged.is_time() { human::time(value as f64) } else { value.to_string() });
        let which = value.map(|value| format!(" ({round}{}: {value})", m.target)).unwrap_or_default();
        Some(format!("{word} in {}{which}", counted(count, "window")))
    };
    let parts = [part("passed", Some(true)), part("FAILED", Some(false)), part("undecided", None)];
    format!("{requirement}: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Returns the sentences on the load of one window: gaps, late, failed and lost I/Os, and the layer that stalled.
pub(super) fn sentences(run: &Run, watch: &WatchSpec, episode: &Episode<'_>) -> Vec<String> {
    let longest = [
        Stalled::Guest,
        Stalled::Machine,
        Stalled::Writes,
        Stalled::Flushes,
        Stalled::Reads,
        Stalled::RoundTrips,
    ];
    let longest: Vec<String> =
        longest.iter().filter_map(|of| episode.longest_gap_of(*of)).map(gap_from).collect();
    let gap = match (&episode.gaps, longest.as_slice()) {
        (None, _) if episode.measurement.outcome.stop == Some(Stop::Gone) => {
            let after = human::time(episode.measurement.outcome.duration_ns as f64);
            let why = episode.measurement.outcome.notes.first();
            let why =
                why.map(|why| format!(" ({})", why.lines().next().unwrap_or_default())).unwrap_or_default();
            format!("gaps unknown: the agent or its guest was gone after {after}{why}")
        }
        (None, _) => hung(episode),
        (Some(_), []) => "no gap".into(),
        (Some(_), all) => format!("longest gap: {}", all.join(", ")),
    };
    let is_network = episode.is_network();
    let or_lost = if is_network { " or never came back" } else { "" };
    // If a worker never returned, the number of late I/Os is a lower bound.
    let is_known = episode.gaps.is_some();
    let least = |count: u64| if is_known { ios(count, is_network) } else { format!("at least {count}") };
    let late = format!("{} late (over {}{or_lost})", least(episode.late), watch.late);
    let failed = format!("{} failed", least(episode.failed));
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
    let parts = [Some(gap), Some(format!("{late}, {failed}")), data];
    let whole = format!("{}.", parts.into_iter().flatten().collect::<Vec<_>>().join("; "));
    [cut_short(run, episode), Some(whole), origin(episode)].into_iter().flatten().collect()
}

/// Minimum length of a window as a share of its planned length; a shorter window counts as ended early.
const CUT_SHORT: f64 = 0.9;

/// States that a window ended early: `Ended early: 9.02 s of 1m were watched.` `None` for a complete window, or if a reason for the early end is
/// recorded and reported elsewhere.
fn cut_short(run: &Run, episode: &Episode<'_>) -> Option<String> {
    let m = episode.measurement;
    let planned = run.plan.workloads.iter().find(|workload| workload.name == m.workload)?.runtime;
    let watched = m.outcome.duration_ns as f64;
    (m.outcome.stop.is_none() && watched < CUT_SHORT * planned.0 as f64)
        .then(|| format!("Ended early: {} of {planned} were watched.", human::time(watched)))
}

/// Describes I/Os that never returned: `HUNG: an I/O had been in flight for 2.98 s at the end, and did not return`.
fn hung(episode: &Episode<'_>) -> String {
    let oldest = episode.measurement.samples.iter().rev().find_map(|sample| sample.oldest_ns);
    let oldest = oldest.map(|ns| {
        format!("an I/O had been in flight for {} at the end, and did not return", human::time(ns as f64))
    });
    format!("HUNG: {}", oldest.unwrap_or_else(|| "I/Os did not return".into()))
}

/// Describes the origin of the longest gap: the lowest block device that stalled, or that none did, or that the load's own machine or agent
/// stood still. `None` without a gap or without watched devices, if the gap is of round trips or a whole machine, or if the gap is of
/// flushes and no device stalled.
fn origin(episode: &Episode<'_>) -> Option<String> {
    let gap = episode.longest_gap()?;
    let origin = episode.origin(gap)?;
    if let Some(stood) = origin.stood {
        let [length, at] = [stood.duration_ns, stood.at_ns].map(|ns| human::time(ns as f64));
        let machine = match origin.sights.last()?.machine {
            DeviceOwner::Guest => "its guest",
            DeviceOwner::Host => "this machine",
        };
        return Some(format!(
            "The load itself did not run for {length} from {at} on: {machine} or its agent stood still, so this gap says nothing about the storage."
        ));
    }
    let Some((sight, hung)) = origin.lowest.and_then(|index| {
        let sight = origin.sights.get(index)?;
        Some((sight, sight.hung?))
    }) else {
        // Device counters do not show a hanging flush.
        if gap.of == Stalled::Flushes {
            return None;
        }
        let top = device(origin.sights.last()?, &origin.sights);
        return Some(format!("No block device stalled: the gap of {} arose above {top}.", gap.of.word()));
    };
    let [length, at] = [hung.duration_ns, hung.at_ns].map(|ns| human::time(ns as f64));
    let name = device(sight, &origin.sights);
    Some(format!("Lowest layer that stalled: {name}, whose {} hung {length} from {at} on.", hung.of.word()))
}

/// Names a device with its machine: `the guest's vda`, `the host's sda`; only `sda` if no watched device is in a guest.
pub(super) fn device(sight: &Sight<'_>, all: &[Sight<'_>]) -> String {
    match sight.machine {
        DeviceOwner::Guest => format!("the guest's {}", sight.device),
        DeviceOwner::Host if all.iter().any(|one| one.machine == DeviceOwner::Guest) => {
            format!("the host's {}", sight.device)
        }
        DeviceOwner::Host => sight.device.into(),
    }
}

/// Returns one row per layer for the longest gap between completions, with its start, end and length as that layer saw them. The load
/// generator comes first, the lowest device last.
pub(super) fn sights(episode: &Episode<'_>) -> Vec<[String; 4]> {
    let Some(gap) = episode.longest_gap() else { return Vec::new() };
    let Some(origin) = episode.origin(gap) else { return Vec::new() };
    let none = if gap.of == Stalled::Flushes { "its writes did not hang" } else { "did not stall" };
    let row = |name: String, gap: Option<CompletionGap>| {
        let Some(gap) = gap else { return [name, none.into(), String::new(), String::new()] };
        let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
        let end = if gap.ended { seconds(gap.end_ns()) } else { "after the end".into() };
        [name, seconds(gap.at_ns), end, seconds(gap.duration_ns)]
    };
    let below = origin.sights.iter().rev().map(|sight| row(device(sight, &origin.sights), sight.hung));
    [row(format!("the load's {}", gap.of.word()), Some(*gap))].into_iter().chain(below).collect()
}

/// Column heads of [`sights`].
pub(super) const SIGHTS: [&str; 4] = ["longest gap at", "from", "to", "length"];

/// Describes a gap: `writes 3.02 s from 20.0 s on`.
fn gap_from(gap: &CompletionGap) -> String {
    let end = if gap.ended { "" } else { " to the end" };
    let [length, at] = [gap.duration_ns, gap.at_ns].map(|ns| human::time(ns as f64));
    format!("{} {length} from {at} on{end}", gap.of.word())
}

fn ios(count: u64, is_network: bool) -> String {
    match (count, is_network) {
        (0, _) => "none".into(),
        (_, true) => counted(count, "round trip"),
        (_, false) => counted(count, "I/O"),
    }
}

/// Formats the longest gap of an event: `3.02 s (reads)`; `None` without a gap. If the gap began after the end of the event, and more than
/// 1 s after its start, adds the delay from the start: `3.02 s (reads), 5.80 s later`.
pub(super) fn longest_gap(effect: &EventEffect<'_>) -> Option<String> {
    let gap = effect.gap?;
    let length = format!("{} ({})", human::time(gap.duration_ns as f64), gap.of.word());
    let over = effect.at_ns + effect.duration_ns.unwrap_or(0).max(SHORTEST_NS);
    let later = gap.at_ns.saturating_sub(effect.at_ns);
    Some(if gap.at_ns > over { format!("{length}, {} later", human::time(later as f64)) } else { length })
}

/// Formats the time until the load was back to normal: `3.25 s`, `unaffected`, `not within 40.0 s`.
pub(super) fn recovery(effect: &EventEffect<'_>) -> String {
    match effect.recovery {
        RecoveryTime::Unknown(_) => "unknown".into(),
        // A short gap leaves the means of its interval normal.
        RecoveryTime::Unaffected if effect.gap.is_some() => "means unaffected".into(),
        RecoveryTime::Unaffected => "unaffected".into(),
        RecoveryTime::After(ns) => human::time(ns as f64),
        RecoveryTime::NotWithin(ns) => format!("not within {}", human::time(ns as f64)),
    }
}

/// Formats the verdict on a requirement in one window: `gap < 30s: passed (3.02 s)`.
pub(super) fn verdict(judged: &Judged) -> String {
    let value = judged.value.map(|value| value_of(judged, value));
    let (word, all) = match judged.passed {
        Some(true) => ("passed", [value.filter(|_| judged.value > Some(0)), None]),
        Some(false) => ("FAILED", [value, None]),
        None => ("undecided", [value.filter(|_| judged.value > Some(0)), judged.reason.clone()]),
    };
    let all: Vec<String> = all.into_iter().flatten().collect();
    let all = if all.is_empty() { String::new() } else { format!(" ({})", all.join("; ")) };
    format!("{}: {word}{all}", judged.requirement)
}

/// Formats the measured value of a requirement: `3.02 s`, `at least 3.02 s`; with microseconds if it would look equal to the limit.
fn value_of(judged: &Judged, value: u64) -> String {
    let least = if judged.is_bound { "at least " } else { "" };
    let text = match judged.requirement.limit {
        Limit::Count(_) => value.to_string(),
        Limit::Time(limit) if human::time(limit.0 as f64) == human::time(value as f64) => {
            format!("{:.6} s", value as f64 / 1e9)
        }
        Limit::Time(_) => human::time(value as f64),
    };
    format!("{least}{text}")
}

/// Describes events whose command failed, did not begin, or went on after the load had ended.
pub(super) fn failures(episode: &Episode<'_>) -> impl Iterator<Item = String> {
    episode.effects.iter().filter_map(|effect| {
        let name = effect.name;
        match (effect.failure, effect.duration_ns) {
            (Some(failure), None) => Some(format!("event {name} did not begin: {failure}")),
            (Some(failure), Some(_)) => Some(format!("event {name} failed: {failure}")),
            (None, _) => (effect.unseen_ns > 0).then(|| {
                let left_running = human::time(effect.unseen_ns as f64);
                format!("event {name} went on for {left_running} after the load had ended: that was not seen; give a longer runtime")
            }),
        }
    })
}

/// Legend below the table of costs.
pub(super) const PRICES: &str = "Without → with the event, in the same seconds of the windows; response times, from when each I/O was due. ? may be chance: the 95% interval of the ratio holds 1. - unknown: too few I/Os for a percentile, or not seen to its end.";

/// Legend below the table of events.
pub(super) const LEGEND: &str = "Times count from the start of the measured window. Normal: rate and mean response time are back to those before the first event, and stay there. Times are accurate to one interval: 250 ms, or 1 s in windows over 15 min.";
