//! What a test says of itself: when it starts, at each interval, and in the end.

use std::net::SocketAddr;

use iotax_model::record::{CpuTime, Gap};
use iotax_model::units::Nanos;

use super::parameters::Parameters;
pub use super::stream::TcpInfo;

/// A test whose streams are connected.
#[derive(Debug, Clone)]
pub struct Start {
    /// What tells this test from others, 36 letters and digits.
    pub cookie: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The other end of the control connection.
    pub peer: SocketAddr,
    /// The streams, in the order of their numbers.
    pub connections: Vec<Connection>,
    /// Whether they carry datagrams.
    pub udp: bool,
    /// Whether it is round trips: messages that the far end sends back, and no stream.
    pub round_trips: bool,
    /// Streams of each direction.
    pub parallel: u32,
    /// Bytes of one write or datagram.
    pub length: u64,
    /// The warm-up, which does not count.
    pub omit: Nanos,
    /// How long it lasts then; 0 if bytes or blocks end it.
    pub time: Nanos,
    /// Bytes of a direction that end it, or 0.
    pub bytes: u64,
    /// Writes or datagrams of a direction that end it, or 0.
    pub blocks: u64,
    /// Whether only the server sends.
    pub reverse: bool,
    /// Whether both ends send.
    pub bidirectional: bool,
    /// Bits a second of each stream, or 0 for as many as it carries.
    pub bitrate: u64,
    /// Bytes of the sockets' buffers that were asked for, or 0.
    pub window: u64,
    /// Bytes of the first stream's buffers for sending and for receiving, as the kernel has them.
    pub buffers: Option<(u64, u64)>,
    /// TCP's largest segment in bytes: the streams', or the control connection's.
    pub mss: Option<u32>,
    /// TCP's congestion control here.
    pub congestion: Option<String>,
}

/// One stream.
#[derive(Debug, Clone)]
pub struct Connection {
    /// iperf3's number of it: 1, 3, 4, 5 ...
    pub id: u32,
    /// Whether this end sends.
    pub sends: bool,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// Counts of a stream at one end, over some time. What this end does not know is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes given to the kernel, or got from it.
    pub bytes: u64,
    /// Datagrams sent, or received each once; TCP segments with data.
    pub packets: Option<u64>,
    /// Datagrams that did not come. One that comes after an interval's end makes up for it in the whole only: intervals may add up
    /// to more.
    pub lost: Option<u64>,
    /// Datagrams that came after a later one.
    pub out_of_order: Option<u64>,
    /// Datagrams that came once more.
    pub duplicates: Option<u64>,
    /// RFC 3550's jitter at the end of the time.
    pub jitter_ns: Option<u64>,
    /// Segments that TCP sent again.
    pub retransmits: Option<u64>,
}

/// What a test did in one interval, at this end.
#[derive(Debug, Clone)]
pub struct Interval {
    /// When it began, in nanoseconds from the test's start, or from the warm-up's end after it.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Whether it was in the warm-up.
    pub omitted: bool,
    /// The streams, in the order of their numbers.
    pub streams: Vec<StreamInterval>,
}

/// What a stream did in one interval.
#[derive(Debug, Clone)]
pub struct StreamInterval {
    /// Its number.
    pub id: u32,
    /// Whether this end sends.
    pub sends: bool,
    /// Its counts.
    pub figures: Figures,
    /// What TCP knows of it at the interval's end.
    pub tcp: Option<TcpInfo>,
}

/// What one end knows of a test in the end, the warm-up left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct End {
    /// How long it counted.
    pub duration_ns: u64,
    /// CPU time of its process meanwhile.
    pub cpu: Option<CpuTime>,
    /// TCP's congestion control there.
    pub congestion: Option<String>,
    /// The streams, in the order of their numbers.
    pub streams: Vec<StreamEnd>,
}

/// What one end knows of a stream in the end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamEnd {
    /// Its number.
    pub id: u32,
    /// Whether this end sends.
    pub sends: bool,
    /// How long it counted.
    pub duration_ns: u64,
    /// Its counts.
    pub figures: Figures,
    /// Datagrams of the warm-up, sent or known to be sent, which are in no count.
    pub omitted_packets: u64,
    /// TCP's estimates of the round trip, looked at each interval: least, mean, greatest.
    pub rtt_ns: Option<[u64; 3]>,
    /// The largest congestion window in bytes.
    pub max_cwnd: Option<u64>,
    /// The largest window of the peer in bytes.
    pub max_window: Option<u64>,
    /// Its longest times without a byte, by whether the near end, which is the client, sends.
    pub gaps: Vec<Gap>,
    /// Why it broke before it was to end.
    pub error: Option<String>,
}

impl End {
    /// Takes in which streams broke, and why.
    pub(super) fn broke(&mut self, broken: Vec<(u32, String)>) {
        for (id, error) in broken {
            if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
                stream.error = Some(error);
            }
        }
    }

    /// The streams that broke, in words.
    pub(super) fn words<'a>(&'a self, whose: &'a str) -> impl Iterator<Item = String> + 'a {
        self.streams.iter().filter_map(move |stream| {
            let error = stream.error.as_ref()?;
            Some(format!("{whose}stream {} broke: {error}", stream.id))
        })
    }
}

/// A whole test.
#[derive(Debug, Clone)]
pub struct Report {
    /// How it started.
    pub start: Start,
    /// What this end knows.
    pub near: End,
    /// What the other end told; absent if it told nothing.
    pub far: Option<End>,
    /// What was done otherwise than asked, in words.
    pub notes: Vec<String>,
}

impl Report {
    /// The end that sent a stream and the one that received it, as far as they are known.
    #[must_use]
    pub fn ends(&self, id: u32) -> (Option<&StreamEnd>, Option<&StreamEnd>) {
        let near = self.near.streams.iter().find(|stream| stream.id == id);
        let far = self.far.as_ref().and_then(|far| far.streams.iter().find(|stream| stream.id == id));
        if near.is_some_and(|near| near.sends) { (near, far) } else { (far, near) }
    }
}

impl Start {
    /// Of a test at a server or a client, whose streams are not there yet.
    pub(super) fn new(parameters: &Parameters, time: Nanos, cookie: String, peer: SocketAddr) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            cookie,
            at_ms: now.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0)),
            peer,
            connections: Vec::new(),
            udp: parameters.udp,
            round_trips: parameters.round_trips().is_some(),
            parallel: parameters.parallel,
            length: parameters.length(),
            omit: parameters.omit(),
            time,
            bytes: parameters.num,
            blocks: parameters.blockcount,
            reverse: parameters.reverse,
            bidirectional: parameters.bidirectional,
            bitrate: parameters.bandwidth.unwrap_or(0),
            window: parameters.window.unwrap_or(0),
            buffers: None,
            mss: None,
            congestion: None,
        }
    }
}
