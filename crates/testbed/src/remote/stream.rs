//! Writes a file on another machine or in a container with confirmation of each write, and reads such a file back.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use iotax_model::target::Remote;

use super::session::{RemoteSession, SessionOutput};
use super::{LOGIN, LOGIN_ASKING, RemoteError, RemoteHost, quoted};
use crate::interrupt::Interrupt;

/// A new file on another machine, written through tee(1), whose output confirms each write.
#[derive(Debug)]
pub struct RemoteStream {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl RemoteStream {
    /// Creates the file on the other machine. Fails if it exists or cannot be created.
    pub fn create(remote: &Remote, tag: &str, ask: bool, interrupt: &Interrupt) -> Result<Self, RemoteError> {
        let path = quoted(&remote.path.display().to_string());
        let script = format!("set -C\n: > {path} && {{ echo '{tag} agent'; exec tee -- {path}; }}\nexit 1\n");
        let (child, stdin, stdout) = open(remote, tag, ask, interrupt, &script)?;
        Ok(Self { child, stdin, stdout })
    }

    /// Appends bytes and waits until tee(1) on the other machine has written them.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdin.write_all(bytes)?;
        let mut confirmed = vec![0; bytes.len()];
        self.stdout.read_exact(&mut confirmed)?;
        if confirmed == bytes { Ok(()) } else { Err(io::Error::other("the other side wrote other bytes")) }
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
    let script = format!("exec 3< {path} && {{ echo '{tag} agent'; exec cat <&3; }}\nexit 1\n");
    let (mut child, stdin, mut stdout) = open(remote, tag, ask, interrupt, &script)?;
    drop(stdin);
    let copied = io::copy(&mut stdout, into);
    let _ = child.kill();
    let _ = child.wait();
    copied.map(drop).map_err(|source| RemoteError::Local { host: host(remote), source })
}

fn host(remote: &Remote) -> RemoteHost {
    RemoteHost { machine: remote.machine.clone(), sudo: false }
}

/// Starts a remote script and waits until it announces that its stdin and stdout now carry the file's content.
fn open(
    remote: &Remote,
    tag: &str,
    ask: bool,
    interrupt: &Interrupt,
    script: &str,
) -> Result<(Child, ChildStdin, BufReader<ChildStdout>), RemoteError> {
    let host = host(remote);
    let mut session = RemoteSession::open(&host, tag, ask, script)?;
    match session.hear(if ask { LOGIN_ASKING } else { LOGIN }, interrupt) {
        Ok(Some(SessionOutput::Frames(stdout))) => {
            let process = session.into_process(stdout);
            Ok((process.child, process.stdin, process.stdout))
        }
        Ok(_) => {
            let said = session.words();
            session.end();
            Err(RemoteError::Unreachable { host, said })
        }
        Err(error) => {
            session.end();
            Err(error)
        }
    }
}
