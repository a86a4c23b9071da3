//! Shows how concurrent guests or jobs shared the throughput, and the load of neighbours.

use iotax_model::units::human;
use iotax_model::{CellKey, Workload};

use super::{Field, Grid, figure, words};
use crate::figure::{evenness, or_unknown, rate};
use crate::neighbours;
use iotax_analysis::{CellJudgement, GroupFairness, Judgement, MemberKind, Metric};
use iotax_model::Run;

/// Returns the function that selects the fairness figures of a cell, for its guests or for its jobs.
fn part(of: MemberKind) -> fn(&CellJudgement) -> Option<&GroupFairness> {
    match of {
        MemberKind::Guests => |cell| cell.guests.as_ref(),
        MemberKind::Jobs => |cell| cell.jobs.as_ref(),
    }
}

/// Builds a table with a row per guest or job, and for each target a row for all of them; `None` if no target has several.
pub(super) fn crowds(judgement: &Judgement, on: &Workload, of: MemberKind) -> Option<Grid> {
    let workload = &on.name;
    let member = judgement.on(workload, part(of)).next().map_or("", |(_, crowd)| crowd.member_word());
    let (rate, in_rate) = rate(on);
    let mut grid = Grid::new(&["", member, Metric::IOPS.column(on), rate, "p50", "p99", "fairness"]);
    for (target, crowd) in judgement.on(workload, part(of)) {
        let mut add = |figures: [String; 6]| {
            let fields = [words(target)].into_iter().chain(figures.map(figure));
            grid.rows.push(fields.collect::<Vec<Field>>());
        };
        for member in &crowd.members {
            add([
                member.name.clone(),
                or_unknown(member.iops, human::count),
                or_unknown(member.bytes_per_s, in_rate),
                or_unknown(member.percentile(0.5), human::time),
                or_unknown(member.percentile(0.99), human::time),
                String::new(),
            ]);
        }
        let Some(all) = judgement.summary(CellKey { workload, target }) else { continue };
        add([
            "all".into(),
            or_unknown(all.of(Metric::IOPS), human::count),
            or_unknown(all.of(Metric::BYTES_PER_S), in_rate),
            or_unknown(all.of(Metric::LATENCY_P50), human::time),
            or_unknown(all.of(Metric::LATENCY_P99), human::time),
            if of == MemberKind::Guests { evenness(crowd.fairness) } else { String::new() },
        ]);
    }
    // The last column holds figures too.
    grid.head.iter_mut().skip(1).for_each(|field| field.is_figure = true);
    grid.filled()
}

/// Returns a line for each target that was measured while a neighbour ran its load.
pub(super) fn noises(run: &Run, judgement: &Judgement, workload: &Workload) -> Vec<String> {
    let noises = judgement.on(&workload.name, |cell| cell.neighbour.as_ref());
    noises
        .map(|(target, noise)| {
            let together =
                neighbours::together(target, noise).map(|words| format!("; {words}")).unwrap_or_default();
            let made = neighbours::made(run, noise, workload);
            format!("beside {target}, {} made {made}{together}", noise.name)
        })
        .collect()
}
