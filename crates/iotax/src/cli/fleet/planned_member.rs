//! A member before it has started.

use iotax_fleet::message::Assignment;

use super::hosts::Host;

/// A member to start, and what it is to do.
pub(super) struct PlannedMember {
    pub(super) host: Host,
    pub(super) assignment: Assignment,
    /// Its run in the store, if this goes on with an earlier attempt.
    pub(super) run: Option<i64>,
}
