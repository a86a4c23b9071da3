//! The server of streams and round trips. One thread accepts connections and reads their handshakes without blocking; each test then has a
//! separate thread.

mod acceptor;
mod error_log;
mod session;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::acceptor::{ClientRequest, PendingConnection};
use self::error_log::{ErrorLog, FailureKind};
use self::session::ServerSession;
use super::control::{Control, Cookie, NetError};
use super::handshake::Call;
use super::parameters::Parameters;
use super::report::{Start, TestInterval, TestReport};
use super::stream::Socket;
use super::{dial, handshake, streams};
use iotax_load::clock;
use iotax_model::threads;

/// Maximum number of connections with an incomplete handshake; with more, the oldest is dropped.
const MOST_PENDING: usize = 64;
/// Maximum number of concurrent tests at an agent's server.
const AGENTS_TESTS: usize = 64;
/// Number of concurrent round-trip tests that are permitted even if `most_tests` is lower.
const MOST_ROUND_TRIPS: usize = 8;
/// Interval at which the server checks for a stop and for connections past their deadline.
const POLL: Duration = Duration::from_millis(50);

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Serving {
    /// The address to listen on.
    pub bind: String,
    /// The port; 0 picks a free one.
    pub port: u16,
    /// The token that clients must know; `None` to accept all clients. iperf3 has no token.
    pub token: Option<String>,
    /// Maximum number of concurrent tests of streams; an iperf3 server runs one at a time. The limit for round-trip tests is separate: the
    /// same number, but at least 8.
    pub most_tests: usize,
    /// True if the server ends after its first completed test.
    pub one_off: bool,
}

/// An event of a server. The strings are test cookies, except in [`Self::Problem`].
#[derive(Debug)]
pub enum ServerEvent {
    /// The streams of a test are connected.
    Started(Start),
    /// An interval of the test with this cookie is over.
    Interval(String, TestInterval),
    /// A test has ended; this is its report.
    Ended(Box<TestReport>),
    /// The test with this cookie failed, before or after its start. [`Self::Problem`] gives the reason, once per kind of failure and
    /// address.
    Failed(String),
    /// A message about a failure; the text names the other end.
    Problem(String),
}

type Tell = Box<dyn Fn(ServerEvent) + Send + Sync>;

/// A running server. Dropping it ends the server.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<ServerState>,
    acceptor: Option<JoinHandle<()>>,
}

/// State shared by the threads of a server.
struct ServerState {
    serving: Serving,
    tell: Tell,
    tests: Mutex<Vec<ActiveTest>>,
    error_log: Mutex<ErrorLog>,
    stop: AtomicBool,
    is_over: AtomicBool,
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerState").field("port", &self.serving.port).finish_non_exhaustive()
    }
}

/// A running test, with the channel that passes new streams to it.
struct ActiveTest {
    cookie: Cookie,
    address: IpAddr,
    parameters: Parameters,
    /// Number of streams that are not connected yet.
    left: AtomicU32,
    streams: SyncSender<Arrival>,
    /// Client addresses of the UDP streams opened so far.
    peers: Mutex<Vec<SocketAddr>>,
}

/// A stream that has arrived: its number in the order of arrival, and its socket.
type Arrival = (u64, Socket);

impl Server {
    /// Starts a server for an agent, without reporting events. Port 0 picks a free port.
    ///
    /// # Errors
    /// The server cannot listen on the address.
    pub fn start(bind: &str, port: u16, token: Option<&str>) -> io::Result<Self> {
        let token = token.map(str::to_owned);
        let serving = Serving { bind: bind.into(), port, token, most_tests: AGENTS_TESTS, one_off: false };
        Self::listen(serving, Box::new(|_| {}))
    }

    /// Starts a server that reports events to `tell`.
    ///
    /// # Errors
    /// The server cannot listen on the address.
    pub fn listen(serving: Serving, tell: Tell) -> io::Result<Self> {
        // Calibration takes a moment, which would delay the first test.
        clock::calibrate();
        let (listener, datagrams) = dial::listen(&serving.bind, serving.port)?;
        let address = listener.local_addr()?;
        let server = Arc::new(ServerState {
            serving,
            tell,
            tests: Mutex::default(),
            error_log: Mutex::default(),
            stop: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let acceptor = Acceptor {
            server: Arc::clone(&server),
            listener,
            datagrams,
            pending: Vec::new(),
            accepted: 0,
            sessions: Vec::new(),
        };
        let acceptor = threads::spawn("server", move || acceptor.run())?;
        Ok(Self { address, state: server, acceptor: Some(acceptor) })
    }

    /// Returns the port that the server listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the address and port that the server listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether a one-off server has completed its test.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            // Rust has printed a panic there to stderr.
            drop(acceptor.join());
        }
    }
}

impl ServerState {
    fn tests(&self) -> MutexGuard<'_, Vec<ActiveTest>> {
        self.tests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the limit of concurrent tests is reached. Round-trip tests have a separate limit, because they cause little load.
    fn is_full(&self, round_trips: bool) -> bool {
        let tests = self.tests();
        let alike = tests.iter().filter(|entry| entry.parameters.round_trips().is_some() == round_trips);
        alike.count()
            >= if round_trips {
                self.serving.most_tests.max(MOST_ROUND_TRIPS)
            } else {
                self.serving.most_tests
            }
    }

    fn error_log(&self) -> MutexGuard<'_, ErrorLog> {
        self.error_log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a failure unless the same kind was already reported for this address.
    fn log_failure(&self, kind: FailureKind, address: IpAddr, more: &str) {
        let words = self.error_log().add(kind, address, more, Instant::now());
        words.into_iter().for_each(|words| self.problem(words));
    }

    /// Reports how often failures were repeated: those without a repetition for 10 s, or all with `end`.
    fn report_repeats(&self, now: Instant, end: bool) {
        let repeats = self.error_log().repeats(now, end);
        repeats.into_iter().for_each(|words| self.problem(words));
    }

    fn problem(&self, words: String) {
        (self.tell)(ServerEvent::Problem(words));
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_over.load(Ordering::Relaxed)
    }
}

/// The state of the thread that accepts connections.
struct Acceptor {
    server: Arc<ServerState>,
    listener: TcpListener,
    datagrams: UdpSocket,
    pending: Vec<PendingConnection>,
    /// Number of connections accepted so far, used to number the next one.
    accepted: u64,
    sessions: Vec<JoinHandle<()>>,
}

impl Acceptor {
    fn run(mut self) {
        while !self.server.stops() {
            self.wait();
            let now = Instant::now();
            self.accept(now);
            self.read_requests(now);
            self.answer_calls();
            self.server.report_repeats(now, false);
            self.sessions.retain(|session| !session.is_finished());
        }
        for session in self.sessions {
            drop(session.join());
        }
        self.server.report_repeats(Instant::now(), true);
    }

    /// Waits up to [`POLL`] until a connection or data arrives.
    fn wait(&self) {
        let timeout = Timespec::try_from(POLL).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 50_000_000 });
        let sockets = self.pending.iter().map(|connection| PollFd::new(&connection.socket, PollFlags::IN));
        let doors = [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.datagrams, PollFlags::IN)];
        let mut fds: Vec<PollFd<'_>> = doors.into_iter().chain(sockets).collect();
        if poll(&mut fds, Some(&timeout)).is_err() {
            threads::sleep(POLL);
        }
    }

    /// Accepts new connections, at most [`MOST_PENDING`] at a time; drops the oldest pending one if too many are pending.
    fn accept(&mut self, now: Instant) {
        // A flood of connections must not delay those already accepted.
        for _ in 0..MOST_PENDING {
            match self.listener.accept() {
                Ok((socket, address)) => {
                    self.accepted += 1;
                    let Ok(connection) = PendingConnection::new(socket, address.ip(), self.accepted, now)
                    else {
                        continue;
                    };
                    if self.pending.len() >= MOST_PENDING {
                        // Connections whose requests are complete leave the list.
                        self.read_requests(now);
                    }
                    if self.pending.len() >= MOST_PENDING {
                        let longest = self.pending.remove(0);
                        self.server.log_failure(FailureKind::TooMany, longest.address, "");
                    }
                    self.pending.push(connection);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Without free descriptors the call fails immediately: the pause avoids spinning.
                Err(_) => return threads::sleep(POLL),
            }
        }
    }

    /// Reads the requests of pending connections and starts what they request.
    fn read_requests(&mut self, now: Instant) {
        let pending = std::mem::take(&mut self.pending);
        for mut connection in pending {
            let server = Arc::clone(&self.server);
            let is_known = |cookie: &Cookie| server.tests().iter().any(|entry| entry.cookie == *cookie);
            match connection.advance(server.serving.token.as_deref(), is_known) {
                ClientRequest::Incomplete if connection.is_late(now) => {
                    self.server.log_failure(FailureKind::Timeout, connection.address, "");
                }
                ClientRequest::Incomplete => self.pending.push(connection),
                ClientRequest::Rejected(kind, why) => self.server.log_failure(kind, connection.address, &why),
                ClientRequest::Stream(cookie) => self.hand_over(connection, &cookie),
                ClientRequest::Test(cookie, parameters) => self.start_test(connection, cookie, *parameters),
            }
        }
    }

    /// Passes a connection as a stream to the test with this cookie; drops it if the test has all its streams or uses UDP.
    fn hand_over(&self, connection: PendingConnection, cookie: &Cookie) {
        let tests = self.server.tests();
        let Some(entry) = tests.iter().find(|entry| entry.cookie == *cookie) else { return };
        if !entry.parameters.udp && entry.takes_one() && connection.socket.set_nonblocking(false).is_ok() {
            // The channel has room for all streams; a test that is over needs none.
            drop(entry.streams.try_send((connection.number, Socket::Tcp(connection.socket))));
        }
    }

    /// Starts a test; refuses it if the limit of concurrent tests is reached.
    fn start_test(&mut self, mut connection: PendingConnection, cookie: Cookie, parameters: Parameters) {
        let (sends, receives) = parameters.streams();
        let streams = sends + receives;
        if self.server.is_full(parameters.round_trips().is_some()) {
            connection.deny(FailureKind::Busy);
            return self.server.log_failure(FailureKind::Busy, connection.address, "");
        }
        let address = connection.address;
        let Ok(control) = Control::new(connection.socket) else { return };
        let (sender, arrivals) = sync_channel(streams as usize);
        self.server.tests().push(ActiveTest {
            cookie,
            address,
            parameters: parameters.clone(),
            left: AtomicU32::new(streams),
            streams: sender,
            peers: Mutex::default(),
        });
        let server = Arc::clone(&self.server);
        let session = ServerSession { server: Arc::clone(&server), control, cookie, parameters, arrivals };
        let name = format!("test of {address}");
        let spawned = threads::spawn(&name, move || session.carry_out(address));
        match spawned {
            Ok(session) => self.sessions.push(session),
            Err(error) => {
                server.tests().retain(|entry| entry.cookie != cookie);
                server.problem(format!("{address}: no thread for its test: {error}"));
            }
        }
    }

    /// Reads and answers the datagrams with which clients open UDP streams.
    fn answer_calls(&self) {
        let mut buffer = [0; handshake::LENGTH + 1];
        let mut calls = Vec::new();
        while let Ok((length, peer)) = self.datagrams.recv_from(&mut buffer) {
            calls.push((peer, handshake::read_call(&buffer[..length])));
            if calls.len() >= MOST_PENDING {
                break;
            }
        }
        while let Some((peer, call)) = calls.pop() {
            if let Some(call) = call {
                // A new socket may receive other clients' calls for a moment.
                calls.extend(self.open_datagrams(peer, call).unwrap_or_default());
            }
        }
    }

    /// Opens the UDP stream that `peer` requests, or answers a repeated request again. Ignores a request that no test expects. Until the
    /// new socket is connected, it can receive other clients' opening datagrams; returns these with their senders.
    fn open_datagrams(
        &self,
        peer: SocketAddr,
        call: Call,
    ) -> Result<Vec<(SocketAddr, Option<Call>)>, NetError> {
        let tests = self.server.tests();
        let is_meant = |entry: &&ActiveTest| match &call.cookie {
            Some(cookie) => entry.cookie == *cookie,
            None => entry.address == peer.ip() && entry.left.load(Ordering::Relaxed) > 0,
        };
        let Some(entry) = tests.iter().filter(|entry| entry.parameters.udp).find(is_meant) else {
            return Ok(Vec::new());
        };
        let mut peers = entry.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.contains(&peer) {
            // The answer was lost.
            self.datagrams.send_to(&handshake::answer(), peer)?;
            return Ok(Vec::new());
        }
        if !entry.takes_one() {
            return Ok(Vec::new());
        }
        let mut options = streams::options(&entry.parameters);
        options.congestion = None;
        let socket = dial::udp(self.datagrams.local_addr()?, peer, &options)?;
        socket.set_nonblocking(true)?;
        let mut others = Vec::new();
        let mut buffer = [0; handshake::LENGTH + 1];
        // A flood of datagrams must not keep the acceptor here.
        for _ in 0..MOST_PENDING {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { break };
            if from != peer {
                others.push((from, handshake::read_call(&buffer[..length])));
            }
        }
        socket.set_nonblocking(false)?;
        socket.send(&handshake::answer())?;
        peers.push(peer);
        let number = peers.len() as u64;
        // As in hand_over.
        drop(entry.streams.try_send((number, Socket::Udp(socket))));
        Ok(others)
    }
}

impl ActiveTest {
    /// Counts one more stream as connected. Returns false if all streams of the test were already connected.
    fn takes_one(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}
