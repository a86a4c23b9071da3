//! The streams of a test at one end: their threads, and the counts of each interval and of the whole.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use iotax_model::record::Gap;
use iotax_model::threads;

use super::parameters::Parameters;
use super::report::{Connection, StreamEnd, StreamFigures, StreamInterval};
use super::stream::{self, Amount, Counters, Options, Settings, Snapshot, Socket, TcpInfo};
use iotax_load::clock;

/// Maximum time in nanoseconds to wait for the last write of a stopped sender.
const LAST_WRITE_NS: u64 = 100_000_000;

/// The streams of a test at one end.
#[derive(Debug)]
pub(super) struct Streams {
    all: Vec<Stream>,
    settings: Settings,
    udp: bool,
    /// True if this end is the client, false if it is the server.
    local: bool,
    /// Time at which counting began, in nanoseconds of the engine's clock.
    begin: u64,
}

/// One stream at this end: its socket, thread and counts.
#[derive(Debug)]
struct Stream {
    id: u32,
    sends: bool,
    socket: Arc<Socket>,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<io::Result<()>>>,
    base: Reading,
    last: Reading,
    path: PathSums,
}

/// The counts of a stream at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    counts: Snapshot,
    tcp: Option<TcpInfo>,
    /// Number of segments with data, sent or received; `None` for UDP, and if the kernel does not count them. The kernel's 32-bit count is
    /// extended to 64 bits.
    segments: Option<u64>,
}

/// Sums, minimum and maxima of the kernel's TCP metrics over all readings.
#[derive(Debug, Clone, Copy, Default)]
struct PathSums {
    readings: u64,
    rtt_sum: u64,
    rtt_least: u64,
    rtt_most: u64,
    cwnd: u64,
    window: u64,
}

impl PathSums {
    fn add(&mut self, tcp: &TcpInfo) {
        self.rtt_least = if self.readings == 0 { tcp.rtt_ns } else { self.rtt_least.min(tcp.rtt_ns) };
        self.rtt_most = self.rtt_most.max(tcp.rtt_ns);
        self.rtt_sum += tcp.rtt_ns;
        self.readings += 1;
        self.cwnd = self.cwnd.max(tcp.snd_cwnd);
        self.window = self.window.max(tcp.snd_wnd.unwrap_or(0).into());
    }

    fn rtt(&self) -> Option<[u64; 3]> {
        let mean = self.rtt_sum.checked_div(self.readings)?;
        Some([self.rtt_least, mean, self.rtt_most])
    }
}

impl Reading {
    /// Reads a stream's counters. The kernel's 32-bit counts are extended from those in `stream.last`.
    fn now(stream: &Stream) -> Self {
        let tcp = match &*stream.socket {
            Socket::Tcp(socket) => stream::tcp_info(socket),
            Socket::Udp(_) => None,
        };
        let segments = |tcp: &TcpInfo| if stream.sends { tcp.data_segs_out } else { tcp.data_segs_in };
        let count = tcp.as_ref().and_then(segments).map(|count| {
            let last = stream.last.segments.unwrap_or(0);
            #[expect(clippy::cast_possible_truncation, reason = "the kernel's count is its lowest 32 bits")]
            let gained = count.wrapping_sub(last as u32);
            last + u64::from(gained)
        });
        Self { counts: stream.counters.snapshot(), tcp, segments: count }
    }

    /// Returns the counts since `earlier`. `sends` is true at the sending end, where losses are unknown.
    fn since(&self, earlier: &Self, sends: bool) -> StreamFigures {
        let counts = self.counts.since(&earlier.counts);
        let Some(tcp) = self.tcp else {
            let received = (!sends).then_some(());
            return StreamFigures {
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
        StreamFigures {
            bytes: counts.bytes,
            packets: segments,
            retransmits: sends.then(|| tcp.retransmits.saturating_sub(before.retransmits)),
            ..StreamFigures::default()
        }
    }
}

impl Stream {
    /// Makes the current counts the start of counting.
    fn set_base(&mut self) {
        self.last = Reading::now(self);
        self.base = self.last;
        self.path = PathSums::default();
    }
}

/// Returns the socket options that the parameters ask for.
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
            .and_then(|extension| extension.busy_poll_ns)
            .map(iotax_model::units::Nanos),
    }
}

impl Streams {
    /// Creates the streams over connected sockets, in the order of their numbers. The flag of a socket is true if this end sends on it.
    pub(super) fn new(
        parameters: &Parameters,
        sockets: impl IntoIterator<Item = (Socket, bool)>,
        local: bool,
    ) -> Self {
        let amount = match (parameters.num, parameters.blockcount) {
            // Warm-up bytes do not count toward the limit: then the client counts the bytes after it.
            _ if parameters.omit().0 > 0 => None,
            (0, 0) => None,
            (0, blocks) => Some(Amount::blocks(blocks)),
            (bytes, _) => Some(Amount::bytes(bytes)),
        };
        let settings = Settings {
            length: usize::try_from(parameters.length()).unwrap_or(usize::MAX),
            bitrate: parameters.bandwidth.filter(|bitrate| *bitrate > 0),
            zerocopy: parameters.zerocopy.is_some_and(|asked| asked > 0),
            skip_copy: parameters.skip_rx_copy.is_some_and(|asked| asked > 0),
            udp64: parameters.udp_counters_64bit.is_some_and(|asked| asked > 0),
            amount: amount.map(Arc::new),
        };
        // iperf3 has no stream 2.
        let ids = [1].into_iter().chain(3..);
        let streams = sockets.into_iter().zip(ids).map(|((socket, sends), id)| Stream {
            id,
            sends,
            socket: Arc::new(socket),
            counters: Arc::default(),
            stop: Arc::default(),
            worker: None,
            base: Reading::default(),
            last: Reading::default(),
            path: PathSums::default(),
        });
        Self { all: streams.collect(), settings, udp: parameters.udp, local, begin: 0 }
    }

    /// Returns the local and remote address of each stream.
    pub(super) fn connections(&self) -> io::Result<Vec<Connection>> {
        let ends = |socket: &Socket| -> io::Result<(SocketAddr, SocketAddr)> {
            match socket {
                Socket::Tcp(socket) => Ok((socket.local_addr()?, socket.peer_addr()?)),
                Socket::Udp(socket) => Ok((socket.local_addr()?, socket.peer_addr()?)),
            }
        };
        let each = self.all.iter().map(|stream| {
            let (local, remote) = ends(&stream.socket)?;
            Ok(Connection { id: stream.id, sends: stream.sends, local, remote })
        });
        each.collect()
    }

    /// Returns the socket of the first stream, `None` without streams; the others have the same options.
    pub(super) fn first(&self) -> Option<&Socket> {
        self.all.first().map(|stream| &*stream.socket)
    }

    /// Starts the threads of the streams that this end sends (`sends`), or of those that it receives, and starts counting.
    pub(super) fn start(&mut self, sends: bool) -> io::Result<()> {
        // A new thread may wait milliseconds for a CPU. So all threads exist before the first one transfers data, and all run before the window
        // begins.
        let gate = Arc::new(RwLock::new(()));
        let closed = gate.write();
        let (ready, threads) = mpsc::channel();
        let mut started = 0;
        for stream in self.all.iter_mut().filter(|stream| stream.sends == sends) {
            stream.set_base();
            started += 1;
            let (socket, counters, stop) =
                (Arc::clone(&stream.socket), Arc::clone(&stream.counters), Arc::clone(&stream.stop));
            let settings = self.settings.clone();
            let (ready, gate) = (ready.clone(), Arc::clone(&gate));
            let work = move || {
                let _ = ready.send(());
                drop(gate.read());
                let _ = ready.send(());
                // An error after the end was requested does not matter.
                stream::transfer(sends, &socket, &settings, &counters, &stop)
                    .or_else(|error| if stop.load(Ordering::Relaxed) { Ok(()) } else { Err(error) })
            };
            stream.worker = Some(threads::spawn(&format!("stream {}", stream.id), work)?);
        }
        threads.iter().take(started).for_each(drop);
        drop(closed);
        threads.iter().take(started).for_each(drop);
        self.begin = clock::now();
        Ok(())
    }

    /// Starts counting again at the end of a warm-up. Without a warm-up, gaps are counted only from the first packet, which may take long to
    /// arrive.
    pub(super) fn count_anew(&mut self) {
        self.begin = clock::now();
        for stream in &mut self.all {
            stream.set_base();
            stream.counters.begin(self.begin);
        }
    }

    /// Returns the time at which counting began, in nanoseconds of the engine's clock.
    pub(super) fn begin(&self) -> u64 {
        self.begin
    }

    /// Reads the counters of all streams. Returns each stream's counts since the last reading.
    pub(super) fn read_counters(&mut self) -> Vec<StreamInterval> {
        let each = self.all.iter_mut().map(|stream| {
            let now = Reading::now(stream);
            let figures = now.since(&stream.last, stream.sends);
            stream.last = now;
            if let Some(tcp) = now.tcp.as_ref().filter(|_| stream.sends) {
                stream.path.add(tcp);
            }
            StreamInterval { id: stream.id, sends: stream.sends, figures, tcp: now.tcp }
        });
        each.collect()
    }

    /// Returns each stream's counts from the start of counting to the last reading, which was at `now` nanoseconds of the engine's clock.
    pub(super) fn totals(&self, now: u64) -> Vec<StreamEnd> {
        let each = self.all.iter().map(|stream| {
            let tcp = stream.sends && !self.udp;
            // A server waits for the client's first bytes; this wait does not count as transfer time.
            let first = stream.counters.first_arrival().filter(|_| !self.local && !stream.sends);
            let begin = first.map_or(self.begin, |first| first.max(self.begin));
            StreamEnd {
                id: stream.id,
                sends: stream.sends,
                duration_ns: now.saturating_sub(begin),
                figures: stream.last.since(&stream.base, stream.sends),
                omitted_packets: stream.base.counts.packets + stream.base.counts.lost,
                rtt_ns: stream.path.rtt().filter(|_| tcp),
                max_cwnd: tcp.then_some(stream.path.cwnd),
                // Kernels before 5.4 leave it 0.
                max_window: tcp.then_some(stream.path.window).filter(|window| *window > 0),
                gaps: self.gaps(stream, now),
                error: None,
            }
        });
        each.collect()
    }

    fn gaps(&self, stream: &Stream, now: u64) -> Vec<Gap> {
        if stream.sends {
            return Vec::new();
        }
        let gap = |gap: stream::GapSpan| Gap {
            upload: !self.local,
            at_ns: gap.begin.saturating_sub(self.begin),
            duration_ns: gap.duration(),
            lost_bytes: self.udp.then_some(gap.lost_bytes),
        };
        stream.counters.gaps(now).into_iter().map(gap).collect()
    }

    /// Returns whether this end has senders and all have ended: they were stopped, the amount is used up, or they broke.
    pub(super) fn have_sent_all(&self) -> bool {
        let gone = |stream: &Stream| stream.worker.as_ref().is_none_or(JoinHandle::is_finished);
        let mut senders = self.all.iter().filter(|stream| stream.sends).peekable();
        senders.peek().is_some() && senders.all(gone)
    }

    /// Returns whether the peers' kernels have acknowledged all data that this end sent; always true for UDP and for closed connections.
    pub(super) fn has_arrived(&self) -> bool {
        let waits = |stream: &Stream| match &*stream.socket {
            Socket::Tcp(socket) => stream::tcp_info(socket).is_some_and(|tcp| tcp.waiting),
            Socket::Udp(_) => false,
        };
        !self.all.iter().any(|stream| stream.sends && waits(stream))
    }

    /// Returns the bytes that the streams have moved since they started, in both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.all.iter().map(|stream| stream.counters.snapshot().bytes).sum()
    }

    /// Returns the bytes that this end has sent (`sent`) or received since counting began.
    pub(super) fn counted(&self, sent: bool) -> u64 {
        let streams = self.all.iter().filter(|stream| stream.sends == sent);
        streams.map(|stream| stream.counters.snapshot().since(&stream.base.counts).bytes).sum()
    }

    /// Makes the senders (`senders`) or the receivers stop at their next check.
    pub(super) fn stop(&self, senders: bool) {
        for stream in self.all.iter().filter(|stream| stream.sends == senders) {
            stream.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Stops the senders and waits up to 100 ms until they have ended, so that the next reading covers all sent data.
    pub(super) fn stop_sending(&self) {
        self.stop(true);
        let deadline = clock::now() + LAST_WRITE_NS;
        while self.all.iter().any(|stream| stream.sends) && !self.have_sent_all() && clock::now() < deadline {
            threads::sleep(Duration::from_micros(200));
        }
    }

    /// Describes for notes how datagrams were passed to and from the kernel; empty for TCP.
    pub(super) fn send_methods(&self) -> Vec<String> {
        let send_methods = |sends: bool| {
            let mut streams = self.all.iter().filter(move |stream| stream.sends == sends);
            streams.find_map(|stream| stream.counters.method()).map(|method| method.words(sends).to_owned())
        };
        [true, false].into_iter().filter_map(send_methods).collect()
    }

    /// Stops the streams and waits for their threads. Returns the number of each stream that broke, and the reason.
    pub(super) fn join(&mut self) -> Vec<(u32, String)> {
        self.stop(true);
        self.stop(false);
        let mut broken = Vec::new();
        for stream in &mut self.all {
            match stream.worker.take().map(JoinHandle::join) {
                Some(Ok(Err(error))) => broken.push((stream.id, error.to_string())),
                Some(Err(_)) => broken.push((stream.id, "it panicked: this is a bug in iotax".into())),
                Some(Ok(Ok(()))) | None => {}
            }
        }
        broken
    }
}

impl Drop for Streams {
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
    use std::thread;

    /// Returns a TCP stream that is not started, and its other end.
    fn one_stream(sends: bool) -> (Streams, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
        let remote = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let local = Socket::Tcp(listener.accept().expect("accepted").0);
        let parameters = Parameters::new(&Traffic::new(NetTest::Tcp), Nanos(1), Nanos(0), None, false);
        (Streams::new(&parameters, [(local, sends)], true), remote)
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
        let (mut streams, remote) = one_stream(true);
        streams.start(true).expect("started");
        until("bytes", || streams.bytes() > 0);
        assert!(!streams.has_arrived(), "nobody reads");
        // Unread data makes the kernel reset the connection.
        drop(remote);
        until("it breaks", || streams.have_sent_all());
        assert!(streams.has_arrived(), "nothing more will");
        let broken = streams.join();
        assert!(matches!(&broken[..], [(1, why)] if !why.is_empty()), "{broken:?}");

        let (mut streams, remote) = one_stream(true);
        streams.start(true).expect("started");
        until("bytes", || streams.bytes() > 0);
        streams.stop(true);
        drop(remote);
        assert_eq!(streams.join(), []);
    }

    #[test]
    fn what_is_on_its_way_at_first_is_no_gap_unless_there_was_a_warm_up() {
        let gaps = |warmed_up: bool| {
            let (mut streams, mut remote) = one_stream(false);
            streams.start(false).expect("started");
            if warmed_up {
                streams.count_anew();
            }
            thread::sleep(Duration::from_millis(50));
            remote.write_all(b"first").expect("written");
            until("bytes", || streams.bytes() == 5);
            streams.read_counters();
            // The following gap counts from its beginning.
            streams.totals(clock::now())[0].gaps.iter().filter(|gap| gap.at_ns < 40_000_000).count()
        };
        assert_eq!((gaps(false), gaps(true)), (0, 1));
    }
}
