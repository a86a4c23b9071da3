//! The parameters of a test that the client sends to the server, in iperf3's JSON.

use iotax_model::net::{Direction, MOST_STREAMS, NetTest, Traffic};
use iotax_model::units::Nanos;
use serde::{Deserialize, Serialize};

/// Maximum length of a test or a warm-up in seconds, as in iperf3.
const MOST_SECONDS: u64 = 86_400;
/// Maximum length in bytes of one write to a TCP stream.
const MOST_LENGTH: u64 = 1 << 20;
/// Maximum length in bytes of a datagram or of a round trip's message.
const MOST_DATAGRAM: u64 = 65_507;
/// Maximum size of a socket buffer in bytes, as in iperf3.
const MOST_WINDOW: u64 = 512 << 20;
/// Maximum segment size in bytes, as in iperf3.
const MOST_MSS: u32 = 9 << 10;
/// Default length in bytes of one write to a TCP stream.
pub(super) const TCP_LENGTH: u64 = 128 << 10;
/// Default length in bytes of a datagram if the path's segment size is not known.
const UDP_LENGTH: u64 = 1460;

/// The parameters of a test. iperf3 leaves out keys that are not used. Keys of later versions are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Parameters {
    #[serde(skip_serializing_if = "is_not")]
    pub(super) tcp: bool,
    #[serde(skip_serializing_if = "is_not")]
    pub(super) udp: bool,
    /// Length of the warm-up in seconds.
    pub(super) omit: u64,
    /// Length of the window after the warm-up in seconds; 0 for no time limit.
    pub(super) time: u64,
    /// Number of bytes per direction that ends the test; 0 for no limit.
    pub(super) num: u64,
    /// Number of blocks (writes or datagrams) per direction that ends the test; 0 for no limit.
    pub(super) blockcount: u64,
    #[serde(rename = "MSS", skip_serializing_if = "Option::is_none")]
    pub(super) mss: Option<u32>,
    pub(super) parallel: u32,
    #[serde(skip_serializing_if = "is_not")]
    pub(super) reverse: bool,
    #[serde(skip_serializing_if = "is_not")]
    pub(super) bidirectional: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<u64>,
    /// Length in bytes of one write or datagram; `None` or 0 for the protocol's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) len: Option<u64>,
    /// Target bit rate of each stream in bits per second; `None` or 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bandwidth: Option<u64>,
    /// Pacing interval in microseconds. iotax does not use it, but iperf3's servers require the key.
    pub(super) pacing_timer: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) congestion: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) udp_counters_64bit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zerocopy: Option<u64>,
    /// 1 if the receiver drops the payload without copying it from the kernel, as with iperf3's `--skip-rx-copy` (3.17 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skip_rx_copy: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nodelay: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_version: Option<String>,
    /// Parameters that only iotax ends exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) iotax: Option<Extension>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_not(flag: &bool) -> bool {
    !*flag
}

/// Parameters that only an iotax server reads; iperf3 ignores them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Extension {
    pub(super) version: String,
    /// True if the client knows a token, so that the server may ask for proof.
    pub(super) auth: bool,
    /// Length of the warm-up in nanoseconds, because `omit` has only whole seconds.
    pub(super) omit_ns: u64,
    /// The kind of round-trip test; `None` for a test of streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) test: Option<NetTest>,
    /// Nanoseconds for which the server's kernel polls the network device before it sleeps; the echo server then polls its sockets too.
    /// `None` if neither polls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) busy_poll_ns: Option<u64>,
}

impl Parameters {
    /// Creates the parameters for a path with segments of `mss` bytes (`None` if unknown). A `time` of 0 sets no time limit. `auth` is true
    /// if the client knows a token.
    pub(super) fn new(traffic: &Traffic, time: Nanos, omit: Nanos, mss: Option<u32>, auth: bool) -> Self {
        let udp = matches!(traffic.test, NetTest::Udp | NetTest::UdpRtt);
        let default = if udp { mss.map_or(UDP_LENGTH, u64::from) } else { TCP_LENGTH };
        Self {
            tcp: !udp,
            udp,
            omit: omit.0.div_ceil(1_000_000_000),
            time: time.0.div_ceil(1_000_000_000),
            num: traffic.bytes.map_or(0, |bytes| bytes.0),
            blockcount: 0,
            mss: traffic.mss,
            parallel: traffic.parallel,
            reverse: traffic.direction == Direction::Download,
            bidirectional: traffic.direction == Direction::Both,
            window: traffic.window.map(|window| window.0),
            len: Some(traffic.length.map_or(default, |length| length.0)),
            bandwidth: traffic.bitrate.map(|bitrate| bitrate.0).filter(|bitrate| *bitrate > 0),
            pacing_timer: 1000,
            congestion: traffic.congestion.clone(),
            // A test of a day can send more than 2^32 datagrams.
            udp_counters_64bit: udp.then_some(1),
            zerocopy: traffic.zerocopy.then_some(1),
            skip_rx_copy: None,
            nodelay: None,
            // iperf3 only prints it.
            client_version: Some(concat!("iotax ", env!("CARGO_PKG_VERSION")).into()),
            iotax: Some(Extension {
                version: env!("CARGO_PKG_VERSION").into(),
                auth,
                omit_ns: omit.0,
                test: traffic.test.is_rtt().then_some(traffic.test),
                busy_poll_ns: traffic.busy_poll.map(|time| time.0),
            }),
        }
    }

    /// Returns the length in bytes of one write or datagram.
    pub(super) fn length(&self) -> u64 {
        self.len.filter(|length| *length > 0).unwrap_or(if self.udp { UDP_LENGTH } else { TCP_LENGTH })
    }

    /// Returns the number of streams on which the client sends, then the number on which it receives.
    pub(super) const fn streams(&self) -> (u32, u32) {
        match (self.bidirectional, self.reverse) {
            (true, _) => (self.parallel, self.parallel),
            (false, true) => (0, self.parallel),
            (false, false) => (self.parallel, 0),
        }
    }

    /// Returns the length of the warm-up in nanoseconds.
    pub(super) fn omit(&self) -> Nanos {
        let stated = self.iotax.as_ref().map(|extension| extension.omit_ns);
        Nanos(stated.unwrap_or(self.omit.saturating_mul(1_000_000_000)))
    }

    /// Returns the kind of round-trip test; `None` for streams.
    pub(super) fn round_trips(&self) -> Option<NetTest> {
        self.iotax.as_ref()?.test
    }

    /// Refuses parameters that contradict each other or are outside their limits. For a limit, the error names the parameter, its value and
    /// the accepted range.
    pub(super) fn check(&self) -> Result<(), String> {
        let within = |key: &str, value: u64, least: u64, most: u64| {
            let fine = (least..=most).contains(&value);
            if fine { Ok(()) } else { Err(format!("{key} = {value}: accepted: {least} to {most}")) }
        };
        if self.tcp == self.udp {
            return Err("neither tcp nor udp alone is asked for, and nothing else is to be had".into());
        }
        within("parallel", self.parallel.into(), 1, MOST_STREAMS.into())?;
        within("time", self.time, 0, MOST_SECONDS)?;
        within("omit", self.omit().0.div_ceil(1_000_000_000), 0, MOST_SECONDS)?;
        let (least, most) = if self.udp { (16, MOST_DATAGRAM) } else { (1, MOST_LENGTH) };
        within("len", self.length(), least, most)?;
        within("window", self.window.unwrap_or(0), 0, MOST_WINDOW)?;
        within("MSS", self.mss.unwrap_or(0).into(), 0, MOST_MSS.into())?;
        match self.round_trips() {
            Some(test) if !test.is_rtt() || (test == NetTest::UdpRtt) != self.udp => {
                Err(format!("test = {test}: it does not go with the protocol"))
            }
            Some(_) if self.parallel != 1 || self.reverse || self.bidirectional => {
                Err("round trips: accepted: one stream (parallel = 1) from the client to the server".into())
            }
            Some(_) => within("len", self.length(), 1, MOST_DATAGRAM),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parameters that `iperf3 -c -d` of version 3.12 printed, and the keys that 3.17 adds.
    const IPERF3: &str = r#"{"udp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":2,"reverse":true,"len":1448,
        "bandwidth":1048576,"pacing_timer":1000,"client_version":"3.17","skip_rx_copy":1,"gsro":0}"#;

    #[test]
    fn iperf3s_parameters_are_understood() {
        let read: Parameters = serde_json::from_str(IPERF3).expect("read");
        assert_eq!(read.check(), Ok(()));
        assert_eq!((read.streams(), read.length(), read.omit()), ((0, 2), 1448, Nanos(0)));
        assert_eq!(read.skip_rx_copy, Some(1));
    }

    #[test]
    fn ours_read_back() {
        let traffic = Traffic { parallel: 3, direction: Direction::Both, ..Traffic::new(NetTest::Udp) };
        let (time, omit) = (Nanos::from_millis(1500), Nanos::from_millis(500));
        let parameters = Parameters::new(&traffic, time, omit, Some(1400), true);
        let text = serde_json::to_string(&parameters).expect("written");
        assert_eq!(serde_json::from_str::<Parameters>(&text).expect("read"), parameters);
        assert_eq!((parameters.time, parameters.omit, parameters.omit()), (2, 1, omit));
        assert_eq!((parameters.length(), parameters.streams()), (1400, (3, 3)));
        assert_eq!(parameters.check(), Ok(()));
    }

    #[test]
    fn forged_parameters_are_refused_with_what_is_accepted() {
        let of = |test| Parameters::new(&Traffic::new(test), Nanos(0), Nanos(0), None, false);
        let (good, trips) = (of(NetTest::Tcp), of(NetTest::TcpRtt));
        assert_eq!(Parameters { len: Some(64), ..trips.clone() }.check(), Ok(()));
        for (bad, words) in [
            (Parameters { tcp: false, ..good.clone() }, "neither"),
            (Parameters { parallel: 0, ..good.clone() }, "parallel = 0: accepted: 1 to 128"),
            (Parameters { parallel: 1_000_000, ..good.clone() }, "1 to 128"),
            (Parameters { len: Some(1 << 40), ..good.clone() }, "len = 1099511627776"),
            (Parameters { tcp: false, udp: true, len: Some(4), ..good.clone() }, "16 to 65507"),
            (Parameters { time: u64::MAX, ..good.clone() }, "time"),
            (Parameters { window: Some(1 << 60), ..good.clone() }, "window"),
            (Parameters { parallel: 2, ..trips.clone() }, "one stream"),
            (Parameters { reverse: true, ..trips.clone() }, "one stream"),
            (Parameters { len: Some(1 << 20), ..trips }, "1 to 65507"),
        ] {
            let refusal = bad.check().expect_err(words);
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}
