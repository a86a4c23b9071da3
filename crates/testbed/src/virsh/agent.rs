//! Runs commands in a guest through the QEMU guest agent.

use std::time::{Duration, Instant};

use data_encoding::BASE64;
use iotax_model::threads;
use serde_json::{Value, json};

use super::DomainAddress;
use crate::program::ProgramError;

/// Time for the guest agent to answer one command, in seconds: an emulated guest on a busy host is slow.
const ANSWER: &str = "20";
/// Interval at which to check whether a command has ended.
const POLL: Duration = Duration::from_millis(200);

/// A command that the guest agent started, by its process id in the guest.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuestProcess(i64);

/// The exit status and the error output of a command in the guest.
#[derive(Debug)]
pub(crate) struct GuestExit {
    /// The exit status; `None` if a signal ended the command.
    pub(crate) status: Option<i32>,
    /// The command's stderr, without white space at its ends.
    pub(crate) said: String,
}

impl DomainAddress {
    /// Checks that the guest agent answers within 20 s.
    ///
    /// # Errors
    /// The guest agent is missing, not running, or does not answer.
    pub fn ping(&self) -> Result<(), ProgramError> {
        self.ask(&json!({ "execute": "guest-ping" })).map(drop)
    }

    /// Runs a shell script in the guest and waits for its end. The script gets `arguments` as `$1` and so on.
    ///
    /// # Errors
    /// The guest agent does not answer or may not run commands, or the script runs longer than `patience`.
    pub(crate) fn run_script(
        &self,
        script: &str,
        arguments: &[&str],
        patience: Duration,
    ) -> Result<GuestExit, ProgramError> {
        let process = self.start_script(script, arguments)?;
        self.wait_for(process, patience)
    }

    /// Starts a shell script in the guest.
    pub(super) fn start_script(
        &self,
        script: &str,
        arguments: &[&str],
    ) -> Result<GuestProcess, ProgramError> {
        let words: Vec<&str> = ["-c", script, "sh"].into_iter().chain(arguments.iter().copied()).collect();
        let command = json!({
            "execute": "guest-exec",
            "arguments": { "path": "/bin/sh", "arg": words, "capture-output": true },
        });
        let answer = self.ask(&command)?;
        answer["pid"].as_i64().map(GuestProcess).ok_or_else(|| not_understood(&answer))
    }

    /// Waits until a command in the guest has ended. Fails if it runs longer than `patience`.
    pub(super) fn wait_for(
        &self,
        process: GuestProcess,
        patience: Duration,
    ) -> Result<GuestExit, ProgramError> {
        let command = json!({ "execute": "guest-exec-status", "arguments": { "pid": process.0 } });
        let end = Instant::now() + patience;
        loop {
            let answer = self.ask(&command)?;
            if answer["exited"].as_bool() == Some(true) {
                let status = answer["exitcode"].as_i64().and_then(|status| i32::try_from(status).ok());
                let said = answer["err-data"].as_str().unwrap_or_default();
                let said = BASE64.decode(said.as_bytes()).map_err(|_| not_understood(&answer))?;
                return Ok(GuestExit { status, said: String::from_utf8_lossy(&said).trim().to_owned() });
            }
            if Instant::now() > end {
                return Err(failed(format!("it has not ended after {} s", patience.as_secs())));
            }
            threads::sleep(POLL);
        }
    }

    /// Sends a command to the guest agent and returns the value of `return` in its answer.
    fn ask(&self, command: &Value) -> Result<Value, ProgramError> {
        let answer = self.run("qemu-agent-command", &["--timeout", ANSWER, &command.to_string()]);
        // The whole command is a script of many lines.
        let answer = answer.map_err(|error| match error {
            ProgramError::Failed { reason, .. } => failed(reason),
            other @ ProgramError::NotFound { .. } => other,
        })?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        answer.get("return").cloned().ok_or_else(|| not_understood(&answer))
    }
}

fn not_understood(answer: &Value) -> ProgramError {
    failed(format!("the guest agent's answer is not understood: {answer}"))
}

fn failed(reason: String) -> ProgramError {
    ProgramError::Failed { command: "virsh qemu-agent-command".into(), reason }
}
