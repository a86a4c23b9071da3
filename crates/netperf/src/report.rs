//! Reports of a test: at its start, at each interval, and at its end.

use std::net::SocketAddr;

use iotax_model::record::{CpuTime, Gap};
use iotax_model::units::Nanos;

use super::parameters::Parameters;
pub use super::stream::TcpInfo;

/// The start of a test, once its streams are connected.
#[derive(Debug, Clone)]
pub struct Start {
    /// The test's identifier, 36 letters and digits.
    pub cookie: String,
    /// Start time in milliseconds since 1970.
    pub at_ms: u64,
    /// Address of the other end of the control connection.
    pub peer: SocketAddr,
    /// The streams, in the order of their numbers.
    pub connections: Vec<Connection>,
    /// True for datagrams, false for TCP.
    pub udp: bool,
    /// True for round trips: messages that the server sends back.
    pub round_trips: bool,
    /// Number of streams per direction.
    pub parallel: u32,
    /// Bytes of one write or datagram.
    pub length: u64,
    /// The warm-up, which does not count.
    pub omit: Nanos,
    /// Length of the window after the warm-up; 0 if bytes or blocks end it.
    pub time: Nanos,
    /// Bytes per direction that end the test, or 0.
    pub bytes: u64,
    /// Writes or datagrams per direction that end the test, or 0.
    pub blocks: u64,
    /// True if only the server sends.
    pub reverse: bool,
    /// True if both ends send.
    pub bidirectional: bool,
    /// Bits a second of each stream; 0 for no limit.
    pub bitrate: u64,
    /// Requested size of the sockets' buffers in bytes, or 0.
    pub window: u64,
    /// Sizes in bytes of the first stream's send and receive buffers, as the kernel reports them.
    pub buffers: Option<(u64, u64)>,
    /// Maximum segment size in bytes, of the streams or else of the control connection.
    pub mss: Option<u32>,
    /// TCP congestion control at this end.
    pub congestion: Option<String>,
}

/// A connected stream.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The stream's number as in iperf3: 1, 3, 4, 5 ...
    pub id: u32,
    /// True if this end sends.
    pub sends: bool,
    /// Address of this end.
    pub local: SocketAddr,
    /// Address of the other end.
    pub remote: SocketAddr,
}

/// Counts of a stream at one end over a period. Counts unknown at this end are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamFigures {
    /// Bytes passed to the kernel, or received from it.
    pub bytes: u64,
    /// Datagrams sent, or received for the first time; TCP segments with data.
    pub packets: Option<u64>,
    /// Datagrams that did not arrive. One that arrives after an interval's end is subtracted only from the total, so intervals may add up
    /// to more.
    pub lost: Option<u64>,
    /// Datagrams that came after a later one.
    pub out_of_order: Option<u64>,
    /// Duplicate datagrams.
    pub duplicates: Option<u64>,
    /// Interarrival jitter (RFC 3550) at the end of the period.
    pub jitter_ns: Option<u64>,
    /// Retransmitted TCP segments.
    pub retransmits: Option<u64>,
}

impl StreamFigures {
    /// Sums several streams; the jitter is their mean, as in iperf3. A count unknown for one is unknown for all.
    pub fn sum(streams: impl Iterator<Item = Self>) -> Self {
        let streams: Vec<Self> = streams.collect();
        let all = |of: fn(&Self) -> Option<u64>| {
            let known = streams.iter().map(of).sum::<Option<u64>>();
            known.filter(|_| !streams.is_empty())
        };
        Self {
            bytes: streams.iter().map(|stream| stream.bytes).sum(),
            packets: all(|stream| stream.packets),
            lost: all(|stream| stream.lost),
            out_of_order: all(|stream| stream.out_of_order),
            duplicates: all(|stream| stream.duplicates),
            jitter_ns: all(|stream| stream.jitter_ns).map(|sum| sum / streams.len() as u64),
            retransmits: all(|stream| stream.retransmits),
        }
    }
}

/// An interval of a test, at this end.
#[derive(Debug, Clone)]
pub struct TestInterval {
    /// Start, in nanoseconds from the test's start, or from the end of the warm-up.
    pub begin_ns: u64,
    /// End, on the same scale as `begin_ns`.
    pub end_ns: u64,
    /// True in the warm-up.
    pub omitted: bool,
    /// The streams, in the order of their numbers.
    pub streams: Vec<StreamInterval>,
}

/// An interval of a stream.
#[derive(Debug, Clone)]
pub struct StreamInterval {
    /// The stream's number.
    pub id: u32,
    /// True if this end sends.
    pub sends: bool,
    /// The stream's counts in the interval.
    pub figures: StreamFigures,
    /// TCP's own figures at the interval's end.
    pub tcp: Option<TcpInfo>,
}

/// Results of one end, without the warm-up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct End {
    /// Length of the end's window in nanoseconds.
    pub duration_ns: u64,
    /// CPU time of the end's process in the window.
    pub cpu: Option<CpuTime>,
    /// TCP congestion control at this end.
    pub congestion: Option<String>,
    /// The streams, in the order of their numbers.
    pub streams: Vec<StreamEnd>,
}

/// Results of a stream at one end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamEnd {
    /// The stream's number.
    pub id: u32,
    /// True if this end sends.
    pub sends: bool,
    /// Length of the stream's window in nanoseconds.
    pub duration_ns: u64,
    /// The stream's counts in the window.
    pub figures: StreamFigures,
    /// Datagrams of the warm-up, sent or known to be sent, which are excluded from all counts.
    pub omitted_packets: u64,
    /// Minimum, mean and maximum of TCP's round-trip estimates, sampled each interval.
    pub rtt_ns: Option<[u64; 3]>,
    /// The largest congestion window in bytes.
    pub max_cwnd: Option<u64>,
    /// The largest window of the peer in bytes.
    pub max_window: Option<u64>,
    /// The longest gaps without received data, with their direction.
    pub gaps: Vec<Gap>,
    /// The reason why the stream broke; `None` if it did not.
    pub error: Option<String>,
}

impl End {
    /// Records which streams broke, and why.
    pub(super) fn broke(&mut self, broken: Vec<(u32, String)>) {
        for (id, error) in broken {
            if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
                stream.error = Some(error);
            }
        }
    }

    /// Describes the streams that broke; `whose` precedes each description.
    pub(super) fn words<'a>(&'a self, whose: &'a str) -> impl Iterator<Item = String> + 'a {
        self.streams.iter().filter_map(move |stream| {
            let error = stream.error.as_ref()?;
            Some(format!("{whose}stream {} broke: {error}", stream.id))
        })
    }
}

/// A whole test.
#[derive(Debug, Clone)]
pub struct TestReport {
    /// The report at the test's start.
    pub start: Start,
    /// Results of this end.
    pub local: End,
    /// The results that the other end sent; absent if it sent none.
    pub remote: Option<End>,
    /// Notes on deviations from the request.
    pub notes: Vec<String>,
}

impl TestReport {
    /// The sending and the receiving end of a stream, as far as known.
    #[must_use]
    pub fn ends(&self, id: u32) -> (Option<&StreamEnd>, Option<&StreamEnd>) {
        let local = self.local.streams.iter().find(|stream| stream.id == id);
        let remote =
            self.remote.as_ref().and_then(|remote| remote.streams.iter().find(|stream| stream.id == id));
        if local.is_some_and(|local| local.sends) { (local, remote) } else { (remote, local) }
    }
}

impl Start {
    /// Describes a test whose streams are not connected yet.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_what_is_unknown_unknown() {
        let one = StreamFigures { bytes: 5, lost: Some(1), jitter_ns: Some(10), ..StreamFigures::default() };
        let other = StreamFigures { bytes: 6, jitter_ns: Some(30), ..StreamFigures::default() };
        assert_eq!(StreamFigures::sum([one, one].into_iter()).lost, Some(2));
        let sum = StreamFigures::sum([one, other].into_iter());
        assert_eq!((sum.bytes, sum.lost, sum.jitter_ns, sum.retransmits), (11, None, Some(20), None));
    }
}
