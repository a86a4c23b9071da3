//! Ranks image formats that are built on the same storage, cheapest first.

use iotax_analysis::{Edge, Judgement, Metric};
use iotax_model::Run;
use iotax_model::target::Format;

/// Minimum number of formats over the same target that are ranked; fewer keep the plan's order.
const FEWEST: usize = 3;

/// The order in which ranked targets are shown. All other targets keep their places.
pub(super) struct Ranking<'a> {
    /// The targets of each group of formats, cheapest first.
    groups: Vec<Vec<&'a str>>,
}

impl<'a> Ranking<'a> {
    /// Ranks the formats over each target by the geometric mean of their speed over all workloads.
    pub(super) fn of(run: &Run, judgement: &'a Judgement) -> Self {
        let is_format = |edge: &&Edge| edge.name.parse::<Format>().is_ok();
        let mut groups: Vec<Vec<&Edge>> = Vec::new();
        for edge in judgement.edges.iter().filter(is_format) {
            match groups.iter_mut().find(|group| group[0].from == edge.from) {
                Some(group) => group.push(edge),
                None => groups.push(vec![edge]),
            }
        }
        groups.retain(|group| group.len() >= FEWEST);
        for group in &mut groups {
            group.sort_by(|a, b| speed(run, judgement, b).total_cmp(&speed(run, judgement, a)));
        }
        let names = |group: Vec<&'a Edge>| group.into_iter().map(|edge| edge.to.as_str()).collect();
        Self { groups: groups.into_iter().map(names).collect() }
    }

    /// Returns whether any targets are ranked.
    pub(super) fn is_some(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Sorts the ranked `items` by rank; all others keep their positions. `target` returns the name of an item's target.
    pub(super) fn sort<T>(&self, items: &mut [T], target: impl Fn(&T) -> &str) {
        for group in &self.groups {
            let rank = |item: &T| group.iter().position(|name| *name == target(item));
            let mut remaining: Vec<usize> = (0..items.len()).filter(|i| rank(&items[*i]).is_some()).collect();
            // Selection sort, since there are few items.
            while let Some((&first, _)) = remaining.split_first() {
                let best = remaining.iter().copied().min_by_key(|i| rank(&items[*i])).unwrap_or(first);
                items.swap(first, best);
                remaining.remove(0);
            }
        }
    }
}

/// Returns the mean logarithm of the speed ratios along an edge, over the workloads; negative infinity if no workload has a ratio.
fn speed(run: &Run, judgement: &Judgement, edge: &Edge) -> f64 {
    let logarithms = run.plan.workloads.iter().filter_map(|workload| {
        let metric = Metric::headline(workload);
        let ratio = judgement.step(&workload.name, edge, metric)?.ratio.mean;
        Some(if metric.more_is_better() { ratio.ln() } else { -ratio.ln() })
    });
    let logarithms: Vec<f64> = logarithms.collect();
    if logarithms.is_empty() {
        return f64::NEG_INFINITY;
    }
    logarithms.iter().sum::<f64>() / logarithms.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranked_items_change_places() {
        let ranking = Ranking { groups: vec![vec!["c", "a", "b"]] };
        let mut items = ["host", "a", "raw", "b", "c", "guest"];
        ranking.sort(&mut items, |item| item);
        assert_eq!(items, ["host", "c", "raw", "a", "b", "guest"]);
    }
}
