//! Connects an agent with its worker process, which uses pipes like a member behind ssh.

use std::io::{Read, Write};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use iotax_model::threads;
use iotax_model::wire;

use super::member::{Agent, Feeder, MemberEvent};
use crate::message::ToMember;
use crate::pipe::MAX_MESSAGE;

/// Maximum time to wait until the coordinator has acknowledged the last messages of a worker process that has ended.
const SETTLE: Duration = Duration::from_secs(10);

impl Agent {
    /// Forwards messages between the coordinator and the worker process until either end is gone or forwarding fails, and returns the
    /// reason. Waits at most `patience` for each message, and calls `on_poll` before each wait. Afterwards, `input` is closed and the
    /// process undoes its changes; wait for its end before calling [`Self::free`].
    pub fn carry(
        &mut self,
        output: impl Read + Send + 'static,
        input: impl Write + Send + 'static,
        patience: Duration,
        mut on_poll: impl FnMut(&mut Self),
    ) -> String {
        let feeder = self.feeder();
        let reading = threads::spawn("from process", move || read_all(output, &feeder));
        let (to_process, messages) = mpsc::channel();
        // A hanging process does not read its input. A separate thread writes to it, so that the agent can still show that it is alive.
        let writing = threads::spawn("to process", move || write_all(input, &messages));
        if let Err(error) = reading.and(writing) {
            return error.to_string();
        }
        loop {
            on_poll(self);
            match self.next(patience) {
                Ok(Some(MemberEvent::Coordinator(message))) => drop(to_process.send(message)),
                Ok(Some(MemberEvent::Local(message))) => {
                    if let Err(error) = self.send(&message) {
                        return error.to_string();
                    }
                }
                Ok(Some(MemberEvent::LocalEnded)) => {
                    self.settle(SETTLE);
                    return "the process that did the work has ended".into();
                }
                Ok(None) => {}
                Err(error) => return error.to_string(),
            }
        }
    }
}

fn read_all(mut output: impl Read, feeder: &Feeder) {
    while let Ok(Some(message)) = wire::receive_up_to(&mut output, MAX_MESSAGE) {
        feeder.feed(Some(message));
    }
    feeder.feed(None);
}

fn write_all(mut input: impl Write, messages: &Receiver<ToMember>) {
    for message in messages {
        if wire::send_up_to(&mut input, &message, MAX_MESSAGE).is_err() {
            return;
        }
    }
}
