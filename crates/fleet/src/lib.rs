//! One plan on many machines: the messages between a coordinator and its members, and their transports.
//!
//! A member carries the plan out with the runner of its own machine, so a fleet has no second way to measure. Members report little: their
//! current activity, one merged sample per interval, and each finished measurement. The coordinator's store is authoritative; a member
//! keeps everything that is not acknowledged yet.

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
