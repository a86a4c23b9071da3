//! `iotax top`: shows the current activity of every layer, records it, and shows recordings.

mod output;
mod replayed;

use self::replayed::Replay;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::threads;
use iotax_model::units::Nanos;
use iotax_serve::LastMetrics;
use iotax_testbed::interrupt::{Interrupt, POLL};
use iotax_top::collect::{Collector, Options};
use iotax_top::prometheus;
use iotax_top::rates::{self, Frame};
use iotax_top::raw::MachineSnapshot;
use iotax_top::recording::Writer;
use iotax_top::view::{self, Feed};

use super::say::{self, note};
use super::signals::watch_signals;
use super::time::seconds;
use super::{Failure, OrExit, links, usage};
use crate::causes::with_causes;
use output::Output;

/// Shortest interval: the kernel counts in milliseconds, so shorter ones are too coarse.
const SHORTEST: Duration = Duration::from_millis(100);

/// The kernel's disk counters, without which `iotax top` cannot run.
const DISKSTATS: &str = "/proc/diskstats";

/// Flags of `iotax top`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Time between readings, in seconds or with a unit
    #[arg(long, short, value_name = "TIME", value_parser = seconds, default_value = "1")]
    interval: Nanos,
    /// Print one interval and end: as tables, or with --json as JSON
    #[arg(long)]
    once: bool,
    /// Write each interval as a line of JSON to a new file; - (or no value) is stdout
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Record all readings in a new file
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Show a recording, or intervals of iostat or atop from their text
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interval", "qmp", "prometheus"])]
    replay: Option<PathBuf>,
    /// Serve the last interval to Prometheus at this address, such as 127.0.0.1:9200
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with = "once")]
    prometheus: Option<SocketAddr>,
    /// A guest's QMP socket, to show QEMU's counters of its disks; may be given several times
    #[arg(long, value_name = "SOCKET")]
    qmp: Vec<PathBuf>,
}

/// Parses an address and port such as `127.0.0.1:9200`, or only a port, which means 127.0.0.1.
fn address(text: &str) -> Result<SocketAddr, String> {
    let local = || text.parse().ok().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    text.parse().ok().or_else(local).ok_or_else(|| {
        format!(
            "{text:?} is no address; accepted: 127.0.0.1:9200, [::1]:9200, or 9200 for this machine alone"
        )
    })
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    // Open the replay before signals are caught: opening a pipe without a writer blocks, and Ctrl-C must end that.
    let replay = args.replay.as_deref().map(Replay::open).transpose()?;
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let output = Output::open(args.json.as_deref())?;
    let has_keys = std::io::stdin().is_terminal();
    let is_screen = !args.once && output.is_text() && has_keys && say::Stream::Stdout.obeys_escapes();
    if let Some((replay, file)) = replay.zip(args.replay.as_deref()) {
        return replayed::main(replay, file, is_screen, output, &stop);
    }
    let interval = Duration::from(args.interval);
    if interval < SHORTEST {
        return Err(usage(format_args!("--interval {}: at least 100ms", args.interval)));
    }
    let mut reader = Reader::open(args, &stop)?;
    if is_screen {
        let mut read = || reader.next();
        let feed = Feed::Live { read: &mut read, interval };
        view::run(feed, &host(), &stop).or_exit(Exit::Environment)?;
        return Ok(Exit::Fine);
    }
    // Without a terminal, a recording or a server, print one table.
    let is_once = args.once || (output.is_text() && args.record.is_none() && args.prometheus.is_none());
    go_on(&mut reader, interval, is_once, output, &stop)
}

/// Takes a reading at each interval until interrupted. Writes each frame (the rates since the last reading) as a line of JSON. With
/// `is_once`, writes only one frame, as a table or JSON; without it, writes no tables.
fn go_on(
    reader: &mut Reader,
    interval: Duration,
    is_once: bool,
    mut output: Output,
    stop: &Interrupt,
) -> Result<Exit, Failure> {
    // While recording or serving, nothing is printed.
    let is_silent = output.is_text() && !is_once;
    let mut due = Instant::now();
    loop {
        if let Some(frame) = reader.next().map_err(anyhow::Error::msg).or_exit(Exit::Environment)? {
            if !is_silent {
                output.put(&frame)?;
            }
            if is_once {
                return Ok(Exit::Fine);
            }
        }
        due = view::next_reading(due, interval, Instant::now());
        while Instant::now() < due {
            if stop.load(Ordering::Relaxed) {
                return Ok(if is_once { Exit::Interrupted } else { Exit::Fine });
            }
            threads::sleep(due.saturating_duration_since(Instant::now()).min(POLL));
        }
    }
}

/// Source of this machine's readings, which are also passed to the recording and to Prometheus.
struct Reader {
    collector: Collector,
    before: Option<MachineSnapshot>,
    writer: Option<Writer>,
    server: Option<LastMetrics>,
}

impl Reader {
    fn open(args: &Args, stop: &Interrupt) -> Result<Self, Failure> {
        if let Some(file) = &args.record {
            links::check(file).with_context(|| named(file)).or_exit(Exit::Environment)?;
        }
        let writer = args.record.as_deref().map(|file| Writer::create(file, &host())).transpose();
        let server = args.prometheus.map(|address| {
            LastMetrics::serve(address)
                .map_err(|error| anyhow::anyhow!("cannot listen on {address}: {error}"))
        });
        let server = server.transpose().or_exit(Exit::Environment)?;
        if let Some(server) = &server {
            note!("Prometheus: http://{}/metrics", server.address());
        }
        std::fs::File::open(DISKSTATS).context(DISKSTATS).or_exit(Exit::Environment)?;
        let options = Options { root: PathBuf::from("/"), percentiles: true, qmp: args.qmp.clone() };
        let collector = Collector::new(&options, stop);
        Ok(Self { collector, before: None, writer: writer.or_exit(Exit::Environment)?, server })
    }

    /// Takes a reading and returns the rates since the last one; `None` for the first reading, and if no time has passed since the last
    /// one.
    fn next(&mut self) -> Result<Option<Frame>, String> {
        let snapshot = self.collector.snapshot();
        if let Some(writer) = &mut self.writer {
            writer.append(&snapshot).map_err(|error| with_causes(&error.into()))?;
        }
        let frame = self.before.as_ref().and_then(|before| rates::between(before, &snapshot));
        self.before = Some(snapshot);
        if let (Some(server), Some(frame)) = (&self.server, &frame) {
            server.show(prometheus::text(frame));
        }
        Ok(frame)
    }
}

/// Returns the name of this machine.
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "this machine".to_owned() } else { name }
}

/// Formats the name of a file for an error.
fn named(file: &Path) -> String {
    file.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_this_machine_unless_another_is_named() {
        assert_eq!(address("9200").expect("a port").to_string(), "127.0.0.1:9200");
        assert_eq!(address("0.0.0.0:1").expect("an address").to_string(), "0.0.0.0:1");
        assert_eq!(address("[::1]:9200").expect("an address").to_string(), "[::1]:9200");
        for text in ["", "box", "127.0.0.1", "70000"] {
            assert!(address(text).expect_err("refused").contains(&format!("{text:?}")), "{text}");
        }
    }
}
