//! Finds one lasting drop in a series.

/// Minimum number of values on each side of a step.
const LEVEL: usize = 2;
/// Minimum number of values of a series that is searched for a step.
const LEAST: usize = 6;
/// Largest residual variance of a fit with two levels, as a share of the variance about a single mean.
const LEFT: f64 = 0.15;
/// Largest residual variance of a fit with two levels, as a share of that of a straight line, which fits a slow drift better.
const LINE: f64 = 0.5;
/// Largest ratio of the lower level to the upper.
const FALL: f64 = 0.8;

/// A step between two levels of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    /// Number of values before the step.
    pub(crate) at: usize,
    /// Mean of the values before the step.
    pub(crate) before: f64,
    /// Mean of the values after the step.
    pub(crate) after: f64,
}

/// Finds the drop that best divides a series of positive values into two levels, by least squares over all positions (binary segmentation
/// with one change: Scott and Knott, Biometrics 30, 1974). `None` if the levels fit little better than a single mean or a straight line, if
/// the drop is below 20%, or for fewer than 6 values.
pub(crate) fn down(series: &[f64]) -> Option<Step> {
    if series.len() < LEAST {
        return None;
    }
    let spread = squares(series);
    let fit = |at: usize| squares(&series[..at]) + squares(&series[at..]);
    let (at, left) = (LEVEL..=series.len() - LEVEL)
        .map(|at| (at, fit(at)))
        .min_by(|one, other| one.1.total_cmp(&other.1))?;
    let step = Step { at, before: mean(&series[..at]), after: mean(&series[at..]) };
    let is_distinct = left <= LEFT * spread && left <= LINE * around_a_line(series);
    (spread > 0.0 && is_distinct && step.after <= FALL * step.before).then_some(step)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Returns the sum of the squared residuals about the least-squares line.
fn around_a_line(series: &[f64]) -> f64 {
    let middle = (series.len() as f64 - 1.0) / 2.0;
    let (mean, indices) = (mean(series), || (0..series.len()).map(|index| index as f64 - middle));
    let along: f64 = indices().map(|index| index * index).sum();
    let slope = indices().zip(series).map(|(index, value)| index * (value - mean)).sum::<f64>() / along;
    squares(series) - slope * slope * along
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fall_that_stays_is_found_where_it_is() {
        let step = down(&[100.0, 103.0, 98.0, 101.0, 30.0, 31.0, 29.0, 30.0, 30.0, 31.0]).expect("a step");
        assert_eq!(step.at, 4);
        assert!((step.before - 100.5).abs() < 1e-9 && (step.after - 30.166).abs() < 1e-2, "{step:?}");
    }

    #[test]
    fn what_is_no_step_down_is_none() {
        for (name, series) in [
            ("flat", vec![100.0; 10]),
            ("too short", vec![100.0, 100.0, 10.0, 10.0]),
            ("a rise", vec![30.0, 31.0, 30.0, 30.0, 100.0, 101.0, 100.0, 99.0]),
            ("a drift", (0..10).map(|i| 100.0 - 6.0 * f64::from(i)).collect()),
            ("one dip", vec![100.0, 101.0, 99.0, 100.0, 20.0, 100.0, 101.0, 99.0, 100.0, 100.0]),
            ("noise", vec![100.0, 60.0, 110.0, 55.0, 95.0, 70.0, 105.0, 50.0, 90.0, 65.0]),
            ("a small step", vec![100.0, 100.0, 100.0, 100.0, 90.0, 90.0, 90.0, 90.0]),
            ("a first burst", vec![300.0, 100.0, 101.0, 99.0, 100.0, 101.0, 99.0, 100.0]),
        ] {
            assert_eq!(down(&series), None, "{name}");
        }
    }
}
