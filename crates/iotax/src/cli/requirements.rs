//! Exit codes of watches with requirements, and of plans with demands.

use iotax_analysis::Judgement;
use iotax_analysis::demands::{Kept, demands};
use iotax_analysis::watch::{Episode, episodes};
use iotax_model::Run;
use iotax_model::exit::Exit;

/// Returns the exit code of a finished run: of a watch by its requirements, of another plan by its demands.
pub(super) fn exit(run: &Run, judgement: &Judgement) -> Exit {
    if run.plan.watch().is_some() { of_watch(run) } else { of_demands(run, judgement) }
}

/// Returns `Gate` if a requirement is not met, else `Measurement` if an event failed or the write journal is incomplete, else `Unjudged` if
/// a requirement is undecided or nothing was measured, else `Fine`.
fn of_watch(run: &Run) -> Exit {
    let episodes = episodes(run);
    let passed: Vec<Option<bool>> =
        episodes.iter().flat_map(|episode| &episode.verdicts).map(|judged| judged.passed).collect();
    let nothing = episodes.is_empty() && run.plan.watch().is_some_and(|watch| !watch.require.is_empty());
    if passed.contains(&Some(false)) {
        Exit::Gate
    } else if episodes.iter().any(|episode| episode.has_failed_events() || lacks_records(episode)) {
        Exit::Measurement
    } else if passed.contains(&None) || nothing {
        Exit::Unjudged
    } else {
        Exit::Fine
    }
}

/// Returns `Gate` if a target misses a demand, else `Unjudged` if a demand is undecided, else `Fine`.
fn of_demands(run: &Run, judgement: &Judgement) -> Exit {
    let all = demands(run, judgement);
    if all.iter().any(|demand| demand.kept == Kept::No) {
        Exit::Gate
    } else if all.iter().any(|demand| demand.kept == Kept::Undecided) {
        Exit::Unjudged
    } else {
        Exit::Fine
    }
}

/// Returns whether the measurement's journal of acknowledged writes is incomplete.
fn lacks_records(episode: &Episode<'_>) -> bool {
    episode.measurement.outcome.verify.as_ref().is_some_and(|findings| findings.journal.is_some())
}
