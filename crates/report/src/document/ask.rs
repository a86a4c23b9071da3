//! The highest rate that keeps conditions: a heading and a sentence per target.

use super::{Page, Part};
use crate::ask::{heading, sentences};
use iotax_analysis::ask::answers;
use iotax_analysis::store::Run;

/// Adds the answers of a run that asks. Returns whether it does.
pub(super) fn add(page: &mut Page, run: &Run) -> bool {
    let Some(ask) = &run.plan.ask else { return false };
    for answers in answers(run) {
        page.add(Part::Head(heading(ask, &answers)));
        page.add(Part::Lines(sentences(run, ask, &answers)));
    }
    true
}
