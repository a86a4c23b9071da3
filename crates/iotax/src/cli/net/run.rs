//! `iotax net run`: streams to a far end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args as ClapArgs;
use iotax_engine::net::{Interval, Progress, Test};
use iotax_model::exit::Exit;
use iotax_model::net::{Direction, NetTest, PORT, Peer, Traffic};
use iotax_model::units::{BitRate, Bytes, Nanos};

use super::auth::Auth;
use super::json::{MARK, Side, document};
use super::lines;
use super::neighbours::{self, Common};
use crate::cli::output::Output;
use crate::cli::say::{print_line, say};
use crate::cli::session::watch_signals;
use crate::cli::{Failure, OrExit, usage};

/// iperf3's bitrate of UDP if none is asked.
const UDP_BITRATE: BitRate = BitRate(1 << 20);

/// Flags of `iotax net run`, by iperf3's names.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    /// Far end: an address or a name, and a port if it is not --port. Several are measured at once, with one start
    #[arg(value_name = "HOST[:PORT]", required = true)]
    hosts: Vec<String>,
    /// Port of the far end
    #[arg(long, short, default_value_t = PORT)]
    port: u16,
    /// Send datagrams
    #[arg(long, short)]
    udp: bool,
    /// How long: seconds, or a time with its unit [default: 10]
    #[arg(long, short, value_name = "TIME", value_parser = time, conflicts_with = "bytes")]
    time: Option<Nanos>,
    /// Bytes of each direction that end it, instead of a time
    #[arg(long, short = 'n', value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Warm-up that does not count: seconds, or a time with its unit
    #[arg(long, short = 'O', value_name = "TIME", value_parser = time, default_value = "0")]
    omit: Nanos,
    /// How often a line is printed: seconds, or a time with its unit
    #[arg(long, short, value_name = "TIME", value_parser = time, default_value = "1")]
    interval: Nanos,
    /// Bits a second of each stream, in powers of 1000; 0 is as many as it carries [default: 1 Mbit/s for UDP, else 0]
    #[arg(long, short, value_name = "RATE")]
    bitrate: Option<BitRate>,
    /// Have the far end send
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Have both ends send
    #[arg(long, conflicts_with = "reverse")]
    bidir: bool,
    /// Streams of each direction
    #[arg(long, short = 'P', value_name = "N", default_value_t = 1)]
    parallel: u32,
    /// Bytes of one write or datagram, in powers of 1024 [default: 128K for TCP, what the path carries in a packet for UDP]
    #[arg(long, short, value_name = "SIZE")]
    length: Option<Bytes>,
    /// Size of the sockets' buffers [default: the kernel's own]
    #[arg(long, short, value_name = "SIZE")]
    window: Option<Bytes>,
    /// TCP's largest segment in bytes
    #[arg(long, short = 'M', visible_alias = "set-mss", value_name = "BYTES")]
    mss: Option<u32>,
    /// TCP's congestion control
    #[arg(long, short = 'C', value_name = "NAME")]
    congestion: Option<String>,
    /// Send without copying what is sent
    #[arg(long, short = 'Z')]
    zerocopy: bool,
    /// Come from this address
    #[arg(long, short = 'B', value_name = "ADDRESS")]
    bind: Option<String>,
    /// Come from this port, and of several streams from those after it
    #[arg(long, value_name = "PORT")]
    cport: Option<u16>,
    #[command(flatten)]
    auth: Auth,
    /// Write iperf3's JSON, with a section of our own; - (or no value) is stdout, which then carries nothing else
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Seconds, as iperf3 has them, or a time with its unit.
pub(super) fn time(text: &str) -> Result<Nanos, String> {
    let seconds = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let with_unit = if seconds { format!("{text}s") } else { text.to_owned() };
    with_unit.parse().map_err(|_| format!("{text:?} is not a time; accepted: seconds, or 500ms, 10s, 2m"))
}

impl Args {
    fn traffic(&self) -> Traffic {
        let direction = match (self.bidir, self.reverse) {
            (true, _) => Direction::Both,
            (false, true) => Direction::Down,
            (false, false) => Direction::Up,
        };
        let test = if self.udp { NetTest::Udp } else { NetTest::Tcp };
        Traffic {
            direction,
            parallel: self.parallel,
            length: self.length,
            bitrate: self.bitrate.or(self.udp.then_some(UDP_BITRATE)).filter(|bitrate| bitrate.0 > 0),
            bytes: self.bytes,
            window: self.window,
            mss: self.mss,
            congestion: self.congestion.clone(),
            zerocopy: self.zerocopy,
            ..Traffic::new(test)
        }
    }

    /// The tests that are asked for, one for each far end.
    fn tests(&self) -> Result<Vec<Test>, Failure> {
        let traffic = self.traffic();
        traffic.check().map_err(|why| usage(why.replace("net.", "--")))?;
        if self.interval < Nanos::from_millis(10) {
            return Err(usage(format!("--interval {}: accepted: 10ms and more", self.interval)));
        }
        let token = self.auth.token()?;
        let time = match (self.time, self.bytes) {
            (Some(time), _) => time,
            (None, Some(_)) => Nanos(0),
            (None, None) => Nanos::from_secs(10),
        };
        if time == Nanos(0) && self.bytes.is_none_or(|bytes| bytes.0 == 0) {
            return Err(usage("--time 0: accepted: more than 0, or --bytes of more than 0"));
        }
        let each = self.hosts.iter().map(|host| {
            let (host, port) = split(host, self.port)?;
            let peer = Peer {
                token: token.clone(),
                bind: self.bind.clone(),
                cport: self.cport,
                ..Peer::at(host, port)
            };
            Ok(Test { traffic: traffic.clone(), peer, time, omit: self.omit, interval: self.interval })
        });
        each.collect()
    }

    fn output(&self) -> Output {
        Output { json: self.json.clone(), ..Output::default() }
    }
}

/// A host and its port. An address of IPv6 with a port has brackets.
fn split(text: &str, port: u16) -> Result<(String, u16), Failure> {
    let (host, after) = match text.rsplit_once(':') {
        Some((host, after)) if !host.contains(':') || host.ends_with(']') => (host, Some(after)),
        _ => (text, None),
    };
    let accepted = || usage(format!("{text:?}: accepted: HOST, HOST:PORT, or [ADDRESS]:PORT for IPv6"));
    let port = after.map_or(Ok(port), |after| after.parse().map_err(|_| accepted()))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() { Err(accepted()) } else { Ok((host.to_owned(), port)) }
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let tests = args.tests()?;
    let outputs = args.output().open(MARK)?;
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let silent = outputs.stdout_is_taken();
    let [test] = &tests[..] else {
        let neighbours = neighbours::run(&tests, &stop, silent).or_exit(Exit::Measurement)?;
        let common = Common::of(&neighbours);
        if !silent {
            common.show(&neighbours);
        }
        outputs.write_json(&common.document(&neighbours))?;
        return Ok(ended(&stop));
    };
    let mut intervals: Vec<Interval> = Vec::new();
    let report = test
        .clone()
        .prepare()
        .and_then(|prepared| {
            prepared.run(&stop, &mut |progress| match progress {
                Progress::Started(start) => {
                    say!("{} port {}: {}", test.peer.host, test.peer.port, lines::asked(start));
                }
                Progress::Interval(interval) => {
                    if !silent {
                        say!("{}", lines::interval(interval));
                    }
                    intervals.push(interval.clone());
                }
                Progress::Counting | Progress::Over => {}
            })
        })
        .or_exit(Exit::Measurement)?;
    if !silent {
        lines::summary(&report).iter().for_each(|line| print_line!("{line}"));
    }
    let connecting = Side::Client { host: &test.peer.host, port: test.peer.port };
    outputs.write_json(&document(&report, &intervals, connecting))?;
    Ok(ended(&stop))
}

/// A test that the user ended says what it carried until then.
fn ended(stop: &AtomicBool) -> Exit {
    if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { Exit::Fine }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_have_units() {
        assert_eq!((time("10"), time("0.5")), (Ok(Nanos::from_secs(10)), Ok(Nanos::from_millis(500))));
        assert_eq!(time("250ms"), Ok(Nanos::from_millis(250)));
        assert!(time("soon").expect_err("refused").contains("\"soon\""));
    }

    #[test]
    fn hosts_have_ports() {
        let read = |text: &str| split(text, 5201).map_err(|failure| failure.error.to_string());
        for (text, host, port) in [
            ("box", "box", 5201),
            ("box:80", "box", 80),
            ("::1", "::1", 5201),
            ("[::1]", "::1", 5201),
            ("[::1]:99", "::1", 99),
        ] {
            assert_eq!(read(text), Ok((host.to_owned(), port)));
        }
        for text in ["box:", "box:http", ":80", "box:99999"] {
            assert!(read(text).expect_err(text).contains("accepted: HOST"), "{text}");
        }
    }
}
