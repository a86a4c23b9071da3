//! Texts of the requests at a coordinator's socket.

pub(super) const STATUS: &str = "fleet status";
pub(super) const DRAIN: &str = "fleet drain";
pub(super) const CANCEL: &str = "fleet cancel";
