//! Shows the rounds of a run to a steady state, and the check of its last five, in the form of SNIA's reports.

use iotax_analysis::steady_state::CellSteadiness;
use iotax_analysis::{Metric, SteadyState};
use iotax_model::plan::{STEADY_RANGE, STEADY_SLOPE, STEADY_WINDOW};
use iotax_model::units::human;
use iotax_model::{Run, Workload};

use super::{Grid, Page, Part, figure, words};
use crate::figure::{UNKNOWN, or_unknown, rate, share, signed_share};

/// Adds the rounds of a workload and the check of its last five to the page; nothing for a run that does not wait for a steady state.
pub(super) fn add(page: &mut Page, run: &Run, workload: &Workload) {
    let Some(state) = SteadyState::of(run) else { return };
    let cells: Vec<CellSteadiness> = state
        .cells()
        .into_iter()
        .filter(|cell| run.plan.workloads[cell.cell.workload].name == workload.name)
        .collect();
    if !cells.is_empty() {
        page.add(Part::Table(rounds(run, &state, workload)));
        page.add(Part::Table(check(run, &cells)));
    }
}

/// Returns the same as a separate page, for HTML.
pub(crate) fn section(run: &Run, workload: &Workload) -> Page {
    let mut page = Page::default();
    add(&mut page, run, workload);
    page
}

/// Builds the table of rounds: I/Os, throughput, latency and the bytes written since the first round.
fn rounds(run: &Run, state: &SteadyState, workload: &Workload) -> Grid {
    let (unit, in_unit) = rate(workload);
    let mut grid = Grid::new(&["target", "round", "IOPS", unit, "mean", "written", ""]);
    for target in &run.plan.targets {
        let of_target =
            run.measurements.iter().filter(|m| m.target == target.name && m.workload == workload.name);
        let mut written = 0;
        for m in of_target {
            written += m.outcome.tallies.write.as_ref().map_or(0, |write| write.bytes);
            let is_judged = m.round + STEADY_WINDOW > state.rounds();
            grid.rows.push(vec![
                words(target.name.as_str()),
                figure(m.round.to_string()),
                figure(or_unknown(Metric::IOPS.value(m), human::count)),
                figure(or_unknown(Metric::BYTES_PER_S.value(m), in_unit)),
                figure(or_unknown(Metric::LATENCY_MEAN.value(m), human::time)),
                figure(human::bytes(written)),
                words(if is_judged { "judged" } else { "" }),
            ]);
        }
    }
    grid
}

/// Builds the table of the last five rounds: their mean, range and least-squares line, with what SNIA's rule allows.
fn check(run: &Run, cells: &[CellSteadiness]) -> Grid {
    let [range, slope] = [("range", STEADY_RANGE), ("slope", STEADY_SLOPE)]
        .map(|(of, most)| format!("{of} (max {})", share(most)));
    let mut grid =
        Grid::new(&["last five", "mean", "lowest", "highest", &range, "line from", "to", &slope, ""]);
    for cell in cells {
        let value = |value: f64| {
            if cell.metric.is_time() { human::time(value) } else { human::count(value) }
        };
        let first = cell.values.len().saturating_sub(STEADY_WINDOW as usize);
        let judged = || cell.values[first..].iter().map(|(_, value)| *value);
        let figures = cell.window.map_or_else(
            || [UNKNOWN; 7].map(str::to_owned),
            |window| {
                [
                    value(window.mean),
                    value(judged().fold(f64::MAX, f64::min)),
                    value(judged().fold(0.0, f64::max)),
                    share(window.range),
                    value(window.mean * (1.0 - window.slope / 2.0)),
                    value(window.mean * (1.0 + window.slope / 2.0)),
                    signed_share(window.slope),
                ]
            },
        );
        let name = &run.plan.targets[cell.cell.target].name;
        let verdict = words(if cell.is_steady() { "steady" } else { "NOT steady" });
        let row =
            [words(format!("{name}, {}", cell.metric.name_on(&run.plan.workloads[cell.cell.workload])))];
        grid.rows.push(row.into_iter().chain(figures.map(figure)).chain([verdict]).collect());
    }
    grid
}
