//! The streams of a test at one end: their threads, and what they have done since the last look.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use iotax_model::record::Gap;

use super::parameters::Parameters;
use super::report::{Connection, Figures, StreamEnd, StreamInterval};
use super::stream::{self, Amount, Counters, Options, Settings, Snapshot, Socket, TcpInfo};
use iotax_engine::clock;

/// The longest that a write may still take when a sender is told to stop.
const LAST_WRITE_NS: u64 = 100_000_000;

/// The streams of a test at one end.
#[derive(Debug)]
pub(super) struct Lanes {
    all: Vec<Lane>,
    settings: Settings,
    udp: bool,
    /// True if this end is the client.
    local: bool,
    /// When counting began.
    begin: u64,
}

/// One stream at one end.
#[derive(Debug)]
struct Lane {
    id: u32,
    sends: bool,
    socket: Arc<Socket>,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<io::Result<()>>>,
    base: Reading,
    last: Reading,
    path: PathSeen,
}

/// A stream's counts at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    counts: Snapshot,
    tcp: Option<TcpInfo>,
    /// Segments with data, sent or received, beyond the kernel's 32 bits.
    segments: Option<u64>,
}

/// TCP's figures at the looks so far.
#[derive(Debug, Clone, Copy, Default)]
struct PathSeen {
    looks: u64,
    rtt_sum: u64,
    rtt_least: u64,
    rtt_most: u64,
    cwnd: u64,
    window: u64,
}

impl PathSeen {
    fn add(&mut self, tcp: &TcpInfo) {
        self.rtt_least = if self.looks == 0 { tcp.rtt_ns } else { self.rtt_least.min(tcp.rtt_ns) };
        self.rtt_most = self.rtt_most.max(tcp.rtt_ns);
        self.rtt_sum += tcp.rtt_ns;
        self.looks += 1;
        self.cwnd = self.cwnd.max(tcp.snd_cwnd);
        self.window = self.window.max(tcp.snd_wnd.unwrap_or(0).into());
    }

    fn rtt(&self) -> Option<[u64; 3]> {
        let mean = self.rtt_sum.checked_div(self.looks)?;
        Some([self.rtt_least, mean, self.rtt_most])
    }
}

impl Reading {
    /// The state of now, after `last`.
    fn now(lane: &Lane) -> Self {
        let tcp = match &*lane.socket {
            Socket::Tcp(socket) => stream::tcp_info(socket),
            Socket::Udp(_) => None,
        };
        let segments = |tcp: &TcpInfo| if lane.sends { tcp.data_segs_out } else { tcp.data_segs_in };
        let count = tcp.as_ref().and_then(segments).map(|count| {
            let last = lane.last.segments.unwrap_or(0);
            #[expect(clippy::cast_possible_truncation, reason = "the kernel's count is its lowest 32 bits")]
            let gained = count.wrapping_sub(last as u32);
            last + u64::from(gained)
        });
        Self { counts: lane.counters.snapshot(), tcp, segments: count }
    }

    /// Subtracts an earlier look.
    fn since(&self, earlier: &Self, sends: bool) -> Figures {
        let counts = self.counts.since(&earlier.counts);
        let Some(tcp) = self.tcp else {
            let received = (!sends).then_some(());
            return Figures {
                bytes: counts.bytes,
                packets: Some(counts.packets),
                lost: received.map(|()| counts.lost),
                out_of_order: received.map(|()| counts.out_of_order),
                duplicates: received.map(|()| counts.duplicates),
                jitter_ns: received.map(|()| counts.jitter_ns),
                retransmits: None,
            };
        };
        let before = earlier.tcp.unwrap_or_default();
        let segments = self.segments.map(|now| now.saturating_sub(earlier.segments.unwrap_or(0)));
        Figures {
            bytes: counts.bytes,
            packets: segments,
            retransmits: sends.then(|| tcp.retransmits.saturating_sub(before.retransmits)),
            ..Figures::default()
        }
    }
}

/// Options for the sockets of a test.
pub(super) fn options(parameters: &Parameters) -> Options {
    Options {
        window: parameters
            .window
            .and_then(|window| usize::try_from(window).ok())
            .filter(|window| *window > 0),
        mss: parameters.mss.filter(|mss| *mss > 0),
        congestion: parameters.congestion.clone(),
        no_delay: parameters.nodelay.unwrap_or(false),
        busy_poll: parameters
            .iotax
            .as_ref()
            .and_then(|told| told.busy_poll_ns)
            .map(iotax_model::units::Nanos),
    }
}

impl Lanes {
    /// Streams over sockets in the order of their numbers; `sends` tells of each whether this end sends.
    pub(super) fn new(
        parameters: &Parameters,
        sockets: impl IntoIterator<Item = (Socket, bool)>,
        local: bool,
    ) -> Self {
        let amount = match (parameters.num, parameters.blockcount) {
            // What passes in the warm-up is none of it: then the client watches what passed after it.
            _ if parameters.omit().0 > 0 => None,
            (0, 0) => None,
            (0, blocks) => Some(Amount::blocks(blocks)),
            (bytes, _) => Some(Amount::bytes(bytes)),
        };
        let settings = Settings {
            length: usize::try_from(parameters.length()).unwrap_or(usize::MAX),
            bitrate: parameters.bandwidth.filter(|bitrate| *bitrate > 0),
            zerocopy: parameters.zerocopy.is_some_and(|asked| asked > 0),
            udp64: parameters.udp_counters_64bit.is_some_and(|asked| asked > 0),
            amount: amount.map(Arc::new),
        };
        // iperf3 has no stream 2.
        let ids = [1].into_iter().chain(3..);
        let lanes = sockets.into_iter().zip(ids).map(|((socket, sends), id)| Lane {
            id,
            sends,
            socket: Arc::new(socket),
            counters: Arc::default(),
            stop: Arc::default(),
            worker: None,
            base: Reading::default(),
            last: Reading::default(),
            path: PathSeen::default(),
        });
        Self { all: lanes.collect(), settings, udp: parameters.udp, local, begin: 0 }
    }

    /// Where the streams go.
    pub(super) fn connections(&self) -> io::Result<Vec<Connection>> {
        let ends = |socket: &Socket| -> io::Result<(SocketAddr, SocketAddr)> {
            match socket {
                Socket::Tcp(socket) => Ok((socket.local_addr()?, socket.peer_addr()?)),
                Socket::Udp(socket) => Ok((socket.local_addr()?, socket.peer_addr()?)),
            }
        };
        let each = self.all.iter().map(|lane| {
            let (local, remote) = ends(&lane.socket)?;
            Ok(Connection { id: lane.id, sends: lane.sends, local, remote })
        });
        each.collect()
    }

    /// The first stream's socket: all are alike.
    pub(super) fn first(&self) -> Option<&Socket> {
        self.all.first().map(|lane| &*lane.socket)
    }

    /// Has bytes move; counting begins.
    pub(super) fn start(&mut self) -> io::Result<()> {
        self.set_base();
        // A new thread may wait for a CPU for milliseconds: all are there before the first begins, and run before the window does.
        let gate = Arc::new(RwLock::new(()));
        let closed = gate.write();
        let (ready, threads) = mpsc::channel();
        for lane in &mut self.all {
            let (socket, counters, stop) =
                (Arc::clone(&lane.socket), Arc::clone(&lane.counters), Arc::clone(&lane.stop));
            let (settings, sends) = (self.settings.clone(), lane.sends);
            let (ready, gate) = (ready.clone(), Arc::clone(&gate));
            let work = move || {
                let _ = ready.send(());
                drop(gate.read());
                let _ = ready.send(());
                let work = if sends { stream::send } else { stream::receive };
                // What breaks when it is to end anyway did all that it had to.
                work(&socket, &settings, &counters, &stop)
                    .or_else(|error| if stop.load(Ordering::Relaxed) { Ok(()) } else { Err(error) })
            };
            lane.worker = Some(thread::Builder::new().name(format!("stream {}", lane.id)).spawn(work)?);
        }
        threads.iter().take(self.all.len()).for_each(drop);
        drop(closed);
        threads.iter().take(self.all.len()).for_each(drop);
        self.begin = clock::now();
        Ok(())
    }

    /// Counts, and gaps, from now on only. Without a warm-up gaps count from the first packet, which may be long on its way.
    pub(super) fn count_anew(&mut self) {
        self.set_base();
        self.all.iter().for_each(|lane| lane.counters.begin(self.begin));
    }

    /// When counting began.
    pub(super) fn begin(&self) -> u64 {
        self.begin
    }

    fn set_base(&mut self) {
        self.begin = clock::now();
        for lane in &mut self.all {
            lane.last = Reading::now(lane);
            lane.base = lane.last;
            lane.path = PathSeen::default();
        }
    }

    /// Figures of each stream since the last look.
    pub(super) fn look(&mut self) -> Vec<StreamInterval> {
        let each = self.all.iter_mut().map(|lane| {
            let now = Reading::now(lane);
            let figures = now.since(&lane.last, lane.sends);
            lane.last = now;
            if let Some(tcp) = now.tcp.as_ref().filter(|_| lane.sends) {
                lane.path.add(tcp);
            }
            StreamInterval { id: lane.id, sends: lane.sends, figures, tcp: now.tcp }
        });
        each.collect()
    }

    /// Figures of each stream since counting began, up to the last look, which was just now.
    pub(super) fn totals(&self, now: u64) -> Vec<StreamEnd> {
        let each = self.all.iter().map(|lane| {
            let tcp = lane.sends && !self.udp;
            StreamEnd {
                id: lane.id,
                sends: lane.sends,
                duration_ns: now.saturating_sub(self.begin),
                figures: lane.last.since(&lane.base, lane.sends),
                omitted_packets: lane.base.counts.packets + lane.base.counts.lost,
                rtt_ns: lane.path.rtt().filter(|_| tcp),
                max_cwnd: tcp.then_some(lane.path.cwnd),
                max_window: tcp.then_some(lane.path.window),
                gaps: self.gaps(lane, now),
                error: None,
            }
        });
        each.collect()
    }

    fn gaps(&self, lane: &Lane, now: u64) -> Vec<Gap> {
        if lane.sends {
            return Vec::new();
        }
        let gap = |gap: stream::GapSpan| Gap {
            upload: !self.local,
            at_ns: gap.begin.saturating_sub(self.begin),
            duration_ns: gap.duration(),
            lost_bytes: self.udp.then_some(gap.lost_bytes),
        };
        lane.counters.gaps(now).into_iter().map(gap).collect()
    }

    /// True if nothing more will be sent from here: the amount is used up, or every stream broke.
    pub(super) fn have_sent_all(&self) -> bool {
        let gone = |lane: &Lane| lane.worker.as_ref().is_none_or(JoinHandle::is_finished);
        let mut senders = self.all.iter().filter(|lane| lane.sends).peekable();
        senders.peek().is_some() && senders.all(gone)
    }

    /// True if the peer's kernel has all that was given to this one's, as far as this one tells.
    pub(super) fn has_arrived(&self) -> bool {
        let waits = |lane: &Lane| match &*lane.socket {
            Socket::Tcp(socket) => stream::tcp_info(socket).is_some_and(|tcp| tcp.waiting),
            Socket::Udp(_) => false,
        };
        !self.all.iter().any(|lane| lane.sends && waits(lane))
    }

    /// Bytes that the streams moved since they started, both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.all.iter().map(|lane| lane.counters.snapshot().bytes).sum()
    }

    /// Bytes that this end sent, or received, since counting began.
    pub(super) fn counted(&self, sent: bool) -> u64 {
        let lanes = self.all.iter().filter(|lane| lane.sends == sent);
        lanes.map(|lane| lane.counters.snapshot().since(&lane.base.counts).bytes).sum()
    }

    /// Has the senders, or the receivers, stop.
    pub(super) fn stop(&self, senders: bool) {
        for lane in self.all.iter().filter(|lane| lane.sends == senders) {
            lane.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Has the senders stop and waits a moment for the last of them, so that what is counted next is all that was sent.
    pub(super) fn stop_sending(&self) {
        self.stop(true);
        let deadline = clock::now() + LAST_WRITE_NS;
        while self.all.iter().any(|lane| lane.sends) && !self.have_sent_all() && clock::now() < deadline {
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Describes how datagrams passed between the streams and the kernel.
    pub(super) fn ways(&self) -> Vec<String> {
        let ways = |sends: bool| {
            let mut lanes = self.all.iter().filter(move |lane| lane.sends == sends);
            lanes.find_map(|lane| lane.counters.way()).map(|way| way.words(sends).to_owned())
        };
        [true, false].into_iter().filter_map(ways).collect()
    }

    /// Waits for the threads, which are to stop. The streams that broke before that, by their numbers, and why.
    pub(super) fn join(&mut self) -> Vec<(u32, String)> {
        self.stop(true);
        self.stop(false);
        let mut broken = Vec::new();
        for lane in &mut self.all {
            match lane.worker.take().map(JoinHandle::join) {
                Some(Ok(Err(error))) => broken.push((lane.id, error.to_string())),
                Some(Err(_)) => broken.push((lane.id, "it panicked: this is a bug in iotax".into())),
                Some(Ok(Ok(()))) | None => {}
            }
        }
        broken
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::net::{NetTest, Traffic};
    use iotax_model::units::Nanos;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// A stream over TCP that is not started, and its other end.
    fn lane(sends: bool) -> (Lanes, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
        let remote = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let local = Socket::Tcp(listener.accept().expect("accepted").0);
        let parameters = Parameters::new(&Traffic::new(NetTest::Tcp), Nanos(1), Nanos(0), None, false);
        (Lanes::new(&parameters, [(local, sends)], true), remote)
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let deadline = clock::now() + 10_000_000_000;
        while !is_so() {
            assert!(clock::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_stream_that_breaks_is_told_and_one_that_is_to_end_is_not_broken() {
        let (mut lanes, remote) = lane(true);
        lanes.start().expect("started");
        until("bytes", || lanes.bytes() > 0);
        assert!(!lanes.has_arrived(), "nobody reads");
        // What it has not read makes the kernel break the connection.
        drop(remote);
        until("it breaks", || lanes.have_sent_all());
        assert!(lanes.has_arrived(), "nothing more will");
        let broken = lanes.join();
        assert!(matches!(&broken[..], [(1, why)] if !why.is_empty()), "{broken:?}");

        let (mut lanes, remote) = lane(true);
        lanes.start().expect("started");
        until("bytes", || lanes.bytes() > 0);
        lanes.stop(true);
        drop(remote);
        assert_eq!(lanes.join(), []);
    }

    #[test]
    fn what_is_on_its_way_at_first_is_no_gap_unless_there_was_a_warm_up() {
        let gaps = |warmed_up: bool| {
            let (mut lanes, mut remote) = lane(false);
            lanes.start().expect("started");
            if warmed_up {
                lanes.count_anew();
            }
            thread::sleep(Duration::from_millis(50));
            remote.write_all(b"first").expect("written");
            until("bytes", || lanes.bytes() == 5);
            lanes.look();
            // The gap that follows is told from its beginning on.
            lanes.totals(clock::now())[0].gaps.iter().filter(|gap| gap.at_ns < 40_000_000).count()
        };
        assert_eq!((gaps(false), gaps(true)), (0, 1));
    }
}
