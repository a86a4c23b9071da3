//! Shows the cost of each layer, and the latency breakdown by layer.

use std::fmt::Write as _;

use iotax_model::Workload;
use iotax_model::units::human;

use super::{Field, Grid, figure, verdict, words};
use crate::amplification;
use crate::figure::{or_unknown, signed_time, step_in_words};
use iotax_analysis::{Judgement, Metric};

/// Builds a table with one row per step of the ladder; `None` if none was compared. On narrow terminals, a row names only the target that
/// the step leads to.
pub(super) fn steps(judgement: &Judgement, workload: &Workload) -> Option<Grid> {
    let (leading, cpu_metric) = (Metric::leading(workload), Metric::cpu(workload));
    let mut grid = Grid::new(&["layer by layer", leading.column(workload), cpu_metric.column(workload), ""]);
    for edge in &judgement.edges {
        let Some(latency) = judgement.step(&workload.name, edge, leading) else { continue };
        let cost = step_in_words(latency);
        let cpu = judgement.step(&workload.name, edge, cpu_metric).and_then(|step| step.ratio.tax);
        let name = words(format!("{} ({} - {})", edge.name, edge.to, edge.from));
        grid.rows.push(vec![
            Field { short: Some(format!("{} ({})", edge.name, edge.to)), ..name },
            figure(cost),
            figure(or_unknown(cpu.map(|cpu| cpu.ns), signed_time)),
            verdict(latency.ratio.word(), Some(latency.ratio.verdict)),
        ]);
    }
    grid.filled()
}

/// Returns a line per target with a guest that was measured from inside: its latency, split by layer.
pub(super) fn insides(judgement: &Judgement, workload: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let all = judgement.on(workload, |cell| cell.latency.as_ref());
    for (target, inside) in all.filter(|(_, inside)| inside.within()) {
        let parts: Vec<String> =
            inside.stretches.iter().map(|(name, ns)| format!("{name} {}", human::time(*ns))).collect();
        let whole: f64 = inside.stretches.iter().map(|(_, ns)| ns).sum();
        let mut line = format!("{target}, inside: {} = {}", human::time(whole), parts.join(" | "));
        for reason in &inside.not_separable {
            let _ = write!(line, "; not separable: {reason}");
        }
        lines.push(line);
    }
    lines
}

/// Returns a line per target with the layers that merged, split, amplified or absorbed I/O.
pub(super) fn flows(judgement: &Judgement, workload: &str) -> Vec<String> {
    let flows = judgement.on(workload, |cell| cell.amplification.as_ref());
    flows
        .filter_map(|(target, flow)| {
            let noted = amplification::remarkable(flow);
            (!noted.is_empty()).then(|| format!("{target}, passed on: {}", noted.join("; ")))
        })
        .collect()
}
