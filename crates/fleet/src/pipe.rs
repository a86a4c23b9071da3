//! Links over pipes to child processes, which may be ssh connections to other machines.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use iotax_model::threads;
use iotax_model::wire::{self, WireError};
use rustix::time::{ClockId, clock_gettime};

use crate::link::{Hub, Incoming, LinkError, MemberLink, To};
use crate::message::{FromMember, ToMember};

/// Maximum length of a message in bytes, enough for a measurement with a histogram for each of its intervals.
pub(crate) const MAX_MESSAGE: u32 = 64 << 20;

/// Returns the nanoseconds of the machine's monotonic clock, which is the same for all its processes.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The coordinator's end of the pipes to all members.
#[derive(Debug)]
pub struct PipeHub {
    members: HashMap<String, Sender<ToMember>>,
    sender: Sender<Incoming>,
    incoming: Receiver<Incoming>,
}

impl Default for PipeHub {
    fn default() -> Self {
        let (sender, incoming) = mpsc::channel();
        Self { members: HashMap::new(), sender, incoming }
    }
}

impl PipeHub {
    /// Adds a member that writes to `output` and reads from `input`. The member counts as lost once no more messages can be read from
    /// `output`, or if a thread cannot be started.
    pub fn add(
        &mut self,
        name: &str,
        output: impl Read + Send + 'static,
        input: impl Write + Send + 'static,
    ) {
        let (to_member, messages) = mpsc::channel();
        self.members.insert(name.to_owned(), to_member);
        // A member that hangs does not read, and must not keep the others waiting.
        let writing = threads::spawn("to member", move || write_all(input, &messages));
        let (member, sender) = (name.to_owned(), self.sender.clone());
        let reading = threads::spawn("from member", move || read_all(&member, output, &sender));
        if let Err(error) = writing.and(reading) {
            let _ = self.sender.send(Incoming::Lost { member: name.to_owned(), reason: error.to_string() });
        }
    }
}

fn write_all(mut input: impl Write, messages: &Receiver<ToMember>) {
    for message in messages {
        // A member that no longer reads is gone; `read_all` reports the loss.
        if wire::send_up_to(&mut input, &message, MAX_MESSAGE).is_err() {
            return;
        }
    }
}

fn read_all(name: &str, mut output: impl Read, sender: &Sender<Incoming>) {
    loop {
        let incoming = match wire::receive_up_to(&mut output, MAX_MESSAGE) {
            Ok(Some(message)) => {
                Incoming::Message { member: name.to_owned(), message, at_ns: monotonic_ns() }
            }
            Ok(None) => Incoming::Lost { member: name.to_owned(), reason: "its connection ended".into() },
            Err(error) => Incoming::Lost { member: name.to_owned(), reason: error.to_string() },
        };
        let is_last = matches!(incoming, Incoming::Lost { .. });
        if sender.send(incoming).is_err() || is_last {
            return;
        }
    }
}

impl Hub for PipeHub {
    fn send(&mut self, to: To<'_>, message: &ToMember) -> Result<(), LinkError> {
        let all = self.members.iter().filter(|(name, _)| match to {
            To::One(one) => one == name.as_str(),
            To::All => true,
        });
        for (_, member) in all {
            let _ = member.send(message.clone());
        }
        Ok(())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Incoming>, LinkError> {
        match self.incoming.recv_timeout(patience) {
            Ok(incoming) => Ok(Some(incoming)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    fn close(&mut self, member: &str) {
        // The writing thread sends the queued messages, then ends and closes the stream.
        self.members.remove(member);
    }
}

/// The member's end of a pair of pipes.
#[derive(Debug)]
pub struct PipeLink<W> {
    output: Mutex<W>,
    messages: Mutex<Receiver<Result<ToMember, LinkError>>>,
}

impl<W: Write + Send> PipeLink<W> {
    /// Creates the link to a coordinator. The member reads from `input`, and writes to `output`.
    pub fn new(mut input: impl Read + Send + 'static, output: W) -> Self {
        let (sender, messages) = mpsc::channel();
        let failures = sender.clone();
        let reading = threads::spawn("from coordinator", move || {
            loop {
                let message = match wire::receive_up_to(&mut input, MAX_MESSAGE) {
                    Ok(Some(message)) => Ok(message),
                    Ok(None) => Err(LinkError::Closed("the coordinator is gone".into())),
                    Err(WireError::Stream(error)) => Err(LinkError::Closed(error.to_string())),
                    Err(error) => Err(LinkError::Garbled(error.to_string())),
                };
                let is_last = message.is_err();
                if sender.send(message).is_err() || is_last {
                    return;
                }
            }
        });
        if let Err(error) = reading {
            let _ = failures.send(Err(LinkError::Closed(error.to_string())));
        }
        drop(failures);
        Self { output: Mutex::new(output), messages: Mutex::new(messages) }
    }
}

impl<W: Write + Send> MemberLink for PipeLink<W> {
    fn send(&self, message: &FromMember) -> Result<(), LinkError> {
        let closed = |reason: &str| LinkError::Closed(reason.to_owned());
        let mut output = self.output.lock().map_err(|_| closed("a thread that wrote to it died"))?;
        wire::send_up_to(&mut *output, message, MAX_MESSAGE).map_err(|error| match error {
            WireError::Stream(error) => closed(&error.to_string()),
            other => LinkError::Garbled(other.to_string()),
        })
    }

    fn receive(&self, patience: Duration) -> Result<Option<ToMember>, LinkError> {
        let closed = || LinkError::Closed("the coordinator is gone".into());
        let messages = self.messages.lock().map_err(|_| closed())?;
        match messages.recv_timeout(patience) {
            Ok(message) => message.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(closed()),
        }
    }
}
