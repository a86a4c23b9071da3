//! One test at the server.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use iotax_model::record::CpuTime;
use iotax_model::units::Nanos;

use super::super::control::{Control, Cookie, MAX_RESULTS, PATIENCE, State, Trouble};
use super::super::echo::server::Answering;
use super::super::exchange::Results;
use super::super::handshake;
use super::super::parameters::Parameters;
use super::super::report::{End, Interval, Report, Start};
use super::super::stream::{Options, Socket};
use super::super::streams::{self, Lanes};
use super::super::test::describe;
use super::error_log::Complaint;
use super::{Arrival, House, Told};
use iotax_engine::clock;

/// The interval at which the session reads the client's states and checks for a stop.
const LOOK: Duration = Duration::from_millis(20);
/// The longest that a client of ours may wait with its streams: it may be one of several that start together, and guests are slow.
const OURS_PATIENCE: Duration = Duration::from_mins(2);
/// The time that a client may take beyond what it announced.
const GRACE_NS: u64 = 30_000_000_000;
/// The longest time without a byte in a test of streams, or in one without a time.
const QUIET_NS: u64 = 120_000_000_000;
/// The most calls that are answered at once.
const CALLS: usize = 64;
/// An interval.
const INTERVAL_NS: u64 = 1_000_000_000;

/// A test that was agreed on.
pub(super) struct Session {
    pub(super) house: Arc<House>,
    pub(super) control: Control,
    pub(super) cookie: Cookie,
    pub(super) parameters: Parameters,
    pub(super) arrivals: Receiver<Arrival>,
}

/// CPU time and begin of what counts.
#[derive(Clone, Copy)]
struct Mark {
    begin: u64,
    last: u64,
    cpu: CpuTime,
}

impl Mark {
    fn now() -> Self {
        let begin = clock::now();
        Self { begin, last: begin, cpu: clock::process().0 }
    }
}

impl Session {
    /// Carries it out and tells what came of it.
    pub(super) fn carry_out(self, address: IpAddr) {
        let report = self.test();
        if let Err(trouble) = &report {
            // A client that is gone needs no word.
            drop(self.control.send(State::ServerTerminate));
            self.house.complain(Complaint::Failed, address, &words(trouble));
            (self.house.tell)(Told::Failed(self.cookie()));
        }
        self.make_room();
        if let Ok(report) = report {
            (self.house.tell)(Told::Ended(Box::new(report)));
            if self.house.serving.one_off {
                self.house.is_over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The cookie's letters.
    fn cookie(&self) -> String {
        String::from_utf8_lossy(&self.cookie[..self.cookie.len() - 1]).into_owned()
    }

    /// Lets another test begin.
    fn make_room(&self) {
        self.house.tests().retain(|entry| entry.cookie != self.cookie);
    }

    fn test(&self) -> Result<Report, Trouble> {
        self.control.send(State::CreateStreams)?;
        let mut sockets = self.await_streams()?;
        // Of round trips the streams' sockets are answered on, and no stream is left.
        let round_trips = self.parameters.round_trips().map(|_| std::mem::take(&mut sockets));
        let answering = round_trips.map(|sockets| Answering::start(sockets, &self.parameters)).transpose()?;
        self.control.send(State::TestStart)?;
        let (sends, _) = self.parameters.streams();
        let sockets = sockets.into_iter().zip(0..).map(|(socket, number)| (socket, number >= sends));
        let mut lanes = Lanes::new(&self.parameters, sockets, false);
        let time = Nanos(self.parameters.time.saturating_mul(1_000_000_000));
        let mut start = Start::new(&self.parameters, time, self.cookie(), self.control.peer()?);
        describe(&mut start, &lanes, self.control.socket())?;
        (self.house.tell)(Told::Started(start.clone()));
        // Started first: the client that is told may want the CPU, and its window begins.
        lanes.start()?;
        self.control.send(State::TestRunning)?;
        let local = self.run(&mut lanes, &start)?;
        drop(answering);
        self.conclude(lanes, start, local)
    }

    /// The streams' sockets, in the order in which they came.
    fn await_streams(&self) -> Result<Vec<Socket>, Trouble> {
        let (sends, receives) = self.parameters.streams();
        let wanted = (sends + receives) as usize;
        let patience = if self.parameters.iotax.is_some() { OURS_PATIENCE } else { PATIENCE };
        let deadline = Instant::now() + patience;
        let mut came: Vec<Arrival> = Vec::with_capacity(wanted);
        while came.len() < wanted {
            match self.arrivals.recv_timeout(LOOK) {
                Ok(arrival) => came.push(arrival),
                Err(RecvTimeoutError::Disconnected) => return Err(Trouble::Closed),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(state) = self.control.poll(Duration::ZERO)? {
                        return Err(Trouble::Unexpected(state));
                    }
                    came.iter().for_each(|(_, socket)| answer_again(socket));
                }
            }
            if self.house.stops() {
                return Err(Trouble::Terminated);
            }
            if Instant::now() > deadline {
                return Err(Trouble::Late);
            }
        }
        came.sort_by_key(|(number, _)| *number);
        let options = Options { mss: None, congestion: None, ..streams::options(&self.parameters) };
        for (_, socket) in &came {
            answer_again(socket);
            if let Socket::Tcp(socket) = socket {
                options.set(socket, true)?;
                let congestion = self.parameters.congestion.clone();
                // As at an iperf3: what this kernel does not have is not used, and the results say what was.
                drop(Options { congestion, ..Options::default() }.set(socket, true));
            }
        }
        Ok(came.into_iter().map(|(_, socket)| socket).collect())
    }

    /// Has the streams run until the client says that it is over.
    fn run(&self, lanes: &mut Lanes, start: &Start) -> Result<End, Trouble> {
        let started = lanes.begin();
        let warm = started + start.omit.0;
        let give_up = Some(start.time.0).filter(|time| *time > 0).map(|time| warm + time + GRACE_NS);
        // What passes in round trips is not counted here.
        let watched = give_up.is_none() || !start.round_trips;
        let mut omitted = start.omit.0 > 0;
        let mut mark = Mark::now();
        let mut moved = (started, 0);
        loop {
            // The warm-up ends when it ends, not a look later.
            let left = Duration::from_nanos(warm.saturating_sub(clock::now()));
            let state = self.control.poll(if omitted { LOOK.min(left) } else { LOOK })?;
            let now = clock::now();
            match state {
                Some(State::TestEnd) => break,
                Some(other) => return Err(Trouble::Unexpected(other)),
                None => {}
            }
            if self.house.stops() {
                return Err(Trouble::Terminated);
            }
            let bytes = lanes.bytes();
            if bytes != moved.1 {
                moved = (now, bytes);
            }
            let is_quiet = watched && now - moved.0 > QUIET_NS;
            if is_quiet || give_up.is_some_and(|give_up| now > give_up) {
                return Err(Trouble::Late);
            }
            if omitted && now >= warm {
                self.tell_interval(lanes, start, &mut mark, now, true);
                lanes.count_anew();
                mark = Mark::now();
                omitted = false;
            } else if now - mark.last >= INTERVAL_NS {
                self.tell_interval(lanes, start, &mut mark, now, omitted);
            }
        }
        let now = clock::now();
        let cpu = clock::process().0;
        lanes.stop_sending();
        self.tell_interval(lanes, start, &mut mark, now, omitted);
        let cpu = CpuTime {
            user_ns: cpu.user_ns.saturating_sub(mark.cpu.user_ns),
            system_ns: cpu.system_ns.saturating_sub(mark.cpu.system_ns),
        };
        let congestion = start.congestion.clone();
        Ok(End { duration_ns: now - mark.begin, cpu: Some(cpu), congestion, streams: lanes.totals(now) })
    }

    fn tell_interval(&self, lanes: &mut Lanes, start: &Start, mark: &mut Mark, now: u64, omitted: bool) {
        let (begin_ns, end_ns) = (mark.last - mark.begin, now - mark.begin);
        mark.last = now;
        let interval = Interval { begin_ns, end_ns, omitted, streams: lanes.look() };
        (self.house.tell)(Told::Interval(start.cookie.clone(), interval));
    }

    /// Learns what the client knows and tells what is known here.
    fn conclude(&self, mut lanes: Lanes, start: Start, mut local: End) -> Result<Report, Trouble> {
        local.broke(lanes.join());
        drop(lanes);
        self.control.send(State::ExchangeResults)?;
        let remote: Results = self.control.json(MAX_RESULTS)?;
        self.control.send_json(&Results::of(&local, start.udp))?;
        // A client that has its results may begin the next test at once.
        self.make_room();
        self.control.send(State::DisplayResults)?;
        let remote = remote.read(&local, start.udp, start.omit.0 > 0);
        // It may leave without a word.
        drop(self.control.poll(PATIENCE));
        let notes = local.words("").chain(remote.words("the other end's ")).collect();
        Ok(Report { start, local, remote: Some(remote), notes })
    }
}

/// Answers calls that were sent again because the answer took its time.
fn answer_again(socket: &Socket) {
    let Socket::Udp(socket) = socket else { return };
    let mut buffer = [0; handshake::LENGTH + 1];
    if socket.set_nonblocking(true).is_err() {
        return;
    }
    // A flood must not keep it here.
    for _ in 0..CALLS {
        let Ok(length) = socket.recv(&mut buffer) else { break };
        if handshake::read_call(&buffer[..length]).is_some() {
            drop(socket.send(&handshake::answer()));
        }
    }
    drop(socket.set_nonblocking(false));
}

/// A failure as one end says it of the other.
fn words(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Io(error) => error.to_string(),
        trouble => format!("it {trouble}"),
    }
}
