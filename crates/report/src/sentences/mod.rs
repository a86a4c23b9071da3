//! Draws the conclusions of a run. Each sentence states a verdict, or that there is none.

pub(super) mod amount;
pub mod compared;
mod layers;
mod network;
mod next_step;
mod open;
mod totals;
pub mod trend;

pub(crate) use next_step::next_step;
pub(crate) use open::lost;

use iotax_model::plan::Design;
use iotax_model::verify_errors::Findings;

use crate::figure::{counted, listed_briefly};
use crate::marks::is_emulated;
use iotax_analysis::durability::DurableWrites;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Edge, Judgement, Metric};
use iotax_model::{Run, RunState};

/// Describes the progress of an unfinished run; `None` for a complete one.
#[must_use]
pub fn unfinished(run: &Run) -> Option<String> {
    let there = run.measurements.len() as u64;
    let planned = u64::from(run.plan.most_rounds()) * run.plan.cells() as u64;
    let of_planned = |at_most: &str| format!("{there} of {at_most}{}", counted(planned, "measurement"));
    let measured = match &run.plan.design {
        // The number of measurements of a search is not known in advance.
        Design::Ask(_) => counted(there, "measurement"),
        Design::UntilDecided(_) | Design::UntilSteady(_) => of_planned("at most "),
        Design::FixedRounds | Design::Curve(_) | Design::Watch(_) => of_planned(""),
    };
    let id = run.id;
    let state = match run.state {
        RunState::Complete => return None,
        RunState::Running => return Some(format!("Run {id} is still measuring: {measured} so far.")),
        RunState::Interrupted => format!("Run {id} was interrupted after {measured}."),
        RunState::Failed => format!("Run {id} is incomplete: {measured}."),
    };
    // The coordinator resumes a fleet's run, and a watch ended by the user already has its only measurement.
    let can_go_on = run.fleet.is_none() && (run.plan.searches() || there < planned);
    Some(if can_go_on { format!("{state} Go on: {}", run.command("resume", "")) } else { state })
}

/// Returns all conclusions of a run: which demands are met, the steady state, and the results of the comparisons.
#[must_use]
pub fn conclusions(run: &Run, judgement: &Judgement) -> Vec<String> {
    let mut all = crate::demands::sentences(run, judgement);
    all.extend(meaning(run, judgement));
    all
}

/// Returns the conclusions except those on demands: the steady state, if the plan asks for one, and the comparisons.
#[must_use]
pub(crate) fn meaning(run: &Run, judgement: &Judgement) -> Vec<String> {
    let mut all = crate::steady_state::sentences(run);
    all.extend(comparisons(run, judgement));
    all
}

/// Returns the sentences on the results. A search, a watch, durable-write methods and latency curves have their own sentences. For other
/// runs, in this order: lost targets, the cost of each layer, the other targets against the baseline, phases of replays, network paths,
/// withheld verdicts with their reason, undecided comparisons, and verification.
///
/// In a closed loop, latency and IOPS carry the same information: costs are given in mean latency, undecided comparisons by the headline
/// metric.
fn comparisons<'a>(run: &'a Run, judgement: &'a Judgement) -> Vec<String> {
    match &run.plan.design {
        Design::Ask(_) => return crate::ask::all(run),
        Design::Watch(_) => return crate::watch::all(run),
        // Any of these designs shows curves if its plan sets rates.
        Design::FixedRounds | Design::UntilDecided(_) | Design::UntilSteady(_) | Design::Curve(_) => {}
    }
    if let Some(writes) = DurableWrites::of(run, judgement) {
        return crate::durability::sentences(run, &writes);
    }
    let curves = iotax_analysis::curve::curves(run);
    if !curves.is_empty() {
        let of_curves =
            curves.iter().map(|curves| crate::curve::sentences(judgement, curves, &run.plan.baseline));
        return of_curves.flatten().collect();
    }
    let workload = |c: &Comparison| run.plan.workloads.iter().find(|workload| workload.name == c.workload);
    let is_network = |c: &Comparison| workload(c).is_some_and(|workload| workload.kind.is_network());
    let of = |comparisons: &'a [Comparison], network: bool| {
        each_pair(judgement, comparisons.iter().filter(move |c| is_network(c) == network))
    };
    // A pair that is a step is reported once, under the layer's name.
    let whole = |network| {
        let mut totals = of(&judgement.comparisons, network);
        totals.retain(|versus| versus.edge.is_none());
        (of(&judgement.steps, network), totals)
    };
    let ((steps, totals), (hops, paths)) = (whole(false), whole(true));
    let mut sentences: Vec<String> = open::lost(run).collect();
    sentences.extend(layers::costs(run, &steps));
    sentences.extend(totals::totals(run, judgement, &totals));
    sentences.extend(crate::phases::sentences(run));
    let crossing: Vec<&Versus<'_>> = hops.iter().chain(&paths).collect();
    sentences.extend(network::costs(run, judgement, &hops, &paths));
    sentences.extend(network::facts(judgement));
    let leads = |c: &&Comparison| workload(c).is_some_and(|workload| c.metric == Metric::headline(workload));
    let pairs = steps.iter().chain(&totals).chain(crossing.iter().copied());
    let all: Vec<&Comparison> =
        pairs.flat_map(|versus| versus.comparisons.iter().copied().filter(leads)).collect();
    sentences.extend(open::withheld(judgement, &all));
    sentences.extend(open::undecided(run, judgement, &all));
    sentences.extend(judgement.sequential.as_ref().and_then(open::decided));
    sentences.extend(verified(run));
    sentences.extend(unpaired(run));
    sentences
}

/// Explains why the targets of an imported run are not compared; `None` for other runs and for a single target.
fn unpaired(run: &Run) -> Option<String> {
    (run.source.is_imported() && run.plan.targets.len() > 1).then(|| {
        "The targets are not compared: the repetitions of one were not measured beside those of another."
            .into()
    })
}

/// States that verification found no fault. `None` if nothing was verified, or if faults were found: warnings report those.
pub(crate) fn verified(run: &Run) -> Option<String> {
    let mut all = Findings::default();
    run.measurements.iter().filter_map(|m| m.outcome.verify.clone()).for_each(|findings| all.merge(findings));
    let uncertain = match all.uncertain {
        0 => String::new(),
        blocks => {
            format!("; {} may hold anything, because the last write to it failed", counted(blocks, "block"))
        }
    };
    (all.checked > 0 && all.faulty() == 0).then(|| {
        format!("All {} held what was written there{uncertain}.", counted(all.checked, "checked block"))
    })
}

/// Formats the margin: `within 2%`.
pub(super) fn margin(run: &Run) -> String {
    format!("within {}", run.plan.margin)
}

/// A target and a baseline with all their comparisons, and the ladder step between the two if they differ by one layer or setting.
struct Versus<'a> {
    target: &'a str,
    baseline: &'a str,
    edge: Option<&'a Edge>,
    comparisons: Vec<&'a Comparison>,
}

fn each_pair<'a>(
    judgement: &'a Judgement,
    comparisons: impl Iterator<Item = &'a Comparison>,
) -> Vec<Versus<'a>> {
    let mut pairs: Vec<Versus<'a>> = Vec::new();
    for comparison in comparisons {
        let (target, baseline) = (comparison.target.as_str(), comparison.baseline.as_str());
        let known = pairs.iter_mut().find(|p| p.target == target && p.baseline == baseline);
        if let Some(pair) = known {
            pair.comparisons.push(comparison);
        } else {
            let edge = judgement.edge(comparison);
            pairs.push(Versus { target, baseline, edge, comparisons: vec![comparison] });
        }
    }
    pairs
}

impl<'a> Versus<'a> {
    fn by(&self, metric: Metric) -> impl Iterator<Item = &'a Comparison> {
        self.comparisons.iter().copied().filter(move |c| c.metric == metric)
    }

    /// Returns the verdict shown in tables: for latency the verdict by the workload's headline metric, which may be IOPS.
    fn verdict(&self, run: &Run, comparison: &Comparison) -> Verdict {
        let workload = run.plan.workloads.iter().find(|workload| workload.name == comparison.workload);
        let deciding = workload.filter(|_| comparison.metric == Metric::LATENCY_MEAN).map(Metric::headline);
        let deciding = deciding.and_then(|metric| self.beside(comparison, metric));
        deciding.unwrap_or(comparison).ratio.verdict
    }

    /// Returns the comparison of this pair by `metric`, on the workload of `comparison`; `None` if the pair is not compared by that metric.
    fn beside(&self, comparison: &Comparison, metric: Metric) -> Option<&'a Comparison> {
        self.by(metric).find(|c| c.workload == comparison.workload)
    }

    /// Returns whether the target is emulated and the baseline is not, so that the difference includes the emulation.
    fn only_one_emulated(&self, run: &Run) -> bool {
        is_emulated(run, self.target) && !is_emulated(run, self.baseline)
    }
}

/// Names a comparison: `LVM (host-lvm over host-device)`, or `vm-lvm against host-device` if several layers separate the two.
fn pair(judgement: &Judgement, comparison: &Comparison) -> String {
    let (target, baseline) = (&comparison.target, &comparison.baseline);
    match judgement.edge(comparison) {
        Some(edge) => format!("{} ({target} over {baseline})", edge.name),
        None => format!("{target} against {baseline}"),
    }
}

/// Names the workloads of some comparisons; `every workload` if these are all of the run.
fn workload_names(run: &Run, found: &[&Comparison]) -> String {
    if found.len() == run.plan.workloads.len() && found.len() > 1 {
        return "every workload".into();
    }
    listed_briefly(&found.iter().map(|c| c.workload.clone()).collect::<Vec<_>>())
}
