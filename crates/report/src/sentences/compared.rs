//! Draws the conclusions of a comparison of two runs or targets. Each sentence states a verdict, or that there is none.

use iotax_model::units::human;
use iotax_model::units::human::listed;

use super::next_step::more_rounds;
use crate::figure::{change, counted};
use iotax_analysis::Metric;
use iotax_analysis::compare::{Compared, ComparedCell, More, Which};
use iotax_analysis::stats::verdict::Verdict;

/// Returns the conclusions: decided verdicts by target, then undecided comparisons, then withheld verdicts.
///
/// The conclusions use mean latency, or throughput for network streams. If the user requested other metrics only, they use the first requested
/// metric.
#[must_use]
pub fn conclusions(compared: &Compared) -> Vec<String> {
    let asked = &compared.metrics;
    let metric = match asked.first() {
        Some(first) if !asked.contains(&Metric::LATENCY_MEAN) => *first,
        _ => Metric::LATENCY_MEAN,
    };
    let is_it = |c: &&ComparedCell| c.metric == metric.or_of_streams(&compared.workloads[c.workload].a);
    let of = |t: usize| -> Vec<&ComparedCell> {
        compared.cells.iter().filter(|c| c.target == t).filter(is_it).collect()
    };
    let each: Vec<Vec<&ComparedCell>> = (0..compared.targets.len()).map(of).collect();
    let mut sentences: Vec<String> =
        each.iter().enumerate().filter_map(|(t, cells)| decided(compared, t, metric, cells)).collect();
    sentences.extend(compared.more.iter().filter(|more| compared.paired && more.is_anew).map(stricter));
    sentences.extend(each.iter().enumerate().filter_map(|(t, cells)| undecided(compared, t, cells)));
    let open: Vec<&ComparedCell> = each.iter().flatten().copied().filter(|cell| is_open(cell)).collect();
    if let Some(rounds) = deciding(&open) {
        sentences.extend(compared.more.iter().filter_map(|more| more_rounds(more, rounds)));
    }
    sentences.extend(each.iter().flatten().filter_map(|cell| {
        let why = cell.ratio.withheld.as_ref()?;
        let (target, workload) = (head(compared, cell.target), compared.workloads[cell.workload].name());
        Some(format!("No verdict: {target} on {workload}: {why}."))
    }));
    sentences
}

/// Explains why a verdict decided here may be undecided in the run's own report. That report tests repeatedly while rounds are added, and tests more
/// comparisons, so it needs stronger evidence.
fn stricter(more: &More) -> String {
    format!(
        "These verdicts are of this comparison alone, from all rounds at once. The report of {} looks several times, at more comparisons, and asks \
         for stronger evidence.",
        more.label
    )
}

/// Names the compared pair: `vm-raw in run 17 against run 12`, or within a run `vm-raw against host-file`.
fn head(compared: &Compared, target: usize) -> String {
    let pair = &compared.targets[target];
    let (over, under) = match compared.baseline {
        Which::A => ((&pair.b, &compared.b), (&pair.a, &compared.a)),
        Which::B => ((&pair.a, &compared.a), (&pair.b, &compared.b)),
    };
    let said = match (compared.paired, over.0 == under.0) {
        (true, _) => format!("{} against {}", over.0, under.0),
        (false, true) => format!("{} in {} against {}", over.0, over.1, under.1),
        (false, false) => format!("{} in {} against {} in {}", over.0, over.1, under.0, under.1),
    };
    pair.label().map_or(said.clone(), |label| format!("{said} ({label})"))
}

fn decided(compared: &Compared, target: usize, metric: Metric, cells: &[&ComparedCell]) -> Option<String> {
    let with = |verdict| cells.iter().filter(move |c| c.ratio.verdict == verdict);
    let name = |cell: &ComparedCell| compared.workloads[cell.workload].name();
    let amount = |cell: &ComparedCell| {
        let workload = &compared.workloads[cell.workload].a;
        let per = if cell.metric == Metric::CPU_PER_GIB { "GiB" } else { workload.kind.unit() };
        let absolute = cell.ratio.tax.map(|tax| format!(" by {} per {per}", human::time(tax.ns.abs())));
        format!("{}{} ({})", name(cell), absolute.unwrap_or_default(), change(cell.ratio.mean))
    };
    let mut parts = Vec::new();
    for (verdict, word) in [(Verdict::Slower, "slower"), (Verdict::Faster, "faster")] {
        let moved: Vec<String> = with(verdict).map(|c| amount(c)).collect();
        if !moved.is_empty() {
            parts.push(format!("{word} on {}", listed(&moved)));
        }
    }
    let same: Vec<String> = with(Verdict::Same).map(|c| name(c)).collect();
    if !same.is_empty() {
        let workloads_text =
            if same.len() == cells.len() && same.len() > 1 { "every workload".into() } else { listed(&same) };
        parts.push(format!("the same (within {}) on {workloads_text}", percent(compared.margin)));
    }
    let by = if metric == Metric::LATENCY_MEAN { String::new() } else { format!(", by {}", metric.name()) };
    (!parts.is_empty()).then(|| format!("{}{by}: {}.", head(compared, target), parts.join("; ")))
}

fn is_open(cell: &ComparedCell) -> bool {
    cell.ratio.verdict == Verdict::Undecided && cell.ratio.withheld.is_none()
}

/// Minimum number of rounds for a confidence interval.
const FEWEST_ROUNDS: u32 = 2;

/// Minimum number of rounds for an estimate of the noise. Below it, the noise is known to a factor of two at best, and the number of needed rounds to
/// a factor of four.
const KNOWN_NOISE: u32 = 8;

/// Returns the largest number of rounds per run that any undecided comparison needs. If that is unknown for all comparisons, returns 2 if a
/// comparison has a single round, else `None`.
fn deciding(open: &[&ComparedCell]) -> Option<u32> {
    let needed = open.iter().filter_map(|cell| cell.ratio.needed_rounds).max();
    needed.or_else(|| open.iter().any(|cell| cell.rounds.0.min(cell.rounds.1) < 2).then_some(FEWEST_ROUNDS))
}

fn undecided(compared: &Compared, target: usize, cells: &[&ComparedCell]) -> Option<String> {
    let open: Vec<&ComparedCell> = cells.iter().copied().filter(|cell| is_open(cell)).collect();
    if open.is_empty() {
        return None;
    }
    let names: Vec<String> = open.iter().map(|c| compared.workloads[c.workload].name()).collect();
    let least = open.iter().map(|c| c.rounds.0.min(c.rounds.1)).min().unwrap_or_default();
    let needed = open.iter().filter_map(|c| c.ratio.needed_rounds).max();
    let known = open.iter().filter(|c| c.ratio.needed_rounds.is_some()).count();
    let each = if compared.paired { "" } else { " in each run" };
    let which = if known == open.len() { String::new() } else { format!(" {known} of them") };
    let advice = match needed {
        Some(needed) if least < KNOWN_NOISE => format!(
            "perhaps {}{each} would decide{which}, by a rough estimate from {}",
            counted(needed, "round"),
            counted(least, "round")
        ),
        Some(needed) => format!("about {}{each} would decide{which}", counted(needed, "round")),
        None if least < 2 => format!("one round alone has no interval; at least {FEWEST_ROUNDS} rounds{each} give one"),
        None => {
            "not even 1000 rounds would decide: the noise is too large for so small a distance from the margin".into()
        }
    };
    Some(format!("Not decided: {} on {}; {advice}.", head(compared, target), listed(&names)))
}

/// Formats a share in percent: `2%`, `0.5%`.
pub(crate) fn percent(share: f64) -> String {
    let text = format!("{:.4}", share * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}
