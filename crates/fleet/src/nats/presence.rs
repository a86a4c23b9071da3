//! Announcements of agents and leaves, and broadcasts to them.

use serde::{Deserialize, Serialize};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A message to all agents and leaves. Later versions may add kinds, so unknown ones are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Broadcast {
    /// Asks all agents and leaves to announce themselves.
    Call,
    /// Sign of life of a fleet's coordinator.
    Alive {
        /// The fleet.
        fleet: String,
        /// The coordinator's epoch.
        epoch: u64,
        /// The leaves that take samples; empty if samples go to the coordinator.
        leaves: Vec<String>,
    },
    /// Accept no more work, or end: for the agents of a group, one agent, or all.
    Drain(Selection),
    /// Stop the measurements of a fleet and undo its changes.
    Cancel {
        /// The fleet.
        fleet: String,
    },
}

/// The agents that a broadcast is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Selection {
    /// Agents of this group.
    pub(super) group: Option<String>,
    /// The agent with this name.
    pub(super) name: Option<String>,
}

impl Selection {
    pub(super) fn has(&self, name: &str, group: Option<&str>) -> bool {
        self.name.as_deref().is_none_or(|wanted| wanted == name)
            && self.group.as_deref().is_none_or(|wanted| group == Some(wanted))
    }
}

/// The payload of an open frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    /// The fleet.
    pub(super) fleet: String,
    /// Version and commit of the coordinator.
    pub(super) version: String,
    /// Silence in milliseconds after which either end counts as lost.
    pub(super) patience_ms: u64,
    /// The leaves, as in [`Broadcast::Alive`].
    pub(super) leaves: Vec<String>,
}

/// The role of an agent or a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRole {
    /// Measures.
    Agent,
    /// Merges samples.
    Leaf,
}

/// The activity of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Situation {
    /// The agent is idle.
    Free,
    /// The agent works for a fleet.
    Working {
        /// The fleet.
        fleet: String,
        /// The epoch of its coordinator.
        epoch: u64,
        /// The activity in a word or two.
        doing: Option<String>,
    },
    /// The agent accepts no more work.
    Draining,
}

/// The presence message of an agent or a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Unique name of the agent or leaf.
    pub name: String,
    /// Its role.
    pub role: AgentRole,
    /// Its group.
    pub group: Option<String>,
    /// Its version and commit.
    pub version: String,
    /// Its [`crate::message::PROTOCOL`].
    pub protocol: u32,
    /// Random id of the process, which distinguishes agents with the same name.
    pub process: u64,
    /// Its activity.
    pub situation: Situation,
}

/// Serializes a value to JSON.
pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these messages have text keys and no other way to fail")
}

/// A random number that another process is unlikely to draw.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
