//! Shows the result of `iotax tune`: the recommendation, its side effects, and all settings that were tried.

use iotax_model::units::human::listed;

use super::{Field, Grid, Page, Part, verdict, words};
use crate::figure::{change, change_with, counted};
use crate::sentences::amount::{Of, share};
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::tune::{Candidate, Confirmation, ConfirmedGain, Tried, Tuning};
use iotax_analysis::{Comparison, Metric};

/// Builds the page of `iotax tune`: the recommendation, its effects on all metrics, and the settings that were tried.
#[must_use]
pub fn tuned(tuning: &Tuning) -> Page {
    let mut page = Page::default();
    page.add_lines(answer(tuning));
    if tuning.emulated {
        page.add(Part::Sentence(
            "The guests were emulated (TCG): tune on a host whose KVM runs them before you change one."
                .into(),
        ));
    }
    if let Some((run, confirmed)) = &tuning.confirmation {
        page.add(Part::Head(format!("Elsewhere, against the present settings (run {run})")));
        page.add(Part::Table(elsewhere(confirmed)));
    }
    if let Some(run) = tuning.screening {
        page.add(Part::Head(format!("All that was tried (run {run})")));
        page.add(Part::Table(tried(tuning)));
        page.add_lines(vec![
            "v worse, ^ better, = the same, ? undecided, ! withheld. These figures chose the candidate, so they flatter it; the confirmation does not."
                .into(),
        ]);
    }
    let of_runs = tuning.tried.iter().flat_map(|one| &one.comparisons);
    let confirmed = tuning.confirmation.iter().flat_map(|(_, confirmed)| &confirmed.objective);
    let mut withheld: Vec<String> =
        of_runs.chain(confirmed).filter_map(|c| Some(format!("{}.", c.ratio.withheld.as_ref()?))).collect();
    withheld.sort_unstable();
    withheld.dedup();
    page.add_list("Without a verdict, because", withheld);
    page
}

/// Returns the recommended settings with their effect, or the reason why none is recommended.
fn answer(tuning: &Tuning) -> Vec<String> {
    let Some((_, confirmed)) = &tuning.confirmation else {
        let all = || tuning.tried.iter().flat_map(|one| &one.comparisons);
        let open = all().filter(|c| c.ratio.verdict == Verdict::Undecided).count();
        let more = (open > 0).then(|| {
            let of = counted(all().count() as u64, "comparison");
            format!("{open} of {of} are not decided; with more time (--time) something may be.")
        });
        let nothing = "Nothing tried is shown to pay here: leave it as it is.".to_owned();
        return [nothing].into_iter().chain(more).collect();
    };
    let chosen = settings(tuning.candidates());
    let of = |verdict: Verdict| confirmed.objective.iter().filter(move |c| c.ratio.verdict == verdict);
    let rounds = confirmed.objective.iter().map(|c| c.rounds).max().unwrap_or_default();
    let fresh = if tuning.screening.is_some() { "fresh rounds" } else { "rounds" };
    let said = |verdict| listed(&of(verdict).map(amount).collect::<Vec<String>>());
    match confirmed.outcome {
        ConfirmedGain::Pays => vec![format!("{chosen}: {}, confirmed in {rounds} {fresh}.", said(Verdict::Faster))],
        ConfirmedGain::Trades => vec![
            format!("{chosen}: {}, but {}.", said(Verdict::Faster), said(Verdict::Slower)),
            "That is a trade, so nothing is recommended; tune one workload alone (--workloads), or choose yourself.".into(),
        ],
        ConfirmedGain::Unproven if confirmed.objective.iter().all(|c| c.ratio.withheld.is_some()) => {
            vec![format!("{chosen}: nothing can be said of it; the reasons are below.")]
        }
        ConfirmedGain::Unproven => {
            let found = if tuning.screening.is_some() { " looked best, and" } else { ":" };
            vec![
                "Nothing tried is shown to pay here: leave it as it is.".into(),
                format!(
                    "{chosen}{found} {} did not confirm it: {}.",
                    counted(rounds, fresh.trim_end_matches('s')),
                    listed(&confirmed.objective.iter().map(amount).collect::<Vec<String>>())
                ),
            ]
        }
    }
}

/// Joins settings: `scheduler=none nr_requests=64`.
fn settings<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> String {
    candidates.map(name).collect::<Vec<String>>().join(" ")
}

fn name(candidate: &Candidate) -> String {
    format!("{}={}", candidate.key, candidate.value)
}

/// Describes the effect on a workload: `12% more IOPS on randread-4k-qd32 (95% +8.1% to +16%)`.
fn amount(comparison: &Comparison) -> String {
    let ratio = &comparison.ratio;
    let more = if comparison.metric == Metric::IOPS {
        share(Of::Iops, &[ratio.mean])
    } else {
        format!("{} {}", comparison.metric.name(), change(ratio.mean))
    };
    let interval =
        ratio.interval_95.map(|ends| format!(" (95% {} to {})", change(ends.low), change(ends.high)));
    format!("{more} on {}{}", comparison.workload, interval.unwrap_or_default())
}

/// Builds a table of the recommendation's effect on the objective and on the other metrics, with one row per comparison.
fn elsewhere(confirmed: &Confirmation) -> Grid {
    let mut grid = Grid::new(&["workload", "figure", "change", "verdict"]);
    for comparison in confirmed.objective.iter().chain(&confirmed.elsewhere) {
        let ratio = &comparison.ratio;
        grid.rows.push(vec![
            words(&comparison.workload),
            super::figure(comparison.metric.name()),
            super::figure(change_with(ratio.mean, ratio.interval_95)),
            verdict(ratio.word(), Some(ratio.verdict)),
        ]);
    }
    grid
}

/// Builds a table with one row per candidate setting and one column per workload.
fn tried(tuning: &Tuning) -> Grid {
    let workloads: Vec<&str> = tuning
        .tried
        .iter()
        .map(|one| one.comparisons.iter().map(|c| c.workload.as_str()).collect::<Vec<&str>>())
        .max_by_key(Vec::len)
        .unwrap_or_default();
    let head: Vec<&str> = [&["setting"], workloads.as_slice(), &[""]].concat();
    let mut grid = Grid::new(&head);
    grid.rows =
        tuning.tried.iter().zip(0..).map(|(one, index)| row(tuning, one, index, &workloads)).collect();
    grid
}

fn row(tuning: &Tuning, one: &Tried, index: usize, workloads: &[&str]) -> Vec<Field> {
    let cell = |workload: &&str| match one.comparisons.iter().find(|c| c.workload == *workload) {
        Some(comparison) => Field {
            verdict: Some(comparison.ratio.verdict),
            ..super::figure(format!("{} {}", change(comparison.ratio.mean), mark(comparison)))
        },
        None => super::figure("-"),
    };
    let remark = match &one.lost {
        Some(reason) => format!("not measured: {reason}"),
        None if tuning.chosen.contains(&index) => "went on to the confirmation".into(),
        None => String::new(),
    };
    let head = [words(name(&one.candidate))].into_iter();
    head.chain(workloads.iter().map(cell)).chain([words(remark)]).collect()
}

fn mark(comparison: &Comparison) -> char {
    match comparison.ratio.verdict {
        Verdict::Same => '=',
        Verdict::Faster => '^',
        Verdict::Slower => 'v',
        Verdict::Undecided if comparison.ratio.withheld.is_some() => '!',
        Verdict::Undecided => '?',
    }
}
