//! Runs one test as the server.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use iotax_model::units::Nanos;

use super::super::control::{Control, Cookie, MAX_RESULTS, NetError, PATIENCE, State, letters};
use super::super::echo::server::EchoServer;
use super::super::exchange::Results;
use super::super::handshake;
use super::super::parameters::Parameters;
use super::super::report::{End, Start, TestInterval, TestReport};
use super::super::stream::{Options, Socket};
use super::super::streams::{self, Streams};
use super::super::test::describe;
use super::error_log::FailureKind;
use super::{Arrival, ServerEvent, ServerState};
use iotax_load::clock::{self, ProcessUsage};

/// Interval at which a test's thread checks for states of the client and for a stop.
const POLL: Duration = Duration::from_millis(20);
/// Maximum time for an iotax client to connect its streams. It may be one of several that start at the same time, and guests are slow.
const OURS_PATIENCE: Duration = Duration::from_mins(2);
/// Nanoseconds that a client may take beyond the announced duration.
const GRACE_NS: u64 = 30_000_000_000;
/// Maximum nanoseconds without data sent or received before the test is given up. Round-trip tests with a time limit are exempt.
const QUIET_NS: u64 = 120_000_000_000;
/// Maximum number of repeated opening datagrams that are read at a time.
const CALLS: usize = 64;
/// Length of an interval in nanoseconds.
const INTERVAL_NS: u64 = 1_000_000_000;

/// A test on which client and server have agreed.
pub(super) struct ServerSession {
    pub(super) server: Arc<ServerState>,
    pub(super) control: Control,
    pub(super) cookie: Cookie,
    pub(super) parameters: Parameters,
    pub(super) arrivals: Receiver<Arrival>,
}

/// Time and CPU usage at the start of counting, and the start of the current interval. Times are nanoseconds of the engine's clock.
#[derive(Clone, Copy)]
struct Mark {
    begin: u64,
    last: u64,
    usage: ProcessUsage,
}

impl Mark {
    fn now() -> Self {
        let begin = clock::now();
        Self { begin, last: begin, usage: ProcessUsage::now() }
    }
}

impl ServerSession {
    /// Runs the test and reports its result or failure.
    pub(super) fn carry_out(self, address: IpAddr) {
        let report = self.test();
        if let Err(error) = &report {
            // A failure to send means that the client is gone already.
            drop(self.control.send(State::ServerTerminate));
            self.server.log_failure(FailureKind::Failed, address, &words(error));
            (self.server.tell)(ServerEvent::Failed(letters(&self.cookie)));
        }
        self.make_room();
        if let Ok(report) = report {
            (self.server.tell)(ServerEvent::Ended(Box::new(report)));
            if self.server.serving.one_off {
                self.server.is_over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Removes the test from the running ones, so that another can start.
    fn make_room(&self) {
        self.server.tests().retain(|entry| entry.cookie != self.cookie);
    }

    fn test(&self) -> Result<TestReport, NetError> {
        self.control.send(State::CreateStreams)?;
        let mut sockets = self.await_streams()?;
        // For round trips, the echo server takes over the sockets, so that no streams remain.
        let round_trips = self.parameters.round_trips().map(|_| std::mem::take(&mut sockets));
        let echo_server =
            round_trips.map(|sockets| EchoServer::start(sockets, &self.parameters)).transpose()?;
        self.control.send(State::TestStart)?;
        let (sends, _) = self.parameters.streams();
        let sockets = sockets.into_iter().zip(0..).map(|(socket, number)| (socket, number >= sends));
        let mut streams = Streams::new(&self.parameters, sockets, false);
        let time = Nanos(self.parameters.time.saturating_mul(1_000_000_000));
        let mut start = Start::new(&self.parameters, time, letters(&self.cookie), self.control.peer()?);
        describe(&mut start, &streams, self.control.socket())?;
        (self.server.tell)(ServerEvent::Started(start.clone()));
        // Start before notifying the client: its window begins then, and starting threads may take CPU time.
        streams.start(false)?;
        streams.start(true)?;
        self.control.send(State::TestRunning)?;
        let local = self.run(&mut streams, &start)?;
        drop(echo_server);
        self.conclude(streams, start, local)
    }

    /// Waits until all streams are connected. Returns their sockets in the order of arrival.
    fn await_streams(&self) -> Result<Vec<Socket>, NetError> {
        let (sends, receives) = self.parameters.streams();
        let wanted = (sends + receives) as usize;
        let patience = if self.parameters.iotax.is_some() { OURS_PATIENCE } else { PATIENCE };
        let deadline = Instant::now() + patience;
        let mut came: Vec<Arrival> = Vec::with_capacity(wanted);
        while came.len() < wanted {
            match self.arrivals.recv_timeout(POLL) {
                Ok(arrival) => came.push(arrival),
                Err(RecvTimeoutError::Disconnected) => return Err(NetError::Closed),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(state) = self.control.poll(Duration::ZERO)? {
                        return Err(NetError::Unexpected(state));
                    }
                    came.iter().for_each(|(_, socket)| answer_again(socket));
                }
            }
            if self.server.stops() {
                return Err(NetError::Terminated);
            }
            if Instant::now() > deadline {
                return Err(NetError::Late);
            }
        }
        came.sort_by_key(|(number, _)| *number);
        let options = Options { mss: None, congestion: None, ..streams::options(&self.parameters) };
        for (_, socket) in &came {
            answer_again(socket);
            if let Socket::Tcp(socket) = socket {
                options.set(socket, true)?;
                let congestion = self.parameters.congestion.clone();
                // As in iperf3, an algorithm unknown to this kernel is not used; the results name the one that was.
                drop(Options { congestion, ..Options::default() }.set(socket, true));
            }
        }
        Ok(came.into_iter().map(|(_, socket)| socket).collect())
    }

    /// Runs the streams until the client ends the test. Returns this end's results.
    fn run(&self, streams: &mut Streams, start: &Start) -> Result<End, NetError> {
        let started = streams.begin();
        let warm = started + start.omit.0;
        let give_up = Some(start.time.0).filter(|time| *time > 0).map(|time| warm + time + GRACE_NS);
        // Round trips do not count their bytes here.
        let watched = give_up.is_none() || !start.round_trips;
        let mut omitted = start.omit.0 > 0;
        let mut mark = Mark::now();
        let mut moved = (started, 0);
        loop {
            // The wait ends with the warm-up, not up to [`POLL`] later.
            let left = Duration::from_nanos(warm.saturating_sub(clock::now()));
            let state = self.control.poll(if omitted { POLL.min(left) } else { POLL })?;
            let now = clock::now();
            match state {
                Some(State::TestEnd) => break,
                Some(other) => return Err(NetError::Unexpected(other)),
                None => {}
            }
            if self.server.stops() {
                return Err(NetError::Terminated);
            }
            let bytes = streams.bytes();
            if bytes != moved.1 {
                moved = (now, bytes);
            }
            let is_quiet = watched && now - moved.0 > QUIET_NS;
            if is_quiet || give_up.is_some_and(|give_up| now > give_up) {
                return Err(NetError::Late);
            }
            if omitted && now >= warm {
                self.tell_interval(streams, start, &mut mark, now, true);
                streams.count_anew();
                mark = Mark::now();
                omitted = false;
            } else if now - mark.last >= INTERVAL_NS {
                self.tell_interval(streams, start, &mut mark, now, omitted);
            }
        }
        let now = clock::now();
        let used = ProcessUsage::now().since(&mark.usage);
        streams.stop_sending();
        self.tell_interval(streams, start, &mut mark, now, omitted);
        let congestion = start.congestion.clone();
        Ok(End {
            duration_ns: now - mark.begin,
            cpu: Some(used.cpu),
            congestion,
            streams: streams.totals(now),
        })
    }

    fn tell_interval(&self, streams: &mut Streams, start: &Start, mark: &mut Mark, now: u64, omitted: bool) {
        let (begin_ns, end_ns) = (mark.last - mark.begin, now - mark.begin);
        mark.last = now;
        let interval = TestInterval { begin_ns, end_ns, omitted, streams: streams.read_counters() };
        (self.server.tell)(ServerEvent::Interval(start.cookie.clone(), interval));
    }

    /// Stops the streams, exchanges results with the client, and returns the report.
    fn conclude(&self, mut streams: Streams, start: Start, mut local: End) -> Result<TestReport, NetError> {
        local.broke(streams.join());
        drop(streams);
        self.control.send(State::ExchangeResults)?;
        let remote: Results = self.control.json(MAX_RESULTS)?;
        self.control.send_json(&Results::of(&local, start.udp))?;
        // A client that has its results may begin the next test at once.
        self.make_room();
        self.control.send(State::DisplayResults)?;
        let remote = remote.read(&local, start.udp, start.omit.0 > 0);
        // A client may close without sending its last state.
        drop(self.control.poll(PATIENCE));
        let notes = local.words("").chain(remote.words("the other end's ")).collect();
        Ok(TestReport { start, local, remote: Some(remote), notes })
    }
}

/// Answers opening datagrams that the client repeated because the first answer came late.
fn answer_again(socket: &Socket) {
    let Socket::Udp(socket) = socket else { return };
    let mut buffer = [0; handshake::LENGTH + 1];
    if socket.set_nonblocking(true).is_err() {
        return;
    }
    // A flood of datagrams must not keep the test here.
    for _ in 0..CALLS {
        let Ok(length) = socket.recv(&mut buffer) else { break };
        if handshake::read_call(&buffer[..length]).is_some() {
            drop(socket.send(&handshake::answer()));
        }
    }
    drop(socket.set_nonblocking(false));
}

/// Describes a failure of the other end as part of a sentence.
fn words(error: &NetError) -> String {
    match error {
        NetError::Io(error) => error.to_string(),
        error => format!("it {error}"),
    }
}
