//! Tests of guests whose clock runs faster or slower than the host's.

use iotax_analysis::grade::Grade;
use iotax_analysis::judge;
use iotax_model::WarningKind;

use iotax_testkit::runs::ladder;

#[test]
fn a_clock_that_is_far_off_makes_figures_unusable() {
    for (host_ns, interval_ns, grade) in [
        (6_050_000_000, 1_008_000_000, Grade::Clean),
        (5_800_000_000, 966_000_000, Grade::Remarks),
        (5_000_000_000, 833_000_000, Grade::Unusable),
        // The last message was late, the clock is right.
        (7_000_000_000, 1_000_000_000, Grade::Remarks),
    ] {
        let mut run = ladder(false);
        let index = run.measurements.iter().position(|m| m.target == "vm-raw").expect("measured");
        let m = &mut run.measurements[index];
        m.host_duration_ns = Some(host_ns);
        m.host_samples.iter_mut().for_each(|interval| interval.duration_ns = interval_ns);
        assert_eq!(judge(&run).grades[index], grade, "{host_ns}");
    }
}

/// A single message that is 60 ms late does not affect a window of 250 ms with many messages.
#[test]
fn short_windows_are_held_against_the_hosts_clock_together() {
    // Late by how much, off by what factor, how often a remark for the target, and whether its measurements can be used.
    for (late_ms, off, found, usable) in [(0, 1.0, 0, true), (60, 1.0, 0, true), (0, 1.3, 15, false)] {
        let mut run = ladder(false);
        for (i, m) in run.measurements.iter_mut().filter(|m| m.target == "vm-raw").enumerate() {
            m.outcome.duration_ns = 250_000_000;
            let late = if i % 2 == 0 { late_ms } else { -late_ms };
            let host = 250e6 * off + f64::from(late) * 1e6;
            m.host_duration_ns = Some(iotax_testkit::runs::whole(host));
            m.host_samples.clear();
        }
        let judgement = judge(&run);
        let clock = judgement.warnings.iter().filter(|w| w.kind == WarningKind::Clock);
        assert_eq!(clock.filter(|w| w.target.as_deref() == Some("vm-raw")).count(), found, "{late_ms} {off}");
        let graded = run.measurements.iter().zip(&judgement.grades).filter(|(m, _)| m.target == "vm-raw");
        assert!(
            graded.into_iter().all(|(_, grade)| (*grade != Grade::Unusable) == usable),
            "{late_ms} {off}"
        );
    }
}
