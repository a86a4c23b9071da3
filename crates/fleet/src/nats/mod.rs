//! Links over NATS, for fleets that are too large for ssh connections from one machine, and for machines that can only make outgoing
//! connections.
//!
//! NATS drops messages that it cannot deliver immediately. `session` therefore makes a reliable stream for each member: frames are
//! numbered, acknowledged and repeated. The users of a link see the same as over a pipe: every message once and in order, or the loss of
//! the member. Samples are not part of the stream: a lost sample does no harm, and leaves can merge samples on the way.
//!
//! Subjects begin with a prefix (`iotax` unless the URL sets another):
//!
//! | subject | sender, receiver, content |
//! |---|---|
//! | `PREFIX.all` | coordinators and operators to all agents, leaves and coordinators: `presence::Broadcast` |
//! | `PREFIX.answer.MEMBER` | an agent or leaf to all coordinators and operators: [`presence::Presence`] |
//! | `PREFIX.to.MEMBER` | a coordinator to an agent: frames |
//! | `PREFIX.from.FLEET.MEMBER` | an agent to the coordinator of a fleet: frames, and samples if there is no leaf |
//! | `PREFIX.sample.LEAF.FLEET.MEMBER` | an agent to a leaf: samples |
//! | `PREFIX.merged.FLEET.LEAF` | a leaf to the coordinator of a fleet: merged samples |

mod address;
mod bridge;
mod connection;
mod frame;
mod hub;
mod leaf;
mod member;
mod operator;
mod presence;
mod roster;
mod session;
mod subject;

pub use address::{Address, AddressError};
pub use connection::NatsError;
pub use hub::{Losses, NatsHub, PATIENCE};
pub use leaf::{Leaf, LeafCounts, Merger};
pub use member::{Agent, AgentName, Fleet, MemberEvent};
pub use operator::NatsOperator;
pub use presence::{AgentRole, Presence, Situation};
