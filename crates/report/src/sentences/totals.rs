//! Compares each target that is more than one layer away from the baseline with the baseline.

use super::amount::{Of, range, ratios, share};
use super::{Versus, margin, workload_names};
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Judgement, Metric};
use iotax_model::Run;
use iotax_model::units::human;

/// Returns a sentence with CPU time for each target that no ladder step leads to. All other targets share one sentence, because other sentences
/// describe their layers.
pub(super) fn totals(run: &Run, judgement: &Judgement, totals: &[Versus<'_>]) -> Vec<String> {
    // The layers' costs add up to the total, so only targets without layers are described in full.
    let (reached, others): (Vec<&Versus<'_>>, Vec<&Versus<'_>>) =
        totals.iter().partition(|versus| judgement.edges.iter().any(|edge| edge.to == versus.target));
    let parts: Vec<String> = reached
        .iter()
        .filter_map(|versus| {
            Some(format!("{}{} {}", versus.target, tag(run, versus), speed(run, versus, false)?))
        })
        .collect();
    let baseline = &run.plan.baseline;
    let mut sentences: Vec<String> = others.iter().filter_map(|versus| in_full(run, versus)).collect();
    if !parts.is_empty() {
        sentences.push(format!("In all, against {baseline}: {}.", parts.join("; ")));
    }
    sentences
}

fn in_full(run: &Run, versus: &Versus<'_>) -> Option<String> {
    let costs = match (speed(run, versus, true), cpu(run, versus)) {
        (Some(speed), Some(cpu)) => format!("{speed}; {cpu}"),
        (speed, cpu) => speed.or(cpu)?,
    };
    Some(format!("{}{} against {}: {costs}.", versus.target, tag(run, versus), versus.baseline))
}

fn tag(run: &Run, versus: &Versus<'_>) -> &'static str {
    if versus.only_one_emulated(run) { " (emulated)" } else { "" }
}

/// Compares speeds: `slower on a and b (10% to 20% fewer IOPS), nothing measurable (within 2%) on c`; `absolute` includes the added time.
/// `None` if no comparison is decided.
fn speed(run: &Run, versus: &Versus<'_>, absolute: bool) -> Option<String> {
    let with = |verdict| -> Vec<(&Versus<'_>, &Comparison)> {
        let latencies = versus.by(Metric::LATENCY_MEAN);
        latencies.filter(|c| versus.verdict(run, c) == verdict).map(|c| (versus, c)).collect()
    };
    let on = |found: &[(&Versus<'_>, &Comparison)]| {
        workload_names(run, &found.iter().map(|(_, c)| *c).collect::<Vec<_>>())
    };
    let part = |verdict, word: &str| {
        let found = with(verdict);
        let times: Vec<f64> = found.iter().filter_map(|(_, c)| Some(c.ratio.tax?.ns.abs())).collect();
        let time = range(&times, human::time).filter(|_| absolute).map(|time| format!(" by {time} per I/O"));
        // Ratios of closed and open loops cannot form one range.
        let shares: Vec<String> = [Of::Iops, Of::Latency]
            .into_iter()
            .filter_map(|of| {
                let each = found.iter().filter_map(|pair| ratios(run, &[*pair]));
                let ratios: Vec<f64> = each.filter(|(as_, _)| *as_ == of).flat_map(|(_, r)| r).collect();
                (!ratios.is_empty()).then(|| share(of, &ratios))
            })
            .collect();
        let relative = if shares.is_empty() { String::new() } else { format!(" ({})", shares.join(", ")) };
        (!found.is_empty()).then(|| format!("{word} on {}{}{relative}", on(&found), time.unwrap_or_default()))
    };
    let same = with(Verdict::Same);
    let same = (!same.is_empty()).then(|| format!("nothing measurable ({}) on {}", margin(run), on(&same)));
    let parts: Vec<String> = [part(Verdict::Slower, "slower"), part(Verdict::Faster, "faster"), same]
        .into_iter()
        .flatten()
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Describes the cost in host CPU time, as a range over the workloads with a decision; `None` if there are none.
fn cpu(run: &Run, versus: &Versus<'_>) -> Option<String> {
    let part = |verdict, word| {
        let found: Vec<&Comparison> =
            versus.by(Metric::CPU_PER_IO).filter(|c| c.ratio.verdict == verdict).collect();
        let amounts: Vec<f64> = found.iter().filter_map(|c| Some(c.ratio.tax?.ns.abs())).collect();
        let amount = range(&amounts, human::time)?;
        Some(format!("{amount} {word} host CPU per I/O on {}", workload_names(run, &found)))
    };
    let parts: Vec<String> =
        [part(Verdict::Slower, "more"), part(Verdict::Faster, "less")].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}
