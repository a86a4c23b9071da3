//! Describes the options of fio that iotax knows, and how they are supported.

use super::builder::JobBuilder;
use super::value::OptionValue;

/// Level of support for an fio option.
#[derive(Clone, Copy)]
pub(super) enum Support {
    /// Supported; holds the function that parses the value.
    Supported(fn(&mut JobBuilder, OptionValue<'_>) -> Result<(), String>),
    /// Accepted without effect; holds the reason for the note.
    Ignored(&'static str),
    /// Accepted without effect like [`Self::Ignored`], but takes a boolean value.
    IgnoredSwitch(&'static str),
    /// Rejected, because the option would change the workload, unless its value is listed here.
    Unsupported {
        /// Accepted values, which request what iotax does anyway.
        unless: &'static [&'static str],
        /// Reason for the rejection, and the alternative.
        why: &'static str,
    },
}

/// An option of fio that iotax knows.
pub(super) struct KnownOption {
    /// Name of the option, followed by its aliases.
    pub(super) names: &'static [&'static str],
    /// True if the option may be given without a value.
    pub(super) alone: bool,
    /// Level of support for the option.
    pub(super) support: Support,
}
