//! Transports of messages: ssh connections and NATS, each with both ends.

use std::time::Duration;

use crate::message::{FromMember, ToMember};

/// Why a link has ended.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum LinkError {
    /// The other end is gone.
    #[error("the connection has ended: {0}")]
    Closed(String),
    /// The other end sent something that is not a message.
    #[error("unexpected message: {0}")]
    Garbled(String),
}

/// The recipients of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To<'a> {
    /// The member of this name.
    One(&'a str),
    /// Every member that has enlisted.
    All,
}

/// An event at the coordinator.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// A message from a member.
    Message {
        /// The member's name.
        member: String,
        /// The message.
        message: FromMember,
        /// Arrival time by the coordinator's monotonic clock.
        at_ns: u64,
    },
    /// A member's link has ended.
    Lost {
        /// The member's name.
        member: String,
        /// The reason.
        reason: String,
    },
}

/// The coordinator's end: links to all members.
pub trait Hub: Send {
    /// Sends a message. Sending to a member that is gone is not an error: the loss is reported separately.
    fn send(&mut self, to: To<'_>, message: &ToMember) -> Result<(), LinkError>;
    /// Waits up to `patience` for the next incoming message.
    fn receive(&mut self, patience: Duration) -> Result<Option<Incoming>, LinkError>;
    /// Closes the link to a member that is no longer needed; the member then stops and undoes its changes.
    fn close(&mut self, member: &str);
}

/// A member's end, used by several threads: one waits for messages while others send.
pub trait MemberLink: Send + Sync {
    /// Sends a message.
    fn send(&self, message: &FromMember) -> Result<(), LinkError>;
    /// Waits up to `patience` for the next message.
    fn receive(&self, patience: Duration) -> Result<Option<ToMember>, LinkError>;
}
