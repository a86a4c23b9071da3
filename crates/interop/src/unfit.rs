//! Runs that a format has no form for.

/// Why a run has no form in a format, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(pub String);
