//! Describes lost targets, withheld verdicts and undecided comparisons, with reasons and advice.

use super::next_step::next_step;
use super::pair;
use crate::figure::{counted, listed_briefly};
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Judgement, SequentialStatus, Stopped};
use iotax_model::Run;

/// Maximum number of pairs listed by name; if there are more, only their number is given.
const MOST_NAMED: usize = 3;

/// Returns a sentence per lost target, with the reason and the number of its measurements.
pub(crate) fn lost(run: &Run) -> impl Iterator<Item = String> + '_ {
    run.targets.iter().filter_map(|record| {
        let (name, reason) = (&record.name, record.lost.as_ref()?);
        let is_baseline = *name == run.plan.baseline && run.plan.targets.len() > 1;
        let what = if is_baseline { ", the baseline: nothing is compared with it from then on" } else { "" };
        let there = run.measurements.iter().filter(|m| m.target == *name).count();
        let there = counted(there as u64, "measurement");
        Some(format!("{name} was lost{what} ({there} of it are there): {}.", reason.trim_end_matches('.')))
    })
}

/// Names the comparisons whose verdict is withheld because a measurement is unusable; `None` if no verdict is withheld.
pub(super) fn withheld(judgement: &Judgement, all: &[&Comparison]) -> Option<String> {
    let found: Vec<&Comparison> = all.iter().copied().filter(|c| c.ratio.withheld.is_some()).collect();
    let reason = found.first()?.ratio.withheld.as_deref()?;
    let which = named(judgement, &found);
    let others = found.iter().any(|c| c.ratio.withheld.as_deref() != Some(reason));
    let instance = if others { "for instance " } else { "" };
    Some(format!("No verdict is given: {which}; {instance}{reason}."))
}

/// Names the undecided comparisons and says how to decide them; `None` if all are decided.
pub(super) fn undecided(run: &Run, judgement: &Judgement, all: &[&Comparison]) -> Option<String> {
    let is_open = |c: &&Comparison| c.ratio.verdict == Verdict::Undecided && c.ratio.withheld.is_none();
    let open: Vec<&Comparison> = all.iter().copied().filter(is_open).collect();
    if open.is_empty() {
        return None;
    }
    let needed: Vec<Option<u32>> = open.iter().map(|c| c.ratio.needed_rounds).collect();
    Some(format!("Not decided: {}; {}", named(judgement, &open), next_step(run, judgement, &needed)))
}

/// States after how many rounds a run that adds rounds had decided every required comparison. `None` if the run has not ended, or ended for another
/// reason.
pub(super) fn decided(status: &SequentialStatus) -> Option<String> {
    (status.stopped == Some(Stopped::Decided)).then(|| {
        let most = status.looks.last().copied().unwrap_or_default();
        format!(
            "Every comparison that was waited for is decided, after {} of at most {}.",
            status.rounds(),
            counted(most, "round")
        )
    })
}

/// Lists comparisons: `LVM (host-lvm over host-device) on a and b`; for more than [`MOST_NAMED`] pairs `14 comparisons of 5 pairs, marked in the
/// tables`.
fn named(judgement: &Judgement, found: &[&Comparison]) -> String {
    let mut pairs: Vec<(String, Vec<String>)> = Vec::new();
    for comparison in found {
        let name = pair(judgement, comparison);
        match pairs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, workloads)) => workloads.push(comparison.workload.clone()),
            None => pairs.push((name, vec![comparison.workload.clone()])),
        }
    }
    if pairs.len() > MOST_NAMED {
        return format!(
            "{} of {} pairs, marked in the tables",
            counted(found.len() as u64, "comparison"),
            pairs.len()
        );
    }
    let listed = pairs.iter().map(|(name, workloads)| format!("{name} on {}", listed_briefly(workloads)));
    listed.collect::<Vec<_>>().join("; ")
}
