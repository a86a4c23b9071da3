//! Network traffic: the settings of `iotax net`. Settings that iperf3 also has are named after its options, except `direction`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{BitRate, Bytes, Nanos};
use crate::words::words;

/// TCP and UDP port on which iperf3 and `iotax net serve` listen by default.
pub const PORT: u16 = 5201;
/// Maximum number of streams in one direction, as in iperf3.
pub const MOST_STREAMS: u32 = 128;

words! {
    /// The kind of network test.
    NetTest, "test" {
        /// TCP streams, at full speed or at a bitrate.
        Tcp = "tcp",
        /// UDP datagrams, at full speed or at a bitrate.
        Udp = "udp",
        /// Round trips of a message over a TCP connection.
        TcpRtt = "tcp-rtt",
        /// Round trips of a UDP datagram.
        UdpRtt = "udp-rtt",
        /// Round trips of ICMP echo requests, which the server's kernel answers.
        IcmpRtt = "icmp-rtt",
    }
}

impl NetTest {
    /// Returns whether the test measures round-trip times rather than the throughput of streams.
    #[must_use]
    pub const fn is_rtt(self) -> bool {
        matches!(self, Self::TcpRtt | Self::UdpRtt | Self::IcmpRtt)
    }
}

words! {
    /// The direction of the data. The client is the guest, if the target has one.
    Direction, "direction" {
        /// From the client to the server.
        Upload = "upload",
        /// From the server to the client, like iperf3's --reverse.
        Download = "download",
        /// Both at once, like iperf3's --bidir.
        Both = "both",
    }
}

impl Direction {
    /// Returns whether the client sends data in this direction.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::Upload | Self::Both)
    }

    /// Returns whether the client receives data in this direction.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::Download | Self::Both)
    }
}

/// The network traffic of a workload: `net = { test = "tcp", direction = "download" }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// tcp, udp, tcp-rtt, udp-rtt or icmp-rtt
    pub test: NetTest,
    /// upload (client to server), download or both; for round trips under load, the direction of the load
    #[serde(default = "upload")]
    pub direction: Direction,
    /// Streams in each direction
    #[serde(default = "one")]
    pub parallel: u32,
    /// Bytes of one write, datagram or message [default: 128k for TCP, the most that fits in one packet for UDP, 64 for round trips]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub length: Option<Bytes>,
    /// Bits per second of each stream and direction [default: no limit]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bitrate: Option<BitRate>,
    /// End after this many bytes, summed over all streams of one direction [default: only runtime ends the test]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<Bytes>,
    /// Size in bytes of the sockets' buffers [default: the kernel's default]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window: Option<Bytes>,
    /// TCP's largest segment in bytes [default: the kernel's default]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mss: Option<u32>,
    /// TCP congestion control algorithm [default: the kernel's default]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub congestion: Option<String>,
    /// Send without copying the data
    #[serde(default)]
    pub zerocopy: bool,
    /// Have the kernel poll the device for this long before it waits (SO_BUSY_POLL) [default: the kernel's setting]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busy_poll: Option<Nanos>,
    /// Round trips started per second, even if earlier ones have not returned [default: one at a time, each right after the one before]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<u64>,
    /// Round trips: run TCP streams in `direction` at the same time
    #[serde(default)]
    pub loaded: bool,
}

const fn upload() -> Direction {
    Direction::Upload
}

const fn one() -> u32 {
    1
}

impl Traffic {
    /// Creates the settings of a test with defaults for all other keys.
    #[must_use]
    pub const fn new(test: NetTest) -> Self {
        Self {
            test,
            direction: Direction::Upload,
            parallel: 1,
            length: None,
            bitrate: None,
            bytes: None,
            window: None,
            mss: None,
            congestion: None,
            zerocopy: false,
            busy_poll: None,
            rate: None,
            loaded: false,
        }
    }

    /// Returns the number of data streams in both directions together; for round trips, the number of streams of the background load, 0
    /// without one.
    #[must_use]
    pub const fn streams(&self) -> u32 {
        match (self.test.is_rtt() && !self.loaded, self.direction) {
            (true, _) => 0,
            (false, Direction::Both) => 2 * self.parallel,
            (false, _) => self.parallel,
        }
    }

    /// Returns the default name of the workload from its test, direction, length and number of streams: `tcp-download`,
    /// `udp-upload-1470-p4`.
    #[must_use]
    pub fn generated_name(&self) -> String {
        let mut name = self.test.word().to_owned();
        if !self.test.is_rtt() {
            name = format!("{name}-{}", self.direction);
        } else if self.loaded {
            name = format!("{name}-loaded-{}", self.direction);
        }
        if let Some(length) = self.length {
            name = format!("{name}-{length}");
        }
        if self.parallel > 1 {
            name = format!("{name}-p{}", self.parallel);
        }
        name
    }

    /// Rejects values out of range, and keys that have no effect in this test. The error names the key and the accepted values.
    pub fn check(&self) -> Result<(), String> {
        let rtt = self.test.is_rtt();
        let only = |key: &str, which: &str| {
            Err(format!("net.{key}: it is for {which}, not test = {:?}", self.test.word()))
        };
        if self.parallel == 0 || self.parallel > MOST_STREAMS {
            return Err(format!("net.parallel = {}: accepted: 1 to {MOST_STREAMS}", self.parallel));
        }
        if self.rate == Some(0) || (self.rate.is_some() && !rtt) {
            return if rtt {
                Err("net.rate = 0: accepted: 1 or more a second".into())
            } else {
                only("rate", "round trips; a stream has bitrate")
            };
        }
        if self.loaded && !rtt {
            return only("loaded", "round trips");
        }
        if rtt && (self.bitrate.is_some() || self.bytes.is_some()) {
            return only("bitrate and bytes", "streams");
        }
        let tcp = self.test == NetTest::Tcp || self.loaded;
        if self.zerocopy && !tcp {
            return only("zerocopy", "streams of TCP");
        }
        if rtt && !self.loaded && self.direction != Direction::Upload {
            return only("direction", "streams, and round trips with loaded = true");
        }
        if rtt && !self.loaded && self.parallel > 1 {
            return only("parallel", "streams, and round trips with loaded = true");
        }
        if self.test == NetTest::IcmpRtt && !self.loaded && self.window.is_some() {
            return only("window", "sockets of TCP and UDP");
        }
        if self.congestion.is_some() && !tcp && self.test != NetTest::TcpRtt {
            return only("congestion", "TCP");
        }
        if self.mss.is_some() && !tcp && self.test != NetTest::TcpRtt {
            return only("mss", "TCP");
        }
        if self.test == NetTest::IcmpRtt && self.busy_poll.is_some() {
            return only("busy_poll", "sockets of TCP and UDP");
        }
        match (self.length, self.test) {
            (None, _) => Ok(()),
            (Some(Bytes(length)), NetTest::Tcp) if (1..=1 << 20).contains(&length) => Ok(()),
            (Some(length), NetTest::Tcp) => Err(format!("net.length = {length}: accepted for TCP: 1 to 1m")),
            (Some(Bytes(length)), _) if (16..=65507).contains(&length) => Ok(()),
            (Some(length), test) => Err(format!("net.length = {length}: accepted for {test}: 16 to 65507")),
        }
    }
}

/// Address and token of the server of a network test, and optionally the client's local address and port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// The server's host name or address.
    pub host: String,
    /// Port of the server's control connection.
    pub port: u16,
    /// Token that the server requires from clients; `None` if the server is open to all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token: Option<String>,
    /// Local address that the client binds to; `None` to leave the choice to the kernel.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bind: Option<String>,
    /// First local port that the client uses; `None` to leave the choice to the kernel.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cport: Option<u16>,
}

impl Peer {
    /// Creates the address of a server at this host and port, without a token; the kernel chooses the client's local address and port.
    #[must_use]
    pub fn at(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, token: None, bind: None, cport: None }
    }

    /// Parses `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`; an IPv6 address followed by a port needs the brackets. Without a port, uses
    /// `default_port`.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let accepted = || format!("{text:?}: accepted: HOST, HOST:PORT, or [ADDRESS]:PORT for IPv6");
        let (host, after) = match text.rsplit_once(':') {
            Some((host, after)) if !host.contains(':') || host.ends_with(']') => (host, Some(after)),
            _ => (text, None),
        };
        let port = after.map_or(Ok(default_port), |after| after.parse().map_err(|_| accepted()))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(accepted());
        }
        Ok(Self::at(host, port))
    }

    /// Formats the address as `HOST:PORT` or `[ADDRESS]:PORT`, which [`Self::parse`] accepts.
    #[must_use]
    pub fn name(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_nothing_is_refused_with_what_is_accepted() {
        let stream = || Traffic::new(NetTest::Tcp);
        let rtt = || Traffic::new(NetTest::UdpRtt);
        for good in [
            stream(),
            rtt(),
            Traffic { rate: Some(100), loaded: true, congestion: Some("cubic".into()), ..rtt() },
            Traffic { direction: Direction::Both, parallel: 2, loaded: true, zerocopy: true, ..rtt() },
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for (bad, words) in [
            (Traffic { parallel: 0, ..stream() }, "net.parallel = 0: accepted: 1 to 128"),
            (Traffic { rate: Some(3), ..stream() }, "a stream has bitrate"),
            (Traffic { rate: Some(0), ..rtt() }, "accepted: 1 or more"),
            (Traffic { loaded: true, ..stream() }, "round trips"),
            (Traffic { bytes: Some(Bytes(9)), ..rtt() }, "streams"),
            (Traffic { mss: Some(900), ..rtt() }, "TCP"),
            (
                Traffic { zerocopy: true, ..Traffic::new(NetTest::Udp) },
                "net.zerocopy: it is for streams of TCP",
            ),
            (Traffic { zerocopy: true, ..rtt() }, "streams of TCP"),
            (Traffic { direction: Direction::Download, ..rtt() }, "loaded = true"),
            (Traffic { parallel: 2, ..rtt() }, "loaded = true"),
            (
                Traffic { window: Some(Bytes(1 << 20)), ..Traffic::new(NetTest::IcmpRtt) },
                "sockets of TCP and UDP",
            ),
            (Traffic { length: Some(Bytes(2 << 20)), ..stream() }, "1 to 1m"),
            (Traffic { length: Some(Bytes(8)), ..rtt() }, "16 to 65507"),
        ] {
            let refusal = bad.check().expect_err(words);
            assert!(refusal.contains(words), "{refusal}");
        }
    }

    #[test]
    fn hosts_have_ports() {
        for (text, host, port) in [
            ("box", "box", 5201),
            ("box:80", "box", 80),
            ("::1", "::1", 5201),
            ("[::1]", "::1", 5201),
            ("[::1]:99", "::1", 99),
        ] {
            let peer = Peer::parse(text, PORT).expect(text);
            assert_eq!((peer.host.as_str(), peer.port), (host, port));
            assert_eq!(Peer::parse(&peer.name(), 1), Ok(peer));
        }
        for text in ["box:", "box:http", ":80", "box:99999", "a b", ""] {
            assert!(Peer::parse(text, PORT).expect_err(text).contains("accepted: HOST"), "{text}");
        }
    }

    #[test]
    fn a_name_says_what_is_done() {
        let udp = Traffic {
            direction: Direction::Download,
            length: Some(Bytes(64)),
            parallel: 4,
            ..Traffic::new(NetTest::Udp)
        };
        assert_eq!(udp.generated_name(), "udp-download-64-p4");
        assert_eq!(Traffic::new(NetTest::IcmpRtt).generated_name(), "icmp-rtt");
        let loaded = Traffic { loaded: true, direction: Direction::Both, ..Traffic::new(NetTest::TcpRtt) };
        assert_eq!((loaded.generated_name().as_str(), loaded.streams()), ("tcp-rtt-loaded-both", 2));
    }
}
