//! Suggests a longer ramp time if a measurement seems to warm up within its window.

use iotax_model::Workload;
use iotax_model::record::Measurement;

use crate::figures::done;
use crate::stats::series::series;

/// Smallest relative deviation of the initial rate that counts as a warm-up.
const OFF: f64 = 0.1;

/// Describes an apparent warm-up and the ramp time that excludes it; `None` if no warm-up is visible, if its rate deviates by at most 10%,
/// or if the measurement never settled.
pub(super) fn warm_up(workload: &Workload, m: &Measurement) -> Option<(String, String)> {
    let found = series(&m.samples, |tallies| done(m, tallies))?.warm_up?;
    if found.unsettled || (found.ratio - 1.0).abs() <= OFF {
        return None;
    }
    let seconds = found.ns as f64 / 1e9;
    let evidence = format!(
        "the first {seconds:.1} s, at {:.0}% of the later rate, look like warm-up (MSER-5)",
        found.ratio * 100.0
    );
    let ramp_time = round_up(workload.ramp_time.as_secs_f64() + seconds);
    Some((evidence, format!("set ramp_time = {ramp_time}s, which leaves the warm-up out")))
}

/// Rounds up to 1, 2, 5, 10, 20, 50, ... seconds, so that similar measurements get the same advice.
fn round_up(seconds: f64) -> u64 {
    let steps = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    steps.take(40).find(|step| *step as f64 >= seconds).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::round_up;

    #[test]
    fn ramp_times_are_round() {
        for (seconds, wanted) in
            [(0.2, 1), (1.0, 1), (1.1, 2), (3.0, 5), (12.5, 20), (100.0, 100), (4000.0, 5000)]
        {
            assert_eq!(round_up(seconds), wanted, "{seconds}");
        }
    }
}
