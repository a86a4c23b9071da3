//! An option of fio, and what becomes of it.

use super::builder::Draft;
use super::value::Value;

/// What becomes of an option.
#[derive(Clone, Copy)]
pub(super) enum Standing {
    /// It is done.
    Done(fn(&mut Draft, Value<'_>) -> Result<(), String>),
    /// It changes nothing here, or nothing but what the sentence says.
    Noted(&'static str),
    /// As [`Self::Noted`], of an option that is on or off.
    NotedSwitch(&'static str),
    /// It would change the meaning and cannot be done; values that ask for nothing are taken.
    Refused {
        /// Values that ask for what is done anyway.
        unless: &'static [&'static str],
        /// Why, and what to do instead.
        why: &'static str,
    },
}

/// An option of fio.
pub(super) struct Known {
    /// Its name, and its other names.
    pub(super) names: &'static [&'static str],
    /// Whether it may stand alone.
    pub(super) alone: bool,
    /// What becomes of it.
    pub(super) standing: Standing,
}
