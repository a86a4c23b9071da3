//! Runs one plan on many machines: the messages between a coordinator and the members, and the transports of these messages.
//!
//! A member carries out the plan with the same runner as a run on a single machine, so a fleet has no second way to measure. Members report
//! their current activity, one merged sample per interval, and each finished measurement. The coordinator's store is authoritative; a member
//! keeps every part of its run until the coordinator has acknowledged it.

mod clock;
pub mod coordinator;
pub mod link;
pub mod member;
pub mod message;
pub mod nats;
pub mod pipe;

pub use clock::ClockOffset;
pub use coordinator::{Coordinator, CoordinatorAction, MemberState, MemberStatus, News};
pub use member::{Member, Wish};
pub use pipe::{PipeHub, PipeLink, monotonic_ns};
