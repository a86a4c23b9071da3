//! Describes how faithfully each target replayed a trace.

use iotax_model::Run;
use iotax_model::record::Replayed;
use iotax_model::units::human;

/// Returns a line per target that replayed a trace on `workload`, over all rounds: I/Os begun, lateness, time taken and response times.
pub(crate) fn lines(run: &Run, workload: &str) -> Vec<String> {
    let line = |name: &str| {
        let own = run.measured().filter(|m| m.workload == workload && m.target == name);
        let rounds: Vec<&Replayed> = own.filter_map(|m| m.outcome.replayed.as_ref()).collect();
        (!rounds.is_empty()).then(|| format!("{name}, replay: {}", sentence(&rounds)))
    };
    run.plan.targets.iter().filter_map(|target| line(&target.name)).collect()
}

/// Formats, for example, `4,421 of 4,421 I/Os, 99% of them within 310 us of their time, taking 0.998 to 1.000 times the recorded time`.
fn sentence(rounds: &[&Replayed]) -> String {
    let sum = |count: fn(&Replayed) -> u64| rounds.iter().map(|replayed| count(replayed)).sum::<u64>();
    let late = rounds.iter().map(|replayed| replayed.late_p99_ns).max().unwrap_or(0);
    let mut parts = vec![
        format!("{} of {} I/Os", human::grouped(sum(|it| it.begun)), human::grouped(sum(|it| it.due))),
        format!("99% of them within {} of their time", human::time(late as f64)),
    ];
    let shares =
        rounds.iter().filter(|it| it.recorded_ns > 0).map(|it| it.took_ns as f64 / it.recorded_ns as f64);
    let range = shares
        .map(|share| (share, share))
        .reduce(|(least, most), (share, _)| (least.min(share), most.max(share)));
    if let Some((least, most)) = range.map(|(least, most)| (format!("{least:.3}"), format!("{most:.3}"))) {
        let range = if least == most { least } else { format!("{least} to {most}") };
        parts.push(format!("taking {range} times the recorded time"));
    }
    parts.extend(slowdown(rounds).map(|ratio| format!("with {ratio:.2} times the recorded response times")));
    parts.join(", ")
}

/// Returns the ratio of mean response time to the mean latency in the trace; `None` if the trace lacks the latency of some I/Os.
fn slowdown(rounds: &[&Replayed]) -> Option<f64> {
    let phases = || rounds.iter().flat_map(|replayed| &replayed.phases).filter(|phase| phase.ios > 0);
    let all_recorded = phases().all(|phase| phase.recorded_ios == phase.ios);
    let total = |mean: Option<u64>, ios: u64| Some(mean? as f64 * ios as f64);
    let response: f64 = phases().filter_map(|phase| total(phase.response_mean_ns, phase.ios)).sum();
    let recorded: f64 = phases().filter_map(|phase| total(phase.recorded_mean_ns, phase.recorded_ios)).sum();
    (all_recorded && recorded > 0.0).then(|| response / recorded)
}

#[cfg(test)]
mod tests {
    use iotax_model::record::ReplayPhase;

    use super::*;

    #[test]
    fn a_replay_is_described_with_its_worst_round() {
        let phase = |recorded_ios| ReplayPhase {
            ios: 10,
            response_mean_ns: Some(300_000),
            recorded_ios,
            recorded_mean_ns: Some(200_000),
            ..ReplayPhase::default()
        };
        let replayed = |took_ns, late_p99_ns, recorded_ios| Replayed {
            due: 1000,
            begun: 999,
            late_p99_ns,
            recorded_ns: 1_000_000,
            took_ns,
            phases: vec![phase(recorded_ios)],
            ..Replayed::default()
        };
        let (first, second) = (replayed(998_000, 310_000, 10), replayed(1_001_000, 20_000, 10));
        assert_eq!(
            sentence(&[&first, &second]),
            "1,998 of 2,000 I/Os, 99% of them within 310 us of their time, taking 0.998 to 1.001 times the recorded time, with 1.50 times the \
             recorded response times"
        );
        let slow = [replayed(12_500_000, 0, 10), replayed(9_800_000, 0, 10)];
        assert!(sentence(&[&slow[0], &slow[1]]).contains("taking 9.800 to 12.500 times the recorded time"));
        // Without all recorded latencies, the two means are those of different I/Os.
        assert!(sentence(&[&replayed(1_000_000, 0, 9)]).ends_with("taking 1.000 times the recorded time"));
    }
}
