//! The order in which the measurements of a run are made.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::plan::{Plan, PlannedEvent, WatchSpec};
use crate::units::Nanos;
use crate::workload::Workload;

/// A pair of target and workload, as indices into the plan; one measurement per round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Index of the target in [`Plan::targets`].
    pub target: usize,
    /// Index of the workload in [`Plan::workloads`].
    pub workload: usize,
}

/// Returns the measurements of round `round` (from 1) in random order. Workloads follow one another, and each runs on all its targets in direct
/// succession. Measurements that are compared thus lie only seconds apart (randomized blocks: R. A. Fisher, The Design of Experiments, 1935). The
/// order depends only on the seed and the round number: runs with the same seed agree, and a resumed run keeps the order.
#[must_use]
pub fn round_order(plan: &Plan, seed: u64, round: u32) -> Vec<Cell> {
    let mut cells = cells(plan);
    shuffle(&mut cells, seed, round);
    let order = cells.clone();
    cells.sort_by_key(|cell| order.iter().position(|one| one.workload == cell.workload));
    cells
}

/// Returns all pairs of target and workload that a round measures, in the plan's order.
#[must_use]
pub fn cells(plan: &Plan) -> Vec<Cell> {
    (0..plan.targets.len())
        .flat_map(|target| (0..plan.workloads.len()).map(move |workload| Cell { target, workload }))
        .filter(|cell| plan.measures(cell.target, cell.workload))
        .collect()
}

/// Groups pairs of target and workload that share a measured window, in the order of each group's first pair. Each pair has its own window,
/// unless a watch measures all targets together: then the control workload's pairs share one window, and all other pairs another.
#[must_use]
pub fn windows(plan: &Plan, cells: &[Cell]) -> Vec<Vec<Cell>> {
    let mut windows: Vec<Vec<Cell>> = Vec::new();
    for cell in cells {
        let of = |cell: &Cell| &plan.workloads[cell.workload];
        let shares =
            |window: &&mut Vec<Cell>| window.iter().all(|one| plan.share_a_window(of(one), of(cell)));
        match windows.iter_mut().find(shares) {
            Some(window) => window.push(*cell),
            None => windows.push(vec![*cell]),
        }
    }
    windows
}

/// Returns the events of a watch during a workload in round `round` (from 1), with their times from the start of the window, in order of
/// time. Two events that are alternatives to each other (see [`WatchSpec::exchanged`]) swap places in one of the rounds 2n - 1 and 2n,
/// chosen at random, so that each comes first equally often.
#[must_use]
pub fn events_in_round<'a>(
    watch: &'a WatchSpec,
    workload: &Workload,
    seed: u64,
    round: u32,
) -> Vec<(Nanos, &'a PlannedEvent)> {
    let mut events = watch.events_of(workload);
    let mut exchanges = [false, true];
    exchanges.shuffle(&mut random_of(seed, round.div_ceil(2)));
    for pair in watch.exchanged().filter(|_| exchanges[round as usize % 2]) {
        let [one, other] = pair.map(|event| events.iter().position(|(_, planned)| *planned == event));
        if let (Some(one), Some(other)) = (one, other) {
            (events[one].1, events[other].1) = (events[other].1, events[one].1);
        }
    }
    events
}

/// Shuffles items for a round, such as its measurements. The order depends only on the seed and the round number.
pub fn shuffle<T>(all: &mut [T], seed: u64, round: u32) {
    all.shuffle(&mut random_of(seed, round));
}

fn random_of(seed: u64, round: u32) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(u64::from(round).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn plan() -> Plan {
        Plan::from_toml(
            r#"
            name = "t"
            [[target]]
            name = "a"
            path = "/a"
            [[target]]
            name = "b"
            path = "/b"
            [[workload]]
            rw = "read"
            [[workload]]
            rw = "randread"
            [[workload]]
            rw = "randread"
            iodepth = 8
            "#,
        )
        .expect("valid")
    }

    #[test]
    fn each_round_holds_every_cell_once_in_an_order_of_its_own() {
        let plan = plan();
        let rounds: Vec<_> = (1..=8).map(|round| round_order(&plan, 7, round)).collect();
        for round in &rounds {
            assert_eq!(round.iter().collect::<HashSet<_>>().len(), 6);
            assert!(
                round.chunk_by(|a, b| a.workload == b.workload).all(|block| block.len() == 2),
                "{round:?}"
            );
        }
        assert!(rounds.iter().collect::<HashSet<_>>().len() > 5, "orders differ between rounds");
    }

    #[test]
    fn targets_that_are_watched_together_share_a_window() {
        let alone = plan();
        let order = round_order(&alone, 7, 1);
        assert_eq!(windows(&alone, &order), order.iter().map(|cell| vec![*cell]).collect::<Vec<_>>());
        let watch = crate::plan::WatchSpec { together: true, ..Default::default() };
        let mut together = Plan { design: crate::plan::Design::Watch(watch), ..plan() };
        together.workloads.truncate(1);
        let windows = windows(&together, &round_order(&together, 7, 1));
        assert_eq!((windows.len(), windows.concat().len()), (1, 2));
    }

    #[test]
    fn alternatives_without_a_time_are_each_first_in_half_of_the_rounds() {
        let watch = |events: [&str; 3]| WatchSpec {
            events: events.map(|event| event.parse().expect("an event")).into(),
            ..WatchSpec::default()
        };
        let workload = Workload { runtime: Nanos::from_secs(40), ..plan().workloads[0].clone() };
        let of = |watch: &WatchSpec, seed: u64, round| -> Vec<(u64, String)> {
            let events = events_in_round(watch, &workload, seed, round).into_iter();
            events.map(|(at, event)| (at.0 / 1_000_000_000, event.name.clone())).collect()
        };
        let free = watch(["backup", "snapshot", "backup-fleecing"]);
        let planned = [(10, "backup"), (20, "snapshot"), (30, "backup-fleecing")];
        let exchanged = [(10, "backup-fleecing"), (20, "snapshot"), (30, "backup")];
        let mut firsts = HashSet::new();
        for seed in 0..32 {
            let orders = [1, 2, 1, 2].map(|round| of(&free, seed, round));
            assert_eq!(orders[..2], orders[2..], "the seed and the round decide");
            let orders = [1, 2].map(|round| of(&free, seed, round));
            let is = |order: &[(u64, String)], all: [(u64, &str); 3]| {
                order.iter().map(|(at, name)| (*at, name.as_str())).eq(all)
            };
            let each = |one, other| is(&orders[0], one) && is(&orders[1], other);
            assert!(each(planned, exchanged) || each(exchanged, planned), "{orders:?}");
            firsts.insert(is(&orders[0], planned));
        }
        assert_eq!(firsts.len(), 2, "which one comes first is random");
        let given = watch(["backup@10s", "snapshot", "backup-fleecing"]);
        assert_eq!(of(&given, 1, 1), of(&given, 1, 2));
    }

    #[test]
    fn the_seed_alone_decides() {
        let plan = plan();
        assert_eq!(round_order(&plan, 71_823, 3), round_order(&plan, 71_823, 3));
        // Must never change: a run that one version started must resume in the same order under the next.
        let order: Vec<_> = round_order(&plan, 71_823, 1).iter().map(|c| c.target * 3 + c.workload).collect();
        assert_eq!(order, [0, 3, 5, 2, 4, 1]);
    }
}
