//! Shows the results of power-cut tests: write speed, and what each stack lost.

use iotax_analysis::crash::{CrashVerdict, at_most_of_none};
use iotax_model::crash::{CRASH_FORMAT, CrashDocument, DatabaseMode};
use iotax_model::units::human;

use super::{Field, Grid, Page, Part, figure, words};
use crate::figure::{counted, grouped};
use crate::mark::Mark;

/// Identifies a file as an `iotax-crash/1` document.
pub const CRASH_MARK: Mark = Mark::schema(CRASH_FORMAT, &["format"]);
/// Heading of the table of stacks.
pub(crate) const CRASH_HEAD: &str = "Speed against safety";

/// Builds the page of `iotax crash` and `iotax powercut check`.
#[must_use]
pub fn crash(document: &CrashDocument) -> Page {
    let verdicts: Vec<CrashVerdict<'_>> = document.targets.iter().map(CrashVerdict::of).collect();
    let database = verdicts.iter().find_map(|one| one.database);
    let mut page = Page::default();
    if let Some(planned) = document.planned_cuts {
        let made: u64 = verdicts.iter().map(|one| one.cuts).sum();
        page.add(Part::Sentence(format!(
            "ENDED EARLY: {made} of {} were made.",
            counted(planned, "power cut")
        )));
    }
    verdicts.iter().filter(|one| one.cuts > 0).for_each(|one| page.add(Part::Sentence(sentence(one))));
    page.add(Part::Head(CRASH_HEAD.into()));
    let columns: &[&str] = if database.is_some() {
        &["target", "commits/s", "promise broken", "commits lost", "work lost", "afterwards"]
    } else {
        &["target", "writes/s", "flushed lost", "others lost", "reordered", "torn", "work lost", "afterwards"]
    };
    let mut grid = Grid::new(columns);
    grid.rows = verdicts.iter().map(row).collect();
    page.add(Part::Table(grid));
    let mut lines = vec![match database {
        Some(DatabaseMode::Sqlite(_)) => SQLITE.to_owned(),
        Some(DatabaseMode::Postgresql(_)) => POSTGRESQL.to_owned(),
        None => {
            let flushes = document.writes_per_flush.map(|writes| counted(writes, "write"));
            let flushes = flushes.map(|writes| format!("One flush after {writes}. "));
            format!("{}{WRITES}", flushes.unwrap_or_default())
        }
    }];
    let kept = verdicts.iter().filter(|one| !one.breaks_promise() && one.decided > 0);
    if let Some(cuts) = kept.map(|one| one.decided).min() {
        let loses = if database.is_some() { "break a promise" } else { "lose a flushed write" };
        lines.push(format!(
            "None in {}: fewer than {:.0}% of such cuts {loses} (95% confidence).",
            counted(cuts, "cut"),
            (at_most_of_none(cuts) * 100.0).ceil()
        ));
    }
    if verdicts.iter().any(|one| one.decided < one.cuts) {
        lines.push(if database.is_some() { NO_COMMIT } else { NO_FLUSH }.to_owned());
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
                      covered, which a cut may take. Reordered: blocks that miss a write although one is there that began after its \
                      acknowledgement, so the order of writes between two flushes is not kept. Torn: blocks of two writes. These three \
                      over all cuts after which the stack could be read, the last two flushed or not.";
const NO_FLUSH: &str = "A cut before which no flush is on record says nothing about flushed writes. Remedy: let the load run longer before \
                        the cut, or flush more often (--fdatasync).";
const NO_COMMIT: &str = "A cut before which no commit was acknowledged says nothing about commits.";
const SQLITE: &str = "SQLite, one row a commit; the names have its journal mode and synchronous. Promise broken: cuts after which a commit \
                      was missing although synchronous is full, or the database was damaged although it is full, or normal with wal. Commits lost: those \
                      that SQLite acknowledged, promised or not, over all cuts.";
const POSTGRESQL: &str = "PostgreSQL, one row a commit; the names have its wal_sync_method, or the setting that gives up a promise. Promise broken: cuts \
                          after which a commit was missing although fsync and synchronous_commit are on, or the cluster was damaged or did not start \
                          although fsync is on. Commits lost: those that PostgreSQL acknowledged, promised or not, over all cuts.";

/// Describes a stack: `virtio-raw: 12.1k writes/s; nothing lost that was flushed; up to 2.10 ms of what was not, out of order.`
fn sentence(verdict: &CrashVerdict<'_>) -> String {
    let CrashVerdict { name, cuts, cuts_with_loss, database, .. } = verdict;
    let speed = verdict.writes_per_second.map(human::count);
    let speed = speed.map(|speed| format!("{speed} {}/s; ", unit(verdict))).unwrap_or_default();
    let promised = match database {
        None => "flushed",
        Some(mode) if mode.promises_commits() => "committed",
        Some(_) => "promised",
    };
    let flushed = match cuts_with_loss {
        0 if verdict.is_undecided() => format!("undecided: nothing was {promised} before a cut"),
        0 if verdict.decided < *cuts => {
            format!("nothing lost that was {promised}, in {} of {}", verdict.decided, counted(*cuts, "cut"))
        }
        0 => format!("nothing lost that was {promised}"),
        lost => format!("{lost} of {} lost {promised} {}", counted(*cuts, "cut"), unit(verdict)),
    };
    let order = if verdict.reordered > 0 { ", out of order" } else { "" };
    let rest =
        if verdict.is_undecided() { format!("{} lost", unit(verdict)) } else { "what was not".to_owned() };
    let others = verdict
        .lost_seconds
        .filter(|_| *cuts_with_loss == 0)
        .map(|seconds| format!("; up to {} of {rest}{order}", human::time(seconds * 1e9)));
    let unusable = verdict
        .unusable
        .map(|(cuts, reason)| format!("; not usable after {}: {reason}", counted(cuts, "cut")));
    let what = if database.is_some() { "database" } else { "image" };
    let damaged = (verdict.damaged_images > 0)
        .then(|| format!("; {what} damaged after {}", counted(verdict.damaged_images, "cut")));
    let (others, damaged) = (others.unwrap_or_default(), damaged.unwrap_or_default());
    format!("{name}: {speed}{flushed}{others}{damaged}{}.", unusable.unwrap_or_default())
}

/// Returns the noun for the counted writes: `commits` for a database, else `writes`.
const fn unit(verdict: &CrashVerdict<'_>) -> &'static str {
    if verdict.database.is_some() { "commits" } else { "writes" }
}

fn row(verdict: &CrashVerdict<'_>) -> Vec<Field> {
    let flushed = match verdict.cuts_with_loss {
        0 if verdict.is_undecided() => "unknown".into(),
        0 => format!("none in {}", verdict.decided),
        lost => format!("{lost} of {}", counted(verdict.cuts, "cut")),
    };
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let lost = verdict.unflushed + if verdict.database.is_some() { verdict.flushed.total() } else { 0 };
    // Nothing is read back from a stack that cannot be opened.
    let of_cuts = match verdict.read_back {
        read if read == verdict.cuts => String::new(),
        read => format!(" in {read} of {}", verdict.cuts),
    };
    let blocks =
        |count| figure(known((verdict.read_back > 0).then(|| format!("{}{of_cuts}", grouped(count)))));
    let mut row = vec![
        words(verdict.name),
        figure(known(verdict.writes_per_second.map(human::count))),
        figure(flushed),
        blocks(lost),
    ];
    if verdict.database.is_none() {
        row.extend([verdict.reordered, verdict.torn].map(blocks));
    }
    row.push(figure(known(verdict.lost_seconds.map(|seconds| human::time(seconds * 1e9)))));
    row.push(words(afterwards(verdict)));
    row
}

/// Describes the database or image after the cuts: `usable`, `image sound`, or its faults, each with the number of cuts after which it was found.
fn afterwards(verdict: &CrashVerdict<'_>) -> String {
    let of = |cuts: u64, what: &str| (cuts > 0).then(|| format!("{what} in {cuts} of {}", verdict.cuts));
    let what = if verdict.database.is_some() { "database" } else { "image" };
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
