//! One test at the client, from the first connection to what both ends say of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iotax_model::net::{Peer, Traffic};
use iotax_model::record::CpuTime;
use iotax_model::units::Nanos;

use super::client::{Session, with_name};
use super::control::Trouble;
use super::parameters::Parameters;
use super::report::{End, Interval, Report, Start};
use super::stream::{Socket, busy_polls};
use super::streams::Lanes;
use iotax_engine::EngineError;
use iotax_engine::clock;

/// The interval at which a test that ends by bytes checks whether they have passed.
const LOOK: Duration = Duration::from_millis(5);
/// Longest sleep, after which it is looked whether to stop.
const NAP: Duration = Duration::from_millis(100);
/// A test that a number of bytes ends is over too if none came for so long: datagrams get lost.
const QUIET_NS: u64 = 2_000_000_000;

/// The note of a kernel that did not do what was asked.
const NOT_POLLED: &str =
    "busy_poll: this end's kernel does not poll for the streams (SO_BUSY_POLL takes CAP_NET_ADMIN)";
/// The longest that bytes may be on their way after the last was given to the kernel.
const ARRIVAL_NS: u64 = 10_000_000_000;

/// A test to run.
#[derive(Debug, Clone)]
pub struct Test {
    /// The traffic.
    pub traffic: Traffic,
    /// The server.
    pub peer: Peer,
    /// Its length; 0 if only the traffic's bytes end it.
    pub time: Nanos,
    /// The warm-up, which does not count.
    pub omit: Nanos,
    /// The length of an interval.
    pub interval: Nanos,
}

/// An event of a test that is running.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The streams are connected.
    Started(&'a Start),
    /// The warm-up is over.
    Counting,
    /// An interval is over.
    Interval(&'a Interval),
    /// The window is over; the ends still exchange results.
    Over,
}

/// A test that the server agreed to. Nothing is sent yet.
#[derive(Debug)]
pub struct Prepared {
    test: Test,
    session: Session,
}

/// A test that goes on.
struct Running<'a> {
    test: &'a Test,
    session: &'a Session,
    lanes: Lanes,
    stop: &'a AtomicBool,
    tell: &'a mut dyn FnMut(Progress<'_>),
}

/// Progress of a test that ends by bytes.
struct Progressed {
    received: u64,
    /// When the last of them were seen to have come.
    at: u64,
    /// When all was given to the kernel.
    sent_all: Option<u64>,
}

impl Test {
    /// Has the server agree.
    ///
    /// # Errors
    /// A test without an end, a server that does not listen, is no iperf3, is busy, or refuses the parameters.
    pub fn prepare(self) -> Result<Prepared, EngineError> {
        if self.time == Nanos(0) && self.traffic.bytes.is_none_or(|bytes| bytes.0 == 0) {
            return Err(EngineError::Net("neither a time nor a number of bytes ends the test".into()));
        }
        // It takes a moment, in which a server that was told to start would count time without bytes.
        clock::calibrate();
        let peer = self.peer.clone();
        let auth = peer.token.is_some();
        let session =
            Session::open(&peer, |mss| Parameters::new(&self.traffic, self.time, self.omit, mss, auth));
        let session = session.map_err(|trouble| with_name(&peer, trouble))?;
        Ok(Prepared { test: self, session })
    }
}

impl Prepared {
    /// Carries it out. `tell` gets what happens; when `stop` is set it ends before its time.
    ///
    /// # Errors
    /// Streams that cannot be connected, and a server that breaks off.
    pub fn run(self, stop: &AtomicBool, tell: &mut dyn FnMut(Progress<'_>)) -> Result<Report, EngineError> {
        let Self { test, session } = self;
        let peer = test.peer.clone();
        carry_out(&test, session, stop, tell).map_err(|trouble| with_name(&peer, trouble))
    }
}

fn carry_out(
    test: &Test,
    session: Session,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, Trouble> {
    let sockets = session.connect()?;
    let lanes = Lanes::new(session.parameters(), sockets, true);
    let mut start = Start::new(session.parameters(), test.time, session.cookie(), session.address());
    describe(&mut start, &lanes, session.control().socket())?;
    tell(Progress::Started(&start));
    let not_polled = lanes.first().filter(|socket| test.traffic.busy_poll.is_some() && !busy_polls(socket));
    let not_polled = not_polled.map(|_| NOT_POLLED.to_owned());
    let check = clock::Check::begin();
    let mut running = Running { test, session: &session, lanes, stop, tell };
    let (local, remote_is_done) = match running.measure() {
        Ok(local) => (local, session.await_end()),
        Err(trouble) => {
            session.terminate();
            return Err(trouble);
        }
    };
    let Running { mut lanes, .. } = running;
    let mut local = End { congestion: start.congestion.clone(), ..local };
    local.broke(lanes.join());
    let broken = local.words("").next();
    if let Some(words) = broken.filter(|_| local.streams.iter().all(|stream| stream.figures.bytes == 0)) {
        return Err(Trouble::Refused(format!("got nothing: {words}")));
    }
    remote_is_done?;
    let remote = session.exchange(&local)?;
    let broken = local.words("").chain(remote.words("the server's "));
    let notes = broken.chain(lanes.ways()).chain(not_polled).chain(check.end()).collect();
    Ok(Report { start, local, remote: Some(remote), notes })
}

/// Adds what is known once the streams are connected.
pub(super) fn describe(
    start: &mut Start,
    lanes: &Lanes,
    control: &std::net::TcpStream,
) -> std::io::Result<()> {
    use rustix::net::sockopt;
    start.connections = lanes.connections()?;
    let buffers = |fd: std::os::fd::BorrowedFd<'_>| {
        let sizes = (sockopt::socket_send_buffer_size(fd).ok()?, sockopt::socket_recv_buffer_size(fd).ok()?);
        Some((u64::try_from(sizes.0).ok()?, u64::try_from(sizes.1).ok()?))
    };
    start.mss = super::stream::tcp_info(control).map(|info| info.mss);
    match lanes.first() {
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
    /// Warm-up and window; what this end knows then. The senders have stopped, the receivers still receive.
    fn measure(&mut self) -> Result<End, Trouble> {
        let warm_up = self.test.omit.0;
        if warm_up > 0 {
            self.lanes.start()?;
            self.phase(Some(warm_up), true)?;
        }
        // Told first: who is told of it wants the CPU, which the streams need when the window begins.
        (self.tell)(Progress::Counting);
        let cpu = clock::process().0;
        if warm_up > 0 {
            self.lanes.count_anew();
        } else {
            self.lanes.start()?;
        }
        let time = Some(self.test.time.0).filter(|time| *time > 0);
        let (begin, end) = self.phase(time, false)?;
        let now = clock::process().0;
        (self.tell)(Progress::Over);
        let cpu = CpuTime {
            user_ns: now.user_ns.saturating_sub(cpu.user_ns),
            system_ns: now.system_ns.saturating_sub(cpu.system_ns),
        };
        let streams = self.lanes.totals(end);
        Ok(End { duration_ns: end - begin, cpu: Some(cpu), congestion: None, streams })
    }

    /// Lets the streams run for so long, and tells of each interval. When it began and ended.
    fn phase(&mut self, time: Option<u64>, omitted: bool) -> Result<(u64, u64), Trouble> {
        let begin = self.lanes.begin();
        let mut end = time.map_or(u64::MAX, |time| begin + time);
        let every = self.test.interval.0.max(1);
        let mut last = begin;
        let mut progress = Progressed { received: 0, at: begin, sent_all: None };
        loop {
            let next = (begin + ((last - begin) / every + 1) * every).min(end);
            let wait = Duration::from_nanos(next.saturating_sub(clock::now()));
            let nap = if omitted || self.test.traffic.bytes.is_none() { NAP } else { LOOK };
            if let Some(state) = self.session.control().poll(wait.min(nap))? {
                return Err(Trouble::Unexpected(state));
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
                self.lanes.stop_sending();
            }
            // Of the end of the whole every byte counts, of an interval's what the look sees.
            let until = if now >= end { end } else { now };
            let interval = (until > last).then(|| self.interval(begin, last, until, omitted));
            if now >= end && !omitted {
                // Before anything is told: who is told of it wants the CPU, and the server sends until it hears of the end.
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

    fn interval(&mut self, begin: u64, last: u64, now: u64, omitted: bool) -> Interval {
        let streams = self.lanes.look();
        Interval { begin_ns: last - begin, end_ns: now - begin, omitted, streams }
    }

    /// When there was no more to do, if there is not, before any time is over.
    fn through(&self, now: u64, omitted: bool, progress: &mut Progressed) -> Option<u64> {
        let direction = self.test.traffic.direction;
        let sent_all = self.lanes.have_sent_all();
        if sent_all && !direction.receives() {
            // What the kernel took is still to arrive.
            let since = *progress.sent_all.get_or_insert(now);
            return (self.lanes.has_arrived() || now - since > ARRIVAL_NS).then_some(now);
        }
        let bytes = self.test.traffic.bytes.filter(|_| !omitted)?;
        let received = self.lanes.counted(false);
        if received != progress.received {
            (progress.received, progress.at) = (received, now);
        }
        let sent = !direction.sends() || sent_all || self.lanes.counted(true) >= bytes.0;
        if !sent {
            return None;
        }
        if !direction.receives() || received >= bytes.0 {
            return Some(now);
        }
        // That nothing more comes is known later than it is so.
        (received > 0 && now - progress.at > QUIET_NS).then_some(progress.at)
    }
}
