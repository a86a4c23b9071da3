//! The result of a check.

use iotax_model::Warning;

/// A warning and its effect on verdicts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    pub(super) warning: Warning,
    /// True if the measurement may not be used for a verdict.
    pub unusable: bool,
}

impl Finding {
    /// Makes the measurement unusable if `is_so`.
    pub(super) fn unusable_if(self, is_so: bool) -> Self {
        Self { unusable: is_so, ..self }
    }
}
