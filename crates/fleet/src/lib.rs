//! One plan on many machines: the messages between a coordinator and its members, and what carries them.
//!
//! A member carries the plan out with the runner of its own machine, so a fleet has no second way to measure. What members tell is small: where
//! they are, one merged sample per interval, and each measurement once it is kept. The coordinator's store is the truth; a member keeps
//! what was not acknowledged.

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
