//! The verdict on storage stacks after power cuts: how fast they wrote, and which data they lost.

use iotax_model::crash::{CrashedTarget, DatabaseMode, ImageCondition, LostBlocks, PowerCut};

/// Error probability of the upper bound on the share of cuts that lose data: the bound has 95% confidence.
const ERROR: f64 = 0.05;

/// Results over all power cuts of a stack.
#[derive(Debug, Clone, PartialEq)]
pub struct CrashVerdict<'a> {
    /// The target's name.
    pub name: &'a str,
    /// The stack's layers as one line of text.
    pub stack: &'a str,
    /// The database that was writing; absent if none was.
    pub database: Option<DatabaseMode>,
    /// Number of power cuts.
    pub cuts: u64,
    /// Acknowledged writes per second, from the first write to each cut, over all cuts; absent if no such time is known.
    pub writes_per_second: Option<f64>,
    /// Number of cuts that broke a promise: a flushed write or a commit was lost, the stack could not be used afterwards, or its database
    /// was damaged. The last two count only if the database mode, if any, promises a whole database.
    pub cuts_with_loss: u64,
    /// Number of cuts that broke a promise, or left the stack unusable or its image or database damaged although nothing was promised.
    pub cuts_with_harm: u64,
    /// Number of cuts that could break a promise: there was a flushed write to lose, or a database whose settings promise something.
    pub decided: u64,
    /// Number of cuts after which the stack was read back. All counts of blocks are over these cuts.
    pub read_back: u64,
    /// Blocks that lack a flushed write.
    pub flushed: LostBlocks,
    /// Number of blocks that lack an acknowledged but unflushed write.
    pub unflushed: u64,
    /// Number of torn blocks, which mix two writes, flushed or not.
    pub torn: u64,
    /// Number of blocks that lack a write although a later one is present.
    pub reordered: u64,
    /// Age of the oldest lost write at its cut, in seconds, the largest over all cuts; absent if no write was lost.
    pub lost_seconds: Option<f64>,
    /// Number of cuts after which the check found errors in the image or database.
    pub damaged_images: u64,
    /// Number of cuts after which the image had leaked clusters, which waste space but lose no data.
    pub leaking_images: u64,
    /// Number of cuts after which the image or database was checked.
    pub checked_images: u64,
    /// Number of cuts after which the stack could not be used, with the reason given for the first; absent if there were none.
    pub unusable: Option<(u64, &'a str)>,
}

impl<'a> CrashVerdict<'a> {
    /// Sums up the results of a target's power cuts.
    #[must_use]
    pub fn of(target: &'a CrashedTarget) -> Self {
        let cuts = &target.cuts;
        let count = |is: &dyn Fn(&PowerCut) -> bool| cuts.iter().filter(|cut| is(cut)).count() as u64;
        let blocks = |of: fn(&PowerCut) -> Option<LostBlocks>, what: fn(&LostBlocks) -> u64| {
            cuts.iter().filter_map(of).map(|lost| what(&lost)).sum::<u64>()
        };
        let flushed = |what: fn(&LostBlocks) -> u64| blocks(|cut| cut.flushed, what);
        let timed = cuts.iter().filter_map(|cut| Some((cut.writes? as f64, cut.seconds?)));
        let (writes, seconds) =
            timed.fold((0.0, 0.0), |(writes, all), (more, seconds)| (writes + more, all + seconds));
        let unusable = cuts.iter().find_map(|cut| cut.unusable.as_deref());
        Self {
            name: &target.name,
            stack: &target.stack,
            database: target.database,
            cuts: cuts.len() as u64,
            writes_per_second: (seconds > 0.0).then(|| writes / seconds),
            cuts_with_loss: count(&|cut| breaks_promise(cut, target.database)),
            cuts_with_harm: count(&|cut| breaks_promise(cut, target.database) || is_harmed(cut)),
            decided: count(&|cut| {
                breaks_promise(cut, target.database) || is_put_to_test(cut, target.database)
            }),
            read_back: count(&|cut| cut.acknowledged.is_some()),
            flushed: LostBlocks {
                checked: flushed(|lost| lost.checked),
                stale: flushed(|lost| lost.stale),
                torn: flushed(|lost| lost.torn),
                damaged: flushed(|lost| lost.damaged),
            },
            unflushed: cuts.iter().filter_map(unflushed).sum(),
            torn: blocks(|cut| cut.acknowledged, |lost| lost.torn),
            reordered: cuts.iter().filter_map(|cut| cut.reordered).sum(),
            lost_seconds: cuts.iter().filter_map(|cut| cut.lost_seconds).reduce(f64::max),
            damaged_images: count(&|cut| matches!(cut.image, ImageCondition::Damaged(_))),
            leaking_images: count(&|cut| matches!(cut.image, ImageCondition::Leaks(_))),
            checked_images: count(&|cut| cut.image != ImageCondition::Unchecked),
            unusable: unusable.map(|reason| (count(&|cut| cut.unusable.is_some()), reason)),
        }
    }

    /// Returns whether any cut broke a promise, see `cuts_with_loss`.
    #[must_use]
    pub const fn breaks_promise(&self) -> bool {
        self.cuts_with_loss > 0
    }

    /// Returns whether no cut tested a promise, because no flush was on record before it.
    #[must_use]
    pub const fn is_undecided(&self) -> bool {
        self.cuts > 0 && self.decided == 0
    }
}

/// Returns whether the cut could show a broken promise: a flush had covered a write, a commit had been acknowledged, or the database mode
/// promises less than its commits.
fn is_put_to_test(cut: &PowerCut, database: Option<DatabaseMode>) -> bool {
    match database {
        None => cut.flushed.is_some_and(|blocks| blocks.checked > 0),
        Some(mode) if mode.promises_commits() => cut.writes.is_some_and(|commits| commits > 0),
        Some(_) => true,
    }
}

/// Returns the number of blocks that lack an acknowledged but unflushed write; `None` if nothing was read back.
fn unflushed(cut: &PowerCut) -> Option<u64> {
    Some(cut.acknowledged?.total().saturating_sub(cut.flushed?.total()))
}

/// Returns whether the cut lost a flushed write or a commit or, unless the database mode promises no whole database, left the stack
/// unusable or its database damaged.
fn breaks_promise(cut: &PowerCut, database: Option<DatabaseMode>) -> bool {
    let must_be_whole = database.is_none_or(DatabaseMode::promises_a_whole_database);
    let is_broken =
        cut.unusable.is_some() || database.is_some() && matches!(cut.image, ImageCondition::Damaged(_));
    cut.flushed.is_some_and(|lost| lost.total() > 0) || must_be_whole && is_broken
}

/// Returns whether the cut left the stack unusable, or its image or database damaged.
const fn is_harmed(cut: &PowerCut) -> bool {
    cut.unusable.is_some() || matches!(cut.image, ImageCondition::Damaged(_))
}

/// Returns the upper 95% confidence bound on the share of cuts that lose data, given `cuts` cuts without a loss. 1 for no cuts.
#[must_use]
pub fn at_most_of_none(cuts: u64) -> f64 {
    if cuts == 0 { 1.0 } else { 1.0 - ERROR.powf(1.0 / cuts as f64) }
}

#[cfg(test)]
mod tests {
    use iotax_model::crash::{JournalMode, PostgresqlMode, SqliteMode, Synchronous};

    use super::*;

    fn cut(flushed: u64, acknowledged: u64, seconds: f64) -> PowerCut {
        PowerCut {
            seconds: Some(seconds),
            writes: Some(1000),
            flushed_writes: Some(992),
            image: ImageCondition::Sound,
            flushed: Some(LostBlocks { checked: 900, stale: flushed, ..LostBlocks::default() }),
            acknowledged: Some(LostBlocks { checked: 950, stale: acknowledged, torn: 1, damaged: 0 }),
            lost_seconds: Some(seconds / 10.0),
            ..PowerCut::default()
        }
    }

    fn target(cuts: Vec<PowerCut>) -> CrashedTarget {
        CrashedTarget { name: "t".into(), stack: "/srv > volatile > raw file".into(), database: None, cuts }
    }

    #[test]
    fn lost_flushes_are_told_from_what_a_cut_may_take() {
        let honest = target(vec![cut(0, 7, 1.0), cut(0, 3, 3.0)]);
        let verdict = CrashVerdict::of(&honest);
        assert!(!verdict.breaks_promise());
        assert_eq!((verdict.writes_per_second, verdict.unflushed, verdict.torn), (Some(500.0), 12, 2));
        assert_eq!((verdict.lost_seconds, verdict.checked_images), (Some(3.0 / 10.0), 2));
        let liar = target(vec![cut(0, 7, 1.0), cut(5, 9, 1.0)]);
        let verdict = CrashVerdict::of(&liar);
        assert_eq!((verdict.cuts_with_loss, verdict.flushed.stale, verdict.unflushed), (1, 5, 13));
        let gone = PowerCut { unusable: Some("no such image".into()), ..cut(0, 0, 1.0) };
        let unread = PowerCut { unusable: gone.unusable.clone(), seconds: Some(9.0), ..PowerCut::default() };
        let unread = target(vec![unread, cut(0, 4, 1.0)]);
        let verdict = CrashVerdict::of(&unread);
        assert_eq!((verdict.cuts, verdict.read_back, verdict.unflushed), (2, 1, 5), "only one was read");
        assert_eq!(verdict.writes_per_second, Some(1000.0), "unknown writes are none of the rate");
        let broken = target(vec![gone, cut(0, 0, 1.0)]);
        let verdict = CrashVerdict::of(&broken);
        assert!(verdict.breaks_promise());
        assert_eq!(verdict.unusable, Some((1, "no such image")));
    }

    #[test]
    fn a_cut_without_a_flush_before_decides_nothing() {
        let unflushed = PowerCut { flushed: Some(LostBlocks::default()), ..cut(0, 7, 1.0) };
        let none = target(vec![unflushed.clone(), unflushed.clone()]);
        let verdict = CrashVerdict::of(&none);
        assert!(verdict.is_undecided() && !verdict.breaks_promise());
        let one = target(vec![unflushed.clone(), cut(0, 7, 1.0)]);
        let verdict = CrashVerdict::of(&one);
        assert_eq!((verdict.is_undecided(), verdict.decided, verdict.cuts), (false, 1, 2));
        let gone = PowerCut { unusable: Some("no such image".into()), flushed: None, ..unflushed.clone() };
        let verdict = target(vec![gone]);
        assert!(!CrashVerdict::of(&verdict).is_undecided(), "a stack that is gone kept nothing");
        for (mode, commits, undecided) in [
            (PostgresqlMode::Fdatasync, 0, true),
            (PostgresqlMode::Fdatasync, 1, false),
            (PostgresqlMode::Asynchronous, 0, false),
        ] {
            let cut = PowerCut { writes: Some(commits), ..unflushed.clone() };
            let database =
                CrashedTarget { database: Some(DatabaseMode::Postgresql(mode)), ..target(vec![cut]) };
            assert_eq!(CrashVerdict::of(&database).is_undecided(), undecided, "{mode}, {commits} commits");
        }
        assert!(!CrashVerdict::of(&target(vec![])).is_undecided(), "nothing was cut");
    }

    #[test]
    fn a_database_is_held_to_what_its_settings_promise() {
        let damaged = PowerCut { image: ImageCondition::Damaged(3), ..cut(0, 5, 1.0) };
        for (synchronous, breaks) in
            [(Synchronous::Full, true), (Synchronous::Normal, true), (Synchronous::Off, false)]
        {
            let mode = DatabaseMode::Sqlite(SqliteMode { journal_mode: JournalMode::Wal, synchronous });
            let database = CrashedTarget { database: Some(mode), ..target(vec![damaged.clone()]) };
            let verdict = CrashVerdict::of(&database);
            assert_eq!((verdict.breaks_promise(), verdict.cuts_with_harm), (breaks, 1), "{synchronous}");
        }
        for mode in PostgresqlMode::ALL {
            let database = Some(DatabaseMode::Postgresql(mode));
            let database = CrashedTarget { database, ..target(vec![damaged.clone()]) };
            let breaks = mode != PostgresqlMode::Unsynced;
            assert_eq!(CrashVerdict::of(&database).breaks_promise(), breaks, "{mode}");
        }
        // QEMU can repair an image's tables; flushed data is checked separately.
        assert!(!CrashVerdict::of(&target(vec![damaged])).breaks_promise());
    }

    #[test]
    fn none_of_a_few_cuts_bounds_little() {
        let percent = |cuts| format!("{:.1}", at_most_of_none(cuts) * 100.0);
        assert_eq!([0, 1, 5, 40, 300].map(percent), ["100.0", "95.0", "45.1", "7.2", "1.0"]);
    }
}
