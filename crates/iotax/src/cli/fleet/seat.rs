//! A member that is to take part.

use iotax_fleet::message::Assignment;

use super::hosts::Host;

/// A member to be.
pub(super) struct Seat {
    pub(super) host: Host,
    pub(super) assignment: Assignment,
    /// Its run in the store, if this goes on with an earlier attempt.
    pub(super) run: Option<i64>,
}
