//! `iotax fleet status`, `drain` and `cancel` for agents at a NATS server.

use std::time::Duration;

use iotax_fleet::nats::{Address, AgentRole, NatsOperator, Presence, Situation};
use iotax_model::visible::line;

use super::super::enlist::refused;
use super::super::{Failure, usage};
use super::requests;

/// Time limit for the agents' answers.
const ANSWER: Duration = Duration::from_secs(2);

/// Sends the command `what` to the agents if `given` is a NATS server's URL, and returns the text to print. `None` for a fleet's id.
pub(super) fn at_server(given: &str, what: &str) -> Result<Option<String>, Failure> {
    if !super::hosts::is_nats(given) {
        return Ok(None);
    }
    let address: Address = given.parse().map_err(usage)?;
    let mut operator = NatsOperator::connect(&address).map_err(refused)?;
    match what {
        requests::DRAIN => {
            operator.drain(address.group.as_deref(), None);
            Ok(Some("the agents take no more work, and end after what they do now".into()))
        }
        requests::CANCEL => {
            let fleet = address.fleet.as_deref().ok_or_else(|| {
                usage(format!("{given:?} names no fleet; accepted: nats://HOST[:PORT]?fleet=FLEET"))
            })?;
            let there = operator.roll_call(ANSWER).map_err(refused)?;
            let members = there.iter().filter(|one| works_for(one, fleet));
            let members: Vec<_> = members.map(|one| line(&one.name)).collect();
            if members.is_empty() {
                return Err(usage(format!(
                    "no agent that answers works for fleet {fleet:?}; what they do: iotax fleet status {given:?}"
                )));
            }
            operator.cancel(fleet);
            Ok(Some(format!("the members of fleet {} stop: {}", line(fleet), members.join(", "))))
        }
        _ => {
            let mut there = operator.roll_call(ANSWER).map_err(refused)?;
            there.retain(|one| address.group.is_none() || address.group == one.group);
            Ok(Some(lines(&there)))
        }
    }
}

fn works_for(one: &Presence, wanted: &str) -> bool {
    matches!(&one.situation, Situation::Working { fleet, .. } if fleet == wanted)
}

/// Formats a line for each agent and each leaf (a process that merges samples) at the server, with its name, group and state.
fn lines(there: &[Presence]) -> String {
    if there.is_empty() {
        return "no agent answers".into();
    }
    let width = there.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    let lines = there.iter().map(|one| {
        let group = one.group.as_deref().map_or(String::new(), |group| format!("  group {}", line(group)));
        let state = match (&one.situation, one.role) {
            (_, AgentRole::Leaf) => "merges samples".into(),
            (Situation::Free, _) => "free".into(),
            (Situation::Draining, _) => "takes no more work".into(),
            (Situation::Working { fleet, doing, .. }, _) => {
                let doing = doing.as_deref().map_or(String::new(), |doing| format!(": {}", line(doing)));
                format!("works for fleet {}{doing}", line(fleet))
            }
        };
        format!("{:<width$}  {state}  iotax {}{group}", line(&one.name), line(&one.version))
    });
    lines.collect::<Vec<_>>().join("\n")
}
