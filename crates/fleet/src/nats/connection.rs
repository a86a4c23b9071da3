//! A connection to a NATS server: a thread that runs the client, with a queue in each direction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, Event};
use futures_util::StreamExt;
use futures_util::stream::SelectAll;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::address::Address;
use crate::link::LinkError;
use crate::message::FromMember;
use crate::pipe::monotonic_ns;
use iotax_model::threads;

/// Maximum number of received messages queued in the client for each subscription; with more, the client drops some.
const CAPACITY: usize = 1 << 16;

/// Maximum time between two attempts to reconnect.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The reason why NATS cannot be used.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum NatsError {
    /// A file named in the URL cannot be read or has the wrong content, or this process cannot start the client or subscribe.
    #[error("{0}")]
    Files(String),
    /// The server does not answer, or rejects this client.
    #[error("{server}: {reason}")]
    Connect {
        /// URL of the server.
        server: String,
        /// The reason that the client or the server gives.
        reason: String,
    },
    /// Not enough agents are free, or accept the fleet.
    #[error("{}", missing(*.found, *.expected, .group.as_deref(), .others))]
    Missing {
        /// Number of free agents.
        found: usize,
        /// Number of agents needed.
        expected: usize,
        /// Group that the agents must belong to; `None` for any.
        group: Option<String>,
        /// Agents that are present but cannot be used, each with the reason.
        others: Vec<String>,
    },
    /// The link has ended.
    #[error(transparent)]
    Link(#[from] LinkError),
}

fn missing(found: usize, expected: usize, group: Option<&str>, others: &[String]) -> String {
    let group = group.map_or(String::new(), |group| format!(" of group {group:?}"));
    let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join("; ")) };
    format!(
        "{found} of {expected} agents{group} are there and free{others}; start more with `iotax agent --nats URL`, or wait longer: wait=60s"
    )
}

/// An event from the connection or from another thread of this process.
#[derive(Debug)]
pub(super) enum Arrival {
    Message {
        subject: String,
        payload: Vec<u8>,
        /// Arrival time in nanoseconds of the monotonic clock.
        at_ns: u64,
    },
    /// The connection to the server is established, or restored after a loss.
    Connected,
    /// Another thread of this process sent a message, or has ended.
    Local {
        /// Number of the thread, which is higher for later threads.
        thread: u64,
        /// The message; `None` when the thread has ended.
        message: Option<Box<FromMember>>,
    },
}

/// Counters shared with the client's thread.
#[derive(Debug, Default)]
struct Shared {
    lost: AtomicU64,
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    received: AtomicU64,
    received_bytes: AtomicU64,
}

/// A connection to a NATS server, with the thread that runs the client.
#[derive(Debug)]
pub(super) struct Connection {
    outgoing: UnboundedSender<(String, Vec<u8>)>,
    arrivals: mpsc::Sender<Arrival>,
    incoming: mpsc::Receiver<Arrival>,
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Connection {
    /// Connects and subscribes to subjects. With `is_patient`, keeps trying while the server is unreachable; returns other errors
    /// immediately.
    pub(super) fn open(
        address: &Address,
        name: &str,
        subjects: Vec<String>,
        is_patient: bool,
    ) -> Result<Self, NatsError> {
        let (outgoing, to_send) = unbounded_channel();
        let (arrivals, incoming) = mpsc::channel();
        let (result_sender, opened) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let pump = Pump { arrivals: arrivals.clone(), shared: Arc::clone(&shared) };
        let (address, name) = (address.clone(), name.to_owned());
        let thread = threads::spawn("nats", move || {
            pump.run(&address, &name, subjects, is_patient, to_send, &result_sender);
        })
        .map_err(|error| NatsError::Files(format!("NATS: {error}")))?;
        opened.recv().unwrap_or_else(|_| {
            Err(NatsError::Link(LinkError::Closed("the client of NATS has ended".into())))
        })?;
        Ok(Self { outgoing, arrivals, incoming, shared, thread: Some(thread) })
    }

    /// Publishes a message. While the server is unreachable, messages are lost.
    pub(super) fn publish(&self, subject: String, payload: Vec<u8>) {
        let _ = self.outgoing.send((subject, payload));
    }

    /// Waits up to `patience` for the next event; `None` if there is none in that time.
    pub(super) fn receive(&self, patience: Duration) -> Result<Option<Arrival>, LinkError> {
        match self.incoming.recv_timeout(patience) {
            Ok(arrival) => Ok(Some(arrival)),
            Err(_) if self.thread.as_ref().is_some_and(thread::JoinHandle::is_finished) => {
                Err(LinkError::Closed("the client of NATS has ended".into()))
            }
            Err(_) => Ok(None),
        }
    }

    /// Returns a sender with which other threads add events for [`Self::receive`].
    pub(super) fn arrivals(&self) -> mpsc::Sender<Arrival> {
        self.arrivals.clone()
    }

    /// Returns the number of messages that the client dropped because this process read too slowly.
    pub(super) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Returns the numbers of messages and bytes sent since the connection was opened; the bytes include subjects.
    pub(super) fn sent(&self) -> (u64, u64) {
        (self.shared.sent.load(Ordering::Relaxed), self.shared.sent_bytes.load(Ordering::Relaxed))
    }

    /// Returns the numbers of messages and bytes received since the connection was opened; the bytes include subjects.
    pub(super) fn received(&self) -> (u64, u64) {
        (self.shared.received.load(Ordering::Relaxed), self.shared.received_bytes.load(Ordering::Relaxed))
    }
}

impl Drop for Connection {
    /// Hands the queued messages to the client, waits up to 1 s for it to send them, and ends its thread. While the server is unreachable,
    /// messages are lost.
    fn drop(&mut self) {
        let (closed, _) = unbounded_channel();
        drop(std::mem::replace(&mut self.outgoing, closed));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the client's thread.
struct Pump {
    arrivals: mpsc::Sender<Arrival>,
    shared: Arc<Shared>,
}

impl Pump {
    fn run(
        self,
        address: &Address,
        name: &str,
        subjects: Vec<String>,
        is_patient: bool,
        to_send: UnboundedReceiver<(String, Vec<u8>)>,
        result_sender: &mpsc::Sender<Result<(), NatsError>>,
    ) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = result_sender.send(Err(NatsError::Files(format!("no runtime for NATS: {error}"))));
                return;
            }
        };
        runtime.block_on(async {
            match self.connect(address, name, is_patient).await {
                Ok(client) => self.carry(&client, subjects, to_send, result_sender).await,
                Err(error) => drop(result_sender.send(Err(error))),
            }
        });
    }

    async fn connect(&self, address: &Address, name: &str, is_patient: bool) -> Result<Client, NatsError> {
        loop {
            let (events, shared) = (self.arrivals.clone(), Arc::clone(&self.shared));
            let options = address.options().map_err(NatsError::Files)?;
            let connected = options
                .name(name)
                .subscription_capacity(CAPACITY)
                .connection_timeout(Duration::from_secs(5))
                .max_reconnects(None)
                .reconnect_delay_callback(|attempts| {
                    LONGEST_PAUSE.min(Duration::from_millis(50) * u32::try_from(attempts).unwrap_or(u32::MAX))
                })
                .event_callback(move |event| {
                    match event {
                        Event::Connected => drop(events.send(Arrival::Connected)),
                        Event::SlowConsumer(_) => drop(shared.lost.fetch_add(1, Ordering::Relaxed)),
                        _ => {}
                    }
                    std::future::ready(())
                })
                .connect(address.server.as_str())
                .await;
            match connected {
                Ok(client) => return Ok(client),
                Err(error)
                    if is_patient
                        && matches!(error.kind(), ConnectErrorKind::Io | ConnectErrorKind::TimedOut) =>
                {
                    tokio::time::sleep(LONGEST_PAUSE / 2).await;
                }
                Err(error) => {
                    let reason = error.to_string();
                    return Err(NatsError::Connect { server: address.server.clone(), reason });
                }
            }
        }
    }

    async fn carry(
        &self,
        client: &Client,
        subjects: Vec<String>,
        mut to_send: UnboundedReceiver<(String, Vec<u8>)>,
        result_sender: &mpsc::Sender<Result<(), NatsError>>,
    ) {
        let mut incoming = SelectAll::new();
        for subject in subjects {
            match client.subscribe(subject).await {
                Ok(subscription) => incoming.push(subscription),
                Err(error) => {
                    let reason = error.to_string();
                    let _ = result_sender.send(Err(NatsError::Files(reason)));
                    return;
                }
            }
        }
        // After the flush, the server has registered the subscriptions.
        let _ = client.flush().await;
        if result_sender.send(Ok(())).is_err() {
            return;
        }
        loop {
            tokio::select! {
                message = incoming.next(), if !incoming.is_empty() => {
                    let Some(message) = message else { continue };
                    let bytes = message.subject.len() + message.payload.len();
                    self.shared.received.fetch_add(1, Ordering::Relaxed);
                    self.shared.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                    let arrival = Arrival::Message {
                        subject: message.subject.to_string(),
                        payload: message.payload.to_vec(),
                        at_ns: monotonic_ns(),
                    };
                    if self.arrivals.send(arrival).is_err() {
                        break;
                    }
                }
                message = to_send.recv() => {
                    let Some((subject, payload)) = message else { break };
                    self.publish(client, subject, payload).await;
                }
            }
        }
        // Deliver the last messages, which often report the end of the work.
        let _ = tokio::time::timeout(Duration::from_secs(1), client.flush()).await;
    }

    async fn publish(&self, client: &Client, subject: String, payload: Vec<u8>) {
        // While disconnected, the client would queue the frame; the stream repeats it anyway.
        if client.connection_state() != State::Connected {
            return;
        }
        self.shared.sent.fetch_add(1, Ordering::Relaxed);
        self.shared.sent_bytes.fetch_add((subject.len() + payload.len()) as u64, Ordering::Relaxed);
        let _ = client.publish(subject, payload.into()).await;
    }
}
