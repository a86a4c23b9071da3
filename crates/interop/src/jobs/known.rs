//! An fio option and its support status.

use super::builder::JobBuilder;
use super::value::OptionValue;

/// The support status of an option.
#[derive(Clone, Copy)]
pub(super) enum Support {
    /// Supported.
    Supported(fn(&mut JobBuilder, OptionValue<'_>) -> Result<(), String>),
    /// Accepted without effect; the note says what differs.
    Ignored(&'static str),
    /// Like [`Self::Ignored`], for a boolean option.
    IgnoredSwitch(&'static str),
    /// Rejected, because it would change the workload and is not supported. Values that change nothing are accepted.
    Unsupported {
        /// Values that match what iotax does anyway.
        unless: &'static [&'static str],
        /// The reason, and the alternative.
        why: &'static str,
    },
}

/// An fio option.
pub(super) struct KnownOption {
    /// Its name and its aliases.
    pub(super) names: &'static [&'static str],
    /// True if it needs no value.
    pub(super) alone: bool,
    /// Its support status.
    pub(super) standing: Support,
}
