//! An fio option and how iotax supports it.

use super::builder::JobBuilder;
use super::value::OptionValue;

/// Level of support for an fio option.
#[derive(Clone, Copy)]
pub(super) enum Support {
    /// Supported; holds the parser.
    Supported(fn(&mut JobBuilder, OptionValue<'_>) -> Result<(), String>),
    /// Accepted without effect; holds the note on the difference.
    Ignored(&'static str),
    /// Like [`Self::Ignored`], for a boolean option.
    IgnoredSwitch(&'static str),
    /// Rejected because it changes the workload and is not supported. Values without an effect are accepted.
    Unsupported {
        /// Accepted values: they ask for behaviour that iotax has anyway.
        unless: &'static [&'static str],
        /// The reason, and the alternative.
        why: &'static str,
    },
}

/// An fio option.
pub(super) struct KnownOption {
    /// Name and aliases.
    pub(super) names: &'static [&'static str],
    /// True if the option needs no value.
    pub(super) alone: bool,
    /// Level of support.
    pub(super) standing: Support,
}
