//! The agents that are present, and the choice of those that can work for a fleet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use iotax_model::visible;

use super::address::Address;
use super::connection::{Arrival, Connection, NatsError};
use super::presence::{AgentRole, Broadcast, Presence, Situation, encode};
use super::subject::Subjects;
use crate::link::LinkError;
use crate::message::PROTOCOL;

/// Time between two broadcasts that ask all agents to announce themselves.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// The requirements of a coordinator for agents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Id of the fleet if it already exists: the agents that work for it count as free. `None` for a new fleet.
    pub(super) fleet: Option<&'a str>,
    /// Names of the required agents; `None` to take those that the address selects.
    pub(super) names: Option<&'a [String]>,
    /// Version and commit that the agents must have.
    pub(super) version: &'a str,
}

/// The agents and leaves that have answered. Agents are ordered by name and process.
#[derive(Debug, Default)]
pub(super) struct Roster {
    agents: BTreeMap<String, BTreeMap<u64, Presence>>,
    /// The leaves by name, each with the arrival time of its last announcement in nanoseconds of the monotonic clock.
    leaves: BTreeMap<String, (Presence, u64)>,
}

/// Parses an announcement; `None` if it is invalid, or if it was not sent on its sender's own subject.
pub(super) fn read(subjects: &Subjects, subject: &str, payload: &[u8]) -> Option<Presence> {
    let (kind, names) = subjects.parse(subject)?;
    let presence: Presence = serde_json::from_slice(payload).ok()?;
    // NATS permissions apply to subjects, so the name in the payload must be that of the subject.
    (kind == "answer" && names == [presence.name.clone()]).then_some(presence)
}

impl Roster {
    /// Asks all agents to announce themselves, once per second, until the time `until` or until `is_enough` returns true. Only the answers to
    /// the last broadcast count.
    pub(super) fn gather(
        connection: &Connection,
        subjects: &Subjects,
        until: Instant,
        is_enough: impl Fn(&Self) -> bool,
    ) -> Result<Self, LinkError> {
        let mut roster = Self::default();
        loop {
            // An agent that no longer answers is gone.
            roster.agents.clear();
            roster.leaves.clear();
            connection.publish(subjects.all(), encode(&Broadcast::Call));
            let again = Instant::now() + AGAIN;
            while let Some(left) = again.checked_duration_since(Instant::now()) {
                if let Some(Arrival::Message { subject, payload, at_ns }) = connection.receive(left)?
                    && let Some(presence) = read(subjects, &subject, &payload)
                {
                    roster.add(presence, at_ns);
                }
            }
            if is_enough(&roster) || Instant::now() >= until {
                return Ok(roster);
            }
        }
    }

    fn add(&mut self, presence: Presence, at_ns: u64) {
        match presence.role {
            AgentRole::Leaf => drop(self.leaves.insert(presence.name.clone(), (presence, at_ns))),
            AgentRole::Agent => {
                self.agents.entry(presence.name.clone()).or_default().insert(presence.process, presence);
            }
        }
    }

    /// Returns the agents ordered by name, then the leaves.
    pub(super) fn into_everybody(self) -> Vec<Presence> {
        let agents = self.agents.into_values().flat_map(BTreeMap::into_values);
        agents.chain(self.leaves.into_values().map(|(leaf, _)| leaf)).collect()
    }

    /// Returns the leaves by name, each with the arrival time of its last announcement in nanoseconds of the monotonic clock.
    pub(super) fn leaves(&self) -> BTreeMap<String, u64> {
        self.leaves.iter().map(|(name, (_, at_ns))| (name.clone(), *at_ns)).collect()
    }

    /// Chooses suitable agents in the order of their names: those in `wanted.names`, else the first `address.expect`, else all. Returns
    /// their names and process numbers. Fails if fewer than requested are suitable, or none.
    pub(super) fn choose(
        &self,
        address: &Address,
        wanted: Wanted<'_>,
    ) -> Result<Vec<(String, u64)>, NatsError> {
        let fit = self.fit(address, wanted);
        let expected = enough(address, wanted);
        if fit.len() < expected {
            let others = self.agents.values().filter_map(|same| unfit(address, wanted, same)).collect();
            return Err(NatsError::Missing {
                found: fit.len(),
                expected,
                group: address.group.clone(),
                others,
            });
        }
        let most = if wanted.names.is_some() { usize::MAX } else { address.expect.unwrap_or(usize::MAX) };
        Ok(fit.into_iter().take(most).collect())
    }

    /// Returns whether enough suitable agents have answered for [`Self::choose`].
    pub(super) fn is_enough(&self, address: &Address, wanted: Wanted<'_>) -> bool {
        self.fit(address, wanted).len() >= enough(address, wanted)
    }

    fn fit(&self, address: &Address, wanted: Wanted<'_>) -> Vec<(String, u64)> {
        let fit = self.agents.iter().filter(|(_, same)| {
            same.values().next().is_some_and(|one| is_meant(address, wanted, one))
                && unfit(address, wanted, same).is_none()
        });
        fit.filter_map(|(name, same)| Some((name.clone(), *same.first_key_value()?.0))).collect()
    }

    /// Returns the highest epoch that any agent reports for this fleet; `None` if no agent works for it.
    pub(super) fn last_epoch(&self, wanted: &str) -> Option<u64> {
        let epochs = self.agents.values().flat_map(BTreeMap::values).filter_map(|one| match &one.situation {
            Situation::Working { fleet, epoch, .. } if fleet == wanted => Some(*epoch),
            _ => None,
        });
        epochs.max()
    }
}

fn enough(address: &Address, wanted: Wanted<'_>) -> usize {
    wanted.names.map_or(address.expect.unwrap_or(1), <[String]>::len)
}

fn is_meant(address: &Address, wanted: Wanted<'_>, presence: &Presence) -> bool {
    match wanted.names {
        Some(names) => names.contains(&presence.name),
        None => address.group.is_none() || address.group == presence.group,
    }
}

/// Returns the reason why the agents of one name cannot be used; `None` if they can be used or are not selected. `same` holds them by
/// process.
fn unfit(address: &Address, wanted: Wanted<'_>, same: &BTreeMap<u64, Presence>) -> Option<String> {
    let presence = same.values().next().filter(|one| is_meant(address, wanted, one))?;
    let name = visible::line(&presence.name);
    if same.len() > 1 {
        return Some(format!("{} agents call themselves {name}: give each another --name", same.len()));
    }
    if presence.protocol != PROTOCOL || presence.version != wanted.version {
        return Some(format!(
            "{name} is iotax {} (fleet protocol {}), and this is {} (fleet protocol {PROTOCOL}); use the same version everywhere",
            visible::line(&presence.version),
            presence.protocol,
            wanted.version
        ));
    }
    match &presence.situation {
        Situation::Working { fleet, .. } if Some(fleet.as_str()) != wanted.fleet => {
            Some(format!("{name} works for fleet {}", visible::line(fleet)))
        }
        Situation::Draining => Some(format!("{name} takes no more work")),
        Situation::Free | Situation::Working { .. } => None,
    }
}
