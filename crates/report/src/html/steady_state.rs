//! Draws the rounds of a run to a steady state: the values, and over the last five their mean, what the rule allows, and their line.

use iotax_analysis::SteadyState;
use iotax_analysis::steady_state::CellSteadiness;
use iotax_model::plan::STEADY_RANGE;
use iotax_model::{Run, Workload};
use maud::{Markup, html};

use super::chart::{Axis, Cell, Chart, Plot, Unit};
use super::chart_id;
use super::page::set;
use crate::document::steady_state;

/// Builds the pictures and tables of a workload's rounds; empty for a run that does not wait for a steady state.
pub(super) fn section(run: &Run, workload: &Workload) -> Markup {
    let Some(state) = SteadyState::of(run) else { return html! {} };
    let cells = state.cells().into_iter();
    let cells = cells.filter(|cell| run.plan.workloads[cell.cell.workload].name == workload.name);
    html! {
        @for cell in cells { (chart(run, &state, &cell).figure(chart_id(run, &workload.name))) }
        (set(&steady_state::section(run, workload)))
    }
}

fn chart(run: &Run, state: &SteadyState, cell: &CellSteadiness) -> Chart {
    let target = &run.plan.targets[cell.cell.target].name;
    let workload = &run.plan.workloads[cell.cell.workload];
    // The page's script expects times in microseconds.
    let in_chart = |value: f64| if cell.metric.is_time() { value / 1e3 } else { value };
    let row = |series: &str, round: u32, value: f64| -> Vec<Cell> {
        vec![series.into(), round.into(), in_chart(value).into(), "".into()]
    };
    let mut rows: Vec<Vec<Cell>> =
        cell.values.iter().map(|(round, value)| row(target, *round, *value)).collect();
    let [allowed_most, allowed_least, line] = ["mean +10%", "mean -10%", "line of least squares"];
    if let Some(window) = cell.window {
        let (first, last) = (run.first_measured_round(), state.rounds());
        let half = STEADY_RANGE / 2.0;
        for (name, from, to) in [
            (allowed_most, 1.0 + half, 1.0 + half),
            (allowed_least, 1.0 - half, 1.0 - half),
            (line, 1.0 - window.slope / 2.0, 1.0 + window.slope / 2.0),
        ] {
            rows.push(row(name, first, window.mean * from));
            rows.push(row(name, last, window.mean * to));
        }
    }
    let (label, unit, column) = if cell.metric.is_time() {
        (cell.metric.name_on(workload), Unit::Time, "us")
    } else {
        (cell.metric.name_on(workload), Unit::Count, "figure")
    };
    let axis = |label: &str, unit: Unit| Axis { label: label.into(), unit, log: false, at_least: 0.0 };
    let series = [(target.as_str(), "t0"), (allowed_most, "t1"), (allowed_least, "t1"), (line, "t2")];
    Chart {
        key: format!("steady-{}", cell.cell.target + 1),
        title: format!("{target} by round"),
        note: "the last five rounds are judged".into(),
        message: "The value of each round; over the last five the range that is allowed, and the line of least squares".into(),
        columns: ["series", "round", column, "note"].map(Into::into).into(),
        colours: series.map(|(name, class)| (name.into(), class.into())).into(),
        rows,
        plot: Plot::Curve {
            series: 0,
            x: 1,
            across: axis("round", Unit::Ordinal),
            y: 2,
            up: axis(label, unit),
            note: 3,
        },
    }
}
