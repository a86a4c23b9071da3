//! The NATS connection of an operator, who lists and controls agents without leading a fleet.

use std::time::{Duration, Instant};

use super::address::Address;
use super::connection::{Connection, NatsError};
use super::presence::{Broadcast, Presence, Selection, encode};
use super::roster::{Roster, Wanted};
use super::subject::Subjects;

/// A connection that lists and controls agents.
#[derive(Debug)]
pub struct NatsOperator {
    connection: Connection,
    subjects: Subjects,
}

impl NatsOperator {
    /// Connects to the NATS server at the address and subscribes to the announcements of agents.
    pub fn connect(address: &Address) -> Result<Self, NatsError> {
        let subjects = Subjects::new(&address.prefix);
        let connection = Connection::open(address, "iotax fleet", vec![subjects.answers()], false)?;
        Ok(Self { connection, subjects })
    }

    /// Asks all agents and leaves to announce themselves, once a second for `patience`. Returns those that answered the last request: the
    /// agents ordered by name, then the leaves.
    pub fn roll_call(&mut self, patience: Duration) -> Result<Vec<Presence>, NatsError> {
        let until = Instant::now() + patience;
        Ok(Roster::gather(&self.connection, &self.subjects, until, |_| false)?.into_everybody())
    }

    /// Waits until enough of the agents that the address selects are free and have this version, and returns the names of the chosen ones.
    /// Fails if too few are free within the address's `wait`.
    pub fn choose(&mut self, address: &Address, version: &str) -> Result<Vec<String>, NatsError> {
        let wanted = Wanted { fleet: None, names: None, version };
        let until = Instant::now() + address.wait;
        let roster =
            Roster::gather(&self.connection, &self.subjects, until, |all| all.is_enough(address, wanted))?;
        Ok(roster.choose(address, wanted)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Makes agents accept no more fleets and end when idle: all, or only those that have the given group, the given name or both.
    pub fn drain(&mut self, group: Option<&str>, name: Option<&str>) {
        let selection = Selection { group: group.map(str::to_owned), name: name.map(str::to_owned) };
        self.say(&Broadcast::Drain(selection));
    }

    /// Makes all members of a fleet stop and undo their changes.
    pub fn cancel(&mut self, fleet: &str) {
        self.say(&Broadcast::Cancel { fleet: fleet.to_owned() });
    }

    fn say(&self, broadcast: &Broadcast) {
        self.connection.publish(self.subjects.all(), encode(broadcast));
    }
}
