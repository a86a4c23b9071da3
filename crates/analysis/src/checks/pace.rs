//! Finds rates that were unsteady, fell in a step (throttled), or were slowed by hot CPUs or a changed frequency governor.

use std::collections::BTreeMap;

use iotax_model::record::{Measurement, Sample};
use iotax_model::units::human;
use iotax_model::workload::RateProcess;
use iotax_model::{Warning, WarningKind};

use super::Case;
use super::step::{self, Step};
use crate::failed::Failed;
use crate::figures::{done, is_stream, whole_intervals};
use crate::finding::Finding;
use crate::metric::Metric;
use crate::stats::steady::{Steadiness, steadiness};
use crate::warm_up::warm_up;
use iotax_model::Run;

/// Minimum number of measurements of a run in which a lasting drop is searched for.
const MEASUREMENTS: usize = 12;

/// Depth of a fall, in standard deviations, up to which a random (Poisson) schedule explains it.
const FALL_BY_CHANCE: f64 = 3.5;

/// Returns whether I/Os were scheduled at random times, so that their rate varies by chance.
fn is_poisson(case: &Case<'_>) -> bool {
    case.workload.is_open_loop() && case.workload.rate_process == RateProcess::Poisson && !is_stream(case.m)
}

/// Finds a rate that changed within the window: throttled if it fell once and stayed down, else unsteady.
pub(super) fn uneven(case: &Case<'_>) -> Option<Finding> {
    // A watch changes the rate on purpose, and a replay's rate follows its trace.
    if case.run.plan.disturbs() || case.workload.read_iolog.is_some() {
        return None;
    }
    throttled(case).or_else(|| unsteady(case))
}

/// Finds a rate that fell once and stayed down, as when burst credits are used up.
fn throttled(case: &Case<'_>) -> Option<Finding> {
    let samples = whole_intervals(case.m);
    let rate = |count: u64, ns: u64| count as f64 / (ns as f64 / 1e9);
    let rates: Vec<f64> =
        samples.iter().map(|sample| rate(done(case.m, &sample.tallies), sample.duration_ns)).collect();
    let found = step::down(&rates)?;
    if is_poisson(case) && by_chance(&found, &samples) {
        return None;
    }
    let evidence = format!(
        "the rate fell from {} to {} ({:.0}%) {} into the window and stayed there",
        per_second(case.m, found.before),
        per_second(case.m, found.after),
        (found.after / found.before - 1.0) * 100.0,
        human::time(samples[found.at - 1].at_ns as f64)
    );
    Some(case.finding(WarningKind::Throttled, evidence, CREDITS))
}

/// Returns whether a random schedule explains the fall. The variance of a level is its rate divided by its duration, assuming one common
/// rate.
fn by_chance(found: &Step, samples: &[&Sample]) -> bool {
    let seconds = |samples: &[&Sample]| samples.iter().map(|s| s.duration_ns as f64 / 1e9).sum::<f64>();
    let (before, after) = (seconds(&samples[..found.at]), seconds(&samples[found.at..]));
    let rate = (found.before * before + found.after * after) / (before + after);
    let sd = (rate * (before.recip() + after.recip())).sqrt();
    found.before - found.after <= FALL_BY_CHANCE * sd
}

const CREDITS: &str = "a rate limit set in, or burst credits or a drive's fast cache were used up: say which of the two rates is \
                       meant, with a ramp_time beyond the fall, or a runtime that ends before it";

fn per_second(m: &Measurement, rate: f64) -> String {
    if is_stream(m) { human::bits(rate) } else { format!("{} IOPS", human::count(rate)) }
}

fn unsteady(case: &Case<'_>) -> Option<Finding> {
    // Buffered writes of a fixed amount need not settle: first the cache takes them, then the storage.
    if case.workload.writes() && !case.workload.direct && case.workload.amount().is_some() {
        return None;
    }
    let found = steadiness(&case.m.samples, |tallies| done(case.m, tallies));
    let scatter = |found: &Steadiness| if is_poisson(case) { found.poisson() } else { 0.0 };
    let found = found.filter(|found| !found.is_steady(scatter(found)))?;
    let (range, drift) = Steadiness::limits(scatter(&found));
    let mut evidence = format!(
        "the rate spread over {:.0}% of its mean (steady: at most {:.0}%) and moved by {:+.0}% from start to end (at most {:.0}%)",
        found.range * 100.0,
        range * 100.0,
        found.drift * 100.0,
        drift * 100.0
    );
    let mut remedy =
        "let it settle with a longer ramp_time, and average more with a longer runtime".to_owned();
    if let Some((seen, mended)) = warm_up(case.workload, case.m) {
        evidence = format!("{evidence}; {seen}");
        remedy = mended;
    }
    Some(case.finding(WarningKind::Unsteady, evidence, &remedy))
}

/// Finds a lasting drop in rate over the whole run, from measurements in order of time, each relative to the highest rate of its workload
/// and target.
pub(super) fn over_the_run(run: &Run) -> Option<Warning> {
    // A measurement without I/O has no rate, and failed I/Os end at the rate of the errors.
    let rate =
        |m: &Measurement| if is_stream(m) { Metric::BYTES_PER_S.value(m) } else { Metric::IOPS.value(m) };
    let worked = run.measurements.iter().filter(|m| !Failed::of(m).is_too_many());
    let rated = worked.filter_map(|m| Some((m, rate(m).filter(|rate| *rate > 0.0)?)));
    let mut rated: Vec<(&Measurement, f64)> = rated.collect();
    rated.sort_by_key(|(m, _)| m.started_at_ms);
    let cell = |m: &Measurement| (m.workload.clone(), m.target.clone());
    // Rates are relative to the highest, which precedes a fall: a mean would depend on how many rounds follow the fall.
    let mut best: BTreeMap<(String, String), f64> = BTreeMap::new();
    for (m, rate) in &rated {
        let highest = best.entry(cell(m)).or_insert(*rate);
        *highest = highest.max(*rate);
    }
    let series: Vec<f64> = rated.iter().map(|(m, rate)| rate / best[&cell(m)]).collect();
    if series.len() < MEASUREMENTS {
        return None;
    }
    let Step { at, before, after } = step::down(&series)?;
    let minutes = rated[at].0.started_at_ms.saturating_sub(rated[0].0.started_at_ms) as f64 * 1e6;
    Some(Warning {
        kind: WarningKind::Throttled,
        target: None,
        workload: None,
        round: None,
        evidence: format!(
            "from measurement {} of {} on, {} into the run, all rates were {:.0}% lower and stayed there",
            at + 1,
            series.len(),
            human::time(minutes),
            (1.0 - after / before) * 100.0
        ),
        remedy: CREDITS.into(),
    })
}

/// Finds CPUs that were throttled by heat.
pub(super) fn heat(case: &Case<'_>) -> Option<Finding> {
    let pace = case.m.machine()?.pace.as_ref()?;
    let throttles = pace.throttles.filter(|throttles| *throttles > 0)?;
    let ghz = |hz: u64| format!("{:.2} GHz", hz as f64 / 1e9);
    let ran = pace.first_hz.zip(pace.last_hz);
    let ran = ran.map(|(first, last)| {
        format!("; they ran at {} when the window began and at {} at its end", ghz(first), ghz(last))
    });
    let evidence =
        format!("heat slowed CPUs down {throttles} times in the window{}", ran.unwrap_or_default());
    let remedy = "cool the machine or limit its frequency (cpupower frequency-set --max), so that all rounds meet the same CPU";
    Some(case.finding(WarningKind::Throttled, evidence, remedy))
}

/// Finds a change of the CPU frequency governor during the measurement.
pub(super) fn governor(case: &Case<'_>) -> Option<Finding> {
    let pace = case.m.machine()?.pace.as_ref()?;
    let (first, last) = (&pace.first_governors, &pace.last_governors);
    (first != last && !first.is_empty() && !last.is_empty()).then(|| {
        let evidence = format!(
            "the frequency governor was {} when the window began and {} at its end",
            first.join("+"),
            last.join("+")
        );
        let remedy = "set one governor for the whole run, and keep power daemons from changing it";
        case.finding(WarningKind::Throttled, evidence, remedy)
    })
}
