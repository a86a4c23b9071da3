//! Runs a test as the client, from the first connection to the results of both ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iotax_model::net::{Peer, Traffic};
use iotax_model::units::Nanos;

use super::client::{ClientSession, with_name};
use super::control::NetError;
use super::parameters::Parameters;
use super::report::{End, Start, TestInterval, TestReport};
use super::stream::{Socket, busy_polls};
use super::streams::Streams;
use iotax_load::clock::{self, ProcessUsage};
use iotax_load::error::EngineError;

/// Interval at which a test that ends after a number of bytes checks its progress.
const POLL: Duration = Duration::from_millis(5);
/// Maximum sleep between two checks for a stop.
const NAP: Duration = Duration::from_millis(100);
/// Nanoseconds without received data that end a test limited by bytes: the missing datagrams may be lost.
const QUIET_NS: u64 = 2_000_000_000;

/// The note if the kernel refuses to enable busy polling.
const NOT_POLLED: &str =
    "busy_poll: this end's kernel does not poll for the streams (SO_BUSY_POLL takes CAP_NET_ADMIN)";
/// Maximum time in nanoseconds to wait until data that this end's kernel has accepted is acknowledged.
const ARRIVAL_NS: u64 = 10_000_000_000;

/// A test with a server, before it starts.
#[derive(Debug, Clone)]
pub struct ClientTest {
    /// The streams to run: protocol, direction, number, rate and limits.
    pub traffic: Traffic,
    /// The server's address and token.
    pub peer: Peer,
    /// Length of the window; 0 if only the traffic's number of bytes ends the test.
    pub time: Nanos,
    /// Length of the warm-up, whose data does not count.
    pub omit: Nanos,
    /// Length of an interval between two reports.
    pub interval: Nanos,
}

/// An event of a running test.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The streams are connected, and the test starts.
    Started(&'a Start),
    /// The warm-up, if any, is over; counting begins.
    Counting,
    /// The end of an interval, with its counts.
    Interval(&'a TestInterval),
    /// The window is over; the ends have yet to exchange results.
    Over,
}

/// A test that the server has agreed to, before any stream is connected.
#[derive(Debug)]
pub struct Prepared {
    test: ClientTest,
    session: ClientSession,
}

/// A test whose streams are connected.
struct Running<'a> {
    test: &'a ClientTest,
    session: &'a ClientSession,
    streams: Streams,
    stop: &'a AtomicBool,
    tell: &'a mut dyn FnMut(Progress<'_>),
}

/// The progress of a test that ends after a number of bytes.
struct ByteProgress {
    received: u64,
    /// Time at which data last arrived, in nanoseconds of the engine's clock.
    at: u64,
    /// Time at which this end's kernel had accepted all data, in nanoseconds of the engine's clock; `None` before that.
    sent_all: Option<u64>,
}

impl ClientTest {
    /// Agrees on the test with the server.
    ///
    /// # Errors
    /// The test has no end; or the server cannot be reached, does not speak iperf3's protocol, is busy, refuses the parameters or the
    /// token, or does not ask for the client's token.
    pub fn prepare(self) -> Result<Prepared, EngineError> {
        if self.time == Nanos(0) && self.traffic.bytes.is_none_or(|bytes| bytes.0 == 0) {
            return Err(EngineError::Net("neither a time nor a number of bytes ends the test".into()));
        }
        // Calibration takes a moment, during which a started server would count time without bytes.
        clock::calibrate();
        let peer = self.peer.clone();
        let auth = peer.token.is_some();
        let session =
            ClientSession::open(&peer, |mss| Parameters::new(&self.traffic, self.time, self.omit, mss, auth));
        let session = session.map_err(|error| with_name(&peer, error))?;
        Ok(Prepared { test: self, session })
    }
}

impl Prepared {
    /// Runs the test. `tell` receives its events; setting `stop` ends the window early.
    ///
    /// # Errors
    /// The streams cannot be connected, one breaks and none moves data, or the server breaks off the test or does not send its results.
    pub fn run(
        self,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(Progress<'_>),
    ) -> Result<TestReport, EngineError> {
        let Self { test, session } = self;
        let peer = test.peer.clone();
        carry_out(&test, session, stop, tell).map_err(|error| with_name(&peer, error))
    }
}

fn carry_out(
    test: &ClientTest,
    session: ClientSession,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<TestReport, NetError> {
    let (sockets, started) = session.connect()?;
    let mut streams = Streams::new(session.parameters(), sockets, true);
    // The server sends as soon as all streams are connected, and the kernel soon drops datagrams that nobody reads.
    streams.start(false)?;
    session.await_running(started)?;
    let mut start = Start::new(session.parameters(), test.time, session.cookie(), session.address());
    describe(&mut start, &streams, session.control().socket())?;
    tell(Progress::Started(&start));
    let not_polled = streams.first().filter(|socket| test.traffic.busy_poll.is_some() && !busy_polls(socket));
    let not_polled = not_polled.map(|_| NOT_POLLED.to_owned());
    let check = clock::Check::begin();
    let mut running = Running { test, session: &session, streams, stop, tell };
    let (local, remote_is_done) = match running.measure() {
        Ok(local) => (local, session.await_end()),
        Err(error) => {
            session.terminate();
            return Err(error);
        }
    };
    let Running { mut streams, .. } = running;
    let mut local = End { congestion: start.congestion.clone(), ..local };
    local.broke(streams.join());
    let broken = local.words("").next();
    if let Some(words) = broken.filter(|_| local.streams.iter().all(|stream| stream.figures.bytes == 0)) {
        return Err(NetError::Refused(format!("got nothing: {words}")));
    }
    remote_is_done?;
    let remote = session.exchange(&local)?;
    let broken = local.words("").chain(remote.words("the server's "));
    let notes = broken.chain(streams.send_methods()).chain(not_polled).chain(check.end()).collect();
    Ok(TestReport { start, local, remote: Some(remote), notes })
}

/// Adds to `start` the properties that are known only once the streams are connected.
pub(super) fn describe(
    start: &mut Start,
    streams: &Streams,
    control: &std::net::TcpStream,
) -> std::io::Result<()> {
    use rustix::net::sockopt;
    start.connections = streams.connections()?;
    let buffers = |fd: std::os::fd::BorrowedFd<'_>| {
        let sizes = (sockopt::socket_send_buffer_size(fd).ok()?, sockopt::socket_recv_buffer_size(fd).ok()?);
        Some((u64::try_from(sizes.0).ok()?, u64::try_from(sizes.1).ok()?))
    };
    start.mss = super::stream::tcp_info(control).map(|info| info.mss);
    match streams.first() {
        Some(Socket::Tcp(socket)) => {
            start.buffers = buffers(std::os::fd::AsFd::as_fd(socket));
            start.mss = super::stream::tcp_info(socket).map(|info| info.mss).or(start.mss);
            start.congestion = sockopt::tcp_congestion(socket).ok();
        }
        Some(Socket::Udp(socket)) => start.buffers = buffers(std::os::fd::AsFd::as_fd(socket)),
        None => {}
    }
    Ok(())
}

impl Running<'_> {
    /// Runs the warm-up and the window. Returns this end's results after the senders have stopped; the receivers still run.
    fn measure(&mut self) -> Result<End, NetError> {
        let warm_up = self.test.omit.0;
        if warm_up > 0 {
            self.streams.start(true)?;
            self.phase(Some(warm_up), true)?;
        }
        // Reported first: the receiver takes CPU time, which the streams need when the window begins.
        (self.tell)(Progress::Counting);
        let before = ProcessUsage::now();
        if warm_up > 0 {
            self.streams.count_anew();
        } else {
            self.streams.start(true)?;
        }
        let time = Some(self.test.time.0).filter(|time| *time > 0);
        let (begin, end) = self.phase(time, false)?;
        let used = ProcessUsage::now().since(&before);
        (self.tell)(Progress::Over);
        let streams = self.streams.totals(end);
        Ok(End { duration_ns: end - begin, cpu: Some(used.cpu), congestion: None, streams })
    }

    /// Runs the streams for `time` nanoseconds (`None` for no time limit), or until the test is stopped or its bytes are transferred, and
    /// reports each interval. Returns the start and end time in nanoseconds of the engine's clock.
    fn phase(&mut self, time: Option<u64>, omitted: bool) -> Result<(u64, u64), NetError> {
        let begin = self.streams.begin();
        let mut end = time.map_or(u64::MAX, |time| begin + time);
        let every = self.test.interval.0.max(1);
        let mut last = begin;
        let mut progress = ByteProgress { received: 0, at: begin, sent_all: None };
        loop {
            let next = (begin + ((last - begin) / every + 1) * every).min(end);
            let wait = Duration::from_nanos(next.saturating_sub(clock::now()));
            let nap = if omitted || self.test.traffic.bytes.is_none() { NAP } else { POLL };
            if let Some(state) = self.session.control().poll(wait.min(nap))? {
                return Err(NetError::Unexpected(state));
            }
            let now = clock::now();
            if self.stop.load(Ordering::Relaxed) {
                end = end.min(now);
            }
            if let Some(through) = self.through(now, omitted, &mut progress) {
                end = end.min(through);
            }
            if now < next && now < end {
                continue;
            }
            if now >= end && !omitted {
                self.streams.stop_sending();
            }
            // The last interval runs to the window's end exactly, the others to the current time.
            let until = if now >= end { end } else { now };
            let interval = (until > last).then(|| self.interval(begin, last, until, omitted));
            if now >= end && !omitted {
                // End first, then report: the event's receiver takes CPU time, and the server sends until it is told to stop.
                self.session.end();
            }
            if let Some(interval) = interval {
                last = until;
                (self.tell)(Progress::Interval(&interval));
            }
            if now >= end {
                return Ok((begin, end));
            }
        }
    }

    fn interval(&mut self, begin: u64, last: u64, now: u64, omitted: bool) -> TestInterval {
        let streams = self.streams.read_counters();
        TestInterval { begin_ns: last - begin, end_ns: now - begin, omitted, streams }
    }

    /// Returns the time at which the transfer was complete, in nanoseconds of the engine's clock; `None` before that. Gives up on missing
    /// data if none arrives for 2 s, and on sent data that is not acknowledged within 10 s.
    fn through(&self, now: u64, omitted: bool, progress: &mut ByteProgress) -> Option<u64> {
        let direction = self.test.traffic.direction;
        let sent_all = self.streams.have_sent_all();
        if sent_all && !direction.receives() {
            // Bytes that the kernel took still have to arrive.
            let since = *progress.sent_all.get_or_insert(now);
            return (self.streams.has_arrived() || now - since > ARRIVAL_NS).then_some(now);
        }
        let bytes = self.test.traffic.bytes.filter(|_| !omitted)?;
        let received = self.streams.counted(false);
        if received != progress.received {
            (progress.received, progress.at) = (received, now);
        }
        let sent = !direction.sends() || sent_all || self.streams.counted(true) >= bytes.0;
        if !sent {
            return None;
        }
        if !direction.receives() || received >= bytes.0 {
            return Some(now);
        }
        // The silence began earlier than it was noticed.
        (received > 0 && now - progress.at > QUIET_NS).then_some(progress.at)
    }
}
