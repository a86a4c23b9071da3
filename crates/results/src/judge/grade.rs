//! How far a measurement can be trusted.

use iotax_model::Warning;

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

/// The grade of each measurement, in their order.
pub(super) fn grades(run: &Run, warnings: &[Warning]) -> Vec<Grade> {
    run.measurements
        .iter()
        .map(|m| {
            let about_it = |w: &Warning| {
                w.target.as_ref().is_none_or(|target| *target == m.target)
                    && w.workload.as_ref().is_none_or(|workload| *workload == m.workload)
                    && w.block.is_none_or(|block| block == m.block)
            };
            if warnings.iter().any(about_it) { Grade::Remarks } else { Grade::Clean }
        })
        .collect()
}
