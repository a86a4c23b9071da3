//! The verdict on a stack whose power was cut: its speed, and what it lost.

use iotax_model::crash::{CrashedTarget, ImageCondition, LostBlocks, PowerCut};

/// Share of stacks for which a bound on the cuts that lose something is too low.
const ERROR: f64 = 0.05;

/// The verdict over all cuts of a stack.
#[derive(Debug, Clone, PartialEq)]
pub struct CrashVerdict<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its layers in one line.
    pub stack: &'a str,
    /// Cuts.
    pub cuts: u64,
    /// Acknowledged writes per second, of all windows together.
    pub writes_per_second: f64,
    /// Cuts after which a flushed write was missing, or nothing could be read.
    pub cuts_with_loss: u64,
    /// Blocks that miss a flushed write, over all cuts.
    pub flushed: LostBlocks,
    /// Blocks that miss an acknowledged write that was not flushed, over all cuts.
    pub unflushed: u64,
    /// Blocks that mix two writes, flushed or not.
    pub torn: u64,
    /// The most work that a cut lost, in seconds; absent if none lost any.
    pub lost_seconds: Option<f64>,
    /// Cuts after which the image had errors in its tables.
    pub damaged_images: u64,
    /// Cuts after which the image had clusters that nothing uses.
    pub leaking_images: u64,
    /// Cuts after which the image was checked.
    pub checked_images: u64,
    /// Cuts after which the stack could not be used, with the reason of the first.
    pub unusable: Option<(u64, &'a str)>,
}

impl<'a> CrashVerdict<'a> {
    /// The verdict on a target.
    #[must_use]
    pub fn of(target: &'a CrashedTarget) -> Self {
        let cuts = &target.cuts;
        let count = |is: &dyn Fn(&PowerCut) -> bool| cuts.iter().filter(|cut| is(cut)).count() as u64;
        let sum = |of: &dyn Fn(&PowerCut) -> u64| cuts.iter().map(of).sum::<u64>();
        let writes = sum(&|cut| cut.writes) as f64;
        let seconds: f64 = cuts.iter().map(|cut| cut.seconds).sum();
        let unusable = cuts.iter().find_map(|cut| cut.unusable.as_deref());
        Self {
            name: &target.name,
            stack: &target.stack,
            cuts: cuts.len() as u64,
            writes_per_second: if seconds > 0.0 { writes / seconds } else { 0.0 },
            cuts_with_loss: count(&lost_flushed),
            flushed: LostBlocks {
                checked: sum(&|cut| cut.flushed.checked),
                stale: sum(&|cut| cut.flushed.stale),
                torn: sum(&|cut| cut.flushed.torn),
                damaged: sum(&|cut| cut.flushed.damaged),
            },
            unflushed: sum(&|cut| cut.acknowledged.total().saturating_sub(cut.flushed.total())),
            torn: sum(&|cut| cut.acknowledged.torn),
            lost_seconds: cuts.iter().filter_map(|cut| cut.lost_seconds).reduce(f64::max),
            damaged_images: count(&|cut| matches!(cut.image, ImageCondition::Damaged(_))),
            leaking_images: count(&|cut| matches!(cut.image, ImageCondition::Leaks(_))),
            checked_images: count(&|cut| cut.image != ImageCondition::Unchecked),
            unusable: unusable.map(|reason| (count(&|cut| cut.unusable.is_some()), reason)),
        }
    }

    /// True if a flushed write was lost.
    #[must_use]
    pub const fn breaks_promise(&self) -> bool {
        self.cuts_with_loss > 0
    }
}

/// Returns whether a cut lost what a flush had covered.
fn lost_flushed(cut: &PowerCut) -> bool {
    cut.flushed.total() > 0 || cut.unusable.is_some()
}

/// The largest share of cuts that may lose something although none of so many did, with 95% confidence.
#[must_use]
pub fn at_most_of_none(cuts: u64) -> f64 {
    if cuts == 0 { 1.0 } else { 1.0 - ERROR.powf(1.0 / cuts as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(flushed: u64, acknowledged: u64, seconds: f64) -> PowerCut {
        PowerCut {
            seconds,
            writes: 1000,
            flushed_writes: 992,
            volatile: iotax_model::crash::VolatileCut::default(),
            image: ImageCondition::Sound,
            unusable: None,
            flushed: LostBlocks { checked: 900, stale: flushed, ..LostBlocks::default() },
            acknowledged: LostBlocks { checked: 950, stale: acknowledged, torn: 1, damaged: 0 },
            lost_seconds: Some(seconds / 10.0),
        }
    }

    fn target(cuts: Vec<PowerCut>) -> CrashedTarget {
        CrashedTarget { name: "t".into(), stack: "/srv > volatile > raw file".into(), cuts }
    }

    #[test]
    fn lost_flushes_are_told_from_what_a_cut_may_take() {
        let honest = target(vec![cut(0, 7, 1.0), cut(0, 3, 3.0)]);
        let verdict = CrashVerdict::of(&honest);
        assert!(!verdict.breaks_promise());
        assert_eq!((verdict.writes_per_second, verdict.unflushed, verdict.torn), (500.0, 12, 2));
        assert_eq!((verdict.lost_seconds, verdict.checked_images), (Some(3.0 / 10.0), 2));
        let liar = target(vec![cut(0, 7, 1.0), cut(5, 9, 1.0)]);
        let verdict = CrashVerdict::of(&liar);
        assert_eq!((verdict.cuts_with_loss, verdict.flushed.stale, verdict.unflushed), (1, 5, 13));
        let gone = PowerCut { unusable: Some("no such image".into()), ..cut(0, 0, 1.0) };
        let broken = target(vec![gone, cut(0, 0, 1.0)]);
        let verdict = CrashVerdict::of(&broken);
        assert!(verdict.breaks_promise());
        assert_eq!(verdict.unusable, Some((1, "no such image")));
    }

    #[test]
    fn none_of_a_few_cuts_bounds_little() {
        let percent = |cuts| format!("{:.1}", at_most_of_none(cuts) * 100.0);
        assert_eq!([0, 1, 5, 40, 300].map(percent), ["100.0", "95.0", "45.1", "7.2", "1.0"]);
    }
}
