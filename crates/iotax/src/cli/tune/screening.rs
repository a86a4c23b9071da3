//! The screening run: one setting at a time, or mixes of several if time is short.

use iotax_analysis::Metric;
use iotax_analysis::tune::{Candidate, Tried, mixed, screen};
use iotax_model::Run;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::plan::{BETWEEN, Plan};
use iotax_model::units::Nanos;

use super::super::{Failure, OrExit};
use super::Tuner;
use super::candidates::Tryable;

/// Minimum number of settings for a mixed screening.
const LEAST_MIXED: usize = 4;
/// Range of the number of rounds of mixes: at least two for a confidence interval, and more than twelve add little.
const ROUNDS: std::ops::RangeInclusive<u64> = 2..=12;
/// Target name shown for candidates of a mixed screening: each setting is in half of all mixes, so no single target represents it.
const MIXES: &str = "mixes";

/// The plan of a screening, and the data to evaluate its run.
pub(super) struct Screening {
    pub(super) plan: Plan,
    pub(super) notes: Vec<String>,
    candidates: Vec<Candidate>,
    /// For each target of a mixed screening, true for each setting that the target has.
    mixes: Option<Vec<Vec<bool>>>,
}

impl Screening {
    /// Evaluates each candidate by the results of the screening run.
    pub(super) fn judge(&self, run: &Run, asked: Option<Metric>) -> Vec<Tried> {
        match &self.mixes {
            None => screen(run, &self.candidates, asked),
            Some(mixes) => mixed::screen(run, &self.candidates, mixes, asked),
        }
    }
}

impl Tuner<'_> {
    /// Plans a screening that changes one setting at a time if enough rounds fit into `time`, otherwise mixes of several. Fails if neither
    /// fits.
    pub(super) fn screening(&self, tryable: Vec<Tryable>, time: Nanos) -> Result<Screening, Failure> {
        let (candidates, targets): (Vec<Candidate>, Vec<TargetSpec>) = tryable.into_iter().unzip();
        match self.plan(targets, time) {
            Ok(plan) => Ok(Screening { plan, notes: Vec::new(), candidates, mixes: None }),
            Err(too_short) => self.mixed(&candidates, time).unwrap_or(Err(too_short)),
        }
    }

    /// Plans a screening with mixes of the first value of each setting. `None` with fewer than 4 settings or too many, if a mix is not
    /// valid, or if the time is too short for 2 rounds.
    fn mixed(&self, all: &[Candidate], time: Nanos) -> Option<Result<Screening, Failure>> {
        let is_first = |index: &usize| !all[..*index].iter().any(|earlier| earlier.key == all[*index].key);
        let (first, later): (Vec<usize>, Vec<usize>) = (0..all.len()).partition(is_first);
        let candidate = |index: &usize| Candidate { target: MIXES.into(), ..all[*index].clone() };
        let candidates: Vec<Candidate> = first.iter().map(candidate).collect();
        let mixes = mixed::mixes(candidates.len()).filter(|_| candidates.len() >= LEAST_MIXED)?;
        let target = |(number, mix): (usize, &Vec<bool>)| {
            let chosen = candidates.iter().zip(mix).filter(|(_, has)| **has).map(|(candidate, _)| candidate);
            Some(TargetSpec { name: format!("mix-{number}"), ..self.with(chosen).ok()? })
        };
        let others = mixes.iter().enumerate().skip(1).map(target).collect::<Option<Vec<TargetSpec>>>()?;
        let plan = self.bare_plan(others, time);
        let round = plan.round_time().0 + BETWEEN.0 * plan.cells() as u64;
        let rounds = (time.0 / round.max(1)).min(*ROUNDS.end());
        let repeat = ROUNDS.contains(&rounds).then(|| u32::try_from(rounds).ok())??;
        let mut notes = vec![format!(
            "The time is short for {} values one at a time: {} mixes of {} settings are screened.",
            all.len(),
            mixes.len() - 1,
            candidates.len()
        )];
        if !later.is_empty() {
            let names: Vec<String> =
                later.iter().map(|index| format!("{}={}", all[*index].key, all[*index].value)).collect();
            notes.push(format!(
                "Not tried, as a mix takes one value of each setting: {}; give more --time.",
                names.join(" ")
            ));
        }
        let plan = Plan { repeat, ..plan };
        let checked = plan.check().or_exit(Exit::Usage);
        Some(checked.map(|()| Screening { plan, notes, candidates, mixes: Some(mixes) }))
    }
}
