//! Load on a network: streams, round trips, and the far end that answers them.
//!
//! Both ends speak iperf3's protocol, so that either may be an iperf3: a `control` connection with `parameters` at the beginning and
//! an `exchange` of results in the end, and the streams (`stream`, one thread each, kept by `streams`). The near end is a
//! `test`, which a `client` agrees on with the far end, a `server`.

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

use iotax_model::net::Peer;
use iotax_model::record::Outcome;
use iotax_model::wire::{Event, Job};

use crate::error::EngineError;

pub use report::{Connection, End, Figures, Interval, Report, Start, StreamEnd, StreamInterval, TcpInfo};
pub use server::{Server, Serving, Told};
pub use test::{Prepared, Progress, Test};

/// Carries out one measurement with the far end at `peer`.
pub(crate) fn measure(job: &Job, peer: &Peer, events: &mut dyn FnMut(Event)) -> Result<Outcome, EngineError> {
    let Some(traffic) = &job.workload.net else {
        return Err(EngineError::Net(format!("{}: the workload has no net = {{...}}", peer.host)));
    };
    traffic.check().map_err(EngineError::Net)?;
    if traffic.test.is_rtt() {
        return echo::measure(job, traffic, peer, events);
    }
    measure::streams(job, traffic, peer, events)
}
