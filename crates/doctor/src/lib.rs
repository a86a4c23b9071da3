//! Rules that find in a machine's setup what endangers its data or slows its I/O.
//!
//! A rule reads a [`Survey`] and nothing else. It reports what was seen, where, and a remedy; without evidence it says nothing. A new rule is
//! one entry in a file of [`rules`] and one line of docs/doctor.md.

mod rule;
pub mod rules;

use iotax_model::survey::Survey;

pub use rule::{Rule, Subject, Sureness, Violation};

/// A rule that found something.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// The evidence.
    pub violation: Violation,
}

/// Applies all rules: faults first, then costs, then what depends; within each in the rules' order.
#[must_use]
pub fn examine(survey: &Survey) -> Vec<Finding> {
    let mut found: Vec<Finding> = rules::all()
        .flat_map(|rule| (rule.check)(survey).into_iter().map(move |violation| Finding { rule, violation }))
        .collect();
    found.sort_by_key(|finding| finding.rule.sureness);
    found
}
