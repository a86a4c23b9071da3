//! A member before it has started.

use iotax_fleet::message::Assignment;

use super::hosts::Host;

/// A member to start, with its assignment.
pub(super) struct PlannedMember {
    pub(super) host: Host,
    pub(super) assignment: Assignment,
    /// The member's run in the store if a fleet is resumed; `None` in a new fleet.
    pub(super) run: Option<i64>,
}
