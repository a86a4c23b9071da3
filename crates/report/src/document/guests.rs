//! The share of each of several guests or jobs, and the load of neighbours.

use iotax_model::Workload;
use iotax_model::units::human;

use super::{Field, Grid, figure, words};
use crate::figure::{evenness, or_unknown, rate};
use crate::neighbours;
use iotax_analysis::{GroupFairness, Judgement, MemberKind, Metric};
use iotax_model::Run;

/// One row per guest or job, then one for all together; absent if no target has several.
pub(super) fn crowds(judgement: &Judgement, on: &Workload, of: MemberKind) -> Option<Grid> {
    let workload = &on.name;
    let of_this = |crowd: &&GroupFairness| crowd.workload == *workload && crowd.of == of;
    let member = judgement.groups.iter().find(of_this).map_or("", GroupFairness::member_word);
    let (rate, in_rate) = rate(on);
    let mut grid = Grid::new(&["", member, Metric::IOPS.column(on), rate, "p50", "p99", "fairness"]);
    for crowd in judgement.groups.iter().filter(of_this) {
        let mut add = |figures: [String; 6]| {
            let fields = [words(&crowd.target)].into_iter().chain(figures.map(figure));
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
        let Some(all) = judgement.summary(workload, &crowd.target) else { continue };
        add([
            "all".into(),
            or_unknown(all.of(Metric::IOPS), human::count),
            or_unknown(all.of(Metric::BYTES_PER_S), in_rate),
            or_unknown(all.of(Metric::LATENCY_P50), human::time),
            or_unknown(all.of(Metric::LATENCY_P99), human::time),
            if of == MemberKind::Guests { evenness(crowd.fairness) } else { String::new() },
        ]);
    }
    // The last column holds figures here.
    grid.head.iter_mut().skip(1).for_each(|field| field.is_figure = true);
    grid.filled()
}

/// A line for each target that had a neighbour.
pub(super) fn noises(run: &Run, judgement: &Judgement, workload: &Workload) -> Vec<String> {
    let noises = judgement.neighbour_loads.iter().filter(|noise| noise.workload == workload.name);
    noises
        .map(|noise| {
            let together = neighbours::together(noise).map(|words| format!("; {words}")).unwrap_or_default();
            let made = neighbours::made(run, noise, workload);
            format!("beside {}, {} made {made}{together}", noise.target, noise.name)
        })
        .collect()
}
