//! `iotax net ping`: round trips with a host, idle and under load.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args as ClapArgs;
use iotax_engine::EngineError;
use iotax_model::exit::Exit;
use iotax_model::net::{Direction, NetTest, PORT, Peer, Traffic};
use iotax_model::record::Sample;
use iotax_model::units::{Bytes, Nanos, human};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::WorkloadKeys;
use iotax_results::exchange::json::trips::{MARK, document};
use iotax_results::report::document::{Trips, trips};

use super::super::Failure;
use super::super::output::Output;
use super::super::say::say;
use super::super::terminal::Form;
use super::auth::Auth;
use super::run::time;

/// Bytes of a message if nothing else is said.
const LENGTH: Bytes = Bytes(64);
/// A load is under way for so long before what counts begins, if nothing else is said.
const LOADED_OMIT: Nanos = Nanos::from_secs(1);

/// Flags of `iotax net ping`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A name or an address; with --icmp any host, else one where iotax net serve runs
    host: String,
    /// Send ICMP echo requests, which the host's kernel answers
    #[arg(long, conflicts_with_all = ["udp", "tcp", "busy_poll"])]
    icmp: bool,
    /// Send datagrams (the default)
    #[arg(long, conflicts_with = "tcp")]
    udp: bool,
    /// Send messages over a TCP connection
    #[arg(long)]
    tcp: bool,
    /// Begin so many round trips a second, whether or not earlier ones are back [default: the next one when the last one is]
    #[arg(long, value_name = "N")]
    rate: Option<u64>,
    /// Bytes of a message, 16 to 65507; of ICMP those after its header
    #[arg(short, long, value_name = "SIZE", default_value_t = LENGTH)]
    length: Bytes,
    /// How long is measured, in seconds or with a unit
    #[arg(short, long, value_name = "TIME", default_value = "10", value_parser = time)]
    time: Nanos,
    /// Leave out the first time, in seconds or with a unit [default: 0, under load 1]
    #[arg(short = 'O', long, value_name = "TIME", value_parser = time)]
    omit: Option<Nanos>,
    /// Time between lines of progress, in seconds or with a unit
    #[arg(short, long, value_name = "TIME", default_value = "1", value_parser = time)]
    interval: Nanos,
    /// Ask again and again instead of sleeping, which takes a whole CPU, and have the kernel poll the device for so long each time
    /// (SO_BUSY_POLL), such as 50us
    #[arg(long, value_name = "TIME")]
    busy_poll: Option<Nanos>,
    /// Measure three times: idle, while TCP downloads from the far end, and while it uploads; takes iotax net serve there, with --icmp too
    #[arg(long)]
    under_load: bool,
    /// The far end's port
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// The address to send from
    #[arg(short = 'B', long, value_name = "ADDRESS")]
    bind: Option<String>,
    #[command(flatten)]
    auth: Auth,
    /// Write the results as JSON; - (or no value) is stdout, which then carries nothing else
    #[arg(short = 'J', long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

/// One of the measurements.
struct Phase {
    name: &'static str,
    job: Job,
}

impl Phase {
    fn seconds(&self) -> f64 {
        let workload = &self.job.workload;
        Nanos(workload.ramp_time.0 + workload.runtime.0).as_secs_f64()
    }
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
        let (length, rate, busy_poll) = (Some(self.length), self.rate, self.busy_poll);
        Traffic { length, rate, busy_poll, ..Traffic::new(self.test()) }
    }

    fn phases(&self, token: Option<&str>) -> Vec<Phase> {
        let job = |traffic, omit| self.job(traffic, self.omit.unwrap_or(omit), token);
        let idle = Phase { name: "idle", job: job(self.traffic(), Nanos(0)) };
        let loaded = [("download", Direction::Down), ("upload", Direction::Up)].map(|(name, direction)| {
            let traffic = Traffic { loaded: true, direction, ..self.traffic() };
            Phase { name, job: job(traffic, LOADED_OMIT) }
        });
        [idle].into_iter().chain(loaded.into_iter().filter(|_| self.under_load)).collect()
    }

    fn job(&self, traffic: Traffic, omit: Nanos, token: Option<&str>) -> Job {
        let keys = WorkloadKeys {
            net: Some(traffic),
            runtime: Some(self.time),
            ramp_time: Some(omit),
            ..WorkloadKeys::default()
        };
        Job {
            path: None,
            workload: keys.complete(&WorkloadKeys::default()),
            size: Bytes(0),
            seed: 0,
            interval: self.interval,
            writable: false,
            shared: false,
            identity: None,
            directory: None,
            peer: Some(Peer {
                bind: self.bind.clone(),
                token: token.map(str::to_owned),
                ..Peer::at(&*self.host, self.port)
            }),
        }
    }

    /// What is done, in words.
    fn head(&self) -> String {
        let kind = match self.test() {
            NetTest::IcmpRtt => "ICMP echo",
            NetTest::TcpRtt => "TCP",
            _ => "UDP",
        };
        let pace = self.rate.map_or_else(
            || "one after the other".to_owned(),
            |rate| format!("{rate} a second, whatever became of those before"),
        );
        let (host, length, time) = (&self.host, self.length.0, human::duration(self.time.as_secs_f64()));
        format!("{kind} round trips of {length} bytes with {host}, {pace}, for {time}")
    }
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let outputs = Output { json: args.json.clone(), ..Output::default() }.open(MARK)?;
    let phases = args.phases(args.auth.token()?.as_deref());
    let mut left: f64 = phases.iter().map(Phase::seconds).sum();
    let mut all = Vec::with_capacity(phases.len());
    for phase in &phases {
        all.push(measure(phase, left)?);
        left -= phase.seconds();
    }
    args.form.show(&trips(&args.head(), &all), outputs.stdout_is_taken());
    outputs.write_json(&document(&args.host, &args.traffic(), args.length.0, &all))?;
    let came = all.iter().any(|trips| trips.tally().is_some_and(|tally| tally.ios > 0));
    Ok(if came { Exit::Fine } else { Exit::Measurement })
}

/// Carries one of the measurements out, with a line of progress each interval; `left` is how many seconds it and those after it take.
fn measure(phase: &Phase, left: f64) -> Result<Trips, Failure> {
    let begun = Instant::now();
    let outcome = iotax_engine::measure(&phase.job, Path::new(""), &mut |event| {
        if let Event::Sample(sample) = event {
            tell(phase.name, &sample, left - begun.elapsed().as_secs_f64());
        }
    });
    let outcome = outcome.map_err(|error| {
        let exit = match &error {
            EngineError::Workload(_) | EngineError::Interval(_) => Exit::Usage,
            _ => Exit::Environment,
        };
        Failure { exit, error: error.into() }
    })?;
    Ok(Trips { name: phase.name.to_owned(), outcome })
}

/// A line of progress.
fn tell(name: &str, sample: &Sample, left: f64) {
    let Some(tally) = &sample.tallies.read else { return };
    let times = tally.response.as_ref().unwrap_or(&tally.latency);
    let time = |q: f64| times.quantile(q).map_or_else(|| "none".to_owned(), human::time);
    let rate = tally.ios as f64 / Nanos(sample.duration_ns).as_secs_f64();
    say!(
        "{name}  {:.1} s  {} round trips/s  p50 {}  p99 {}  max {}  ETA {}",
        Nanos(sample.at_ns).as_secs_f64(),
        human::count(rate),
        time(0.5),
        time(0.99),
        time(1.0),
        human::duration(left.max(0.0)),
    );
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

    #[test]
    fn a_command_line_becomes_jobs_that_can_be_done() {
        let one = args("ping --icmp --rate 100 -t 2 192.0.2.1").phases(None);
        assert_eq!(one.len(), 1);
        let Job { workload, peer, .. } = &one[0].job;
        let traffic = workload.net.as_ref().expect("a network's");
        assert_eq!((traffic.test, traffic.rate, traffic.loaded), (NetTest::IcmpRtt, Some(100), false));
        assert_eq!((workload.runtime, workload.ramp_time), (Nanos::from_secs(2), Nanos(0)));
        assert_eq!(peer.as_ref().expect("a far end").host, "192.0.2.1");
        let loaded = args("ping --tcp --under-load --busy-poll 50us host").phases(None);
        let loads: Vec<_> = loaded
            .iter()
            .map(|phase| {
                assert_eq!(phase.job.workload.check(), Ok(()), "{}", phase.name);
                let traffic = phase.job.workload.net.as_ref().expect("a network's");
                (phase.name, traffic.loaded.then_some(traffic.direction))
            })
            .collect();
        let expected = [("idle", None), ("download", Some(Direction::Down)), ("upload", Some(Direction::Up))];
        assert_eq!(loads, expected);
        for wrong in
            ["ping --icmp --tcp host", "ping --icmp --busy-poll 1us host", "ping", "ping -t ten host"]
        {
            assert!(Line::try_parse_from(wrong.split_whitespace()).is_err(), "{wrong}");
        }
    }
}
