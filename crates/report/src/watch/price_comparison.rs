//! Compares the cost of events with the baseline's or with an alternative's: a row per event and target, and the command that would decide open
//! comparisons.

use iotax_analysis::stats::verdict::{Verdict, rounds_for_most};
use iotax_analysis::watch::{EventFigure, PriceComparison};
use iotax_model::Run;
use iotax_model::units::human;

use crate::figure::{UNKNOWN, change, change_with, counted};

/// Minimum number of rounds for a usable estimate of the noise between rounds; with fewer, it is known to a factor of two at best.
const KNOWN_NOISE: u32 = 8;
/// Minimum number of rounds for a useful confidence interval.
const FEWEST_ROUNDS: u32 = 3;

/// A table row: the comparisons of one event on one target.
pub(crate) struct Row<'a> {
    /// Name of the event, with the workload if there are several.
    pub(crate) event: String,
    pub(crate) target: &'a str,
    /// A comparison per column; `None` if the figure is unknown in any round.
    pub(crate) cells: Vec<Option<&'a PriceComparison<'a>>>,
}

/// Splits the comparisons into tables: one for all comparisons with the baseline, and one per pair of alternative events.
pub(crate) fn tables<'a>(all: &'a [PriceComparison<'a>]) -> impl Iterator<Item = &'a [PriceComparison<'a>]> {
    let events = |one: &PriceComparison<'a>| one.is_of_events().then_some((one.event, one.baseline_event));
    all.chunk_by(move |one, other| events(one) == events(other))
}

/// Names what a table's comparisons refer to: the baseline target, or another event.
fn against<'a>(one: &PriceComparison<'a>) -> &'a str {
    if one.is_of_events() { one.baseline_event } else { one.baseline }
}

/// Returns the figures that occur in at least one comparison, in the order of columns.
pub(crate) fn figures(all: &[PriceComparison<'_>]) -> Vec<EventFigure> {
    EventFigure::ALL.into_iter().filter(|figure| all.iter().any(|one| one.figure == *figure)).collect()
}

/// Returns the column head of a figure, the same as in the table of costs.
pub(crate) const fn column(figure: EventFigure) -> &'static str {
    match figure {
        EventFigure::Took => "took",
        EventFigure::Gap => "longest gap",
        EventFigure::ResponseMean => "mean",
        EventFigure::ResponseP99 => "p99",
        EventFigure::Slowdown => "slowdown",
    }
}

/// Builds a row per event and target, in the order of the plan.
pub(crate) fn rows<'a>(all: &'a [PriceComparison<'a>]) -> Vec<Row<'a>> {
    let figures = figures(all);
    let key = |one: &PriceComparison<'a>| (one.workload, one.event, one.target);
    let several = all.iter().any(|one| one.workload != all[0].workload);
    let mut keys = Vec::new();
    for one in all.iter().map(key) {
        if !keys.contains(&one) {
            keys.push(one);
        }
    }
    let row = |of: (&'a str, &'a str, &'a str)| {
        let cell = |figure: &EventFigure| all.iter().find(|one| key(one) == of && one.figure == *figure);
        let event = if several { format!("{} ({})", of.1, of.0) } else { of.1.to_owned() };
        Row { event, target: of.2, cells: figures.iter().map(cell).collect() }
    };
    keys.into_iter().map(row).collect()
}

/// Formats the heading of a table: `What each event costs against virtio-raw, 5 rounds`, `What backup-fleecing costs against backup, 5 rounds`.
pub(crate) fn heading(run: &Run, table: &[PriceComparison<'_>]) -> String {
    let rounds = counted(u64::from(run.plan.repeat), "round");
    let Some(first) = table.first() else { return rounds };
    let what = if first.is_of_events() { first.event } else { "each event" };
    format!("What {what} costs against {}, {rounds}", against(first))
}

/// Formats a comparison: `+131%`, `=` (same), `+3.1%?` (undecided), `!` (withheld); with `with_interval` the interval and the verdict.
pub(crate) fn cell(one: Option<&PriceComparison<'_>>, with_interval: bool) -> String {
    let Some(one) = one else { return UNKNOWN.into() };
    let ratio = &one.ratio;
    if ratio.withheld.is_some() {
        return "!".into();
    }
    let is_open = ratio.verdict == Verdict::Undecided;
    let mark = if is_open { "?" } else { "" };
    match (with_interval, ratio.verdict) {
        (true, verdict) => {
            let word = if is_open { "not decided" } else { verdict.word() };
            format!("{}: {word}", change_with(ratio.mean, ratio.interval))
        }
        (false, Verdict::Same) => "=".into(),
        (false, _) => format!("{}{mark}", change(ratio.mean)),
    }
}

/// Returns the notes below a table: its marks, the command that would decide open comparisons, and the reasons for withheld verdicts.
pub(crate) fn notes(run: &Run, all: &[PriceComparison<'_>]) -> Vec<String> {
    let against = all.first().map_or("", against);
    let mut legend = vec![format!("Change against {against}, in the seconds of the event")];
    if all.iter().any(|one| one.ratio.verdict == Verdict::Same) {
        legend.push(format!("= same, within {}", run.plan.margin));
    }
    if all.iter().any(is_open) {
        legend.push("? not decided".into());
    }
    if all.iter().any(|one| one.figure == EventFigure::Slowdown) {
        legend.push("slowdown: mean response time over that of the same seconds without the event".into());
    }
    if all.iter().any(|one| one.figure == EventFigure::Gap) {
        legend.push("no gap counts as the shortest that is recorded".into());
    }
    let mut lines = vec![format!("{}.", legend.join("; "))];
    lines.extend(advice(run, all));
    let mut reasons: Vec<&str> = all.iter().filter_map(|one| one.ratio.withheld.as_deref()).collect();
    reasons.dedup();
    lines.extend(reasons.first().map(|reason| {
        let others = if reasons.len() > 1 { "for instance " } else { "" };
        format!("! No verdict: {others}{reason}.")
    }));
    lines
}

fn is_open(one: &PriceComparison<'_>) -> bool {
    one.ratio.verdict == Verdict::Undecided && one.ratio.withheld.is_none()
}

/// Returns a line with the number of undecided comparisons and the command that adds the rounds to decide them, if 1000 rounds suffice. `None` if no
/// comparison is undecided; withheld ones do not count.
fn advice(run: &Run, all: &[PriceComparison<'_>]) -> Option<String> {
    let open: Vec<&PriceComparison<'_>> = all.iter().filter(|one| is_open(one)).collect();
    let least = open.iter().map(|one| one.rounds).min()?;
    let needed: Vec<u32> = open.iter().filter_map(|one| one.ratio.needed_rounds).collect();
    let resume = |rounds: u32| run.command("resume", &format!("--repeat {rounds}"));
    let next_step = match rounds_for_most(&needed) {
        _ if least < 2 => {
            format!("one round has no interval: {}", resume(FEWEST_ROUNDS.max(run.plan.repeat)))
        }
        None => format!(
            "1000 rounds would not decide: the difference is too close to the margin of {}",
            run.plan.margin
        ),
        Some(rounds) => {
            let about = if least < KNOWN_NOISE { "perhaps" } else { "about" };
            let which = match needed.iter().filter(|needed| **needed <= rounds).count() {
                some if some < open.len() => format!("{some} of them"),
                1 => "it".into(),
                _ => "all of them".into(),
            };
            format!("{about} {rounds} rounds would decide {which}: {}", resume(rounds))
        }
    };
    Some(format!("{} of {} not decided; {next_step}", open.len(), counted(all.len() as u64, "comparison")))
}

/// Describes a row: `commit on virtio-qcow2 against virtio-raw: took 412 ms, +131% [+120, +142], slower; mean the same, within 2%; p99 not
/// decided.`
pub(crate) fn sentence(run: &Run, row: &Row<'_>) -> String {
    let price_text = |one: &PriceComparison<'_>| {
        let name = column(one.figure);
        let (ours, ratio) = (one.values.0, &one.ratio);
        let value =
            if one.figure == EventFigure::Slowdown { format!("{ours:.2} times") } else { human::time(ours) };
        match ratio.verdict {
            _ if ratio.withheld.is_some() => format!("{name} without a verdict"),
            Verdict::Undecided => format!("{name} not decided"),
            Verdict::Same => format!("{name} the same, within {}", run.plan.margin),
            verdict => {
                format!("{name} {value}, {}, {}", change_with(ratio.mean, ratio.interval), verdict.word())
            }
        }
    };
    let against = row.cells.iter().flatten().next().map_or("", |one| against(one));
    let texts: Vec<String> = row.cells.iter().flatten().map(|one| price_text(one)).collect();
    format!("{} on {} against {against}: {}.", row.event, row.target, texts.join("; "))
}
