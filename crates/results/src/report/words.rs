//! What a run means, in sentences. Each rests on a verdict; where there is none, the sentence says so.

use iotax_model::findings::Findings;
use iotax_model::units::human;

use crate::judge::{Comparison, Edge, Judgement, Metric};
use crate::report::figure::{counted, listed};
use crate::stats::MARGIN;
use crate::stats::verdict::Verdict;
use crate::store::Run;

/// Beyond so many more blocks, advising more of the same is no help.
const MANY_BLOCKS: u32 = 50;

/// The sentences, most important first: what each layer costs, every other target against the baseline, and what is not
/// decided.
///
/// Latency and I/Os per second are two faces of one closed loop; the verdict named is that of the mean latency.
#[must_use]
pub fn conclusions(run: &Run, judgement: &Judgement) -> Vec<String> {
    let steps = each_pair(judgement, &judgement.steps);
    // What is a step is said once, by the layer's name.
    let mut totals = each_pair(judgement, &judgement.comparisons);
    totals.retain(|versus| versus.edge.is_none());
    // The layers' prices add up to the total, so that its CPU time is said only where no layer's is.
    let reached = |versus: &Versus<'_>| judgement.edges.iter().any(|edge| edge.to == versus.target);
    let mut sentences: Vec<String> = steps.iter().filter_map(|versus| versus.price(run, true)).collect();
    sentences.extend(totals.iter().filter_map(|versus| versus.price(run, !reached(versus))));
    sentences.extend(steps.iter().chain(&totals).filter_map(|versus| versus.undecided(run)));
    sentences.extend(verified(run));
    sentences
}

/// Said only where nothing was found; what was found is a warning.
fn verified(run: &Run) -> Option<String> {
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

/// The margin in words: `within 2%`.
pub(super) fn margin() -> String {
    format!("within {:.0}%", MARGIN * 100.0)
}

/// All comparisons of one target with one other.
struct Versus<'a> {
    target: &'a str,
    baseline: &'a str,
    edge: Option<&'a Edge>,
    comparisons: Vec<&'a Comparison>,
}

fn each_pair<'a>(judgement: &'a Judgement, comparisons: &'a [Comparison]) -> Vec<Versus<'a>> {
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

    /// What it costs on every workload that is decided, in time and, if asked for, in CPU time.
    fn price(&self, run: &Run, with_cpu: bool) -> Option<String> {
        let cpu = if with_cpu { self.cpu(run) } else { None };
        Some(match (self.speed(run), cpu) {
            (Some(speed), Some(cpu)) => format!("{speed}; {cpu}."),
            (Some(speed), None) => format!("{speed}."),
            (None, cpu) => format!("{}: {}.", self.pair(self.only_one_emulated(run)), cpu?),
        })
    }

    /// The speed on every workload that is decided.
    fn speed(&self, run: &Run) -> Option<String> {
        let with = |verdict| self.by(Metric::LatencyMean).filter(move |c| c.verdict == verdict);
        let same: Vec<String> = with(Verdict::Same).map(|c| c.workload.clone()).collect();
        let moved = |verdict| -> Vec<String> { with(verdict).map(|c| self.amount(c)).collect() };
        let (slower, faster) = (moved(Verdict::Slower), moved(Verdict::Faster));
        let mut parts = Vec::new();
        if !slower.is_empty() {
            parts.push(format!("slower on {}", listed(&slower)));
        }
        if !faster.is_empty() {
            parts.push(format!("faster on {}", listed(&faster)));
        }
        if !same.is_empty() {
            parts.push(format!("nothing measurable ({}) on {}", margin(), listed(&same)));
        }
        if parts.is_empty() {
            return None;
        }
        let all_same = same.len() == run.plan.workloads.len();
        let emulated = self.only_one_emulated(run);
        if !all_same {
            return Some(format!("{}: {}", self.pair(emulated), parts.join("; ")));
        }
        let place = if same.len() == 1 { format!("on {}", same[0]) } else { "on every workload".into() };
        let (target, baseline) = (self.target, self.baseline);
        let note = if emulated { " (emulated)" } else { "" };
        Some(match self.edge {
            Some(edge) => {
                let name = &edge.name;
                format!(
                    "{name} adds nothing measurable to the latency ({}) {place}: {target}{note} over {baseline}",
                    margin()
                )
            }
            None => {
                format!("{target}{note} costs nothing measurable over {baseline} ({}) {place}", margin())
            }
        })
    }

    /// `LVM (host-lvm over host-device)`, or `vm-lvm against host-device` where no layer says what differs.
    fn pair(&self, emulated: bool) -> String {
        let (target, baseline) = (self.target, self.baseline);
        match self.edge {
            Some(edge) => {
                format!(
                    "{} ({target}{} over {baseline})",
                    edge.name,
                    if emulated { ", emulated," } else { "" }
                )
            }
            None => format!("{target}{} against {baseline}", if emulated { " (emulated)" } else { "" }),
        }
    }

    /// Between two emulated guests, emulation is not what differs.
    fn only_one_emulated(&self, run: &Run) -> bool {
        let emulated = |name: &str| run.targets.iter().any(|t| t.name == name && t.emulated);
        emulated(self.target) && !emulated(self.baseline)
    }

    /// `randread-4k-qd1 by 35.2 us per I/O (29% fewer IOPS)`.
    fn amount(&self, latency: &Comparison) -> String {
        let absolute = latency.tax.map(|tax| format!(" by {} per I/O", human::time(tax.ns.abs())));
        let relative = self
            .by(Metric::Iops)
            .find(|c| c.workload == latency.workload)
            .map(|iops| format!(" ({})", share(iops.ratio, "IOPS")));
        format!("{}{}{}", latency.workload, absolute.unwrap_or_default(), relative.unwrap_or_default())
    }

    /// The price in CPU time, as a range over the workloads on which it is decided.
    fn cpu(&self, run: &Run) -> Option<String> {
        let part = |verdict, word| {
            let found: Vec<&Comparison> =
                self.by(Metric::CpuPerIo).filter(|c| c.verdict == verdict).collect();
            let amounts: Vec<f64> = found.iter().filter_map(|c| Some(c.tax?.ns.abs())).collect();
            let least = human::time(amounts.iter().copied().reduce(f64::min)?);
            let most = human::time(amounts.iter().copied().reduce(f64::max)?);
            let amount = if least == most { most } else { format!("{least} to {most}") };
            let place = if found.len() == run.plan.workloads.len() && found.len() > 1 {
                "every workload".into()
            } else {
                listed(&found.iter().map(|c| c.workload.clone()).collect::<Vec<_>>())
            };
            Some(format!("{amount} {word} host CPU per I/O on {place}"))
        };
        let parts: Vec<String> =
            [part(Verdict::Slower, "more"), part(Verdict::Faster, "less")].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(" and "))
    }

    fn undecided(&self, run: &Run) -> Option<String> {
        let open: Vec<&Comparison> =
            self.by(Metric::LatencyMean).filter(|c| c.verdict == Verdict::Undecided).collect();
        if open.is_empty() {
            return None;
        }
        let workloads: Vec<String> = open.iter().map(|c| c.workload.clone()).collect();
        let head = format!("Not decided: {} on {}", self.pair(false), listed(&workloads));
        let more = open.iter().filter_map(|c| Some(c.needed_blocks?.saturating_sub(c.blocks))).max();
        let known = open.iter().filter(|c| c.needed_blocks.is_some()).count();
        let way = match more {
            Some(more) => {
                let which = match (known == open.len(), known) {
                    (true, _) => String::new(),
                    (false, 1) => " one of them".into(),
                    (false, some) => format!(" {some} of them"),
                };
                let needed = open.iter().filter_map(|c| c.needed_blocks).max().unwrap_or_default();
                let blocks = counted(more, "more block");
                if more > MANY_BLOCKS {
                    format!("that takes about {blocks} at this noise; a longer runtime lowers it")
                } else {
                    format!("about {blocks} would decide{which} ({})", resume(run, needed))
                }
            }
            None if open.iter().all(|c| c.blocks < 2) => {
                format!("one block alone has no interval ({} gives one)", resume(run, 3))
            }
            None => format!(
                "no number of blocks up to 1000 would decide at this variance; the difference is close to {}",
                margin().replacen("within ", "", 1)
            ),
        };
        Some(format!("{head}; {way}."))
    }
}

/// The command that brings a run to so many blocks; missing ones of its plan are measured in any case.
fn resume(run: &Run, blocks: u32) -> String {
    if blocks <= run.plan.repeat {
        format!("iotax resume {}", run.id)
    } else {
        format!("iotax resume {} --repeat {blocks}", run.id)
    }
}

/// `29% fewer IOPS`, `12% more IOPS`, `3.1 times the IOPS`.
fn share(ratio: f64, noun: &str) -> String {
    let percent = (ratio - 1.0).abs() * 100.0;
    let percent = if percent < 10.0 { format!("{percent:.1}") } else { format!("{percent:.0}") };
    match ratio {
        // 99.6% fewer would be rounded to 100%.
        r if r < 0.05 => format!("1/{:.0} of the {noun}", 1.0 / r),
        r if r < 1.0 => format!("{percent}% fewer {noun}"),
        r if r < 2.0 => format!("{percent}% more {noun}"),
        r => format!("{r:.1} times the {noun}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_read_as_shares() {
        for (ratio, words) in [
            (0.71, "29% fewer IOPS"),
            (0.965, "3.5% fewer IOPS"),
            (0.004, "1/250 of the IOPS"),
            (1.25, "25% more IOPS"),
            (3.12, "3.1 times the IOPS"),
        ] {
            assert_eq!(share(ratio, "IOPS"), words);
        }
    }
}
