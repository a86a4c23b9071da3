//! Suggests the command that would decide the open comparisons of a run, with its expected duration.

use iotax_analysis::compare::More;
use iotax_analysis::stats::verdict::rounds_for_most;
use iotax_analysis::timing::round_time;
use iotax_analysis::{Judgement, SequentialStatus, Stopped};
use iotax_model::plan::FIRST_LOOK;
use iotax_model::units::{Nanos, human};
use iotax_model::{Run, RunState};

/// Rounds that a run with several interim tests needs, in percent of the rounds for a single test at the end.
const LOOKS_COST: u32 = 125;

/// Names the next step: `a new run of 20 min would decide 6 of them: iotax resume 1 --time 20m`. `needed` has the total rounds for each undecided
/// comparison, `None` if unknown or above the maximum.
pub(crate) fn next_step(run: &Run, judgement: &Judgement, needed: &[Option<u32>]) -> String {
    if run.source.is_imported() {
        return "more repetitions of the imported tool may decide".into();
    }
    let status = judgement.sequential.as_ref();
    let is_over = status.is_some_and(|status| status.stopped.is_some());
    if run.state != RunState::Complete && !is_over {
        return format!("the run is not at its end; go on with: {}", run.command("resume", ""));
    }
    if status.and_then(|status| status.stopped) == Some(Stopped::Failed) {
        return "what it needs could not be measured".into();
    }
    let rounds = status.map_or(run.plan.repeat, SequentialStatus::rounds);
    let most = run.plan.most_of_a_run();
    let known: Vec<u32> =
        needed.iter().flatten().copied().filter(|needed| with_looks(*needed) <= most).collect();
    let Some(total) = rounds_for_most(&known) else {
        return if rounds < FIRST_LOOK {
            let (time, words) = time(run, FIRST_LOOK + 1);
            let command = run.command("resume", &format!("--time {time}"));
            format!("{} is too few for an interval; {words} give one: {command}", rounds_of(rounds))
        } else {
            format!(
                "{most} rounds, the most of a run, would not decide: the difference is too close to the margin of {}",
                run.plan.margin
            )
        };
    };
    let which = match (known.iter().filter(|known| **known <= total).count(), needed.len()) {
        (_, 1) => "it".to_owned(),
        (2, 2) => "both".into(),
        (some, all) if some == all => format!("all {all}"),
        (some, _) => format!("{some} of them"),
    };
    if status.and_then(|status| status.stopped) == Some(Stopped::MaxTime) && total <= run.plan.most_rounds() {
        let (time, words) = time(run, total.saturating_sub(rounds).max(1));
        let command = run.command("resume", &format!("--max-time {time}"));
        return format!("about {words} more would decide {which}: {command}");
    }
    if run.plan.curve().is_some() {
        let (_, words) = time(run, total.saturating_sub(rounds).max(1));
        let command = run.command("resume", &format!("--repeat {total}"));
        return format!("about {words} more would decide {which}: {command}");
    }
    let (time, words) = time(run, with_looks(total));
    // The noise of so few rounds is known roughly.
    let would = if rounds < FIRST_LOOK { "may" } else { "would" };
    format!(
        "a new run of {words} {would} decide {which}: {}",
        run.command("resume", &format!("--time {time}"))
    )
}

/// Returns the rounds that a run with several interim tests needs to decide the same comparisons as a single test after `rounds` rounds.
fn with_looks(rounds: u32) -> u32 {
    (rounds.saturating_mul(LOOKS_COST)).div_ceil(100).max(FIRST_LOOK + 2)
}

/// Names the time and the command for more rounds: `more rounds of run 1 take 3 min: iotax resume 1 --repeat 12`; `None` if the run already
/// has `rounds` rounds. If rounds cannot be added to the run, names a new run in its place.
pub(super) fn more_rounds(more: &More, rounds: u32) -> Option<String> {
    let (label, command) = (&more.label, &more.command);
    if more.is_anew {
        let (time, words) = time_of(more.round, with_looks(rounds));
        return Some(format!(
            "a new run in place of {label}, of its plan, takes {words}: {command} --time {time}"
        ));
    }
    let missing = rounds.checked_sub(more.rounds).filter(|missing| *missing > 0)?;
    let (_, words) = time_of(more.round, missing);
    Some(format!("more rounds of {label} take {words}: {command} --repeat {rounds}"))
}

fn rounds_of(rounds: u32) -> String {
    crate::figure::counted(rounds, "round")
}

/// Returns the time that `rounds` rounds take, rounded up to a multiple of 10 s, 1 min or 10 min, and the same time as text.
fn time(run: &Run, rounds: u32) -> (Nanos, String) {
    time_of(round_time(run), rounds)
}

fn time_of(round: Nanos, rounds: u32) -> (Nanos, String) {
    let seconds = (round.as_secs_f64() * f64::from(rounds)).min(1e9);
    let step = match seconds {
        s if s <= 120.0 => 10.0,
        s if s <= 3600.0 => 60.0,
        _ => 600.0,
    };
    let rounded = (seconds / step).ceil() * step;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1e9 s")]
    let time = Nanos::from_secs(rounded as u64);
    let words = match rounded {
        s if s <= 120.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{:.0} min", s / 60.0),
        s => human::duration(s),
    };
    (time, words)
}
