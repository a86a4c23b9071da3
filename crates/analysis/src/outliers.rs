//! Flags measurements that deviate from the value expected for their target and round.
//!
//! Outliers stay in the figures: their cause may happen again, and an interval without them would be too narrow.

use iotax_model::record::Measurement;
use iotax_model::units::human;
use iotax_model::{Warning, WarningKind};

use crate::effects::{Cell, Grid, leading};
use crate::failed::Failed;
use crate::figures::is_stream;
use crate::metric::Metric;
use crate::stats::{MAD_TO_SD, median};
use iotax_model::Run;

/// Minimum number of rounds in which outliers are searched for.
const FEWEST_ROUNDS: usize = 4;
/// Smallest residual of an outlier, in robust standard deviations.
const FAR: f64 = 5.0;
/// Smallest residual of an outlier, as a multiple of the plan's margin: a smaller one would not change a verdict.
const MARGINS: f64 = 3.0;

/// Finds the outliers of all workloads: measurements with a large residual of the logarithm of mean latency (for streams, of the time per
/// byte) after median polish of targets and rounds (Tukey, Exploratory Data Analysis, 1977, chapter 11).
pub(super) fn outliers(run: &Run) -> Vec<Warning> {
    run.plan.workloads.iter().flat_map(|workload| of_workload(run, &workload.name)).collect()
}

fn of_workload(run: &Run, workload: &str) -> Vec<Warning> {
    let grid = Grid::of(run, workload, leading(run, workload), |_| true);
    if grid.rounds.len() < FEWEST_ROUNDS {
        return vec![];
    }
    // With two targets the median is the mean, so half of one target's error would be attributed to the other.
    let by_rounds = grid.targets.len() > 2;
    let parts = grid.parts(median, by_rounds);
    let rest = if grid.targets.len() == 2 { without_shared(&grid, &parts.rest) } else { parts.rest.clone() };
    // A fit by medians passes through points: this many residuals are 0 by construction and say nothing about
    // the usual size (Maronna, Martin and Yohai, Robust Statistics, 2006, section 4.4). With two targets the
    // residuals still contain the round effects.
    let fitted = if by_rounds { grid.targets.len() + grid.rounds.len() - 1 } else { grid.targets.len() };
    let mut sizes: Vec<f64> = parts.rest.iter().map(|rest| rest.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let usual = MAD_TO_SD * median(sizes.get(fitted..).unwrap_or_default()).unwrap_or_default();
    let far = (FAR * usual).max(MARGINS * run.plan.margin.share().ln_1p());
    grid.cells
        .iter()
        .zip(&rest)
        .filter(|(cell, rest)| rest.abs() > far && !Failed::of(cell.of).is_too_many())
        .map(|(cell, rest)| {
            let m = cell.of;
            let figures = in_words(m, *rest);
            Warning {
                kind: WarningKind::Outlier,
                target: Some(m.target.clone()),
                workload: Some(m.workload.clone()),
                round: Some(m.round),
                evidence: format!(
                    "the {} where {} let expect {} ({:+.0}%); the measurements beside it usually stray by {:.1}%",
                    figures.0,
                    if grid.targets.len() > 1 { "its target and round" } else { "its target's other rounds" },
                    figures.1,
                    figures.2 * 100.0,
                    usual.exp_m1() * 100.0,
                ),
                remedy: "it counts as any other does; see what else the machine did then, and measure more rounds, so that \
                         one weighs less"
                    .into(),
            }
        })
        .collect()
}

/// Returns the measured value, the expected value and the relative deviation. `rest` is the residual of the logarithm of time.
fn in_words(m: &Measurement, rest: f64) -> (String, String, f64) {
    if is_stream(m) {
        let rate = Metric::BYTES_PER_S.value(m).unwrap_or_default();
        let was = format!("throughput was {}", human::bits(rate));
        return (was, human::bits(rate * rest.exp()), (-rest).exp_m1());
    }
    let mean = m.outcome.tallies.latency().mean().unwrap_or_default();
    (format!("mean latency was {}", human::time(mean)), human::time(mean / rest.exp()), rest.exp_m1())
}

/// Removes from each residual the part that the other target shares in the same round: the smaller of the two residuals
/// if both have the same sign. Only for grids of two targets.
fn without_shared(grid: &Grid<'_, &Measurement>, rest: &[f64]) -> Vec<f64> {
    let pairs = || grid.cells.iter().zip(rest);
    pairs()
        .map(|(cell, mine)| {
            let other_target =
                |other: &Cell<&Measurement>| other.round == cell.round && other.target != cell.target;
            match pairs().find(|(other, _)| other_target(other)) {
                Some((_, theirs)) if mine.signum() == theirs.signum() => {
                    mine - mine.abs().min(theirs.abs()).copysign(*mine)
                }
                _ => *mine,
            }
        })
        .collect()
}
