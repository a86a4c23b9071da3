//! Agents on other machines, over the user's own ssh.
//!
//! One connection does it all: a script for any POSIX shell makes a place for this very program, takes it from its stdin unless
//! it is there already, and becomes an agent, with which it is spoken to over the same stream. When that ends the script removes
//! the place. What a lost connection leaves is removed by [`leave`], for the undo log.
//!
//! Other users of that machine are not trusted. A place is a new directory of mode 0700 that is on record before the program comes
//! to it, and nothing is executed anywhere else, nor if others could have changed it.

mod error;
mod session;

use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::agent_client::AgentClient;
use crate::interrupt::Interrupt;
use crate::program::ProgramError;
pub use error::RemoteError;
use error::refused;
use session::{Heard, Session};

const ENTER: &str = concat!(include_str!("place.sh"), include_str!("enter.sh"));
const LEAVE: &str = concat!(include_str!("place.sh"), include_str!("leave.sh"));

/// Beyond what ssh itself allows for a connection: a login may take long on a busy machine.
const LOGIN: Duration = Duration::from_mins(1);
/// Where the user is asked for a password. The other side closes the connection earlier.
const LOGIN_ASKING: Duration = Duration::from_mins(5);
/// For what is done between two lines once the login is through.
const STEP: Duration = Duration::from_secs(30);
/// Bytes a second: slower than any link worth measuring over.
const SLOWEST: u64 = 100_000;
/// Removing large files takes long on some filesystems.
const REMOVAL: Duration = Duration::from_mins(2);

/// Where ssh leads, and as whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// As ssh(1) takes it.
    pub destination: String,
    /// Absent: what the user's configuration says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
    /// Whether the agent runs under sudo(8).
    pub sudo: bool,
}

/// An agent as the undo log knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Its machine.
    pub host: Host,
    /// Unique. It begins the lines of a conversation and stands in no command line.
    pub tag: String,
    /// Of its program, as sha256sum(1) prints it.
    pub sha256: String,
    /// The path that it was to measure; it may have made a file there.
    pub target: String,
    /// Absent before there is one: nothing of it has run then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub place: Option<Place>,
}

/// The directory that was made on another machine for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Absolute, without symbolic links.
    pub path: String,
    /// Its own.
    pub inode: u64,
    /// That of the directory it was made in.
    pub parent: u64,
    /// The kernel's whose memory it is in; `-` if it is on a disk.
    pub boot: String,
}

impl Place {
    /// `INODE PARENT BOOT PATH`.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ');
        let (inode, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (boot, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        path.starts_with('/').then_some(Self { path, inode, parent, boot })
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.destination)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Host {
    const fn sudo_command(&self) -> &'static str {
        if self.sudo { "sudo -n" } else { "" }
    }
}

/// The program that the agent is, to be copied.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    length: u64,
    sha256: String,
}

impl Program {
    /// Reads it once.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        Ok(Self { path: path.to_owned(), length: bytes.len() as u64, sha256: sha256(&bytes) })
    }
}

/// As sha256sum(1) prints it.
fn sha256(bytes: &[u8]) -> String {
    let hex: Vec<String> = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    hex.concat()
}

/// What the names of an agent's places begin with, which others may see: it does not tell the tag.
fn mark(tag: &str) -> String {
    sha256(tag.as_bytes())[..12].to_owned()
}

/// A word of a shell's.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The name or address that ssh connects to for a destination, which may be an alias of the user's configuration. Behind a jump host
/// it may not be reachable from here.
///
/// # Errors
/// No ssh, or a destination that it refuses.
pub fn address(host: &Host) -> Result<String, ProgramError> {
    let mut arguments = vec!["-G".to_owned()];
    arguments.extend(host.port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]));
    arguments.extend(["--".to_owned(), host.destination.clone()]);
    let said = session::SSH.run(&arguments)?;
    let said = String::from_utf8_lossy(&said);
    let named = said.lines().find_map(|line| line.strip_prefix("hostname "));
    Ok(named.unwrap_or(&host.destination).trim().to_owned())
}

/// How a machine is entered.
#[derive(Debug, Clone, Copy)]
pub struct Visit<'a> {
    /// Which.
    pub host: &'a Host,
    /// Unique, and known to nobody else.
    pub tag: &'a str,
    /// The path that is to be measured there.
    pub target: &'a str,
    /// What to run there.
    pub program: &'a Program,
    /// Whether the program stays there, so that it need not be copied the next time.
    pub leave: bool,
    /// Whether ssh may ask on the terminal, for a password or to accept a host key.
    pub ask: bool,
}

/// Writes an agent down before more is done for it.
pub type Record<'a> = &'a mut dyn FnMut(Agent) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Starts an agent on another machine. It ends, and what it made goes, when the link does.
///
/// `record` is called before anything is done there, for what cannot be reached leaves nothing to undo, and again when its
/// place is made and nothing is in it yet.
pub fn enter(
    visit: &Visit<'_>,
    interrupt: &Interrupt,
    record: Record<'_>,
) -> Result<AgentClient, RemoteError> {
    let Visit { host, tag, program, leave, ask, .. } = *visit;
    let (mark, sudo) = (mark(tag), host.sudo_command());
    let leave = if leave { "yes" } else { "" };
    let call = format!("enter {tag} {mark} {} {} '{leave}' '{sudo}'\n", program.sha256, program.length);
    let mut session = Session::open(host, tag, ask, &format!("{ENTER}{call}"))?;
    match converse(&mut session, visit, interrupt, record) {
        Ok(stdout) => {
            let process = session.into_process(stdout);
            Ok(AgentClient::through(process, format!("the agent on {host}"), interrupt))
        }
        Err(error) => {
            session.end();
            Err(error)
        }
    }
}

/// Up to where the agent's frames begin.
fn converse(
    session: &mut Session,
    visit: &Visit<'_>,
    interrupt: &Interrupt,
    record: Record<'_>,
) -> Result<BufReader<ChildStdout>, RemoteError> {
    let Visit { host, program, tag, target, .. } = *visit;
    let agent = |place| Agent {
        host: host.clone(),
        tag: tag.to_owned(),
        sha256: program.sha256.clone(),
        target: target.to_owned(),
        place,
    };
    let mut patience = if visit.ask { LOGIN_ASKING } else { LOGIN };
    loop {
        let line = match session.hear(patience, interrupt)? {
            Some(Heard::Frames(stdout)) => return Ok(stdout),
            Some(Heard::Line(line)) => line,
            // Ctrl-C where ssh asks ends ssh first.
            None if interrupt.load(Ordering::Relaxed) => return Err(RemoteError::Interrupted),
            None => return Err(RemoteError::Ssh { host: host.clone(), said: session.words() }),
        };
        patience = STEP;
        if line == "here" {
            record(agent(None)).map_err(RemoteError::NotRecorded)?;
            session.send(b"go\n");
        } else if let Some(place) = line.strip_prefix("place ").and_then(Place::parse) {
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

/// Ends an agent and removes what is left of it: nothing, if it could do so itself.
pub fn leave(agent: &Agent, ask: bool) -> Result<(), RemoteError> {
    let mut session = Session::open(&agent.host, &agent.tag, ask, &format!("{LEAVE}{}", leaving(agent)))?;
    let heard = session.hear(if ask { LOGIN_ASKING } else { LOGIN + REMOVAL }, &Interrupt::default());
    let (host, status) = (agent.host.clone(), session.status());
    let result = match (heard, status) {
        (Err(error), _) => Err(error),
        (Ok(None), Some(0)) => Ok(()),
        // The script's own failure; ssh's is 255.
        (Ok(None), Some(1)) => Err(RemoteError::Left { host, said: session.words() }),
        (Ok(_), _) => Err(RemoteError::Ssh { host, said: session.words() }),
    };
    session.end();
    result
}

/// The call of the script. The place is the other machine's own word: it must not become a command of its own.
fn leaving(agent: &Agent) -> String {
    let place = agent.place.as_ref().map_or_else(
        || "'' '' '' ''".to_owned(),
        |place| {
            let Place { inode, parent, boot, path } = place;
            format!("{inode} {parent} {} {}", quoted(boot), quoted(path))
        },
    );
    format!("leave {} {} '{}' {place}\n", mark(&agent.tag), quoted(&agent.sha256), agent.host.sudo_command())
}

#[cfg(test)]
mod tests;
