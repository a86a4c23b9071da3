//! `iotax net run`: measures the throughput of streams to or from a server.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::net::{Direction, NetTest, Traffic};
use iotax_model::units::{BitRate, Bytes, Nanos};
use iotax_model::workload::{Workload, WorkloadKeys};

use super::super::number;
use super::lines;
use super::server::{Measurement, ServerArgs};
use crate::cli::output::OutputArgs;
use crate::cli::time::seconds;
use crate::cli::{Failure, usage};

/// iperf3's default bitrate for UDP.
const UDP_BITRATE: BitRate = BitRate(1 << 20);

/// Maximum duration of a test that ends after a number of bytes.
const LONGEST: Nanos = Nanos::from_secs(3600);

/// Flags of `iotax net run`, with iperf3's names.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    /// Server: an address or a name, with a port if it differs from --port. Several are measured at once, with a common start
    #[arg(value_name = "HOST[:PORT]", required = true)]
    hosts: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// Send datagrams
    #[arg(long, short)]
    udp: bool,
    /// Length of the measurement, in seconds or with a unit [default: 10]
    #[arg(long, short, alias = "runtime", value_name = "TIME", value_parser = seconds, conflicts_with = "bytes")]
    time: Option<Nanos>,
    /// End after this many bytes in each direction instead of after a time, but within an hour
    #[arg(long, short = 'n', value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Warm-up that does not count, in seconds or with a unit
    #[arg(long, short = 'O', value_name = "TIME", value_parser = seconds, default_value = "0")]
    omit: Nanos,
    /// Time between lines of output, in seconds or with a unit
    #[arg(long, short, value_name = "TIME", value_parser = seconds, default_value = "1")]
    interval: Nanos,
    /// Bits per second of each stream, in powers of 1000; 0 is unlimited [default: 1 Mbit/s for UDP, else 0]
    #[arg(long, short, value_name = "RATE")]
    bitrate: Option<BitRate>,
    /// Have the server send
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Have both ends send
    #[arg(long, conflicts_with = "reverse")]
    bidir: bool,
    /// Streams in each direction
    #[arg(long, short = 'P', value_name = "N", default_value_t = 1, value_parser = number::whole::<u32>(1..=128))]
    parallel: u32,
    /// Bytes per write or datagram, in powers of 1024 [default: 128K for TCP, the largest unfragmented datagram for UDP]
    #[arg(long, short, value_name = "SIZE")]
    length: Option<Bytes>,
    /// Socket buffer size [default: the kernel's]
    #[arg(long, short, value_name = "SIZE")]
    window: Option<Bytes>,
    /// TCP maximum segment size in bytes
    #[arg(long, short = 'M', visible_alias = "set-mss", value_name = "BYTES", value_parser = number::whole::<u32>(0..=9216))]
    mss: Option<u32>,
    /// TCP congestion control
    #[arg(long, short = 'C', value_name = "NAME")]
    congestion: Option<String>,
    /// Send without copying the data
    #[arg(long, short = 'Z')]
    zerocopy: bool,
    /// Local port, and for several streams the ports after it
    #[arg(long, value_name = "PORT", value_parser = number::whole::<u16>(1..=65535))]
    cport: Option<u16>,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    fn traffic(&self) -> Traffic {
        let direction = match (self.bidir, self.reverse) {
            (true, _) => Direction::Both,
            (false, true) => Direction::Download,
            (false, false) => Direction::Upload,
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

    fn workload(&self) -> Result<Workload, Failure> {
        let traffic = self.traffic();
        traffic.check().map_err(|why| usage(why.replace("net.", "--")))?;
        let time = match (self.time, self.bytes) {
            (Some(time), _) => time,
            (None, Some(_)) => LONGEST,
            (None, None) => Nanos::from_secs(10),
        };
        if time == Nanos(0) || self.bytes == Some(Bytes(0)) {
            return Err(usage("--time 0: accepted: more than 0, or --bytes of more than 0"));
        }
        let keys = WorkloadKeys {
            net: Some(traffic),
            runtime: Some(time),
            ramp_time: Some(self.omit),
            ..WorkloadKeys::default()
        };
        Ok(keys.complete(&WorkloadKeys::default()))
    }
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let several = args.hosts.len() > 1;
    Measurement {
        name: format!("net run {}", args.hosts.join(" ")),
        target: args.server.target(&args.hosts, args.cport)?,
        workloads: vec![args.workload()?],
        output: &args.output,
        interval: args.interval,
        line: &|_, name, sample| {
            let line = lines::streams(sample);
            if several { format!("{name} {line}") } else { line }
        },
    }
    .carry_out()
}
