//! Starts agents elsewhere: on other machines over the user's ssh, in containers through the engine's exec command, and in libvirt's guests
//! through a virtio-serial port and the QEMU guest agent.
//!
//! One connection is enough: a POSIX shell script creates a private directory, receives this program on stdin unless it is cached there,
//! and executes it as the agent on the same connection. When the connection ends, the script removes the directory. If the connection was
//! lost, the undo log calls [`leave`] to remove what remains.
//!
//! Other users of that machine are not trusted: the directory has mode 0700 and is recorded before the program is copied, and nothing is
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
use crate::virsh::{DomainAddress, GuestExit, GuestPort};
pub use error::RemoteError;
use error::refused;
use session::{RemoteSession, SessionOutput};

const ENTER: &str = concat!(include_str!("place.sh"), include_str!("enter.sh"));
const LEAVE: &str = concat!(include_str!("place.sh"), include_str!("leave.sh"));

/// Exit status of the removal script if it could not remove everything. ssh, container engines and kubectl use other values.
const LEFT: i32 = 3;
/// Timeout from the start of the connecting program to the script's first line: logins take long on a busy machine. Within it, ssh gives up
/// a connection attempt after 20 s.
const LOGIN: Duration = Duration::from_mins(1);
/// Timeout to the script's first line if ssh may ask for a password; the ssh server gives up earlier.
const LOGIN_ASKING: Duration = Duration::from_mins(5);
/// Timeout of each step after the login, except for copying the program.
const STEP: Duration = Duration::from_secs(30);
/// Assumed minimum speed of the connection in bytes per second, for the timeout of copying the program.
const SLOWEST: u64 = 100_000;
/// Timeout of the removal: deleting large files takes long on some filesystems.
const REMOVAL: Duration = Duration::from_mins(2);

/// A machine or container, and the privileges of the agent on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteHost {
    /// The machine or container that the agent runs on.
    pub machine: Machine,
    /// True to run the agent under sudo(8).
    pub sudo: bool,
}

/// An agent on another machine, as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedAgent {
    /// The machine or container that the agent runs on.
    pub host: RemoteHost,
    /// A unique, secret string that marks the script's output. It appears in no command line.
    pub tag: String,
    /// SHA-256 hash of the agent's program, in hexadecimal.
    pub sha256: String,
    /// Path to measure on that machine, where the agent may have created a file.
    pub target: String,
    /// Address of the libvirt domain in which the agent runs; `None` on other machines.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub domain: Option<DomainAddress>,
    /// The agent's private directory; `None` before the script created it, when nothing has run yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub directory: Option<RemoteDirectory>,
}

/// The private directory of an agent on its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteDirectory {
    /// Absolute path of the directory, without symbolic links.
    pub path: String,
    /// Inode number of the directory.
    pub inode: u64,
    /// Inode number of the parent directory.
    pub parent: u64,
    /// Identifies the boot for a directory that does not survive a reboot or a restart of its container: boot id and start time of the
    /// first process. `-` for a directory on a machine's disk.
    pub boot: String,
}

impl RemoteDirectory {
    /// Parses the script's answer `INODE PARENT BOOT PATH`; `None` if it is malformed.
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

/// The program to copy to another machine, with its hash.
#[derive(Debug, Clone)]
pub struct AgentProgram {
    path: PathBuf,
    length: u64,
    sha256: String,
}

impl AgentProgram {
    /// Reads the program file to compute its length and hash.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        Ok(Self { path: path.to_owned(), length: bytes.len() as u64, sha256: sha256(&bytes) })
    }
}

/// Returns the SHA-256 hash in hexadecimal, as sha256sum(1) prints it.
fn sha256(bytes: &[u8]) -> String {
    let hex: Vec<String> = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    hex.concat()
}

/// Returns the name prefix of an agent's directory, derived from the tag by a hash. Other users may see it, and cannot infer the tag from
/// it.
fn mark(tag: &str) -> String {
    sha256(tag.as_bytes())[..12].to_owned()
}

/// Quotes a word for a POSIX shell with single quotes.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns the host name or address that ssh connects to for a destination, with aliases of the user's ssh configuration resolved. It may
/// be unreachable from here if ssh uses a jump host.
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

/// Parameters for starting an agent on another machine or in a container.
#[derive(Debug, Clone, Copy)]
pub struct AgentLaunch<'a> {
    /// The machine or container to start the agent on.
    pub host: &'a RemoteHost,
    /// The port through which a guest of libvirt is reached; `None` on other machines.
    pub port: Option<&'a GuestPort>,
    /// A unique, secret string that marks the script's output.
    pub tag: &'a str,
    /// Path of the file or device to measure on that machine.
    pub target: &'a str,
    /// The program to copy and run there.
    pub program: &'a AgentProgram,
    /// True to keep the program cached on the machine for later runs.
    pub leave: bool,
    /// The role in which the program runs there.
    pub role: RemoteRole,
    /// True if ssh may prompt on the terminal, for a password or a host key.
    pub ask: bool,
}

/// Role of iotax's program on another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteRole {
    /// An agent, which generates load for this process.
    Agent,
    /// A member of a fleet, which carries out plans itself.
    FleetMember,
}

impl RemoteRole {
    /// Returns the command-line arguments that select this role.
    const fn command(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::FleetMember => "fleet member",
        }
    }
}

/// Callback that records an agent in the undo log.
pub type RecordAgent<'a> =
    &'a mut dyn FnMut(RecordedAgent) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Starts an agent on another machine. When the client is dropped, the agent exits, and everything that it created is removed, except a
/// program that is kept cached ([`AgentLaunch::leave`]).
///
/// Calls `record` before anything is done on that machine, and again when the agent's directory exists and is still empty.
pub fn enter(
    visit: &AgentLaunch<'_>,
    interrupt: &Interrupt,
    record: RecordAgent<'_>,
) -> Result<AgentClient, RemoteError> {
    let process = start(visit, interrupt, record)?;
    Ok(AgentClient::through(process, format!("the agent on {}", visit.host), interrupt))
}

/// Starts the program in any role, as [`enter`] does for an agent. Returns the connected process, positioned at the program's first
/// message.
pub fn start(
    visit: &AgentLaunch<'_>,
    interrupt: &Interrupt,
    record: RecordAgent<'_>,
) -> Result<AgentProcess<BufReader<ChildStdout>>, RemoteError> {
    let AgentLaunch { host, port, tag, program, leave, role, ask, .. } = *visit;
    let (mark, sudo) = (mark(tag), host.sudo_command());
    let yes = |is_so| if is_so { "yes" } else { "" };
    let (leave, fleeting) = (yes(leave), yes(host.machine.shares_kernel()));
    let call = format!(
        "enter {tag} {mark} {} {} '{leave}' '{sudo}' '{}' '{fleeting}'\n",
        program.sha256,
        program.length,
        role.command()
    );
    let command = port.map_or_else(|| reach::shell(&host.machine, ask), reach::relay);
    let mut session = RemoteSession::through(command, host, tag, &format!("{ENTER}{call}"))?;
    match converse(&mut session, visit, interrupt, record) {
        Ok(stdout) => Ok(session.into_process(stdout)),
        Err(error) => {
            session.end();
            Err(error)
        }
    }
}

/// Answers the script's requests until the agent starts. Returns the script's stdout, positioned at the agent's first message.
fn converse(
    session: &mut RemoteSession,
    visit: &AgentLaunch<'_>,
    interrupt: &Interrupt,
    record: RecordAgent<'_>,
) -> Result<BufReader<ChildStdout>, RemoteError> {
    let AgentLaunch { host, port, program, tag, target, .. } = *visit;
    let agent = |directory| RecordedAgent {
        host: host.clone(),
        tag: tag.to_owned(),
        sha256: program.sha256.clone(),
        target: target.to_owned(),
        domain: port.map(|port| port.domain.clone()),
        directory,
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
        } else if let Some(directory) = line.strip_prefix("place ").and_then(RemoteDirectory::parse) {
            record(agent(Some(directory))).map_err(RemoteError::NotRecorded)?;
            session.send(b"go\n");
        } else if line == "want" {
            session.send_file(&program.path, interrupt)?;
            patience += Duration::from_secs(program.length / SLOWEST);
        } else {
            return Err(refused(host, &line));
        }
    }
}

/// Ends an agent and removes everything that it left on its machine, except a cached program. `ask` allows ssh to prompt for a password.
pub fn leave(agent: &RecordedAgent, ask: bool) -> Result<(), RemoteError> {
    if let Some(domain) = &agent.domain {
        return leave_guest(agent, domain);
    }
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

/// Ends an agent in a guest and removes what it left there, through the QEMU guest agent, because the virtio-serial port may already be
/// detached. Does nothing if the directory was in memory and the guest is off.
fn leave_guest(agent: &RecordedAgent, domain: &DomainAddress) -> Result<(), RemoteError> {
    // What was in memory is gone with it.
    if agent.directory.as_ref().is_some_and(|directory| directory.boot != "-") && domain.is_off() {
        return Ok(());
    }
    let host = agent.host.clone();
    let left = |said: String| RemoteError::Left { host: host.clone(), said };
    match domain.run_script(&format!("{LEAVE}{}", leaving(agent)), &[], REMOVAL) {
        Ok(GuestExit { status: Some(0), .. }) => Ok(()),
        Ok(GuestExit { said, .. }) => Err(left(said)),
        Err(error) => {
            Err(left(format!("{error}; start the guest and its guest agent, and run iotax clean again")))
        }
    }
}

/// Returns the command line that makes the script remove an agent. The directory's path comes from the other machine and must be quoted.
fn leaving(agent: &RecordedAgent) -> String {
    let directory = agent.directory.as_ref().map_or_else(
        || "'' '' '' ''".to_owned(),
        |directory| {
            let RemoteDirectory { inode, parent, boot, path } = directory;
            format!("{inode} {parent} {} {}", quoted(boot), quoted(path))
        },
    );
    format!(
        "leave {} {} '{}' {directory}\n",
        mark(&agent.tag),
        quoted(&agent.sha256),
        agent.host.sudo_command()
    )
}

#[cfg(test)]
mod tests;
