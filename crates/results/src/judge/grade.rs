//! How far a measurement can be trusted.

use iotax_model::record::Measurement;
use iotax_model::{Warning, WarningKind};

use super::checks::Finding;
use crate::store::Run;

/// What the checks say of one measurement, taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    /// Nothing was found.
    Clean,
    /// Something is to be known before its figures are read.
    Remarks,
    /// Its figures say something else than what was asked: no verdict may rest on it.
    Unusable,
}

impl Grade {
    /// All of them, the best first.
    pub const ALL: [Self; 3] = [Self::Clean, Self::Remarks, Self::Unusable];

    /// The word for it in reports and documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Remarks => "remarks",
            Self::Unusable => "unusable",
        }
    }
}

/// The grade of each measurement, in their order: of what was found in it, and of what `others` say of its target, its workload
/// or the run.
pub(super) fn grades(run: &Run, findings: &[Finding], others: &[Warning]) -> Vec<Grade> {
    let grade = |m: &Measurement| {
        let about_it = |w: &Warning| {
            w.target.as_ref().is_none_or(|target| *target == m.target)
                && w.workload.as_ref().is_none_or(|workload| *workload == m.workload)
                && w.block.is_none_or(|block| block == m.block)
                // What is missing elsewhere takes nothing from what is here.
                && (w.kind != WarningKind::Incomplete || w.block.is_some())
                // How often verdicts err is not a matter of single measurements.
                && w.kind != WarningKind::Extended
        };
        match findings
            .iter()
            .filter(|finding| about_it(&finding.warning))
            .map(|finding| finding.unusable)
            .max()
        {
            Some(true) => Grade::Unusable,
            Some(false) => Grade::Remarks,
            None if others.iter().any(about_it) => Grade::Remarks,
            None => Grade::Clean,
        }
    };
    run.measurements.iter().map(grade).collect()
}

/// Why no verdict may rest on these blocks of a cell; absent if it may.
pub(super) fn withheld(findings: &[Finding], m: &Measurement) -> Option<String> {
    let of_it = |w: &Warning| {
        w.target.as_ref() == Some(&m.target)
            && w.workload.as_ref() == Some(&m.workload)
            && w.block == Some(m.block)
    };
    let finding = findings.iter().find(|finding| finding.unusable && of_it(&finding.warning))?;
    let Warning { kind, evidence, .. } = &finding.warning;
    Some(format!("{}, block {}: {}: {evidence}", m.target, m.block, kind.word().replace('_', " ")))
}
