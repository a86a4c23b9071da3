//! Finds load generators that limited the rate, and scheduled rates that the target cannot sustain.

use iotax_model::WarningKind;
use iotax_model::record::Measurement;
use iotax_model::units::human;
use iotax_model::workload::{Kind, Workload};

use super::Case;
use crate::finding::Finding;

/// Minimum CPU time of the load generator, as a share of its threads' wall-clock time, at which the generator counts as the limit.
const SATURATED: f64 = 0.95;
/// Shortest window for this check, in nanoseconds; in shorter windows most CPU time goes to starting and stopping.
const TELLING_NS: u64 = 100_000_000;
/// Largest backlog, as a share of the due I/Os, that is not reported.
const BACKLOG: f64 = 0.01;

/// Finds a backlog at the end of the window: I/Os that were due but not begun, which show in neither the rates nor the response times.
pub(super) fn cannot_sustain(case: &Case<'_>) -> Option<Finding> {
    let Case { workload, m, .. } = case;
    let pacing = m.outcome.pacing?;
    let slots = u64::from(workload.iodepth) * u64::from(workload.numjobs);
    // Curves and searches overload their targets on purpose, and report no latency at such rates.
    // What pgbench skips, it does not do later.
    let skipped = pacing.skipped.unwrap_or(0);
    let missed = pacing.backlog + skipped;
    let telling = !case.run.plan.overloads() && missed > slots && missed as f64 > BACKLOG * pacing.due as f64;
    if telling && skipped > pacing.backlog {
        let evidence = format!(
            "{skipped} of {} transactions were skipped, because they were later than latency_limit before they began",
            pacing.due
        );
        let remedy =
            "response times are those of the others: the target cannot sustain this rate; lower the rate";
        return Some(case.finding(WarningKind::CannotSustain, evidence, remedy));
    }
    let what = if workload.kind.is_network() { "round trips" } else { "I/Os" };
    telling.then(|| {
        let evidence = format!(
            "{} {what} that were due had not begun when the window ended, the oldest for {}; {} had become due in it, and {} \
             had to wait for a slot, for up to {}",
            pacing.backlog,
            human::time(pacing.backlog_ns as f64),
            pacing.due,
            pacing.delayed,
            human::time(pacing.longest_delay_ns as f64)
        );
        let remedy = match &workload.kind {
            Kind::Streams(_) | Kind::RoundTrips(_) => "the path cannot sustain this rate: response times grow for as long as it lasts; lower the rate",
            Kind::Block | Kind::Files(_) | Kind::Foreign if workload.read_iolog.is_some() => {
                "the target cannot keep up with the trace at this iodepth: replay it slower (replay_time_scale = 50), or raise iodepth"
            }
            Kind::Block | Kind::Files(_) | Kind::Foreign => {
                "the target cannot sustain this rate at this iodepth: response times grow for as long as it lasts; lower the rate, \
                 or raise iodepth"
            }
        };
        case.finding(WarningKind::CannotSustain, evidence, remedy)
    })
}

/// Returns the CPU time of the load generator as a share of its threads' time; `None` below 95%, in windows under 100 ms, with an engine
/// that polls or moves no data, or in an open loop that delayed no I/O.
pub(crate) fn saturation(workload: &Workload, m: &Measurement) -> Option<f64> {
    // An engine that moves no data measures the generator itself. A generator that polls or keeps a schedule is always busy.
    let window = f64::from(workload.numjobs) * m.outcome.duration_ns as f64;
    let share = m.outcome.cpu.total_ns() as f64 / window;
    let waited = m.outcome.pacing.is_none_or(|pacing| pacing.delayed > 0);
    let polls = workload.hipri || workload.sqthread_poll;
    let tells = workload.ioengine.moves_data() && waited && !polls;
    let long = m.outcome.duration_ns >= TELLING_NS;
    (tells && long && share >= SATURATED).then_some(share)
}

pub(super) fn saturated(case: &Case<'_>) -> Option<Finding> {
    let Case { workload, m, .. } = case;
    saturation(workload, m).map(|share| {
        let evidence = format!(
            "the generator used {:.0}% of the time of its {} thread{}",
            share * 100.0,
            workload.numjobs,
            if workload.numjobs == 1 { "" } else { "s" }
        );
        let remedy = "the storage may be faster than this: raise numjobs, and a guest's vcpus with it";
        case.finding(WarningKind::SaturatedGenerator, evidence, remedy)
    })
}
