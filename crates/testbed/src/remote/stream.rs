//! Writes a file on another machine or in a container with confirmation of each write, and reads such a file back.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::process::ChildStdout;

use iotax_model::target::Remote;

use super::session::{RemoteSession, SessionOutput};
use super::{LOGIN, LOGIN_ASKING, RemoteError, RemoteHost, quoted};
use crate::agent_client::AgentProcess;
use crate::interrupt::Interrupt;

/// Line of a remote script that runs: the machine is reached and has a shell.
const SHELL: &str = "shell";

/// A new file on another machine, written through tee(1), whose output confirms each write.
#[derive(Debug)]
pub struct RemoteStream(AgentProcess<BufReader<ChildStdout>>);

impl RemoteStream {
    /// Creates the file on the other machine. Fails if it exists or cannot be created.
    pub fn create(remote: &Remote, tag: &str, ask: bool, interrupt: &Interrupt) -> Result<Self, RemoteError> {
        let path = quoted(&remote.path.display().to_string());
        let script = format!(
            "echo '{tag} {SHELL}'\n\
             if [ -e {path} ] || [ -h {path} ]; then echo '{tag} it exists; accepted: a new file'; exit 1; fi\n\
             set -C\n: > {path} && {{ echo '{tag} agent'; exec tee -- {path}; }}\nexit 1\n"
        );
        open(remote, tag, ask, interrupt, &script).map(Self)
    }

    /// Appends bytes and waits until tee(1) on the other machine has written them. Fails soon after tee could not write: it confirms all the
    /// same, and complains.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.stdin.write_all(bytes)?;
        let mut confirmed = vec![0; bytes.len()];
        self.0.stdout.read_exact(&mut confirmed)?;
        if confirmed != bytes {
            return Err(io::Error::other("the other side wrote other bytes"));
        }
        let said = self.0.said.lock().map(|said| String::from_utf8_lossy(&said).into_owned());
        let complaint =
            said.unwrap_or_default().lines().find(|line| line.starts_with("tee: ")).map(str::to_owned);
        complaint.map_or(Ok(()), |complaint| Err(io::Error::other(complaint)))
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        let _ = self.0.child.kill();
        let _ = self.0.child.wait();
    }
}

/// Copies a file from another machine into `into`.
pub fn read(
    remote: &Remote,
    tag: &str,
    ask: bool,
    interrupt: &Interrupt,
    into: &mut File,
) -> Result<(), RemoteError> {
    let path = quoted(&remote.path.display().to_string());
    let script =
        format!("echo '{tag} {SHELL}'\nexec 3< {path} && {{ echo '{tag} agent'; exec cat <&3; }}\nexit 1\n");
    let AgentProcess { mut child, stdin, mut stdout, .. } = open(remote, tag, ask, interrupt, &script)?;
    drop(stdin);
    let copied = io::copy(&mut stdout, into);
    let _ = child.kill();
    let _ = child.wait();
    copied.map(drop).map_err(|source| RemoteError::Local { host: host(remote), source })
}

fn host(remote: &Remote) -> RemoteHost {
    RemoteHost { machine: remote.machine.clone(), sudo: false }
}

/// Starts a remote script and waits until it announces that its stdin and stdout now carry the file's content. Before that it announces that
/// a shell runs it, and gives the reason if it refuses the file.
fn open(
    remote: &Remote,
    tag: &str,
    ask: bool,
    interrupt: &Interrupt,
    script: &str,
) -> Result<AgentProcess<BufReader<ChildStdout>>, RemoteError> {
    let host = host(remote);
    let mut session = RemoteSession::open(&host, tag, ask, script)?;
    let mut has_shell = false;
    let error = loop {
        match session.hear(if ask { LOGIN_ASKING } else { LOGIN }, interrupt) {
            Ok(Some(SessionOutput::Frames(stdout))) => return Ok(session.into_process(stdout)),
            Ok(Some(SessionOutput::Line(line))) if line == SHELL => has_shell = true,
            Ok(Some(SessionOutput::Line(reason))) => break refused(remote, &reason),
            Ok(None) if has_shell => break refused(remote, &session.words()),
            Ok(None) => break RemoteError::Unreachable { host, said: session.words() },
            Err(error) => break error,
        }
    };
    session.end();
    Err(error)
}

fn refused(remote: &Remote, reason: &str) -> RemoteError {
    RemoteError::Refused { host: host(remote), reason: format!("{}: {reason}", remote.path.display()) }
}
