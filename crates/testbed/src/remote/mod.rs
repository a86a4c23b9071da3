//! Agents on other machines, over the user's ssh, and in containers, through the engine's exec command.
//!
//! One connection is enough: a POSIX shell script creates a directory for this program, receives the program on stdin unless it is cached,
//! and executes it as the agent on the same stream. When the stream ends, the script removes the directory. [`leave`] removes what a lost
//! connection left, for the undo log.
//!
//! Other users of that machine are not trusted: the directory has mode 0700 and is recorded before the program arrives, and nothing is
//! executed that others could have changed.

mod error;
mod reach;
mod session;
pub mod stream;

use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iotax_model::target::Machine;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::agent_client::{AgentClient, AgentProcess};
use crate::interrupt::Interrupt;
use crate::program::ProgramError;
pub use error::RemoteError;
use error::refused;
use session::{RemoteSession, SessionOutput};

const ENTER: &str = concat!(include_str!("place.sh"), include_str!("enter.sh"));
const LEAVE: &str = concat!(include_str!("place.sh"), include_str!("leave.sh"));

/// Exit status of the script if it could not remove everything. ssh, engines and kubectl exit with others.
const LEFT: i32 = 3;
/// Login timeout, beyond ssh's own for connecting: logins take long on a busy machine.
const LOGIN: Duration = Duration::from_mins(1);
/// Login timeout if ssh asks for a password. The server gives up earlier.
const LOGIN_ASKING: Duration = Duration::from_mins(5);
/// Timeout of each step after the login.
const STEP: Duration = Duration::from_secs(30);
/// Assumed minimum speed of a link, in bytes per second.
const SLOWEST: u64 = 100_000;
/// Timeout of removal: deleting large files takes long on some filesystems.
const REMOVAL: Duration = Duration::from_mins(2);

/// A machine or container, and the privileges of the agent there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteHost {
    /// The machine or container.
    pub machine: Machine,
    /// True to run the agent under sudo(8).
    pub sudo: bool,
}

/// An agent as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedAgent {
    /// The agent's machine.
    pub host: RemoteHost,
    /// Unique and secret: marks the script's output, and appears in no command line.
    pub tag: String,
    /// SHA-256 hash of the agent's program in the format of sha256sum(1).
    pub sha256: String,
    /// The path to measure; the agent may have created a file there.
    pub target: String,
    /// The agent's directory; `None` before it exists, when nothing has run yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub place: Option<RemoteDirectory>,
}

/// The remote directory of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteDirectory {
    /// Absolute path without symbolic links.
    pub path: String,
    /// The directory's inode number.
    pub inode: u64,
    /// The inode number of the parent directory.
    pub parent: u64,
    /// Boot id and start time of the first process, for a directory that does not survive them, as in memory or in a container; `-` for a
    /// directory on a machine's disk.
    pub boot: String,
}

impl RemoteDirectory {
    /// Parses `INODE PARENT BOOT PATH`.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ');
        let (inode, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (boot, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        path.starts_with('/').then_some(Self { path, inode, parent, boot })
    }
}

impl std::fmt::Display for RemoteHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.machine.fmt(f)
    }
}

impl RemoteHost {
    const fn sudo_command(&self) -> &'static str {
        if self.sudo { "sudo -n" } else { "" }
    }
}

/// The agent's program, to be copied.
#[derive(Debug, Clone)]
pub struct AgentProgram {
    path: PathBuf,
    length: u64,
    sha256: String,
}

impl AgentProgram {
    /// Reads the program from a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        Ok(Self { path: path.to_owned(), length: bytes.len() as u64, sha256: sha256(&bytes) })
    }
}

/// A hash in the format of sha256sum(1).
fn sha256(bytes: &[u8]) -> String {
    let hex: Vec<String> = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    hex.concat()
}

/// The prefix of an agent's directory names. Other users may see it; it does not reveal the tag.
fn mark(tag: &str) -> String {
    sha256(tag.as_bytes())[..12].to_owned()
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The host name or address that ssh connects to, with aliases of the user's configuration resolved. Behind a jump host it may be
/// unreachable from here.
///
/// # Errors
/// ssh is missing, or rejects the destination.
pub fn address(destination: &str, port: Option<u16>) -> Result<String, ProgramError> {
    let mut arguments = vec!["-G".to_owned()];
    arguments.extend(port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]));
    arguments.extend(["--".to_owned(), destination.to_owned()]);
    let said = reach::SSH.run(&arguments)?;
    let said = String::from_utf8_lossy(&said);
    let named = said.lines().find_map(|line| line.strip_prefix("hostname "));
    Ok(named.unwrap_or(destination).trim().to_owned())
}

/// The parameters for starting an agent.
#[derive(Debug, Clone, Copy)]
pub struct AgentLaunch<'a> {
    /// The machine.
    pub host: &'a RemoteHost,
    /// The agent's unique, secret tag, which marks the script's output.
    pub tag: &'a str,
    /// The path to measure.
    pub target: &'a str,
    /// The program to run.
    pub program: &'a AgentProgram,
    /// True to keep the program on the machine, so that it need not be copied again.
    pub leave: bool,
    /// The role of the program on the machine.
    pub role: RemoteRole,
    /// True if ssh may prompt on the terminal, for a password or a host key.
    pub ask: bool,
}

/// The role of a copied program on another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteRole {
    /// Generates load for a runner here.
    Agent,
    /// Carries out plans as a member of a fleet.
    FleetMember,
}

impl RemoteRole {
    /// The program's command-line arguments for this role.
    const fn command(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::FleetMember => "fleet member",
        }
    }
}

/// A callback that records an agent in the undo log.
pub type RecordAgent<'a> =
    &'a mut dyn FnMut(RecordedAgent) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Starts an agent on another machine. When the client is dropped, the agent exits and everything it created is removed.
///
/// Calls `record` before anything is done there, and again when its directory exists and is still empty.
pub fn enter(
    visit: &AgentLaunch<'_>,
    interrupt: &Interrupt,
    record: RecordAgent<'_>,
) -> Result<AgentClient, RemoteError> {
    let process = start(visit, interrupt, record)?;
    Ok(AgentClient::through(process, format!("the agent on {}", visit.host), interrupt))
}

/// Like [`enter`], for a program that speaks any framed protocol.
pub fn start(
    visit: &AgentLaunch<'_>,
    interrupt: &Interrupt,
    record: RecordAgent<'_>,
) -> Result<AgentProcess<BufReader<ChildStdout>>, RemoteError> {
    let AgentLaunch { host, tag, program, leave, role, ask, .. } = *visit;
    let (mark, sudo) = (mark(tag), host.sudo_command());
    let yes = |is_so| if is_so { "yes" } else { "" };
    let (leave, fleeting) = (yes(leave), yes(host.machine.shares_kernel()));
    let call = format!(
        "enter {tag} {mark} {} {} '{leave}' '{sudo}' '{}' '{fleeting}'\n",
        program.sha256,
        program.length,
        role.command()
    );
    let mut session = RemoteSession::open(host, tag, ask, &format!("{ENTER}{call}"))?;
    match converse(&mut session, visit, interrupt, record) {
        Ok(stdout) => Ok(session.into_process(stdout)),
        Err(error) => {
            session.end();
            Err(error)
        }
    }
}

/// Talks to the script until the agent's first frame.
fn converse(
    session: &mut RemoteSession,
    visit: &AgentLaunch<'_>,
    interrupt: &Interrupt,
    record: RecordAgent<'_>,
) -> Result<BufReader<ChildStdout>, RemoteError> {
    let AgentLaunch { host, program, tag, target, .. } = *visit;
    let agent = |place| RecordedAgent {
        host: host.clone(),
        tag: tag.to_owned(),
        sha256: program.sha256.clone(),
        target: target.to_owned(),
        place,
    };
    let mut patience = if visit.ask { LOGIN_ASKING } else { LOGIN };
    loop {
        let line = match session.hear(patience, interrupt)? {
            Some(SessionOutput::Frames(stdout)) => return Ok(stdout),
            Some(SessionOutput::Line(line)) => line,
            // At ssh's prompt, Ctrl-C ends ssh first.
            None if interrupt.load(Ordering::Relaxed) => return Err(RemoteError::Interrupted),
            None => return Err(RemoteError::Unreachable { host: host.clone(), said: session.words() }),
        };
        patience = STEP;
        if line == "here" {
            record(agent(None)).map_err(RemoteError::NotRecorded)?;
            session.send(b"go\n");
        } else if let Some(place) = line.strip_prefix("place ").and_then(RemoteDirectory::parse) {
            record(agent(Some(place))).map_err(RemoteError::NotRecorded)?;
            session.send(b"go\n");
        } else if line == "want" {
            session.send_file(&program.path, interrupt)?;
            patience += Duration::from_secs(program.length / SLOWEST);
        } else {
            return Err(refused(host, &line));
        }
    }
}

/// Ends an agent and removes everything that is left of it on its machine.
pub fn leave(agent: &RecordedAgent, ask: bool) -> Result<(), RemoteError> {
    let mut session =
        RemoteSession::open(&agent.host, &agent.tag, ask, &format!("{LEAVE}{}", leaving(agent)))?;
    let heard = session.hear(if ask { LOGIN_ASKING } else { LOGIN + REMOVAL }, &Interrupt::default());
    let (host, status) = (agent.host.clone(), session.status());
    let result = match (heard, status) {
        (Err(error), _) => Err(error),
        (Ok(None), Some(0)) => Ok(()),
        (Ok(None), Some(LEFT)) => Err(RemoteError::Left { host, said: session.words() }),
        (Ok(_), _) => Err(RemoteError::Unreachable { host, said: session.words() }),
    };
    session.end();
    result
}

/// The script's command that removes an agent. The path comes from the other machine and must be quoted.
fn leaving(agent: &RecordedAgent) -> String {
    let place = agent.place.as_ref().map_or_else(
        || "'' '' '' ''".to_owned(),
        |place| {
            let RemoteDirectory { inode, parent, boot, path } = place;
            format!("{inode} {parent} {} {}", quoted(boot), quoted(path))
        },
    );
    format!("leave {} {} '{}' {place}\n", mark(&agent.tag), quoted(&agent.sha256), agent.host.sudo_command())
}

#[cfg(test)]
mod tests;
