//! Generates network load in this process: streams, round trips, and the server for both.
//!
//! Streams use iperf3's protocol, so that either end may be iperf3; round trips (`echo`) need an iotax server, or for ICMP any host.
//! A `control` connection carries the `parameters` at the beginning
//! and the `exchange` of results at the end. The data moves on streams (`stream`), with one thread each (`streams`). The client runs a
//! `test`; the module `client` agrees on it with the `server`.

mod auth;
mod client;
mod control;
mod dial;
mod echo;
mod exchange;
mod handshake;
mod measure;
mod parameters;
mod report;
mod server;
mod stream;
mod streams;
mod test;

use iotax_load::control::Control;
use iotax_load::error::EngineError;
use iotax_model::net::Peer;
use iotax_model::record::Outcome;
use iotax_model::wire::{Event, Job};

pub use report::{
    Connection, End, Start, StreamEnd, StreamFigures, StreamInterval, TcpInfo, TestInterval, TestReport,
};
pub use server::{Server, ServerEvent, Serving};
pub use test::{ClientTest, Prepared, Progress};

/// Runs one measurement with the server at `peer`. `events` receives the same events as from the engine's `measure`. The load starts at
/// the time set in `control`. An early end set in `control` ends round trips; streams ignore it.
///
/// # Errors
/// The job is invalid or has no network traffic; or the network, the server or the operating system at this end fails.
pub fn measure_under(
    control: &Control,
    job: &Job,
    peer: &Peer,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    iotax_load::check(job)?;
    let Some(traffic) = job.workload.kind.traffic() else {
        return Err(EngineError::Net(format!("{}: the workload has no net = {{...}}", peer.host)));
    };
    traffic.check().map_err(EngineError::Net)?;
    if traffic.test.is_rtt() {
        return echo::measure(control, job, traffic, peer, events);
    }
    measure::streams(control, job, traffic, peer, events)
}
