//! The page of cuts of power: speed against safety.

use iotax_analysis::crash::{CrashVerdict, at_most_of_none};
use iotax_model::crash::CrashDocument;
use iotax_model::units::human;

use super::{Field, Grid, Page, Part, figure, words};
use crate::figure::counted;

/// The page of `iotax crash`.
#[must_use]
pub fn crash(document: &CrashDocument) -> Page {
    let verdicts: Vec<CrashVerdict<'_>> = document.targets.iter().map(CrashVerdict::of).collect();
    let mut page = Page::default();
    verdicts.iter().for_each(|one| page.add(Part::Sentence(sentence(one))));
    page.add(Part::Head("Speed against safety".into()));
    let mut grid =
        Grid::new(&["target", "writes/s", "flushed lost", "others lost", "torn", "work lost", "afterwards"]);
    grid.rows = verdicts.iter().map(row).collect();
    page.add(Part::Table(grid));
    let mut lines = vec![format!(
        "One flush after {}. Flushed lost: cuts after which a flushed write was missing. Others lost: blocks that miss a write that \
         no flush covered, which a cut may take. Torn: blocks of two writes, flushed or not. Both over all cuts.",
        counted(document.writes_per_flush, "write")
    )];
    if let Some(cuts) = verdicts.iter().filter(|one| !one.breaks_promise()).map(|one| one.cuts).min() {
        lines.push(format!(
            "None in {}: fewer than {:.0}% of such cuts lose a flushed write (95% confidence).",
            counted(cuts, "cut"),
            (at_most_of_none(cuts) * 100.0).ceil()
        ));
    }
    page.add_lines(lines);
    let stacks = verdicts.iter().map(|one| format!("{}: {}", one.name, one.stack)).collect();
    page.add_list("Stacks, from the bottom up", stacks);
    page
}

/// `virtio-raw: 12.1k writes/s; nothing lost that was flushed; 2.1 ms of what was not`.
fn sentence(verdict: &CrashVerdict<'_>) -> String {
    let CrashVerdict { name, cuts, cuts_with_loss, .. } = verdict;
    let speed = human::count(verdict.writes_per_second);
    let flushed = match cuts_with_loss {
        0 => "nothing lost that was flushed".to_owned(),
        lost => format!("{lost} of {} lost flushed writes", counted(*cuts, "cut")),
    };
    let others = verdict
        .lost_seconds
        .filter(|_| *cuts_with_loss == 0)
        .map(|seconds| format!("; up to {} of what was not", human::time(seconds * 1e9)));
    let unusable = verdict
        .unusable
        .map(|(cuts, reason)| format!("; not usable after {}: {reason}", counted(cuts, "cut")));
    format!(
        "{name}: {speed} writes/s; {flushed}{}{}.",
        others.unwrap_or_default(),
        unusable.unwrap_or_default()
    )
}

fn row(verdict: &CrashVerdict<'_>) -> Vec<Field> {
    let flushed = match verdict.cuts_with_loss {
        0 => format!("none in {}", verdict.cuts),
        lost => format!("{lost} of {} cuts", verdict.cuts),
    };
    vec![
        words(verdict.name),
        figure(human::count(verdict.writes_per_second)),
        figure(flushed),
        figure(human::count(verdict.unflushed as f64)),
        figure(human::count(verdict.torn as f64)),
        figure(verdict.lost_seconds.map_or_else(|| "-".into(), |seconds| human::time(seconds * 1e9))),
        words(afterwards(verdict)),
    ]
}

/// The condition of what is left.
fn afterwards(verdict: &CrashVerdict<'_>) -> String {
    let of = |cuts: u64, what: &str| (cuts > 0).then(|| format!("{what} in {cuts} of {}", verdict.cuts));
    let faults: Vec<String> = [
        of(verdict.unusable.map_or(0, |(cuts, _)| cuts), "not usable"),
        of(verdict.damaged_images, "image damaged"),
        of(verdict.leaking_images, "clusters leaked"),
    ]
    .into_iter()
    .flatten()
    .collect();
    match faults.as_slice() {
        [] if verdict.checked_images > 0 => "image sound".into(),
        [] => "usable".into(),
        faults => faults.join(", "),
    }
}
