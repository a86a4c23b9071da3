//! Simulated members that measure nothing, and a simulated coordinator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iotax_fleet::link::{Hub, Incoming, To};
use iotax_fleet::message::{FromMember, Merged, RunPart, ToMember};
use iotax_fleet::nats::{Address, Agent, AgentName, MemberEvent, NatsHub};
use iotax_model::{Histogram, RunState, Warning, WarningKind};

/// The time without a message after which tests give up a member.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The longest a test waits for anything.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// An agent in a thread that answers pings and sends a number of parts at `Begin`.
pub(crate) struct Double {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Double {
    /// Starts an agent that sends `parts` parts.
    pub(crate) fn start(url: &str, name: &str, parts: u64) -> Self {
        let address: Address = url.parse().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let who = AgentName { name: name.into(), group: address.group.clone(), version: "1.0".into() };
        let mut agent = Agent::enlist(&address, &who).unwrap();
        let is_over = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut ends = Vec::new();
            while !is_over.load(Ordering::Relaxed) && !agent.is_draining() {
                if agent.wait(Duration::from_millis(50)).unwrap().is_some() {
                    let reason = work(&mut agent, parts);
                    agent.free(&reason);
                    ends.push(reason);
                }
            }
            ends
        });
        Self { stop, thread: Some(thread) }
    }

    /// Waits for the end of the agent. Returns the reason for the end of each of its tasks.
    pub(crate) fn join(mut self) -> Vec<String> {
        self.thread.take().unwrap().join().unwrap()
    }

    /// Ends the agent as soon as its current task is over.
    pub(crate) fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn work(agent: &mut Agent, parts: u64) -> String {
    loop {
        let received = match agent.next(Duration::from_millis(50)) {
            Ok(Some(MemberEvent::Coordinator(received))) => received,
            Ok(_) => continue,
            Err(error) => return error.to_string(),
        };
        let sent = match received {
            ToMember::Ping { number } => agent.send(&FromMember::Pong {
                number,
                received_member_ns: 1,
                sent_member_ns: 2,
                chrony_error_ns: None,
            }),
            ToMember::Begin => (1..=parts).try_for_each(|number| {
                agent.send(&FromMember::Sample(sample(number)))?;
                agent.send(&part(number))?;
                // Slow enough for what a test does in the meantime.
                agent.next(Duration::from_millis(1)).map(drop)
            }),
            ToMember::Cancel => agent.send(&FromMember::Over { state: RunState::Interrupted, reason: None }),
            _ => Ok(()),
        };
        if let Err(error) = sent {
            return error.to_string();
        }
    }
}

/// A part with text that does not compress well.
pub(crate) fn part(number: u64) -> FromMember {
    let words = (0..200).map(|i| format!("{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i));
    let text = words.collect::<Vec<_>>().concat();
    let warning = Warning {
        kind: WarningKind::Incomplete,
        target: None,
        workload: None,
        round: None,
        evidence: text,
        remedy: String::new(),
    };
    FromMember::Kept { number, part: Box::new(RunPart::Warning(warning)) }
}

fn sample(number: u64) -> Merged {
    let mut latency = Histogram::new();
    latency.add(number);
    Merged { step: 1, interval: 0, members: 1, ios: 1, bytes: 512, latency }
}

/// A coordinator for these simulated members.
pub(crate) fn hub(url: &str, fleet: &str) -> NatsHub {
    NatsHub::open_with(&url.parse().unwrap(), fleet, "1.0", None, PATIENCE).unwrap()
}

/// Receives until `enough` returns true. Returns all events.
pub(crate) fn receive(hub: &mut NatsHub, mut enough: impl FnMut(&[Incoming]) -> bool) -> Vec<Incoming> {
    let until = Instant::now() + LONG;
    let mut all = Vec::new();
    while !enough(&all) {
        assert!(Instant::now() < until, "not enough after {LONG:?}: {} came in", all.len());
        all.extend(hub.receive(Duration::from_millis(200)).unwrap());
    }
    all
}

/// Returns the numbers of a member's parts in order of arrival.
pub(crate) fn numbers(all: &[Incoming], name: &str) -> Vec<u64> {
    let number = |incoming: &Incoming| match incoming {
        Incoming::Message { member, message: FromMember::Kept { number, .. }, .. } if member == name => {
            Some(*number)
        }
        _ => None,
    };
    all.iter().filter_map(number).collect()
}

/// Returns the number of parts received from all members.
pub(crate) fn parts(all: &[Incoming]) -> usize {
    all.iter().filter(|one| matches!(one, Incoming::Message { message: FromMember::Kept { .. }, .. })).count()
}

/// Tells all members to begin.
pub(crate) fn begin(hub: &mut NatsHub) {
    hub.send(To::All, &ToMember::Begin).unwrap();
}
