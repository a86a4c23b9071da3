//! Finds settings that help: one run screens many settings, and another run confirms the best ones.
//!
//! The screening compares every candidate with the present settings. Its winner is chosen by its figures, so these figures exaggerate the
//! gain. A second run therefore confirms the choice in new rounds: it compares the present settings with all chosen settings together, by
//! one metric in one family of comparisons. Settings without any effect are recommended after at most 2.5% of such runs.

pub mod mixed;

use iotax_model::Workload;
use schemars::JsonSchema;
use serde::Serialize;

use crate::comparison::Comparison;
use crate::judgement::judge;
use crate::metric::Metric;
use crate::stats::verdict::Verdict;
use iotax_model::Run;

/// A value of a setting to try, and the target with that value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The target's name.
    pub target: String,
    /// Key of the setting, as in a plan file.
    pub key: String,
    /// Value of the setting.
    pub value: String,
}

/// A candidate with the result of its screening.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The setting's value that was tried, and its target.
    pub candidate: Candidate,
    /// Comparisons with the present settings by the objective, one per workload.
    pub comparisons: Vec<Comparison>,
    /// The reason why the candidate was not measured; `None` if it was measured.
    pub lost: Option<String>,
}

/// Returns the metric by which settings are chosen on a workload: the requested one, else IOPS in a closed loop, and
/// mean latency at a given rate.
#[must_use]
pub fn objective(workload: &Workload, asked: Option<Metric>) -> Metric {
    let is_paced = workload.rate.is_some() || workload.rate_iops.is_some();
    asked.unwrap_or(if is_paced { Metric::LATENCY_MEAN } else { Metric::IOPS })
}

/// Screens the candidates: compares each with the run's baseline, which has the present settings.
#[must_use]
pub fn screen(run: &Run, candidates: &[Candidate], asked: Option<Metric>) -> Vec<Tried> {
    let judgement = judge(run);
    let tried = |candidate: &Candidate| {
        let is_it = |c: &&Comparison| c.target == candidate.target && is_objective(run, c, asked);
        let record = run.targets.iter().find(|record| record.name == candidate.target);
        Tried {
            candidate: candidate.clone(),
            comparisons: judgement.comparisons.iter().filter(is_it).cloned().collect(),
            lost: record.and_then(|record| record.lost.clone()),
        }
    };
    candidates.iter().map(tried).collect()
}

fn is_objective(run: &Run, comparison: &Comparison, asked: Option<Metric>) -> bool {
    let workload = run.plan.workloads.iter().find(|workload| workload.name == comparison.workload);
    workload.is_some_and(|workload| objective(workload, asked) == comparison.metric)
}

/// Returns the ratio of a comparison, inverted if less is better, so that more than 1 is a gain.
#[must_use]
pub fn gain(comparison: &Comparison) -> f64 {
    let mean = comparison.ratio.mean;
    if comparison.metric.more_is_better() { mean } else { 1.0 / mean }
}

impl Tried {
    /// Returns the geometric mean of the gains on all workloads; `None` if the candidate was not measured.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        let logs: Vec<f64> = self.comparisons.iter().map(|c| gain(c).ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        (!logs.is_empty() && mean.is_finite()).then(|| mean.exp())
    }

    /// Returns the reason why the candidate's measurements cannot be used; `None` if they can.
    #[must_use]
    pub fn withheld(&self) -> Option<&str> {
        self.comparisons.iter().find_map(|c| c.ratio.withheld.as_deref())
    }

    fn has(&self, verdict: Verdict) -> bool {
        self.comparisons.iter().any(|c| c.ratio.verdict == verdict)
    }

    /// Returns whether the candidate is significantly better on at least one workload and worse on none.
    #[must_use]
    pub fn is_better(&self) -> bool {
        self.has(Verdict::Faster) && !self.has(Verdict::Slower)
    }
}

/// Returns the indices of the candidates to confirm together: for each setting, the best of the values that are significantly better.
/// Without such a value, the candidate with the largest gain above the margin, among usable ones that are worse on no workload. Empty if
/// nothing seems to help.
#[must_use]
pub fn choose(tried: &[Tried], margin: f64) -> Vec<usize> {
    let gain = |index: usize| tried[index].gain().unwrap_or(0.0);
    let best =
        |indices: &mut dyn Iterator<Item = usize>| indices.max_by(|a, b| gain(*a).total_cmp(&gain(*b)));
    let mut keys: Vec<&str> = Vec::new();
    for one in tried.iter().filter(|one| one.is_better()) {
        if !keys.contains(&one.candidate.key.as_str()) {
            keys.push(&one.candidate.key);
        }
    }
    let of_key = |key: &str| {
        let is_it = |index: &usize| tried[*index].candidate.key == key && tried[*index].is_better();
        best(&mut (0..tried.len()).filter(is_it))
    };
    let decided: Vec<usize> = keys.into_iter().filter_map(of_key).collect();
    if !decided.is_empty() {
        return decided;
    }
    let may = |index: &usize| {
        let one = &tried[*index];
        !one.has(Verdict::Slower) && one.withheld().is_none() && gain(*index) > 1.0 + margin
    };
    best(&mut (0..tried.len()).filter(may)).into_iter().collect()
}

/// The result of the confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmedGain {
    /// Better on at least one workload, and worse on none.
    Pays,
    /// Better on at least one workload, and worse on another.
    Trades,
    /// Not better on any workload.
    Unproven,
}

/// The chosen settings compared with the present ones, in new rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Confirmation {
    /// Overall verdict by the objective, over all workloads.
    pub outcome: ConfirmedGain,
    /// Comparisons by the objective, one per workload.
    pub objective: Vec<Comparison>,
    /// Side effects: mean latency, 99th percentile and CPU time on each workload, without the metric of the objective, and without mean
    /// latency if that is IOPS.
    pub elsewhere: Vec<Comparison>,
}

/// Metrics in which side effects of a setting show.
const ELSEWHERE: [Metric; 3] = [Metric::LATENCY_MEAN, Metric::LATENCY_P99, Metric::CPU_PER_IO];

/// Judges a confirmation: a run whose baseline has the present settings and whose other target has the chosen ones.
#[must_use]
pub fn confirm(run: &Run, asked: Option<Metric>) -> Confirmation {
    let comparisons = judge(run).comparisons;
    let (objective, others): (Vec<_>, Vec<_>) =
        comparisons.into_iter().partition(|comparison| is_objective(run, comparison, asked));
    let has = |verdict| objective.iter().any(|c| c.ratio.verdict == verdict);
    let outcome = match (has(Verdict::Faster), has(Verdict::Slower)) {
        (true, false) => ConfirmedGain::Pays,
        (true, true) => ConfirmedGain::Trades,
        (false, _) => ConfirmedGain::Unproven,
    };
    // In a closed loop the mean latency repeats what the IOPS show.
    let is_said = |c: &Comparison| {
        c.metric == Metric::LATENCY_MEAN && objective.iter().any(|o| o.metric == Metric::IOPS)
    };
    let elsewhere = others.into_iter().filter(|c| ELSEWHERE.contains(&c.metric) && !is_said(c)).collect();
    Confirmation { outcome, objective, elsewhere }
}

/// The result of tuning: screening, choice and confirmation.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// Number of the screening's run; absent for a single candidate, which needs no screening.
    pub screening: Option<i64>,
    /// All candidates, with the results of their screening.
    pub tried: Vec<Tried>,
    /// Indices of the candidates that were confirmed.
    pub chosen: Vec<usize>,
    /// The run that confirms, and its result; absent if no candidate seemed to help.
    pub confirmation: Option<(i64, Confirmation)>,
    /// True if a guest was emulated: its figures differ from those of a virtual machine in production.
    pub emulated: bool,
}

impl Tuning {
    /// Returns whether the chosen settings are recommended.
    #[must_use]
    pub fn pays(&self) -> bool {
        self.confirmation.as_ref().is_some_and(|(_, confirmed)| confirmed.outcome == ConfirmedGain::Pays)
    }

    /// Iterates over the chosen candidates.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.chosen.iter().map(|index| &self.tried[*index].candidate)
    }
}
