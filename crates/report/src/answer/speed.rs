//! Formats differences in speed briefly: `4.2-9.1% slower`, `3.1x as fast`.

use iotax_analysis::Metric;

/// Ratios below this limit are written as multiples (`20x slower`), because percentages near -100% are hard to tell apart.
const TIMES_SLOWER: f64 = 0.051;
/// Ratios from this limit on are written as multiples (`2.5x as fast`).
const TIMES_FASTER: f64 = 2.0;

/// Formats a range of ratios that all point in one direction: `28-31% slower`; for latencies `12% higher latency`.
pub(super) fn range(metric: Metric, ratios: &[f64]) -> String {
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    // The smaller change first.
    let (near, far) = if least < 1.0 && most <= 1.0 { (most, least) } else { (least, most) };
    let (far, unit) = amount(far);
    // Next to a multiple, a percentage would read as a fraction of one.
    let near = if unit == "x" { multiple(near) } else { amount(near).0 };
    let words = words(metric, unit, most > 1.0);
    if near == far { format!("{far}{unit} {words}") } else { format!("{near}-{far}{unit} {words}") }
}

/// Formats a ratio as a number and its unit: `%` for a difference in percent, `x` for a multiple.
fn amount(ratio: f64) -> (String, &'static str) {
    match ratio {
        r if r <= 0.0 => ("100".into(), "%"),
        r if !(TIMES_SLOWER..TIMES_FASTER).contains(&r) => (multiple(r), "x"),
        r => (percent(r), "%"),
    }
}

/// Formats a ratio, or its inverse below 1, as a multiple: `20`, `3.1`, `1.04`.
fn multiple(ratio: f64) -> String {
    match ratio.max(ratio.recip()) {
        times if times < 1.1 => format!("{times:.2}"),
        times if ratio < 1.0 && times >= 9.95 => format!("{times:.0}"),
        times => format!("{times:.1}"),
    }
}

/// Formats the distance of a ratio from 1 in percent: `4.2`, `31`.
fn percent(ratio: f64) -> String {
    match (ratio - 1.0).abs() * 100.0 {
        percent if percent >= 9.95 => format!("{percent:.0}"),
        percent if percent >= 0.095 => format!("{percent:.1}"),
        percent => format!("{percent:.2}"),
    }
}

fn words(metric: Metric, unit: &str, up: bool) -> &'static str {
    match (metric.more_is_better(), unit, up) {
        (true, "x", true) => "as fast",
        (true, _, true) => "faster",
        (true, _, false) => "slower",
        (false, "x", true) => "the latency",
        (false, _, true) => "higher latency",
        (false, _, false) => "lower latency",
    }
}

/// Returns whether a table cell shows the ratio as a part, `1/20`.
pub(super) fn is_part(ratio: f64) -> bool {
    ratio > 0.0 && ratio < TIMES_SLOWER
}

/// Formats a ratio as a change in a table cell: `-31%`, `-3.1%`, `+210%`, `12x`, `1/20`.
pub(super) fn change(ratio: f64) -> String {
    match ratio {
        r if r <= 0.0 => "-100%".into(),
        r if is_part(r) => format!("1/{:.0}", 1.0 / r),
        r if r >= 10.0 => format!("{r:.0}x"),
        r => format!("{}{}%", if r < 1.0 { '-' } else { '+' }, percent(r)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_said_once_with_their_unit() {
        for (ratios, words) in [
            (&[0.69, 0.72][..], "28-31% slower"),
            (&[0.957], "4.3% slower"),
            (&[0.957, 0.8], "4.3-20% slower"),
            (&[0.711, 0.712], "29% slower"),
            (&[1.12, 1.3], "12-30% faster"),
            (&[2.5, 3.1], "2.5-3.1x as fast"),
            (&[1.5, 3.1], "1.5-3.1x as fast"),
            (&[1.04, 3.1], "1.04-3.1x as fast"),
            (&[0.5, 0.02], "2.0-50x slower"),
            (&[0.08, 0.018], "12-56x slower"),
            (&[0.02], "50x slower"),
        ] {
            assert_eq!(range(Metric::IOPS, ratios), words);
        }
        assert_eq!(range(Metric::LATENCY_MEAN, &[1.25]), "25% higher latency");
        assert_eq!(range(Metric::LATENCY_MEAN, &[4.0]), "4.0x the latency");
        assert_eq!(range(Metric::LATENCY_MEAN, &[0.8]), "20% lower latency");
    }

    #[test]
    fn a_change_is_a_few_letters() {
        for (ratio, text) in
            [(0.69, "-31%"), (0.969, "-3.1%"), (1.0, "+0.00%"), (3.1, "+210%"), (12.4, "12x"), (0.05, "1/20")]
        {
            assert_eq!(change(ratio), text);
        }
    }
}
