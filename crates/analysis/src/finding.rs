//! What a check found.

use iotax_model::Warning;

/// A warning, and what it means for verdicts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    pub(super) warning: Warning,
    /// Whether no verdict may rest on the measurement that it concerns.
    pub unusable: bool,
}

impl Finding {
    /// It makes the measurement unusable if that is so.
    pub(super) fn unusable_if(self, is_so: bool) -> Self {
        Self { unusable: is_so, ..self }
    }
}
