//! Lost targets, withheld verdicts and undecided comparisons, with reasons and advice.

use super::pair;
use crate::figure::{counted, listed_briefly};
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Judgement, Standing, Stopped};
use iotax_model::Run;

/// The most additional rounds worth advising.
const MANY_ROUNDS: u32 = 50;
/// The most pairs that are named; more are counted, and marked in the tables.
const MOST_NAMED: usize = 3;

/// One sentence per lost target.
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

/// Verdicts that are withheld because they rest on an unusable measurement.
pub(super) fn withheld(judgement: &Judgement, all: &[&Comparison]) -> Option<String> {
    let found: Vec<&Comparison> = all.iter().copied().filter(|c| c.ratio.withheld.is_some()).collect();
    let reason = found.first()?.ratio.withheld.as_deref()?;
    let which = named(judgement, &found);
    let others = found.iter().any(|c| c.ratio.withheld.as_deref() != Some(reason));
    let instance = if others { "for instance " } else { "" };
    Some(format!("No verdict is given: {which}; {instance}{reason}."))
}

/// Comparisons that are not decided, in one sentence, with what would decide them.
pub(super) fn undecided(run: &Run, judgement: &Judgement, all: &[&Comparison]) -> Option<String> {
    let is_open = |c: &&Comparison| c.ratio.verdict == Verdict::Undecided && c.ratio.withheld.is_none();
    let open: Vec<&Comparison> = all.iter().copied().filter(is_open).collect();
    if open.is_empty() {
        return None;
    }
    let way = match &judgement.standing {
        Some(standing) => still_open(run, standing, &open),
        None => way_out(run, &open),
    };
    Some(format!("Not decided: {}; {way}.", named(judgement, &open)))
}

/// The number of rounds after which a run that adds rounds had decided every comparison.
pub(super) fn decided(standing: &Standing) -> Option<String> {
    (standing.stopped == Some(Stopped::Decided)).then(|| {
        let most = standing.looks.last().copied().unwrap_or_default();
        format!(
            "Every comparison that was waited for is decided, after {} of at most {}.",
            standing.rounds(),
            counted(most, "round")
        )
    })
}

/// `LVM (host-lvm over host-device) on a and b`; for many pairs `14 comparisons of 5 pairs, marked in the tables`.
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
    let told = pairs.iter().map(|(name, workloads)| format!("{name} on {}", listed_briefly(workloads)));
    told.collect::<Vec<_>>().join("; ")
}

/// The number of additional rounds that would decide some or all of them, if that is affordable.
fn way_out(run: &Run, open: &[&Comparison]) -> String {
    let mut needed: Vec<(u32, u32)> = open
        .iter()
        .filter_map(|c| Some((c.ratio.needed_rounds?.saturating_sub(c.rounds), c.ratio.needed_rounds?)))
        .collect();
    needed.sort_unstable();
    let within = needed.iter().filter(|(more, _)| *more <= MANY_ROUNDS).count();
    // The last quarter may take many times as long as the rest.
    let most = (within * 3).div_ceil(4);
    if let Some((more, _)) = most.checked_sub(1).map(|last| needed[last]) {
        let decided: Vec<u32> =
            needed.iter().filter(|(other, _)| *other <= more).map(|(_, total)| *total).collect();
        let total = decided.iter().copied().max().unwrap_or_default();
        let which = match (decided.len() == open.len(), decided.len()) {
            (true, _) => String::new(),
            (false, 1) => " one of them".into(),
            (false, some) => format!(" {some} of them"),
        };
        let way = if total <= run.plan.repeat {
            format!("iotax resume {}", run.id)
        } else {
            format!(
                "a new run with --repeat {total}, or --until-decided; iotax resume {} --repeat {total} is a second look, which \
                 errs more often",
                run.id
            )
        };
        return format!("about {} would decide{which} ({way})", counted(more, "more round"));
    }
    if let Some((least, _)) = needed.first() {
        let rounds = counted(*least, "more round");
        let at_least = if needed.len() > 1 { "at least " } else { "" };
        return format!("that takes {at_least}about {rounds} at this noise; a longer runtime lowers it");
    }
    if open.iter().all(|c| c.rounds < 2) {
        return format!("one round alone has no interval (iotax resume {} --repeat 3 gives one)", run.id);
    }
    "not even 1000 rounds would decide: the noise is too large for so small a distance from the margin".into()
}

/// The reason why a run that adds rounds has not decided these, and what may decide them.
fn still_open(run: &Run, standing: &Standing, open: &[&Comparison]) -> String {
    let (id, rounds) = (run.id, counted(standing.rounds(), "round"));
    match standing.stopped {
        None => match standing.next() {
            Some(next) => format!("the next look is after {} (iotax resume {id})", counted(next, "round")),
            None => format!("no look is left after {rounds}"),
        },
        Some(Stopped::MaxTime) => {
            format!(
                "measuring up to the next look would have passed max_time after {rounds} (iotax resume {id} goes on)"
            )
        }
        Some(Stopped::Failed) => "what it needs could not be measured".into(),
        Some(Stopped::Decided | Stopped::MaxRounds) => {
            let needed = open.iter().filter_map(|c| c.ratio.needed_rounds).max();
            let advice = needed.map_or(String::new(), |needed| {
                format!("; at this noise it takes about {needed}, in a new run with --max-rounds above that")
            });
            format!("{rounds} were the most that this run was to measure{advice}")
        }
    }
}
