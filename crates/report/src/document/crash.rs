//! The page of cuts of power: speed against safety.

use iotax_analysis::crash::{CrashVerdict, at_most_of_none};
use iotax_model::crash::CrashDocument;
use iotax_model::units::human;

use super::{Field, Grid, Page, Part, figure, words};
use crate::figure::counted;

/// The head of the table.
pub(crate) const CRASH_HEAD: &str = "Speed against safety";

/// The page of `iotax crash` and `iotax powercut check`.
#[must_use]
pub fn crash(document: &CrashDocument) -> Page {
    let verdicts: Vec<CrashVerdict<'_>> = document.targets.iter().map(CrashVerdict::of).collect();
    let is_of_database = verdicts.iter().any(|one| one.sqlite.is_some());
    let mut page = Page::default();
    verdicts.iter().for_each(|one| page.add(Part::Sentence(sentence(one))));
    page.add(Part::Head(CRASH_HEAD.into()));
    let columns = if is_of_database {
        ["target", "commits/s", "promise broken", "commits lost", "torn", "work lost", "afterwards"]
    } else {
        ["target", "writes/s", "flushed lost", "others lost", "torn", "work lost", "afterwards"]
    };
    let mut grid = Grid::new(&columns);
    grid.rows = verdicts.iter().map(row).collect();
    page.add(Part::Table(grid));
    let mut lines = vec![if is_of_database {
        DATABASE.to_owned()
    } else {
        let flushes = document.writes_per_flush.map(|writes| counted(writes, "write"));
        let flushes = flushes.map(|writes| format!("One flush after {writes}. "));
        format!("{}{WRITES}", flushes.unwrap_or_default())
    }];
    if let Some(cuts) = verdicts.iter().filter(|one| !one.breaks_promise()).map(|one| one.cuts).min() {
        let loses = if is_of_database { "break a promise" } else { "lose a flushed write" };
        lines.push(format!(
            "None in {}: fewer than {:.0}% of such cuts {loses} (95% confidence).",
            counted(cuts, "cut"),
            (at_most_of_none(cuts) * 100.0).ceil()
        ));
    }
    for target in &document.targets {
        let incomplete = target.cuts.iter().filter_map(|cut| cut.incomplete.as_deref());
        lines.extend(incomplete.map(|reason| {
            format!(
                "INCOMPLETE, {}: {reason}. What is on record was checked; a write without a record may be missing.",
                target.name
            )
        }));
    }
    page.add_lines(lines);
    let stacks = verdicts.iter().map(|one| format!("{}: {}", one.name, one.stack)).collect();
    page.add_list("Stacks, from the bottom up", stacks);
    page
}

const WRITES: &str = "Flushed lost: cuts after which a flushed write was missing. Others lost: blocks that miss a write that no flush \
                      covered, which a cut may take. Torn: blocks of two writes, flushed or not. Both over all cuts.";
const DATABASE: &str = "SQLite, one row a commit; the names have its journal mode and synchronous. Promise broken: cuts after which a commit \
                        was missing although synchronous is full, or the database was damaged although it is full, or normal with wal. Commits lost: those \
                        that SQLite acknowledged, promised or not, over all cuts.";

/// `virtio-raw: 12.1k writes/s; nothing lost that was flushed; 2.1 ms of what was not`.
fn sentence(verdict: &CrashVerdict<'_>) -> String {
    let CrashVerdict { name, cuts, cuts_with_loss, sqlite, .. } = verdict;
    let speed = verdict.writes_per_second.map(human::count);
    let speed = speed.map(|speed| format!("{speed} {}/s; ", unit(verdict))).unwrap_or_default();
    let promised = match sqlite {
        None => "flushed",
        Some(mode) if mode.promises_commits() => "committed",
        Some(_) => "promised",
    };
    let flushed = match cuts_with_loss {
        0 => format!("nothing lost that was {promised}"),
        lost => format!("{lost} of {} lost {promised} {}", counted(*cuts, "cut"), unit(verdict)),
    };
    let others = verdict
        .lost_seconds
        .filter(|_| *cuts_with_loss == 0)
        .map(|seconds| format!("; up to {} of what was not", human::time(seconds * 1e9)));
    let unusable = verdict
        .unusable
        .map(|(cuts, reason)| format!("; not usable after {}: {reason}", counted(cuts, "cut")));
    format!("{name}: {speed}{flushed}{}{}.", others.unwrap_or_default(), unusable.unwrap_or_default())
}

/// The unit of work.
const fn unit(verdict: &CrashVerdict<'_>) -> &'static str {
    if verdict.sqlite.is_some() { "commits" } else { "writes" }
}

fn row(verdict: &CrashVerdict<'_>) -> Vec<Field> {
    let flushed = match verdict.cuts_with_loss {
        0 => format!("none in {}", verdict.cuts),
        lost => format!("{lost} of {}", counted(verdict.cuts, "cut")),
    };
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let lost = verdict.unflushed + if verdict.sqlite.is_some() { verdict.flushed.total() } else { 0 };
    vec![
        words(verdict.name),
        figure(known(verdict.writes_per_second.map(human::count))),
        figure(flushed),
        figure(human::count(lost as f64)),
        figure(human::count(verdict.torn as f64)),
        figure(known(verdict.lost_seconds.map(|seconds| human::time(seconds * 1e9)))),
        words(afterwards(verdict)),
    ]
}

/// The condition of what is left.
fn afterwards(verdict: &CrashVerdict<'_>) -> String {
    let of = |cuts: u64, what: &str| (cuts > 0).then(|| format!("{what} in {cuts} of {}", verdict.cuts));
    let what = if verdict.sqlite.is_some() { "database" } else { "image" };
    let faults: Vec<String> = [
        of(verdict.unusable.map_or(0, |(cuts, _)| cuts), "not usable"),
        of(verdict.damaged_images, &format!("{what} damaged")),
        of(verdict.leaking_images, "clusters leaked"),
    ]
    .into_iter()
    .flatten()
    .collect();
    match faults.as_slice() {
        [] if verdict.checked_images > 0 => format!("{what} sound"),
        [] => "usable".into(),
        faults => faults.join(", "),
    }
}
