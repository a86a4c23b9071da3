//! Load on a network: streams, round trips, and the far end that answers them.

mod echo;

use std::io;

use iotax_model::net::Peer;
use iotax_model::record::Outcome;
use iotax_model::wire::{Event, Job};

use crate::error::EngineError;

/// Carries out one measurement with the far end at `peer`.
pub(crate) fn measure(job: &Job, peer: &Peer, events: &mut dyn FnMut(Event)) -> Result<Outcome, EngineError> {
    if let Some(traffic) = job.workload.net.as_ref().filter(|traffic| traffic.test.is_rtt()) {
        return echo::measure(job, traffic, peer, events);
    }
    Err(EngineError::Net(format!("{}: there is no client yet", peer.host)))
}

/// A far end that listens until it is dropped.
#[derive(Debug)]
pub struct Server {
    port: u16,
}

impl Server {
    /// Listens on an address; `port` 0 takes a free one.
    ///
    /// # Errors
    /// An address that cannot be listened on.
    pub fn start(bind: &str, _port: u16, _token: Option<&str>) -> io::Result<Self> {
        Err(io::Error::other(format!("{bind}: there is no server yet")))
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}
