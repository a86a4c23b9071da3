//! The server. One thread has the door: it knows every connection that is no stream yet, and waits for none of them. Each test
//! that a client and it agree on has a thread of its own.

mod acceptor;
mod error_log;
mod session;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::acceptor::{Visitor, Wish};
use self::error_log::{Complaint, Complaints};
use self::session::Session;
use super::control::{Control, Cookie, Trouble};
use super::handshake::Call;
use super::parameters::Parameters;
use super::report::{Interval, Report, Start};
use super::stream::Socket;
use super::{dial, handshake, streams};
use iotax_engine::clock;

/// The most connections that may wait to say what they want; the one that has waited longest makes room.
const MOST_VISITORS: usize = 64;
/// The most tests that an agent has at once.
const AGENTS_TESTS: usize = 64;
/// The most measurements of round trips at once where there may be fewer tests.
const MOST_ROUND_TRIPS: usize = 8;
/// The interval at which the server checks for a stop and for connections whose time is over.
const LOOK: Duration = Duration::from_millis(50);

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Serving {
    /// The address to listen on.
    pub bind: String,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// The token that clients must know; no iperf3 does.
    pub token: Option<String>,
    /// The most tests at once; iperf3 has one.
    pub most_tests: usize,
    /// Ends with the first test if true.
    pub one_off: bool,
}

/// An event of a server. Cookies tell tests apart.
#[derive(Debug)]
pub enum Told {
    /// A test's streams are connected.
    Started(Start),
    /// An interval of a test is over.
    Interval(String, Interval),
    /// A test came to its end.
    Ended(Box<Report>),
    /// A test came to nothing, maybe after it had started. The words for it are a trouble, which is told once.
    Failed(String),
    /// Something went wrong, in words that name the other end.
    Trouble(String),
}

type Tell = Box<dyn Fn(Told) + Send + Sync>;

/// A server that listens until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    house: Arc<House>,
    door: Option<JoinHandle<()>>,
}

/// State that the threads of a server share.
struct House {
    serving: Serving,
    tell: Tell,
    tests: Mutex<Vec<Entry>>,
    complaints: Mutex<Complaints>,
    stop: AtomicBool,
    is_over: AtomicBool,
}

impl std::fmt::Debug for House {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("House").field("port", &self.serving.port).finish_non_exhaustive()
    }
}

/// A test that goes on, as the door knows it.
struct Entry {
    cookie: Cookie,
    address: IpAddr,
    parameters: Parameters,
    /// Streams that are still to come.
    left: AtomicU32,
    streams: SyncSender<Arrival>,
    /// The addresses from which streams of datagrams come.
    peers: Mutex<Vec<SocketAddr>>,
}

/// A stream that is connected, and when it came among the others.
type Arrival = (u64, Socket);

impl Server {
    /// Listens on an address for an agent; `port` 0 takes a free one. Nothing is told.
    ///
    /// # Errors
    /// An address that cannot be listened on.
    pub fn start(bind: &str, port: u16, token: Option<&str>) -> io::Result<Self> {
        let token = token.map(str::to_owned);
        let serving = Serving { bind: bind.into(), port, token, most_tests: AGENTS_TESTS, one_off: false };
        Self::listen(serving, Box::new(|_| {}))
    }

    /// Listens, and tells what happens.
    ///
    /// # Errors
    /// An address that cannot be listened on.
    pub fn listen(serving: Serving, tell: Tell) -> io::Result<Self> {
        // It takes a moment, which no test is to wait for.
        clock::calibrate();
        let (listener, datagrams) = dial::listen(&serving.bind, serving.port)?;
        let address = listener.local_addr()?;
        let house = Arc::new(House {
            serving,
            tell,
            tests: Mutex::default(),
            complaints: Mutex::default(),
            stop: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let door = Door {
            house: Arc::clone(&house),
            listener,
            datagrams,
            visitors: Vec::new(),
            came: 0,
            sessions: Vec::new(),
        };
        let door = thread::Builder::new().name("server".into()).spawn(move || door.keep())?;
        Ok(Self { address, house, door: Some(door) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// True if it has ended by itself, after the one test that it was to have.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.house.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.house.stop.store(true, Ordering::Relaxed);
        if let Some(door) = self.door.take() {
            // A panic there was told on stderr.
            drop(door.join());
        }
    }
}

impl House {
    fn tests(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.tests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if one more test would be too many. Round trips are no load and may be measured beside one; a few of them may.
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

    fn complaints(&self) -> MutexGuard<'_, Complaints> {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of something that went wrong if it is the first of its kind.
    fn complain(&self, complaint: Complaint, address: IpAddr, more: &str) {
        let words = self.complaints().add(complaint, address, more, Instant::now());
        words.into_iter().for_each(|words| self.trouble(words));
    }

    /// Tells what came again of what went wrong.
    fn repeat(&self, now: Instant, end: bool) {
        let repeats = self.complaints().repeats(now, end);
        repeats.into_iter().for_each(|words| self.trouble(words));
    }

    fn trouble(&self, words: String) {
        (self.tell)(Told::Trouble(words));
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_over.load(Ordering::Relaxed)
    }
}

/// The thread at the door.
struct Door {
    house: Arc<House>,
    listener: TcpListener,
    datagrams: UdpSocket,
    visitors: Vec<Visitor>,
    /// Connections so far.
    came: u64,
    sessions: Vec<JoinHandle<()>>,
}

impl Door {
    fn keep(mut self) {
        while !self.house.stops() {
            self.wait();
            let now = Instant::now();
            self.let_in(now);
            self.hear_out(now);
            self.take_calls();
            self.house.repeat(now, false);
            self.sessions.retain(|session| !session.is_finished());
        }
        for session in self.sessions {
            drop(session.join());
        }
        self.house.repeat(Instant::now(), true);
    }

    /// Waits until something comes, or a moment.
    fn wait(&self) {
        let look = Timespec::try_from(LOOK).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 50_000_000 });
        let sockets = self.visitors.iter().map(|visitor| PollFd::new(&visitor.socket, PollFlags::IN));
        let doors = [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.datagrams, PollFlags::IN)];
        let mut fds: Vec<PollFd<'_>> = doors.into_iter().chain(sockets).collect();
        if poll(&mut fds, Some(&look)).is_err() {
            thread::sleep(LOOK);
        }
    }

    /// Takes connections that have come.
    fn let_in(&mut self, now: Instant) {
        // A flood must not keep those waiting who are in.
        for _ in 0..MOST_VISITORS {
            match self.listener.accept() {
                Ok((socket, address)) => {
                    self.came += 1;
                    let Ok(visitor) = Visitor::new(socket, address.ip(), self.came, now) else { continue };
                    if self.visitors.len() >= MOST_VISITORS {
                        // Who has said what it wants needs no room.
                        self.hear_out(now);
                    }
                    if self.visitors.len() >= MOST_VISITORS {
                        let longest = self.visitors.remove(0);
                        self.house.complain(Complaint::Crowd, longest.address, "");
                    }
                    self.visitors.push(visitor);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Without room for another descriptor the call fails at once, again and again.
                Err(_) => return thread::sleep(LOOK),
            }
        }
    }

    /// Hears what visitors want, and does it.
    fn hear_out(&mut self, now: Instant) {
        let visitors = std::mem::take(&mut self.visitors);
        for mut visitor in visitors {
            let house = Arc::clone(&self.house);
            let is_known = |cookie: &Cookie| house.tests().iter().any(|entry| entry.cookie == *cookie);
            match visitor.advance(house.serving.token.as_deref(), is_known) {
                Wish::More if visitor.is_late(now) => {
                    self.house.complain(Complaint::Slow, visitor.address, "");
                }
                Wish::More => self.visitors.push(visitor),
                Wish::Nothing(complaint, why) => self.house.complain(complaint, visitor.address, &why),
                Wish::Stream(cookie) => self.hand_over(visitor, &cookie),
                Wish::Test(cookie, parameters) => self.begin(visitor, cookie, *parameters),
            }
        }
    }

    /// Gives a connection to the test that it belongs to.
    fn hand_over(&self, visitor: Visitor, cookie: &Cookie) {
        let tests = self.house.tests();
        let Some(entry) = tests.iter().find(|entry| entry.cookie == *cookie) else { return };
        if !entry.parameters.udp && entry.takes_one() && visitor.socket.set_nonblocking(false).is_ok() {
            // The channel has room for all that are to come; a test that is over needs none.
            drop(entry.streams.try_send((visitor.number, Socket::Tcp(visitor.socket))));
        }
    }

    /// Begins a test, if there is room for it.
    fn begin(&mut self, mut visitor: Visitor, cookie: Cookie, parameters: Parameters) {
        let (sends, receives) = parameters.streams();
        let streams = sends + receives;
        if self.house.is_full(parameters.round_trips().is_some()) {
            visitor.deny(Complaint::Busy);
            return self.house.complain(Complaint::Busy, visitor.address, "");
        }
        let address = visitor.address;
        let Ok(control) = Control::new(visitor.socket) else { return };
        let (sender, arrivals) = sync_channel(streams as usize);
        self.house.tests().push(Entry {
            cookie,
            address,
            parameters: parameters.clone(),
            left: AtomicU32::new(streams),
            streams: sender,
            peers: Mutex::default(),
        });
        let house = Arc::clone(&self.house);
        let session = Session { house: Arc::clone(&house), control, cookie, parameters, arrivals };
        let name = format!("test of {address}");
        let spawned = thread::Builder::new().name(name).spawn(move || session.carry_out(address));
        match spawned {
            Ok(session) => self.sessions.push(session),
            Err(error) => {
                house.tests().retain(|entry| entry.cookie != cookie);
                house.trouble(format!("{address}: no thread for its test: {error}"));
            }
        }
    }

    /// Opens streams of datagrams to those who call.
    fn take_calls(&self) {
        let mut buffer = [0; handshake::LENGTH + 1];
        let mut calls = Vec::new();
        while let Ok((length, peer)) = self.datagrams.recv_from(&mut buffer) {
            calls.push((peer, handshake::read_call(&buffer[..length])));
            if calls.len() >= MOST_VISITORS {
                break;
            }
        }
        while let Some((peer, call)) = calls.pop() {
            if let Some(call) = call {
                // A new socket may get others' calls for a moment.
                calls.extend(self.open_datagrams(peer, call).unwrap_or_default());
            }
        }
    }

    /// Opens a stream of datagrams to one who called. What else came to its socket before that was connected.
    fn open_datagrams(
        &self,
        peer: SocketAddr,
        call: Call,
    ) -> Result<Vec<(SocketAddr, Option<Call>)>, Trouble> {
        let tests = self.house.tests();
        let is_meant = |entry: &&Entry| match &call.cookie {
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
        // A flood must not keep it here.
        for _ in 0..MOST_VISITORS {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { break };
            if from != peer {
                others.push((from, handshake::read_call(&buffer[..length])));
            }
        }
        socket.set_nonblocking(false)?;
        socket.send(&handshake::answer())?;
        peers.push(peer);
        let number = peers.len() as u64;
        // As above.
        drop(entry.streams.try_send((number, Socket::Udp(socket))));
        Ok(others)
    }
}

impl Entry {
    /// Takes one of the streams that are still to come, if there is one.
    fn takes_one(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}
