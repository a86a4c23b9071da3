//! Rules that find settings of a machine that endanger data or slow down I/O.
//!
//! A rule reads only a [`Survey`] and reports nothing without evidence. A finding names the object, the value found and a remedy. To add a
//! rule, add an entry in a file of [`rules`] and a line in docs/doctor.md.

mod rule;
pub mod rules;

use iotax_model::survey::Survey;

pub use rule::{Rule, Subject, Sureness, Violation};

/// A violation, with the rule that found it.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The violated rule.
    pub rule: &'static Rule,
    /// The evidence and the remedy.
    pub violation: Violation,
}

/// Applies all rules. Returns faults first, then costs, then findings that depend on the workload; within each group in the order of the
/// rules.
#[must_use]
pub fn examine(survey: &Survey) -> Vec<Finding> {
    let mut found: Vec<Finding> = rules::all()
        .flat_map(|rule| (rule.check)(survey).into_iter().map(move |violation| Finding { rule, violation }))
        .collect();
    found.sort_by_key(|finding| finding.rule.sureness);
    found
}
