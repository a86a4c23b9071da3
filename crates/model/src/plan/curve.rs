//! A plan that measures latency against offered load, at rates derived from each target's capacity.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::curve_rates::{Scouted, choose_rates};
use super::rates::{at_rate, rounded, whole};
use super::{BETWEEN, Design, MOST_MEASUREMENTS, Plan, PlanError};
use crate::units::Nanos;
use crate::workload::Workload;

/// Default time limit for measuring a curve.
const TIME: Nanos = Nanos::from_secs(180);
/// Default numbers of rates: `POINTS` for a single target; with several targets, `POINTS_TOGETHER` divided among them, but at least `POINTS_EACH`
/// each.
const POINTS: u32 = 12;
const POINTS_EACH: u32 = 6;
const POINTS_TOGETHER: u32 = 20;
/// Accepted values of `points`, the number of rates.
const ACCEPTED: std::ops::RangeInclusive<u32> = 4..=40;
/// Accepted values of `shares`, in percent of the target's capacity.
const PERCENT: std::ops::RangeInclusive<u32> = 1..=200;
/// Minimum number of rounds of a curve; fewer are not enough to estimate the spread between rounds.
const LEAST_ROUNDS: u32 = 3;
/// Highest rate at which a target is measured without `shares`, as a multiple of its capacity. The target skips higher rates, which were chosen for
/// faster targets.
const FAR: f64 = 1.2;

/// Measures each workload at many rates, from a small share of the targets' capacity to slightly above it.
///
/// After all targets are built, each target's capacity and its latency at a few loads are measured. The rates are derived from these measurements.
/// Each workload also stays in the plan without a rate (closed loop), so that each round measures the capacity again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct CurveSpec {
    /// Time limit of the measurement [default: 3m; with `shares` none: `repeat` sets the number of rounds]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub time: Option<Nanos>,
    /// Number of rates derived from each target's capacity; rates of several targets that are close together are measured once [default: 12; with
    /// several targets 6 to 10 for each]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub points: Option<u32>,
    /// Rates in percent of the target's capacity, in place of `points`; accepted for a single target
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shares: Vec<u32>,
    /// Highest rate in I/Os per second at which each workload is measured on each target, by workload and target name. Empty until the rates are
    /// chosen.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub highest: BTreeMap<String, BTreeMap<String, u64>>,
}

impl CurveSpec {
    /// Returns the time limit of the measurement; `None` if `shares` are given without a time, so that the number of rounds is fixed.
    #[must_use]
    pub fn time(&self) -> Option<Nanos> {
        self.time.or(self.shares.is_empty().then_some(TIME))
    }

    /// Returns the number of rates derived from the capacity of each target, per workload, with `targets` targets in the plan; the number
    /// of `shares` if they are given.
    #[must_use]
    pub fn points_of(&self, targets: usize) -> u32 {
        let together = POINTS_TOGETHER / u32::try_from(targets).unwrap_or(u32::MAX).max(1);
        let default = if targets < 2 { POINTS } else { together.max(POINTS_EACH) };
        let shares = u32::try_from(self.shares.len()).ok().filter(|shares| *shares > 0);
        shares.or(self.points).unwrap_or(default)
    }

    pub(super) fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError::Content(format!("curve: {text}")));
        if let Some(points) = self.points.filter(|points| !ACCEPTED.contains(points)) {
            let (least, most) = ACCEPTED.into_inner();
            return refuse(format!("points = {points}: accepted: {least} to {most}"));
        }
        plan.check_can_have_rates().or_else(refuse)?;
        self.check_shares(plan.targets.len()).or_else(refuse)?;
        // Windows at low rates are longer, but the rates are not known yet.
        let targets = plan.targets.len();
        let rates = u64::from(self.points_of(targets)) + 1;
        let round = plan.workloads.iter().map(Plan::trial_time).fold(0, u64::saturating_add);
        let least = Nanos(round.saturating_mul(rates * targets as u64 * u64::from(LEAST_ROUNDS)));
        match self.time().filter(|time| plan.wants_rates() && *time < least) {
            Some(time) => refuse(format!(
                "time = {time}: {LEAST_ROUNDS} rounds of {targets} targets at {rates} rates take {least}; accepted: that or more, or fewer points"
            )),
            None => Ok(()),
        }
    }

    fn check_shares(&self, targets: usize) -> Result<(), String> {
        let given = || self.shares.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if self.shares.is_empty() {
            return Ok(());
        }
        if self.points.is_some() {
            return Err("points and shares: accepted: one of them".into());
        }
        if targets > 1 {
            return Err(format!(
                "shares = [{}]: of one target, and there are {targets}; accepted: one target, or points, which places rates for all of them",
                given()
            ));
        }
        let rises = self.shares.windows(2).all(|two| two[0] < two[1]);
        if !rises || self.shares.iter().any(|share| !PERCENT.contains(share)) {
            let (least, most) = PERCENT.into_inner();
            return Err(format!(
                "shares = [{}]: accepted: percentages from {least} to {most}, rising",
                given()
            ));
        }
        Ok(())
    }
}

impl Plan {
    /// Returns whether the run chooses rates, and so the number of measurements. False for a curve whose rates have been chosen.
    #[must_use]
    pub fn finds_rates(&self) -> bool {
        self.searches() || self.wants_rates()
    }

    /// Returns whether this plan measures a curve and its rates have not been chosen yet.
    #[must_use]
    pub fn wants_rates(&self) -> bool {
        self.curve().is_some() && !self.workloads.iter().any(Workload::is_open_loop)
    }

    /// Returns whether a workload is measured on a target, both given by index. A curve without `shares` skips rates above 1.2 times the target's
    /// capacity; a watch of all targets together skips storage workloads on networks, and network workloads on storage.
    #[must_use]
    pub fn measures(&self, target: usize, workload: usize) -> bool {
        let highest = |workload: &Workload| -> Option<u64> {
            let (work, _) = workload.name.rsplit_once('@')?;
            self.curve()?.highest.get(work)?.get(&self.targets[target].name).copied()
        };
        let workload = &self.workloads[workload];
        let rate = workload.rate_iops.map(|rate| rate * u64::from(workload.numjobs));
        self.fits(&self.targets[target], workload)
            && rate.zip(highest(workload)).is_none_or(|(rate, highest)| rate <= highest)
    }

    /// Splits the name of a workload whose rate was given as a percentage of capacity into the name without the rate, and the percentage. `None`
    /// for other workloads, and if two percentages were rounded to the same rate.
    #[must_use]
    pub fn share_of<'a>(&self, workload: &'a str) -> Option<(&'a str, u32)> {
        let (work, _) = workload.rsplit_once('@')?;
        let rates = self.workloads.iter().filter(|other| {
            other.name.rsplit_once('@').is_some_and(|(of, _)| of == work) && other.is_open_loop()
        });
        let names: Vec<&str> = rates.map(|other| other.name.as_str()).collect();
        let shares = &self.curve()?.shares;
        let at = names.iter().position(|name| *name == workload)?;
        (names.len() == shares.len()).then(|| (work, shares[at]))
    }

    /// Adds an open-loop copy of each workload for each rate, and sets the number of rounds that fits the time limit, if there is one.
    /// `results` has an entry per workload: the capacity and latencies of each measured target, by name. A plan of another design stays as
    /// it is.
    ///
    /// # Errors
    /// The time limit is too short for the minimum number of rounds, or the plan with the added workloads is not valid.
    pub fn with_rates(mut self, results: &[BTreeMap<String, Scouted>]) -> Result<Self, PlanError> {
        let Design::Curve(mut curve) = self.design.clone() else { return Ok(self) };
        let works = std::mem::take(&mut self.workloads);
        for (work, results) in works.into_iter().zip(results) {
            let all: Vec<&Scouted> = results.values().collect();
            let rates = match curve.shares.as_slice() {
                [] => choose_rates(&all, curve.points_of(self.targets.len())),
                shares => all.iter().flat_map(|scouted| shares_of(scouted.capacity, shares)).collect(),
            };
            if curve.shares.is_empty() {
                let highest =
                    results.iter().map(|(target, scouted)| (target.clone(), rounded(scouted.capacity * FAR)));
                curve.highest.insert(work.name.clone(), highest.collect());
            }
            let at_rates: Vec<Workload> = rates.into_iter().map(|rate| at_rate(&work, rate)).collect();
            self.workloads.push(work);
            self.workloads.extend(at_rates);
        }
        let time = curve.time();
        self.design = Design::Curve(curve);
        let Some(time) = time else {
            self.check()?;
            return Ok(self);
        };
        let round = self.round_time().0.saturating_add(BETWEEN.0.saturating_mul(self.cells() as u64)).max(1);
        let fitting = usize::try_from(time.0 / round).unwrap_or(usize::MAX);
        let rounds = fitting.min(MOST_MEASUREMENTS / self.cells().max(1)).min(1000);
        self.repeat = u32::try_from(rounds).unwrap_or(u32::MAX);
        if self.repeat < LEAST_ROUNDS {
            return Err(PlanError::Content(format!(
                "curve: time = {}: {} targets at {} rates are {} a round; accepted: {} or more, or fewer points",
                time,
                self.targets.len(),
                self.workloads.len(),
                Nanos(round),
                Nanos(round * u64::from(LEAST_ROUNDS)),
            )));
        }
        self.check()?;
        Ok(self)
    }
}

/// Converts percentages of a capacity into I/Os per second, without duplicates. As in vdbench, rates above 1000 are rounded up to a multiple of
/// 100, lower rates to a multiple of 10.
fn shares_of(capacity: f64, shares: &[u32]) -> Vec<u64> {
    let rate = |share: &u32| {
        let exact = capacity * f64::from(*share) / 100.0;
        let unit = if exact > 1000.0 { 100 } else { 10 };
        whole(exact).div_ceil(unit).max(1) * unit
    };
    let mut rates: Vec<u64> = shares.iter().map(rate).collect();
    rates.dedup();
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(head: &str) -> Result<Plan, PlanError> {
        Plan::from_toml(&format!(
            "{head}\n[[target]]\nname = \"t\"\nfile = {{ dir = \"/srv\" }}\n\
             [[workload]]\nname = \"w\"\nrw = \"randread\"\niodepth = 32\nnumjobs = 2\nruntime = \"250ms\"\nramp_time = \"50ms\"\n"
        ))
    }

    /// Returns the capacity of the target `t`.
    fn capacities(iops: f64) -> [BTreeMap<String, Scouted>; 1] {
        [BTreeMap::from([("t".to_owned(), Scouted::new(iops))])]
    }

    #[test]
    fn a_target_is_not_measured_far_beyond_what_it_can_do() {
        let plan = Plan::from_toml(
            "[curve]\ntime = \"5m\"\npoints = 6\n[[target]]\nname = \"fast\"\npath = \"/fast\"\n\
             [[target]]\nname = \"slow\"\npath = \"/slow\"\n[[workload]]\nname = \"w\"\nrw = \"randread\"\nruntime = \"250ms\"\n",
        );
        let capacities = BTreeMap::from([
            ("fast".to_owned(), Scouted::new(10_000.0)),
            ("slow".to_owned(), Scouted::new(1000.0)),
        ]);
        let plan = plan.expect("a plan").with_rates(&[capacities]).expect("rates");
        let rates_of = |target: usize| -> Vec<u64> {
            let measured = (0..plan.workloads.len()).filter(|workload| plan.measures(target, *workload));
            measured.filter_map(|workload| plan.workloads[workload].rate_iops).collect()
        };
        assert_eq!((rates_of(0).last(), rates_of(1).last()), (Some(&11_000), Some(&1100)), "{plan:?}");
        assert!(rates_of(0).len() > rates_of(1).len() && rates_of(1).len() >= 6);
        assert!(plan.measures(1, 0), "the closed loop is measured on all");
        assert_eq!(plan.cells(), rates_of(0).len() + rates_of(1).len() + 2);
        assert_eq!(Plan::from_toml(&plan.to_toml().expect("TOML")).expect("reads back"), plan);
    }

    #[test]
    fn a_time_becomes_rounds_of_a_closed_loop_and_its_rates() {
        let with_rates =
            plan("[curve]\ntime = \"2m\"\npoints = 8").expect("a plan").with_rates(&capacities(10_000.0));
        let with_rates = with_rates.expect("rates");
        assert_eq!(with_rates.workloads.len(), 9);
        assert!(!with_rates.workloads[0].is_open_loop() && !with_rates.wants_rates());
        assert!(with_rates.workloads.iter().all(|workload| workload.runtime == Nanos::from_millis(250)));
        let slow = plan("[curve]\ntime = \"2m\"\npoints = 8")
            .expect("a plan")
            .with_rates(&capacities(200.0))
            .expect("rates");
        assert_eq!(
            (slow.workloads[1].name.as_str(), slow.workloads[1].runtime),
            ("w@10", Nanos(2_500_000_000))
        );
        let slowest = &with_rates.workloads[1];
        assert_eq!((slowest.name.as_str(), slowest.rate_iops), ("w@500", Some(250)), "of two jobs together");
        // The closed loop and eight rates: each round is nine measurements of 400 ms.
        assert_eq!(with_rates.repeat, 33);
        let again = Plan::from_toml(&with_rates.to_toml().expect("TOML")).expect("reads back");
        assert_eq!(again, with_rates);
    }

    #[test]
    fn given_shares_are_rates_as_vdbench_rounds_them_in_as_many_rounds_as_the_plan_has() {
        let with_rates = plan("repeat = 2\n[curve]\nshares = [1, 10, 50, 100]").expect("a plan");
        let with_rates = with_rates.with_rates(&capacities(4321.0)).expect("rates");
        let names: Vec<&str> = with_rates.workloads.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names, ["w", "w@50", "w@440", "w@2200", "w@4400"]);
        assert_eq!((with_rates.repeat, with_rates.cells()), (2, 5));
        assert_eq!((with_rates.share_of("w@440"), with_rates.share_of("w")), (Some(("w", 10)), None));
        let again = Plan::from_toml(&with_rates.to_toml().expect("TOML")).expect("reads back");
        assert_eq!(again, with_rates);
        assert_eq!(shares_of(30.0, &[10, 20, 50]), [10, 20], "each once");
    }

    #[test]
    fn what_cannot_be_a_curve_is_refused_with_the_form_that_can() {
        for (head, words) in [
            ("[curve]\npoints = 3", "curve: points = 3: accepted: 4 to 40"),
            ("[curve]\npoints = 5\nshares = [50]", "curve: points and shares: accepted: one of them"),
            ("[curve]\nshares = [50, 20]", "shares = [50, 20]: accepted: percentages from 1 to 200, rising"),
            ("[curve]\nshares = [0]", "shares = [0]: accepted: percentages from 1 to 200"),
            ("time = \"3m\"\n[curve]", "time"),
        ] {
            let error = plan(head).expect_err(head).to_string();
            assert!(error.contains(words), "{error}");
        }
        let short = plan("[curve]\ntime = \"5s\"").expect_err("short").to_string();
        assert!(short.contains("time = 5s") && short.contains("accepted: that or more"), "{short}");
        // Windows of slow rates are longer.
        let slow = plan("[curve]\ntime = \"20s\"").expect("a plan").with_rates(&capacities(20.0));
        let slow = slow.expect_err("slow").to_string();
        assert!(slow.contains("time = 20s"), "{slow}");
    }
}
