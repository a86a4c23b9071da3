//! What each of several guests got, and what a neighbour did.

use comfy_table::{Cell, Table};
use iotax_model::units::human;

use super::table::{plain, right};
use crate::judge::{Crowd, Judgement};
use crate::report::figure::{evenness, megabytes, or_unknown};

/// One row per guest of targets with several, and one for all of them together; absent if there are none.
pub(super) fn crowds(judgement: &Judgement, workload: &str) -> Option<Table> {
    let mut table = plain(&["", "guest", "IOPS", "MB/s", "p50", "p99", "fairness"]);
    let crowds: Vec<&Crowd> = judgement.crowds.iter().filter(|crowd| crowd.workload == workload).collect();
    for crowd in &crowds {
        for member in &crowd.members {
            let figures = [
                member.name.clone(),
                or_unknown(member.iops, human::count),
                or_unknown(member.bytes_per_s, megabytes),
                or_unknown(member.percentile(0.5), human::time),
                or_unknown(member.percentile(0.99), human::time),
            ];
            table.add_row([Cell::new(&crowd.target)].into_iter().chain(figures.map(right)));
        }
        let Some(all) = judgement.summary(workload, &crowd.target) else { continue };
        let figures = [
            "all".into(),
            or_unknown(all.iops, human::count),
            or_unknown(all.bytes_per_s, megabytes),
            or_unknown(all.percentile(0.5), human::time),
            or_unknown(all.percentile(0.99), human::time),
            evenness(crowd.fairness),
        ];
        table.add_row([Cell::new(&crowd.target)].into_iter().chain(figures.map(right)));
    }
    (!crowds.is_empty()).then_some(table)
}

/// A line for each target that had a neighbour.
pub(super) fn noises(judgement: &Judgement, workload: &str) -> Vec<String> {
    let noises = judgement.noises.iter().filter(|noise| noise.workload == workload);
    noises
        .map(|noise| {
            let (iops, rate) =
                (or_unknown(noise.iops, human::count), or_unknown(noise.bytes_per_s, human::rate));
            format!("beside {}, {} made {iops} IOPS, {rate}", noise.target, noise.name)
        })
        .collect()
}
