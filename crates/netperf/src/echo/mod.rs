//! Round trips: the server sends messages back, and the client measures the time of each.
//!
//! The client's `prober` is a worker, as in a disk measurement. With a rate it sends messages on schedule, regardless of replies; without
//! one it sends the next message after each reply. It reports counts per interval. A `transport` carries the messages: `icmp`, which the
//! kernel of any host answers, or a `udp` or `tcp` socket connected to an iotax [`server`]. Client and server agree on the test as on an
//! iperf3 test of one stream. A `load` that runs at the same time is a separate test with the same server.

mod icmp;
mod in_flight;
mod load;
mod message;
mod prober;
pub(super) mod server;
mod tcp;
#[cfg(test)]
mod tests;
mod transport;
mod udp;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use iotax_model::net::{Direction, NetTest, Peer, Traffic};
use iotax_model::record::{Carried, Outcome};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::{Rw, Workload};

use self::icmp::Icmp;
use self::load::Load;
use self::prober::{DEADLINE, ProbeTotals, Prober};
use self::tcp::Tcp;
use self::transport::{Transport, deepen};
use self::udp::Udp;
use super::client::{ClientSession, with_name};
use super::control::NetError;
use super::measure::flows;
use super::parameters::Parameters;
use super::report::End;
use super::stream::{self, Socket};
use super::{dial, test};
use iotax_load::clock;
use iotax_load::control::Control;
use iotax_load::error::EngineError;
use iotax_load::latencies::Latencies;
use iotax_load::random::{Purpose, SplitMix64};
use iotax_load::watch;
use iotax_load::window::Window;
use iotax_load::workers::{Work, Workers};

/// Default length of a message in bytes.
const LENGTH: Bytes = Bytes(64);
/// Time to wait for the reply to one attempt of the first message over UDP.
const GREETING: Duration = Duration::from_millis(500);
/// Number of attempts to get a reply to the first message over UDP; over TCP a single attempt waits as long as all of them.
const GREETINGS: u32 = 10;

/// Measures the round trips of a job; if the job has a load, runs that at the same time.
pub(super) fn measure(
    control: &Control,
    job: &Job,
    traffic: &Traffic,
    peer: &Peer,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    clock::calibrate();
    let load =
        if traffic.loaded { Some(load::prepare(&job.workload, traffic, peer, job.interval)?) } else { None };
    if traffic.test == NetTest::IcmpRtt {
        let transport = icmp(traffic, peer)?;
        let note =
            format!("round trips end when the kernel gets the reply; sent through {}", transport.kind());
        events(Event::Ready);
        control.await_start();
        let mut outcome = go(control.ending(), job, traffic, transport, load, events)?;
        events(Event::Over);
        outcome.notes.push(note);
        return Ok(outcome);
    }
    let session =
        ClientSession::open(peer, |mss| parameters(&job.workload, traffic, mss, peer.token.is_some()));
    let session = session.map_err(|error| named(peer, error))?;
    events(Event::Ready);
    control.await_start();
    match on_session(control.ending(), job, traffic, &session, load, events) {
        Ok(outcome) => conclude(session, outcome).map_err(|error| named(peer, error)),
        Err(error) => {
            session.terminate();
            Err(match error {
                Failure::Server(error) => named(peer, error),
                Failure::Here(error) => error,
            })
        }
    }
}

/// The reason why a measurement failed: at the server or the network, or at this end.
enum Failure {
    Server(NetError),
    Here(EngineError),
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Here(error)
    }
}

impl From<NetError> for Failure {
    fn from(error: NetError) -> Self {
        Self::Server(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Server(error.into())
    }
}

/// Adds the peer's name to an error. If no server listens there, the error names the remedy for round trips.
fn named(peer: &Peer, error: NetError) -> EngineError {
    match error {
        NetError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => EngineError::Net(format!(
            "{}:{}: {error}; have iotax net serve run there, or use ICMP (--icmp, test = \"icmp-rtt\"), which any host answers",
            peer.host, peer.port
        )),
        error => with_name(peer, error),
    }
}

/// Creates the parameters of a test with one stream, on which the server answers messages.
fn parameters(workload: &Workload, traffic: &Traffic, mss: Option<u32>, auth: bool) -> Parameters {
    let one = Traffic {
        direction: Direction::Upload,
        parallel: 1,
        length: Some(traffic.length.unwrap_or(LENGTH)),
        ..traffic.clone()
    };
    Parameters::new(&one, workload.window(), workload.ramp_time, mss, auth)
}

/// Measures round trips with a server that has agreed to them.
fn on_session(
    end: &AtomicBool,
    job: &Job,
    traffic: &Traffic,
    session: &ClientSession,
    load: Option<test::Prepared>,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, Failure> {
    let (mut sockets, started) = session.connect()?;
    session.await_running(started)?;
    let Some((socket, _)) = sockets.pop() else {
        return Err(NetError::Refused("has no stream to answer on".into()).into());
    };
    greet(&socket, length(traffic))?;
    let polls = traffic.busy_poll.is_none() || stream::busy_polls(&socket);
    let mut outcome = match socket {
        Socket::Udp(socket) => {
            if traffic.window.is_none() {
                deepen(&socket);
            }
            go(end, job, traffic, Udp::new(socket, length(traffic))?, load, events)?
        }
        Socket::Tcp(socket) => go(end, job, traffic, Tcp::new(socket, length(traffic))?, load, events)?,
    };
    events(Event::Over);
    if traffic.busy_poll.is_some() {
        let kernels = if polls {
            "and so does its kernel (SO_BUSY_POLL)"
        } else {
            "but its kernel does not (SO_BUSY_POLL takes CAP_NET_ADMIN)"
        };
        outcome.notes.push(format!("this end asks again and again for what comes, {kernels}"));
    }
    Ok(outcome)
}

/// Exchanges one message before the measurement. An iperf3 server would treat the test as a stream and not answer.
fn greet(socket: &Socket, length: usize) -> Result<(), NetError> {
    let message = vec![0; length];
    let mut reply = vec![0; length];
    let came = match socket {
        Socket::Tcp(stream) => {
            stream.set_read_timeout(Some(GREETING * GREETINGS))?;
            (&*stream).write_all(&message)?;
            (&*stream).read_exact(&mut reply).is_ok()
        }
        Socket::Udp(socket) => {
            socket.set_read_timeout(Some(GREETING))?;
            (0..GREETINGS).any(|_| {
                let sent = socket.send(&message).is_ok();
                // The server may answer the opening datagram a second time.
                sent && (0..2).any(|_| socket.recv(&mut reply).is_ok_and(|got| got == length))
            })
        }
    };
    if came {
        return Ok(());
    }
    let words = "does not send messages back: iotax net serve does, an iperf3 does not; any host answers ICMP \
                 (--icmp, test = \"icmp-rtt\")";
    Err(NetError::Refused(words.into()))
}

/// Ends the test at the server, and adds the server's CPU time to the outcome.
fn conclude(session: ClientSession, mut outcome: Outcome) -> Result<Outcome, NetError> {
    session.end();
    session.await_end()?;
    let local = End { duration_ns: outcome.duration_ns, cpu: Some(outcome.cpu), ..End::default() };
    let remote = session.exchange(&local)?;
    if let Some(carried) = &mut outcome.carried {
        carried.server_cpu = remote.cpu;
    }
    Ok(outcome)
}

/// Runs the measurement, together with the load if the job has one. Returns the outcome.
fn go(
    end: &AtomicBool,
    job: &Job,
    traffic: &Traffic,
    transport: impl Transport + 'static,
    load: Option<test::Prepared>,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    let prepared = Prepared::new(job, traffic, transport)?;
    let load = load.map(Load::start).transpose()?;
    let mut outcome = prepared.go(end, Window::new(job, clock::now()), events)?;
    if let Some(load) = load {
        let report = load.end()?;
        let carried = outcome.carried.get_or_insert_default();
        carried.flows = flows(&report);
        carried.congestion = report.start.congestion;
        carried.mss = report.start.mss;
        outcome.notes.extend(report.notes);
    }
    Ok(outcome)
}

fn icmp(traffic: &Traffic, peer: &Peer) -> Result<Icmp, EngineError> {
    let name = &peer.host;
    let from_there = |address: SocketAddr| {
        let from = dial::local(peer.bind.as_deref(), address, 0)?.ip();
        Icmp::new(address.ip(), Some(from).filter(|from| !from.is_unspecified()), length(traffic))
    };
    let mut last = None;
    for address in dial::resolve(name, 0).map_err(|error| EngineError::Net(format!("{name}: {error}")))? {
        match from_there(address) {
            Ok(transport) => return Ok(transport),
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
    Err(EngineError::Net(format!("{name}: {error}")))
}

/// Returns the length of a message in bytes.
fn length(traffic: &Traffic) -> usize {
    usize::try_from(traffic.length.unwrap_or(LENGTH).0).unwrap_or(usize::MAX)
}

/// A measurement whose worker is set up and waits for the start.
struct Prepared {
    job: Job,
    workers: Workers,
    room: Latencies,
    totals: Receiver<ProbeTotals>,
}

impl Prepared {
    /// Creates the worker that measures round trips over a transport.
    fn new(job: &Job, traffic: &Traffic, transport: impl Transport + 'static) -> Result<Self, EngineError> {
        let workload = as_io(&job.workload, traffic);
        let room = Latencies::new(&workload);
        let (sender, totals) = mpsc::channel();
        let cookie = SplitMix64::new(job.seed ^ clock::now(), Purpose::Run, std::process::id().into()).next();
        let prober = Prober {
            transport,
            workload: workload.clone(),
            cookie,
            spins: traffic.busy_poll.is_some(),
            totals: sender,
        };
        let mut work = Some(Box::new(move |context| prober.work(context)) as Work);
        let workers =
            Workers::spawn(1, None, &room, |number| work.take().ok_or(EngineError::Panicked(number)))?;
        Ok(Self { job: Job { workload, ..job.clone() }, workers, room, totals })
    }

    /// Starts the worker, and measures for the length of the window.
    fn go(
        mut self,
        end: &AtomicBool,
        window: Window,
        events: &mut dyn FnMut(Event),
    ) -> Result<Outcome, EngineError> {
        let carried = watch::carry_out(&mut self.workers, &self.job, window, &self.room, end, events);
        let mut outcome = match carried {
            Ok(outcome) => outcome,
            Err(error) => {
                self.workers.shutdown(self.job.interval);
                return Err(error);
            }
        };
        // A stuck worker sends no totals.
        let totals = self.totals.try_recv().ok();
        outcome.carried = Some(Carried {
            probes: totals.map(|totals| totals.probes),
            mdev_ns: totals.and_then(|totals| totals.mdev_ns),
            ..Carried::default()
        });
        if let Some(late) = totals.map(|totals| totals.late).filter(|late| *late > 0) {
            let deadline = Nanos(DEADLINE);
            outcome.notes.push(format!(
                "{late} replies came more than {deadline} after their messages and count as lost"
            ));
        }
        Ok(outcome)
    }
}

/// Converts the test to an I/O workload, in which each answered message counts as a read.
fn as_io(workload: &Workload, traffic: &Traffic) -> Workload {
    Workload {
        rw: Rw::Read,
        bs: traffic.length.unwrap_or(LENGTH),
        iodepth: 1,
        numjobs: 1,
        rate_iops: traffic.rate,
        rate: None,
        thinktime: None,
        startdelay: None,
        stall_timeout: None,
        ..workload.clone()
    }
}
