//! Formats differences in absolute and relative terms, for one pair of targets or as a range over several pairs.

use iotax_model::units::human;

use super::Versus;
use iotax_analysis::{Comparison, Metric};
use iotax_model::Run;

/// Metric that a ratio refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// IOPS, for closed loops.
    Iops,
    /// Latency, for open loops, whose rate is fixed.
    Latency,
}

/// Formats the relative difference of one or several pairs of targets on a workload: `29% fewer IOPS`, or in an open loop `12% longer`. `None` if a
/// ratio is unknown.
pub(super) fn relative(run: &Run, pairs: &[(&Versus<'_>, &Comparison)]) -> Option<String> {
    let (of, ratios) = ratios(run, pairs)?;
    Some(share(of, &ratios))
}

/// Returns the ratios of all pairs: of IOPS, or of latency in an open loop. `None` if any ratio is unknown.
pub(super) fn ratios(run: &Run, pairs: &[(&Versus<'_>, &Comparison)]) -> Option<(Of, Vec<f64>)> {
    let is_paced = |c: &Comparison| {
        let workload = run.plan.workloads.iter().find(|w| w.name == c.workload);
        workload.is_some_and(|w| w.rate.is_some() || w.rate_iops.is_some())
    };
    if pairs.iter().any(|(_, c)| is_paced(c)) {
        return Some((Of::Latency, pairs.iter().map(|(_, c)| c.ratio.mean).collect()));
    }
    let iops: Option<Vec<f64>> =
        pairs.iter().map(|(versus, c)| Some(versus.beside(c, Metric::IOPS)?.ratio.mean)).collect();
    Some((Of::Iops, iops?))
}

/// Formats the time by which targets differ from their baselines, without sign: `35.2 us` or `27.0 to 28.2 us`; `None` if the difference of any
/// comparison is unknown.
pub(super) fn absolute(comparisons: &[&Comparison]) -> Option<String> {
    let amounts: Option<Vec<f64>> = comparisons.iter().map(|c| Some(c.ratio.tax?.ns.abs())).collect();
    range(&amounts?, human::time)
}

/// Formats the smallest and the largest value as `a to b`, or as `a` if equal; a common unit is written once. `None` without values.
pub(crate) fn range(values: &[f64], words: impl Fn(f64) -> String) -> Option<String> {
    let least = words(values.iter().copied().reduce(f64::min)?);
    let most = words(values.iter().copied().reduce(f64::max)?);
    let unit = |text: &str| text.split_once(' ').map(|(_, unit)| unit.to_owned());
    let number = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    Some(match (least == most, unit(&least) == unit(&most)) {
        (true, _) => most,
        (false, true) => format!("{} to {most}", number(&least)),
        (false, false) => format!("{least} to {most}"),
    })
}

/// Formats ratios as a range of shares: `29% fewer IOPS`, `4.2% to 4.9% fewer IOPS`, `12% more IOPS`, `3.1 times the IOPS`. The two ends are
/// worded separately if they lie on both sides of 1 or mix percentages with multiples.
pub(crate) fn share(of: Of, ratios: &[f64]) -> String {
    let (noun, less, more) = match of {
        Of::Iops => ("IOPS", "fewer IOPS", "more IOPS"),
        Of::Latency => ("latency", "shorter", "longer"),
    };
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let percent = |ratio: f64| {
        let percent = (ratio - 1.0).abs() * 100.0;
        if percent < 9.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
    };
    let alone = |ratio: f64| match ratio {
        // A larger loss would be rounded to 100%.
        r if r < 0.05 => format!("1/{:.0} of the {noun}", 1.0 / r),
        r if r < 1.0 => format!("{} {less}", percent(r)),
        r if r < 2.0 => format!("{} {more}", percent(r)),
        r => format!("{r:.1} times the {noun}"),
    };
    let (first, last) = (alone(least), alone(most));
    let word = |text: &str| [less, more].into_iter().find(|word| text.ends_with(word));
    match (word(&first), word(&last)) {
        _ if first == last => first,
        (Some(less), Some(more)) if less == more => {
            let (low, high) = if most < 1.0 { (most, least) } else { (least, most) };
            if percent(low) == percent(high) {
                alone(low)
            } else {
                format!("{} to {} {less}", percent(low), percent(high))
            }
        }
        _ => format!("{first} to {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_read_as_shares() {
        for (ratios, words) in [
            (&[0.71][..], "29% fewer IOPS"),
            (&[0.965], "3.5% fewer IOPS"),
            (&[0.004], "1/250 of the IOPS"),
            (&[1.25], "25% more IOPS"),
            (&[3.12], "3.1 times the IOPS"),
            (&[0.71, 0.72], "28% to 29% fewer IOPS"),
            (&[0.711, 0.712], "29% fewer IOPS"),
            (&[1.1, 1.2, 1.3], "10% to 30% more IOPS"),
            (&[0.9, 1.2], "10% fewer IOPS to 20% more IOPS"),
            (&[1.5, 3.0], "50% more IOPS to 3.0 times the IOPS"),
        ] {
            assert_eq!(share(Of::Iops, ratios), words);
        }
        assert_eq!(share(Of::Latency, &[1.25]), "25% longer");
        assert_eq!(share(Of::Latency, &[0.9, 0.8]), "10% to 20% shorter");
        assert_eq!(share(Of::Latency, &[4.0]), "4.0 times the latency");
    }

    #[test]
    fn a_range_of_one_is_a_figure() {
        assert_eq!(range(&[1500.0, 1501.0], human::time).as_deref(), Some("1.50 us"));
        assert_eq!(range(&[2500.0, 1500.0], human::time).as_deref(), Some("1.50 to 2.50 us"));
        assert_eq!(range(&[500.0, 1500.0], human::time).as_deref(), Some("500 ns to 1.50 us"));
        assert_eq!(range(&[], human::time), None);
    }
}
