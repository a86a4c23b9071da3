//! Describes the cost of each layer: one sentence for all ladder steps with the same name and verdicts.

use super::amount::{absolute, range, relative};
use super::{Versus, margin, workload_names};
use crate::figure::listed_briefly;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Edge, Metric};
use iotax_model::Run;
use iotax_model::units::human;
use iotax_model::units::human::listed;

/// Ladder steps (pairs of targets one layer apart) with the same name and the same verdicts; at least one step.
struct Layer<'a> {
    edge: &'a Edge,
    steps: Vec<&'a Versus<'a>>,
}

/// Returns the sentences in the order of the ladder; a layer without a decided comparison has none.
pub(super) fn costs<'a>(run: &Run, steps: &'a [Versus<'a>]) -> Vec<String> {
    let mut layers: Vec<Layer<'a>> = Vec::new();
    for step in steps {
        let Some(edge) = step.edge else { continue };
        let alike = layers.iter_mut().find(|layer| {
            let first = layer.steps[0];
            layer.edge.name == edge.name
                && verdicts(run, first) == verdicts(run, step)
                && first.only_one_emulated(run) == step.only_one_emulated(run)
        });
        match alike {
            Some(layer) => layer.steps.push(step),
            None => layers.push(Layer { edge, steps: vec![step] }),
        }
    }
    layers.iter().filter_map(|layer| layer.sentence(run)).collect()
}

/// Returns the verdicts of a step on latency and on CPU time, for each workload.
fn verdicts(run: &Run, step: &Versus<'_>) -> Vec<(String, Metric, Verdict)> {
    let by_metric = |metric| step.by(metric).map(move |c| (c.workload.clone(), metric, step.verdict(run, c)));
    by_metric(Metric::LATENCY_MEAN).chain(by_metric(Metric::CPU_PER_IO)).collect()
}

impl Layer<'_> {
    fn sentence(&self, run: &Run) -> Option<String> {
        Some(match (self.speed(run), self.cpu(run)) {
            (Some(speed), Some(cpu)) => format!("{speed}; {cpu}."),
            (Some(speed), None) => format!("{speed}."),
            (None, cpu) => format!("{}: {}.", self.name(run), cpu?),
        })
    }

    /// Names the layer and its targets: `LVM (host-lvm over host-device)`, `virtio-blk + guest (vm-device, vm-lvm and vm-raw, emulated)`.
    fn name(&self, run: &Run) -> String {
        format!("{} ({})", self.edge.name, self.target_names(run))
    }

    fn target_names(&self, run: &Run) -> String {
        let emulated = self.steps[0].only_one_emulated(run);
        match self.steps.as_slice() {
            [one] if emulated => format!("{}, emulated, over {}", one.target, one.baseline),
            [one] => format!("{} over {}", one.target, one.baseline),
            several => {
                let targets: Vec<String> =
                    several.iter().map(|one_step| one_step.target.to_owned()).collect();
                format!("{}{}", listed(&targets), if emulated { ", emulated" } else { "" })
            }
        }
    }

    /// Returns the comparisons of all steps by this metric on workloads with this verdict, grouped by workload in the plan's order.
    fn with(&self, run: &Run, metric: Metric, verdict: Verdict) -> Vec<Vec<(&Versus<'_>, &Comparison)>> {
        let mut found = Vec::new();
        let judged = |c: &&Comparison| self.steps[0].verdict(run, c) == verdict;
        for first in self.steps[0].by(metric).filter(judged) {
            let mut pairs = Vec::new();
            for one_step in &self.steps {
                pairs.extend(
                    one_step.by(metric).find(|c| c.workload == first.workload).map(|c| (*one_step, c)),
                );
            }
            found.push(pairs);
        }
        found
    }

    fn speed(&self, run: &Run) -> Option<String> {
        let moved = |verdict, word: &str| {
            let all = self.with(run, Metric::LATENCY_MEAN, verdict);
            let amounts: Vec<String> = all.iter().map(|pairs| amount(run, pairs)).collect();
            (!amounts.is_empty()).then(|| format!("{word} on {}", listed_briefly(&amounts)))
        };
        let same: Vec<String> = self
            .with(run, Metric::LATENCY_MEAN, Verdict::Same)
            .iter()
            .map(|pairs| pairs[0].1.workload.clone())
            .collect();
        if same.len() == run.plan.workloads.len() {
            let where_same =
                if same.len() == 1 { format!("on {}", same[0]) } else { "on every workload".into() };
            let (name, target_names) = (&self.edge.name, self.target_names(run));
            return Some(format!(
                "{name} adds nothing measurable to the latency ({}) {where_same}: {target_names}",
                margin(run)
            ));
        }
        let same = (!same.is_empty())
            .then(|| format!("nothing measurable ({}) on {}", margin(run), listed_briefly(&same)));
        let parts: Vec<String> = [moved(Verdict::Slower, "slower"), moved(Verdict::Faster, "faster"), same]
            .into_iter()
            .flatten()
            .collect();
        (!parts.is_empty()).then(|| format!("{}: {}", self.name(run), parts.join("; ")))
    }

    /// Describes the cost in host CPU time, as a range over the steps and workloads with a decision; `None` if there are none.
    fn cpu(&self, run: &Run) -> Option<String> {
        let part = |verdict, word| {
            let found = self.with(run, Metric::CPU_PER_IO, verdict);
            let amounts: Vec<f64> =
                found.iter().flatten().filter_map(|(_, c)| Some(c.ratio.tax?.ns.abs())).collect();
            let amount = range(&amounts, human::time)?;
            let where_moved = workload_names(run, &found.iter().map(|pairs| pairs[0].1).collect::<Vec<_>>());
            Some(format!("{amount} {word} host CPU per I/O on {where_moved}"))
        };
        let parts: Vec<String> =
            [part(Verdict::Slower, "more"), part(Verdict::Faster, "less")].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(" and "))
    }
}

/// Describes the cost on one workload: `randread-4k-qd1 by 35.2 us per I/O (29% fewer IOPS)`.
fn amount(run: &Run, pairs: &[(&Versus<'_>, &Comparison)]) -> String {
    let comparisons: Vec<&Comparison> = pairs.iter().map(|(_, c)| *c).collect();
    let absolute = absolute(&comparisons).map(|time| format!(" by {time} per I/O")).unwrap_or_default();
    let relative = relative(run, pairs).map(|share| format!(" ({share})")).unwrap_or_default();
    format!("{}{absolute}{relative}", comparisons[0].workload)
}
