//! Screens settings in combinations: every target has about half of the settings, so each measurement contributes to the estimate of every
//! setting.
//!
//! The combinations are a design of R. L. Plackett and J. P. Burman (The design of optimum multifactorial experiments, Biometrika 33,
//! 1946): any two settings occur together as often as apart. So targets with a setting differ on average from targets without it only by
//! that setting's effect, if settings do not interact. The confirmation does not assume this.

use std::collections::HashMap;

use super::{Candidate, Tried, objective};
use crate::comparison::{Comparison, Ratio};
use crate::judgement::judge_by;
use crate::metric::Metric;
use crate::sample::{Sample, decide_family};
use crate::{Grade, stats::Estimate, stats::verdict::Decision};
use iotax_model::Run;

/// First rows of the designs, the shortest first: `+` for a setting that the target has, `-` for one that it lacks.
const FIRST_ROWS: [&str; 5] =
    ["+++-+--", "++-+++---+-", "++++-+-++--+---", "++--++++-+-+----++-", "+++++-+-++--++--+-+----"];

/// Maximum number of settings in a design.
pub const MOST_SETTINGS: usize = 23;

/// Returns the combinations for a number of settings: for each target, a list that is true for each setting that the target has. The first
/// target has none. `None` for more than [`MOST_SETTINGS`].
#[must_use]
pub fn mixes(settings: usize) -> Option<Vec<Vec<bool>>> {
    let first: Vec<bool> =
        FIRST_ROWS.iter().find(|row| row.len() >= settings)?.chars().map(|sign| sign == '+').collect();
    // Each further row is the first row, rotated by one more position.
    let row = |turn: usize| (0..settings).map(|column| first[(column + turn) % first.len()]).collect();
    Some([vec![false; settings]].into_iter().chain((0..first.len()).map(row)).collect())
}

/// Screens the candidates of a run whose targets have the combinations of settings in `mixes`, in the same order.
#[must_use]
pub fn screen(run: &Run, candidates: &[Candidate], mixes: &[Vec<bool>], asked: Option<Metric>) -> Vec<Tried> {
    let mut tried: Vec<Tried> = candidates
        .iter()
        .map(|candidate| Tried { candidate: candidate.clone(), comparisons: Vec::new(), lost: None })
        .collect();
    let withheld = withheld(run);
    let by_metric = run.plan.workloads.iter().map(|workload| (&workload.name, objective(workload, asked)));
    let mut members: Vec<(usize, &String, Metric, Sample, f64)> = Vec::new();
    for (workload, metric) in by_metric {
        let rounds = rounds(run, workload, metric, mixes.len());
        for index in 0..candidates.len() {
            let pairs: Vec<(f64, f64)> = rounds.iter().map(|logs| halves(logs, mixes, index)).collect();
            let base = pairs.iter().map(|(_, without)| without.ln()).sum::<f64>() / pairs.len() as f64;
            let sample = Sample::paired(&pairs, metric);
            members.extend(sample.map(|sample| (index, workload, metric, sample, base.exp())));
        }
    }
    let family: Vec<(Metric, Sample)> =
        members.iter().map(|(_, _, metric, sample, _)| (*metric, sample.clone())).collect();
    let decisions = decide_family(family, run.plan.margin.share());
    for ((index, workload, metric, sample, base), decision) in members.into_iter().zip(decisions) {
        let why = withheld.get(workload.as_str()).cloned();
        let decision = if why.is_some() { Decision::none() } else { decision };
        let rounds = u32::try_from(sample.rounds()).unwrap_or(u32::MAX);
        tried[index].comparisons.push(Comparison {
            workload: workload.clone(),
            metric,
            target: candidates[index].target.clone(),
            baseline: run.plan.baseline.clone(),
            ratio: Ratio::new(metric, (sample.mean().exp(), base), &sample, &decision, why),
            rounds,
            decided_at: None,
        });
    }
    tried
}

/// Finds workloads with an unusable measurement, each with the reason.
fn withheld(run: &Run) -> HashMap<String, String> {
    let graded = run.measurements.iter().zip(judge_by(run, &[]).grades);
    let unusable = graded.filter(|(_, grade)| *grade == Grade::Unusable);
    unusable
        .map(|(m, _)| (m.workload.clone(), format!("{} in round {} cannot be used", m.target, m.round)))
        .collect()
}

/// Returns the logarithms of a workload's figures by target, for each round in which every target has a figure.
fn rounds(run: &Run, workload: &str, metric: Metric, targets: usize) -> Vec<Vec<f64>> {
    let index = |name: &str| run.plan.targets.iter().position(|target| target.name == name);
    let mut found: Vec<Vec<Option<f64>>> = Vec::new();
    for m in run.measurements.iter().filter(|m| m.workload == workload) {
        let round = m.round as usize;
        if found.len() < round {
            found.resize(round, vec![None; targets]);
        }
        if let (Some(index), Some(row)) =
            (index(&m.target).filter(|index| *index < targets), found.get_mut(round - 1))
        {
            row[index] = metric.of(m).map(f64::ln).filter(|log| log.is_finite());
        }
    }
    found.into_iter().filter_map(|row| row.into_iter().collect()).collect()
}

/// Returns the geometric mean of the targets with a setting and that of the targets without it.
fn halves(logs: &[f64], mixes: &[Vec<bool>], setting: usize) -> (f64, f64) {
    let mean = |has: bool| {
        let of: Vec<f64> =
            logs.iter().zip(mixes).filter(|(_, mix)| mix[setting] == has).map(|(log, _)| *log).collect();
        (of.iter().sum::<f64>() / of.len() as f64).exp()
    };
    (mean(true), mean(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_settings_occur_together_as_often_as_apart() {
        for settings in 1..=MOST_SETTINGS {
            let mixes = mixes(settings).expect("a design");
            assert!(mixes[0].iter().all(|has| !has), "the first has none");
            for one in 0..settings {
                assert_eq!(2 * mixes.iter().filter(|mix| mix[one]).count(), mixes.len(), "{settings}");
                for other in 0..one {
                    let equal = mixes.iter().filter(|mix| mix[one] == mix[other]).count();
                    assert_eq!(2 * equal, mixes.len(), "{settings}: {one} and {other}");
                }
            }
        }
        assert_eq!(mixes(MOST_SETTINGS + 1), None);
    }
}
