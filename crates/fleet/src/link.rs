//! Interfaces of the links between a coordinator and its members, which are pipes (such as ssh connections) or NATS.

use std::time::Duration;

use crate::message::{FromMember, ToMember};

/// The reason why a link has ended.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum LinkError {
    /// The connection was closed, broke or could not be set up, or another coordinator has taken over the fleet.
    #[error("the connection has ended: {0}")]
    Closed(String),
    /// The other end sent data that is not a message, or a message to send is too long.
    #[error("unexpected message: {0}")]
    Garbled(String),
}

/// The recipients of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To<'a> {
    /// The member with this name.
    One(&'a str),
    /// Every member of the fleet.
    All,
}

/// An event that the coordinator receives.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// A member sent a message.
    Message {
        /// Name of the member that sent the message.
        member: String,
        /// The message from the member.
        message: FromMember,
        /// Arrival time in nanoseconds of the coordinator's monotonic clock.
        at_ns: u64,
    },
    /// The link to a member has ended.
    Lost {
        /// Name of the member whose link has ended.
        member: String,
        /// The reason why the link ended.
        reason: String,
    },
}

/// The coordinator's end of the links to all members.
pub trait Hub: Send {
    /// Sends a message. Returns no error if the member is gone: that is reported as [`Incoming::Lost`]. Fails if another coordinator has
    /// taken over the fleet.
    fn send(&mut self, to: To<'_>, message: &ToMember) -> Result<(), LinkError>;
    /// Waits up to `patience` for the next event; `None` if there is none in that time. Fails if the transport itself has ended, or if
    /// another coordinator has taken over the fleet.
    fn receive(&mut self, patience: Duration) -> Result<Option<Incoming>, LinkError>;
    /// Closes the link to a member; the member then stops and undoes its changes.
    fn close(&mut self, member: &str);
}

/// The member's end of the link to the coordinator. Several threads use it: one waits for messages while others send.
pub trait MemberLink: Send + Sync {
    /// Sends a message to the coordinator. Fails if the link has ended or the message is too long.
    fn send(&self, message: &FromMember) -> Result<(), LinkError>;
    /// Waits up to `patience` for the next message; `None` if none arrives in that time. Fails if the link has ended.
    fn receive(&self, patience: Duration) -> Result<Option<ToMember>, LinkError>;
}
