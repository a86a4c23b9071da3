//! Controls a fleet: through the socket of a coordinator of this user on this machine, or through a NATS server.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_fleet::{Coordinator, MemberState};
use iotax_model::exit::Exit;
use iotax_model::units::human;
use iotax_testbed::undo;

use super::super::say::print_line;
use super::super::{Failure, args, usage};
use super::{operate, requests};
use crate::runner::marks;

/// Flags of `iotax fleet status`, `drain` and `cancel`.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    /// The fleet's id, as iotax fleet run shows it; or nats://HOST:PORT for the agents there (to cancel, with
    /// ?fleet=ID)
    fleet: String,
}

/// Returns the tag in the names of a fleet's undo log and socket on the coordinator's machine.
pub(super) fn tag(fleet: &str) -> String {
    format!("fleet-{fleet}")
}

fn socket(fleet: &str) -> Result<PathBuf, Failure> {
    if fleet.is_empty() || !fleet.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(usage(format!(
            "{fleet:?} is no fleet's id; accepted: letters and digits, as iotax fleet run shows it"
        )));
    }
    Ok(args::undo_dir()?.join(format!("{}.{}", tag(fleet), undo::SOCKET)))
}

fn ask(fleet: &str, what: &str) -> Result<String, Failure> {
    let answer = marks::send(&socket(fleet)?, what).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => usage(format!(
            "no process of this user leads the fleet {fleet:?} on this machine; its results: iotax fleet report {fleet}; go on with it: \
             iotax fleet resume {fleet}"
        )),
        _ => Failure { exit: Exit::Environment, error: error.into() },
    })?;
    if answer.is_marked { Ok(answer.text) } else { Err(usage(answer.text)) }
}

pub(super) fn status(args: &Args) -> Result<Exit, Failure> {
    tell(args, requests::STATUS)
}

pub(super) fn tell(args: &Args, what: &str) -> Result<Exit, Failure> {
    let answer = match operate::at_server(&args.fleet, what)? {
        Some(answer) => answer,
        None => ask(&args.fleet, what)?,
    };
    print_line!("{answer}");
    Ok(Exit::Fine)
}

/// Formats the status of all members, one line each.
pub(super) fn lines(coordinator: &Coordinator) -> String {
    let members: Vec<_> = coordinator.members().collect();
    let width = members.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let lines = members.iter().map(|(name, status)| {
        let state = match status.state {
            MemberState::Expected => "expected".to_owned(),
            MemberState::Checking => "checking the plan".into(),
            MemberState::Checked { refusal: None, .. } => "can carry the plan out".into(),
            MemberState::Checked { refusal: Some(reason), .. } => format!("refuses: {reason}"),
            MemberState::AtWork => match status.waits_for {
                Some(step) => format!("ready for step {step}"),
                None if status.doing.is_empty() => "at work".into(),
                None => status.doing.to_owned(),
            },
            MemberState::Over { state, reason: None } => state.to_string(),
            MemberState::Over { state, reason: Some(reason) } => format!("{state}: {reason}"),
            MemberState::Lost { reason } => format!("lost: {reason}"),
        };
        let clock = status.offset.map(|offset| {
            format!(
                "  (clock {:+.3} ms +- {})",
                offset.offset_ns as f64 / 1e6,
                human::time(offset.uncertainty_ns as f64)
            )
        });
        format!("{name:<width$}  {state}{}", clock.unwrap_or_default())
    });
    lines.collect::<Vec<_>>().join("\n")
}
