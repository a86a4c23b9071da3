//! `iotax net serve`: the server for network measurements.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::net::PORT;
use iotax_model::threads;
use iotax_netperf::{Server, ServerEvent, Serving, Start, TestInterval};

use super::super::number;
use super::json::document;
use super::lines;
use crate::cli::auth::AuthArgs;
use crate::cli::say::{self, note, say};
use crate::cli::signals::watch_signals;
use crate::cli::{Failure, OrExit};

/// Flags of `iotax net serve`.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    /// Address to listen on; 0.0.0.0 and :: are all addresses
    #[arg(long, short = 'B', value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind: String,
    /// Port to listen on; 0 picks a free one
    #[arg(long, short, default_value_t = PORT, value_parser = number::whole::<u16>(0..=65535))]
    port: u16,
    /// Maximum number of concurrent tests, more than one for plans with neighbours; iperf3 allows one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::whole::<u16>(1..=1024))]
    tests: u16,
    /// Exit after one test
    #[arg(long, short = '1')]
    one_off: bool,
    #[command(flatten)]
    auth: AuthArgs,
    /// Print a JSON document for each test when it ends, on stdout as iperf3 does
    #[arg(long, short = 'J')]
    json: bool,
}

/// Running tests by cookie, each with its settings and the intervals so far.
type Tests = Mutex<BTreeMap<String, (Start, Vec<TestInterval>)>>;

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let serving = Serving {
        bind: args.bind.clone(),
        port: args.port,
        token: args.auth.token()?,
        most_tests: args.tests.into(),
        one_off: args.one_off,
    };
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let tests = Tests::default();
    let json = args.json;
    let server = Server::listen(serving, Box::new(move |server_event| tell(server_event, &tests, json)))
        .with_context(|| format!("cannot listen on {} port {}", args.bind, args.port))
        .or_exit(Exit::Environment)?;
    note!("listening on {}", server.address());
    while !stop.load(Ordering::Relaxed) && !server.is_over() {
        threads::sleep(Duration::from_millis(50));
    }
    Ok(Exit::Fine)
}

/// Prints an event of the server in lines; with `json`, prints a JSON document for each finished test.
fn tell(event: ServerEvent, tests: &Tests, json: bool) {
    let mut tests = tests.lock().unwrap_or_else(PoisonError::into_inner);
    match event {
        ServerEvent::Started(start) => {
            say!("{}: {}", start.peer.ip(), lines::asked(&start));
            tests.insert(start.cookie.clone(), (start, Vec::new()));
        }
        ServerEvent::Interval(cookie, interval) => {
            if let Some((_, intervals)) = tests.get_mut(&cookie).filter(|_| json) {
                intervals.push(interval);
            }
        }
        ServerEvent::Ended(report) => {
            let intervals = tests.remove(&report.start.cookie).map(|(_, intervals)| intervals);
            if json {
                say::print_json(&document(&report, &intervals.unwrap_or_default()));
            } else {
                say!("{}: {}", report.start.peer.ip(), lines::brief(&report));
            }
        }
        ServerEvent::Failed(cookie) => drop(tests.remove(&cookie)),
        ServerEvent::Problem(words) => say!("{words}"),
    }
}
