//! Reports of a test: when it starts, at each interval, and when it ends.

use std::net::SocketAddr;

use iotax_model::record::{CpuTime, Gap};
use iotax_model::units::Nanos;

use super::parameters::Parameters;
pub use super::stream::TcpInfo;

/// The properties of a test that starts; its streams are connected.
#[derive(Debug, Clone)]
pub struct Start {
    /// The test's identifier, 36 letters and digits.
    pub cookie: String,
    /// Start time in milliseconds since 1970-01-01 UTC.
    pub at_ms: u64,
    /// Address of the other end of the control connection.
    pub peer: SocketAddr,
    /// The streams, in the order of their numbers.
    pub connections: Vec<Connection>,
    /// True if the streams are UDP, false if TCP.
    pub udp: bool,
    /// True for round trips (messages that the server sends back), false for streams.
    pub round_trips: bool,
    /// Number of streams per direction.
    pub parallel: u32,
    /// Length in bytes of one write or datagram.
    pub length: u64,
    /// Length of the warm-up, whose data does not count.
    pub omit: Nanos,
    /// Length of the window after the warm-up; 0 for no time limit.
    pub time: Nanos,
    /// Number of bytes per direction that ends the test; 0 for no limit.
    pub bytes: u64,
    /// Number of writes or datagrams per direction that ends the test; 0 for no limit.
    pub blocks: u64,
    /// True if only the server sends.
    pub reverse: bool,
    /// True if both ends send.
    pub bidirectional: bool,
    /// Target bit rate of each stream in bits per second; 0 for no limit.
    pub bitrate: u64,
    /// Requested size of the socket buffers in bytes; 0 for the kernel's default.
    pub window: u64,
    /// Sizes in bytes of the first stream's send and receive buffers as the kernel reports them; `None` if unknown.
    pub buffers: Option<(u64, u64)>,
    /// Maximum segment size in bytes of the first stream's TCP connection, else of the control connection; `None` if unknown.
    pub mss: Option<u32>,
    /// Name of the TCP congestion control at this end; `None` for UDP, for a server's round trips, or if unknown.
    pub congestion: Option<String>,
}

/// The number, direction and addresses of a connected stream.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The stream's number in iperf3's way of counting: 1, 3, 4, 5, and so on.
    pub id: u32,
    /// True if this end sends on the stream.
    pub sends: bool,
    /// Address of this end of the stream.
    pub local: SocketAddr,
    /// Address of the other end of the stream.
    pub remote: SocketAddr,
}

/// Counts of a stream at one end over a period; `None` for counts that this end cannot know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamFigures {
    /// Bytes that the kernel accepted from the sender, or that the receiver read.
    pub bytes: u64,
    /// Datagrams sent, or received without duplicates; for TCP, segments with data. `None` if unknown.
    pub packets: Option<u64>,
    /// Datagrams that did not arrive; `None` for TCP, at the sending end, or if unknown. One that arrives after the end of its interval is
    /// subtracted only from the total, so the intervals may add up to more than the total.
    pub lost: Option<u64>,
    /// Datagrams that arrived after one with a higher number; `None` for TCP, at the sending end, or if unknown.
    pub out_of_order: Option<u64>,
    /// Datagrams that arrived more than once, each repetition counted; `None` for TCP, at the sending end, or if unknown.
    pub duplicates: Option<u64>,
    /// Interarrival jitter in nanoseconds (RFC 3550) at the end of the period; `None` for TCP, at the sending end, or if unknown.
    pub jitter_ns: Option<u64>,
    /// Number of retransmitted TCP segments; `None` for UDP, at the receiving end, or if unknown.
    pub retransmits: Option<u64>,
}

impl StreamFigures {
    /// Sums the counts of several streams. The jitter is the mean of the streams, as in iperf3. A count that is `None` for one stream is
    /// `None` in the sum; without streams, all counts but the bytes are `None`.
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

/// One interval of a test, as counted at this end.
#[derive(Debug, Clone)]
pub struct TestInterval {
    /// Start of the interval in nanoseconds since the test's start; after a warm-up, since the warm-up's end.
    pub begin_ns: u64,
    /// End of the interval, counted from the same time as `begin_ns`.
    pub end_ns: u64,
    /// True if the interval belongs to the warm-up.
    pub omitted: bool,
    /// The streams, in the order of their numbers.
    pub streams: Vec<StreamInterval>,
}

/// One interval of a stream.
#[derive(Debug, Clone)]
pub struct StreamInterval {
    /// The stream's number, as in [`Connection::id`].
    pub id: u32,
    /// True if this end sends on the stream.
    pub sends: bool,
    /// The stream's counts in the interval.
    pub figures: StreamFigures,
    /// The kernel's metrics of the connection at the interval's end; `None` for UDP, or if the kernel does not report them.
    pub tcp: Option<TcpInfo>,
}

/// The results of one end, without the warm-up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct End {
    /// Length of this end's window in nanoseconds.
    pub duration_ns: u64,
    /// CPU time of this end's process in the window; `None` if unknown.
    pub cpu: Option<CpuTime>,
    /// Name of the TCP congestion control at this end; `None` if unknown.
    pub congestion: Option<String>,
    /// The streams, in the order of their numbers.
    pub streams: Vec<StreamEnd>,
}

/// The results of a stream at one end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamEnd {
    /// The stream's number, as in [`Connection::id`].
    pub id: u32,
    /// True if this end sends on the stream.
    pub sends: bool,
    /// Nanoseconds for which the stream was counted.
    pub duration_ns: u64,
    /// The stream's counts in the window.
    pub figures: StreamFigures,
    /// Datagrams of the warm-up that were sent, or at the receiver are known to have been sent. No other count includes them.
    pub omitted_packets: u64,
    /// Minimum, mean and maximum of TCP's smoothed round-trip time in nanoseconds, read once per interval; `None` for UDP, at the receiving
    /// end, or if unknown.
    pub rtt_ns: Option<[u64; 3]>,
    /// Largest congestion window in bytes; `None` for UDP, at the receiving end, or if unknown.
    pub max_cwnd: Option<u64>,
    /// Largest receive window of the peer in bytes; `None` for UDP, at the receiving end, or if unknown; 0 if the kernel does not report
    /// it.
    pub max_window: Option<u64>,
    /// The longest times without received data, longest first; empty at the sending end. Each has the direction of the data.
    pub gaps: Vec<Gap>,
    /// The reason why the stream broke; `None` if it did not.
    pub error: Option<String>,
}

impl End {
    /// Records why streams broke; `broken` has each stream's number and the reason.
    pub(super) fn broke(&mut self, broken: Vec<(u32, String)>) {
        for (id, error) in broken {
            if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
                stream.error = Some(error);
            }
        }
    }

    /// Describes the streams that broke; `whose` names the end and precedes each description.
    pub(super) fn words<'a>(&'a self, whose: &'a str) -> impl Iterator<Item = String> + 'a {
        self.streams.iter().filter_map(move |stream| {
            let error = stream.error.as_ref()?;
            Some(format!("{whose}stream {} broke: {error}", stream.id))
        })
    }
}

/// The results of a whole test.
#[derive(Debug, Clone)]
pub struct TestReport {
    /// The properties of the test as it started.
    pub start: Start,
    /// The results of this end.
    pub local: End,
    /// The results that the other end sent; `None` if it sent none.
    pub remote: Option<End>,
    /// Notes for the user: streams that broke, the way datagrams were passed to and from the kernel, and settings or clocks that did not
    /// work as expected.
    pub notes: Vec<String>,
}

impl TestReport {
    /// Returns the results of a stream at its sending and at its receiving end; `None` for an end without results of this stream.
    #[must_use]
    pub fn ends(&self, id: u32) -> (Option<&StreamEnd>, Option<&StreamEnd>) {
        let local = self.local.streams.iter().find(|stream| stream.id == id);
        let remote =
            self.remote.as_ref().and_then(|remote| remote.streams.iter().find(|stream| stream.id == id));
        if local.is_some_and(|local| local.sends) { (local, remote) } else { (remote, local) }
    }
}

impl Start {
    /// Describes a test before its streams are connected.
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
