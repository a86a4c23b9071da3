//! Describes the steady state: whether it was reached, after how many rounds, which cell varies most, and what was written until then.

use iotax_analysis::SteadyState;
use iotax_analysis::steady_state::CellSteadiness;
use iotax_model::plan::{STEADY_RANGE, STEADY_SLOPE, STEADY_WINDOW};
use iotax_model::units::human;
use iotax_model::workload::{SteadyLimit, SteadyResult};
use iotax_model::{Run, RunState, TargetSpec, Workload};

use crate::figure::{counted, share, signed_share};

/// Returns sentences on the steady state: that of a run that waits for one, and those that ended measurements early. Empty for other runs.
pub(crate) fn sentences(run: &Run) -> Vec<String> {
    let Some(state) = SteadyState::of(run) else { return ended_early(run) };
    let mut all = of_rounds(run, &state);
    all.extend(written(run));
    all.extend(ended_early(run));
    all
}

/// Returns a sentence per workload and target whose measurements end with a `steadystate`.
fn ended_early(run: &Run) -> Vec<String> {
    let of = |workload: &Workload, target: &str| {
        let criterion = workload.steadystate?;
        let measured = run.measured().filter(|m| m.workload == workload.name && m.target == target);
        let results: Vec<SteadyResult> = measured.filter_map(|m| m.outcome.steadystate).collect();
        let attained: Vec<f64> =
            results.iter().filter_map(|result| Some(result.attained_ns? as f64)).collect();
        let (all, rounds) = (results.len(), counted(results.len() as u64, "round"));
        let longest = attained.iter().copied().fold(0.0, f64::max);
        let sentence = match (all, attained.len()) {
            (0, _) => return None,
            (all, reached) if all == reached => {
                format!("steady in {rounds}, after {} at most", human::time(longest))
            }
            (_, reached) => format!("NOT steady in {} of {rounds}", all - reached),
        };
        let unit = if matches!(criterion.limit, SteadyLimit::Percent(_)) { "%" } else { "" };
        let last = results.iter().rev().find_map(|result| result.value);
        let last = last.map(|value| format!("; at the end: {value:.2}{unit}"));
        Some(format!(
            "{target}, {}, steadystate = {criterion}: {sentence}{}.",
            workload.name,
            last.unwrap_or_default()
        ))
    };
    let targets = || run.plan.targets.iter().map(|target| target.name.as_str());
    run.plan
        .workloads
        .iter()
        .flat_map(|workload| targets().filter_map(move |target| of(workload, target)))
        .collect()
}

/// Returns a sentence per target that was written: its purge, the bytes of the rounds, and a caution if these are few. A new drive is fast until
/// its spare space is used up, and five fast rounds are as alike as five slow ones.
fn written(run: &Run) -> Vec<String> {
    let of = |target: &TargetSpec| {
        let of_target = run.measurements.iter().filter(|m| m.target == target.name);
        let bytes: u64 = of_target.filter_map(|m| Some(m.outcome.tallies.write.as_ref()?.bytes)).sum();
        let record = run.targets.iter().find(|record| record.name == target.name);
        let purged = record.and_then(|record| record.purged.as_ref());
        let area = run.plan.reach().filter(|area| area.0 > 0);
        let times = area.map(|area| bytes as f64 / area.0 as f64);
        if bytes == 0 {
            return purged.map(|purged| format!("{}: {purged}.", target.name));
        }
        let times = match times {
            Some(times) if times < 1.0 => format!(
                ", {} of the area: a new or purged drive may still be fast; measure longer rounds, or more of them",
                share(times)
            ),
            Some(times) => format!(", {times:.1} times the area"),
            None => String::new(),
        };
        let purged = purged.map(|purged| format!("{purged}, filled, and then ")).unwrap_or_default();
        Some(format!(
            "{}: {purged}written with {} in the windows of the rounds{times}.",
            target.name,
            human::bytes(bytes)
        ))
    };
    run.plan.targets.iter().filter_map(of).collect()
}

/// Returns a sentence on the last five rounds, with the cell that varies most.
fn of_rounds(run: &Run, state: &SteadyState) -> Vec<String> {
    let rounds = state.rounds();
    let (range, slope) = (share(STEADY_RANGE), share(STEADY_SLOPE));
    let until = run.plan.until_steady();
    let wear = until.and_then(|until| until.may_write).filter(|_| {
        let is_over = run.state == RunState::Complete;
        is_over && rounds < run.plan.most_rounds()
    });
    let wear = wear.map(|bytes| format!("; another would have written more than may_write = {bytes}"));
    let wear = wear.unwrap_or_default();
    if rounds < STEADY_WINDOW {
        return vec![format!(
            "Steady state: unknown; {} measured, and SNIA's rule asks for {STEADY_WINDOW}{wear}.",
            counted(rounds, "round")
        )];
    }
    let cells = state.cells();
    let open: Vec<&CellSteadiness> = cells.iter().filter(|cell| !cell.is_steady()).collect();
    let widest = |cells: &[&CellSteadiness]| {
        let width = |cell: &&CellSteadiness| cell.window.map_or(f64::INFINITY, |window| window.range);
        cells.iter().copied().max_by(|a, b| width(a).total_cmp(&width(b))).map(|cell| words(run, cell))
    };
    if open.is_empty() {
        let widest = widest(&cells.iter().collect::<Vec<_>>()).unwrap_or_default();
        return vec![format!(
            "Steady by SNIA's rule after {}: the last {STEADY_WINDOW}, which the figures are made of, range over at most {range} of their \
             mean and their trend over {slope}; widest: {widest}.",
            counted(rounds, "round")
        )];
    }
    vec![format!(
        "NOT steady after {}{wear}: {} of {}; the last {STEADY_WINDOW}, which the figures are made of, may range over {range} of their mean and \
         their trend over {slope}; widest: {}.",
        counted(rounds, "round"),
        open.len(),
        counted(cells.len() as u64, "cell"),
        widest(&open).unwrap_or_default()
    )]
}

/// Describes the variation of a cell over the last rounds: `raw, randwrite-4k: range 34%, trend -12%`.
fn words(run: &Run, cell: &CellSteadiness) -> String {
    let target = &run.plan.targets[cell.cell.target].name;
    let workload = &run.plan.workloads[cell.cell.workload].name;
    let widths = cell.window.map_or_else(
        || "a round is missing".to_owned(),
        |window| format!("range {}, trend {}", share(window.range), signed_share(window.slope)),
    );
    format!("{target}, {workload}: {widths}")
}
