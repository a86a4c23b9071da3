//! Estimates a plan's number of rounds and its time before it begins.

use iotax_model::plan::{CurveSpec, Design, Margin, Plan, STEADY_WINDOW};
use iotax_model::target::Accel;
use iotax_model::units::{Nanos, human};

use crate::runner;

/// Formats the number of rounds: `5`, or `5 to 30` if rounds are added.
pub(super) fn rounds(plan: &Plan) -> String {
    range(plan, u64::from)
}

/// Formats the number of measurements in all rounds: `20`, or `20 to 120` if rounds are added.
pub(super) fn measurements(plan: &Plan) -> String {
    range(plan, |rounds| u64::from(rounds) * plan.cells() as u64)
}

fn range(plan: &Plan, of: impl Fn(u32) -> u64) -> String {
    let least = of(plan.repeat);
    match of(plan.most_rounds()) {
        most if most > least => format!("{least} to {most}"),
        _ => least.to_string(),
    }
}

/// Formats the estimated time: `about 12 min 05 s`, or for a plan that adds rounds `about 2 min to 10 min`, and `at most about 10 min` if
/// `done` measurements exist already.
pub(super) fn time(plan: &Plan, done: usize, accel: Option<Accel>) -> String {
    let set_up = || runner::estimate_seconds(plan, 0, 0, accel);
    match &plan.design {
        Design::Curve(curve) if plan.wants_rates() => {
            return format!("about {}", human::duration(set_up() + curve_seconds(plan, curve)));
        }
        Design::Ask(ask) => {
            let held = ask.sustain.map_or(0.0, |sustain| sustain.as_secs_f64() * plan.targets.len() as f64);
            return format!("about {}", human::duration(set_up() + ask.time.as_secs_f64() + held));
        }
        Design::FixedRounds
        | Design::UntilDecided(_)
        | Design::UntilSteady(_)
        | Design::Curve(_)
        | Design::Watch(_) => {}
    }
    let least = human::duration(runner::estimate_seconds(plan, plan.repeat, done, accel));
    match most_seconds(plan, done, accel) {
        Some(most) if done == 0 => format!("about {least} to {}", human::duration(most)),
        Some(most) => format!("at most about {}", human::duration(most)),
        None => format!("about {least}"),
    }
}

/// Returns the measuring time in seconds of a curve whose rates are not chosen yet: its time limit, or without one the time of its rounds
/// and of one more pass, which chooses the rates.
fn curve_seconds(plan: &Plan, curve: &CurveSpec) -> f64 {
    let round = plan.round_time().as_secs_f64();
    let rates = f64::from(curve.points_of(plan.targets.len()) + 1);
    curve.time().map_or(round * (rates * f64::from(plan.repeat) + 1.0), Nanos::as_secs_f64)
}

/// Returns the approximate maximum duration in seconds of a plan that adds rounds; `None` for other plans.
pub(super) fn most_seconds(plan: &Plan, done: usize, accel: Option<Accel>) -> Option<f64> {
    if !plan.adds_rounds() {
        return None;
    }
    let all = runner::estimate_seconds(plan, plan.most_rounds(), done, accel);
    // max_time does not include setting up.
    let set_up = runner::estimate_seconds(plan, 0, 0, accel);
    let limit = plan.until_decided().and_then(|until| until.max_time);
    Some(limit.map_or(all, |limit| all.min(set_up + limit.as_secs_f64())))
}

/// Describes the plan's design, such as a curve or added rounds, or a margin that is not the default; `None` if there is nothing to
/// describe.
pub(super) fn design(plan: &Plan) -> Option<String> {
    let margin =
        || (plan.margin != Margin::default()).then(|| format!("Within {} is the same.", plan.margin));
    match &plan.design {
        Design::Curve(curve) if plan.wants_rates() => Some(curve_in_words(plan, curve)),
        Design::Ask(ask) => Some(format!(
            "Each workload is tried at rates ever closer to the highest one that keeps the conditions, for {}.",
            ask.time
        )),
        Design::UntilDecided(_) => {
            let looks: Vec<String> = plan.looks().iter().map(ToString::to_string).collect();
            let (last, before) = looks.split_last()?;
            Some(format!(
                "Rounds are added until every comparison is decided: looks after {} and {last} rounds, fixed in advance. Within {} is \
                 the same.",
                before.join(", "),
                plan.margin
            ))
        }
        Design::UntilSteady(until) => Some(format!(
            "Rounds are added until each target is in a steady state by SNIA's rule, {} at most; figures are made of the last \
             {STEADY_WINDOW}.",
            until.max_rounds
        )),
        Design::FixedRounds | Design::Curve(_) | Design::Watch(_) => margin(),
    }
}

fn curve_in_words(plan: &Plan, curve: &CurveSpec) -> String {
    let points = curve.points_of(plan.targets.len());
    let range = match (curve.shares.first(), curve.shares.last()) {
        (Some(least), Some(most)) => format!("{least}% of what it can do to {most}%"),
        _ => "5% of what it can do to 110%".to_owned(),
    };
    let long = match curve.time() {
        Some(time) => time.to_string(),
        None if plan.repeat == 1 => "1 round".to_owned(),
        None => format!("{} rounds", plan.repeat),
    };
    format!(
        "Each workload is measured without a limit and at up to {points} rates for each target, from {range}, for {long}."
    )
}
