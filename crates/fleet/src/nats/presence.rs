//! The announcements of agents and leaves, and the broadcasts to them.

use serde::{Deserialize, Serialize};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A message to all agents, leaves and coordinators. Receivers ignore unknown kinds, because later versions may add
/// some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Broadcast {
    /// Asks all agents and leaves to announce themselves.
    Call,
    /// A fleet's coordinator shows that it is alive.
    Alive {
        /// Id of the coordinator's fleet.
        fleet: String,
        /// Epoch of the coordinator, which is higher than those of the fleet's earlier coordinators.
        epoch: u64,
        /// Names of the leaves that merge samples; empty if samples are sent to the coordinator.
        leaves: Vec<String>,
    },
    /// The selected agents accept no more fleets, and end when idle.
    Drain(Selection),
    /// The members of a fleet stop their measurements and undo their changes.
    Cancel {
        /// Id of the fleet to cancel.
        fleet: String,
    },
}

/// The agents that a broadcast addresses; all if neither field is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Selection {
    /// Group of the agents; `None` for all groups.
    pub(super) group: Option<String>,
    /// Name of the agent; `None` for all names.
    pub(super) name: Option<String>,
}

impl Selection {
    pub(super) fn has(&self, name: &str, group: Option<&str>) -> bool {
        self.name.as_deref().is_none_or(|wanted| wanted == name)
            && self.group.as_deref().is_none_or(|wanted| group == Some(wanted))
    }
}

/// A coordinator's offer to an agent, the payload of an open frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    /// Id of the fleet to work for.
    pub(super) fleet: String,
    /// Version and commit of the coordinator's iotax.
    pub(super) version: String,
    /// Milliseconds without any message after which either end considers the other lost.
    pub(super) patience_ms: u64,
    /// Names of the leaves that merge samples, as in [`Broadcast::Alive`].
    pub(super) leaves: Vec<String>,
}

/// The role of a process that announces itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRole {
    /// An agent, which measures.
    Agent,
    /// A leaf, which merges samples.
    Leaf,
}

/// The activity of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Situation {
    /// The agent is idle and accepts a fleet.
    Free,
    /// The agent works for a fleet.
    Working {
        /// Id of the fleet that the agent works for.
        fleet: String,
        /// Epoch of the fleet's coordinator.
        epoch: u64,
        /// Activity in a few words; `None` if unknown.
        doing: Option<String>,
    },
    /// The agent is idle, accepts no more fleets, and ends.
    Draining,
}

/// The announcement of an agent or a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Unique name of the agent or leaf.
    pub name: String,
    /// Role of the sender: agent or leaf.
    pub role: AgentRole,
    /// Group of the agent or leaf; `None` if it belongs to none.
    pub group: Option<String>,
    /// Version and commit of the sender's iotax.
    pub version: String,
    /// Version of the messages that the sender understands, [`crate::message::PROTOCOL`].
    pub protocol: u32,
    /// Random number of the process, by which agents with the same name are told apart.
    pub process: u64,
    /// Activity of the agent; [`Situation::Free`] for a leaf.
    pub situation: Situation,
}

/// Encodes a value as JSON.
pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these messages have text keys and no other way to fail")
}

/// Returns a random number, such as the id of a process.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
