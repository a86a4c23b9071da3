//! `iotax net ping`: measures round trips to a host, idle and under load.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::net::{Direction, NetTest, Traffic};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{Workload, WorkloadKeys};

use super::super::number;
use super::lines;
use super::server::{Measurement, ServerArgs};
use crate::cli::output::OutputArgs;
use crate::cli::time::seconds;
use crate::cli::{Failure, usage};

/// The default warm-up under load.
const LOADED_OMIT: Nanos = Nanos::from_secs(1);

/// Flags of `iotax net ping`.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    /// A name or an address, with a port if it differs from --port; any host with --icmp, else one that runs iotax net serve
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Send ICMP echo requests, which the host's kernel answers
    #[arg(long, conflicts_with_all = ["udp", "tcp", "busy_poll"])]
    icmp: bool,
    /// Send datagrams (the default)
    #[arg(long, conflicts_with = "tcp")]
    udp: bool,
    /// Send messages over a TCP connection
    #[arg(long)]
    tcp: bool,
    /// Start this many round trips per second, even if earlier ones are outstanding [default: each after the previous one]
    #[arg(long, value_name = "N", value_parser = number::positive::<u64>)]
    rate: Option<u64>,
    /// Bytes per message, 16 to 65507, for ICMP without its header [default: 64]
    #[arg(short, long, value_name = "SIZE")]
    length: Option<Bytes>,
    /// Length of the measurement, in seconds or with a unit
    #[arg(short, long, value_name = "TIME", default_value = "10", value_parser = seconds)]
    time: Nanos,
    /// Warm-up that does not count, in seconds or with a unit [default: 0, under load 1]
    #[arg(short = 'O', long, value_name = "TIME", value_parser = seconds)]
    omit: Option<Nanos>,
    /// Time between lines of output, in seconds or with a unit
    #[arg(short, long, value_name = "TIME", default_value = "1", value_parser = seconds)]
    interval: Nanos,
    /// Poll instead of sleeping, which takes a whole CPU, and have the kernel poll the NIC for this long each time
    /// (SO_BUSY_POLL), such as 50us
    #[arg(long, value_name = "TIME")]
    busy_poll: Option<Nanos>,
    /// Measure three times: idle, during a TCP download from the server, and during an upload; needs iotax net serve there, also
    /// with --icmp
    #[arg(long)]
    under_load: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    const fn test(&self) -> NetTest {
        match (self.icmp, self.tcp) {
            (true, _) => NetTest::IcmpRtt,
            (false, true) => NetTest::TcpRtt,
            (false, false) => NetTest::UdpRtt,
        }
    }

    fn traffic(&self) -> Traffic {
        let (length, rate, busy_poll) = (self.length, self.rate, self.busy_poll);
        Traffic { length, rate, busy_poll, ..Traffic::new(self.test()) }
    }

    fn workloads(&self) -> Result<Vec<Workload>, Failure> {
        let idle = self.traffic();
        idle.check().map_err(|why| usage(why.replace("net.", "--")))?;
        if !self.under_load {
            return Ok(vec![self.workload(None, idle, Nanos(0))]);
        }
        let loaded =
            [("download", Direction::Download), ("upload", Direction::Upload)].map(|(name, direction)| {
                let traffic = Traffic { loaded: true, direction, ..self.traffic() };
                self.workload(Some(name), traffic, LOADED_OMIT)
            });
        Ok([self.workload(Some("idle"), idle, Nanos(0))].into_iter().chain(loaded).collect())
    }

    fn workload(&self, name: Option<&str>, traffic: Traffic, omit: Nanos) -> Workload {
        let keys = WorkloadKeys {
            name: name.map(str::to_owned),
            net: Some(traffic),
            runtime: Some(self.time),
            ramp_time: Some(self.omit.unwrap_or(omit)),
            ..WorkloadKeys::default()
        };
        keys.complete(&WorkloadKeys::default())
    }
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    Measurement {
        name: format!("net ping {}", args.host),
        target: args.server.target(std::slice::from_ref(&args.host), None)?,
        workloads: args.workloads()?,
        output: &args.output,
        interval: args.interval,
        line: &|workload, _, sample| {
            let line = lines::round_trips(sample);
            if args.under_load { format!("{workload:<9}{line}") } else { line }
        },
    }
    .carry_out()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Line::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{line}: {error}")).args
    }

    fn workloads(line: &str) -> Vec<Workload> {
        args(line).workloads().unwrap_or_else(|failure| panic!("{line}: {}", failure.error))
    }

    #[test]
    fn a_command_line_becomes_workloads_that_can_be_done() {
        let [one] = &workloads("ping --icmp --rate 100 -t 2 192.0.2.1")[..] else { panic!("one") };
        let traffic = one.kind.traffic().expect("a network's");
        assert_eq!((traffic.test, traffic.rate, traffic.loaded), (NetTest::IcmpRtt, Some(100), false));
        assert_eq!((one.runtime, one.ramp_time), (Nanos::from_secs(2), Nanos(0)));
        let loaded = workloads("ping --tcp --under-load --busy-poll 50us host");
        let loads: Vec<_> = loaded
            .iter()
            .map(|workload| {
                assert_eq!(workload.check(), Ok(()), "{}", workload.name);
                let traffic = workload.kind.traffic().expect("a network's");
                (workload.name.as_str(), traffic.loaded.then_some(traffic.direction))
            })
            .collect();
        let expected =
            [("idle", None), ("download", Some(Direction::Download)), ("upload", Some(Direction::Upload))];
        assert_eq!(loads, expected);
        for wrong in
            ["ping --icmp --tcp host", "ping --icmp --busy-poll 1us host", "ping", "ping -t ten host"]
        {
            assert!(Line::try_parse_from(wrong.split_whitespace()).is_err(), "{wrong}");
        }
    }
}
