//! `iotax agent --nats`: registers at a NATS server and waits for fleets that need a member.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_fleet::nats::{Address, Agent, AgentName, Fleet, Leaf, NatsError};
use iotax_model::exit::Exit;
use iotax_testbed::agent_client::{AgentProcess, start_member};
use iotax_testbed::interrupt::{Interrupt, POLL};

use super::say::say;
use super::signals::watch_signals;
use super::{Failure, OrExit, args, usage};

/// Maximum time to wait for messages between two checks for a signal.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// Flags of `iotax agent`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Wait for fleets at a NATS server: nats://HOST:PORT, with keys such as ?group=NAME&creds=FILE (docs/fleet-nats.md)
    #[arg(long, value_name = "URL")]
    nats: Option<Address>,
    /// The name that coordinators see [default: the host name]
    #[arg(long, requires = "nats", value_parser = name)]
    name: Option<String>,
    /// Merge the samples of members instead of measuring: takes load off the coordinator of a large fleet
    #[arg(long, requires = "nats")]
    leaf: bool,
}

fn name(given: &str) -> Result<String, String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || ".-_@".contains(c);
    if (1..=64).contains(&given.len()) && given.chars().all(is_fit) && !given.starts_with(['.', '-']) {
        Ok(given.to_owned())
    } else {
        Err("accepted: letters, digits and .-_@, up to 64".into())
    }
}

impl Args {
    /// Works for one fleet after another until a signal or an operator ends the agent; with `--leaf`, merges samples until a signal. `None`
    /// without `--nats`.
    pub(super) fn main(&self) -> Option<Result<Exit, Failure>> {
        self.nats.as_ref().map(|address| self.serve(address))
    }

    fn serve(&self, address: &Address) -> Result<Exit, Failure> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => host_name()?,
        };
        if self.leaf {
            return merge(address, &name);
        }
        let state_dir = args::undo_dir()?.with_file_name(format!("agent-{name}"));
        let program =
            std::env::current_exe().context("this program's file is not known").or_exit(Exit::Environment)?;
        clean(&program, &state_dir)?;
        let who = AgentName { name, group: address.group.clone(), version: crate::version().into() };
        let mut agent = Agent::enlist(address, &who).map_err(refused)?;
        let stop = watch_signals().or_exit(Exit::Environment)?;
        say!(
            "Agent {} waits for fleets at {}; Ctrl-C ends it after the work that it has.",
            who.name,
            address.server
        );
        while !agent.is_draining() && !stop.load(Ordering::Relaxed) {
            if let Some(fleet) = agent.wait(POLL_EVERY).or_exit(Exit::Environment)? {
                work(&mut agent, &fleet, &program, &state_dir, &stop)?;
            }
        }
        // These fail if some change could not be undone, because the directories are then not empty.
        let _ = fs::remove_dir(state_dir.join("iotax/undo"));
        let _ = fs::remove_dir(state_dir.join("iotax"));
        let _ = fs::remove_dir(&state_dir);
        Ok(Exit::Fine)
    }
}

fn host_name() -> Result<String, Failure> {
    let environment = crate::runner::environment(None);
    let host =
        environment.hostname.ok_or_else(|| usage("this machine has no host name; give one: --name NAME"))?;
    name(&host)
        .map_err(|reason| usage(format!("the host name {host:?}: {reason}; give another: --name NAME")))
}

/// Converts an error of a NATS server to a failure with its exit code.
pub(super) fn refused(error: NatsError) -> Failure {
    let exit = match error {
        NatsError::Files(_) => Exit::Usage,
        NatsError::Connect { .. } | NatsError::Missing { .. } | NatsError::Link(_) => Exit::Environment,
    };
    Failure { exit, error: error.into() }
}

/// Runs `iotax clean` on the state that a killed agent of the same name left in `state_dir`.
fn clean(program: &Path, state_dir: &PathBuf) -> Result<(), Failure> {
    if !state_dir.exists() {
        return Ok(());
    }
    let cleaned = Command::new(program)
        .arg("clean")
        .env("XDG_STATE_HOME", state_dir)
        .stdin(Stdio::null())
        .status()
        .context("iotax clean cannot be started")
        .or_exit(Exit::Environment)?;
    if cleaned.success() {
        return Ok(());
    }
    let reason = format!(
        "what an earlier agent left behind is not all undone; see XDG_STATE_HOME={} iotax clean",
        state_dir.display()
    );
    Err(Failure { exit: Exit::Environment, error: anyhow::anyhow!(reason) })
}

/// Runs a member process for a fleet, and returns once the process has ended.
fn work(
    agent: &mut Agent,
    fleet: &Fleet,
    program: &Path,
    state_dir: &Path,
    stop: &Interrupt,
) -> Result<(), Failure> {
    say!("Works for fleet {}.", iotax_model::visible::line(&fleet.fleet));
    fs::create_dir_all(state_dir)
        .with_context(|| state_dir.display().to_string())
        .or_exit(Exit::Environment)?;
    let AgentProcess { mut child, stdin, stdout, said } = start_member(None, program, state_dir)
        .context("a member cannot be started")
        .or_exit(Exit::Environment)?;
    let drain = |agent: &mut Agent| {
        if stop.load(Ordering::Relaxed) && !agent.is_draining() {
            say!("Ends after this work. Once more Ctrl-C: stops it.");
            agent.drain();
        }
    };
    let reason = agent.carry(stdout, stdin, POLL_EVERY, drain);
    // Undoing may take any length of time, and must be complete before the next fleet.
    while child.try_wait().or_exit(Exit::Environment)?.is_none() {
        agent.linger(POLL).or_exit(Exit::Environment)?;
    }
    let said = said.lock().map(|said| String::from_utf8_lossy(&said).into_owned()).unwrap_or_default();
    said.lines().for_each(|line| say!("{}", iotax_model::visible::line(line)));
    say!("Free again: {}.", iotax_model::visible::line(&reason));
    agent.free(&reason);
    Ok(())
}

/// Runs as a leaf, which merges the samples of many members for the coordinator, until a signal arrives.
fn merge(address: &Address, name: &str) -> Result<Exit, Failure> {
    let mut leaf = Leaf::connect(address, name, crate::version()).map_err(refused)?;
    let stop = watch_signals().or_exit(Exit::Environment)?;
    say!("Leaf {name} merges samples at {}.", address.server);
    while !stop.load(Ordering::Relaxed) {
        leaf.serve(POLL_EVERY).or_exit(Exit::Environment)?;
    }
    let counts = leaf.counts();
    say!("Merged {} samples into {} messages; {} came late.", counts.samples, counts.passed, counts.late);
    Ok(Exit::Fine)
}
