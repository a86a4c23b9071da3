//! The finding of a check: a warning, and whether it makes the measurement unusable.

use iotax_model::Warning;

/// A warning and its effect on verdicts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    pub(super) warning: Warning,
    /// True if the measurement may not be used for a verdict.
    pub unusable: bool,
}

impl Finding {
    /// Returns the finding with `unusable` set to `is_so`.
    pub(super) fn unusable_if(self, is_so: bool) -> Self {
        Self { unusable: is_so, ..self }
    }
}
