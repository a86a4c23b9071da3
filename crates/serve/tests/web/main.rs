//! The server as its clients see it: over sockets, on a store with runs whose truth is known.

mod api;
mod browser;
mod fleets;
mod hostile;
mod live;
mod metrics;
mod pages;
mod plans;
mod security;
mod server;
#[path = "../../../interop/tests/results/synthetic.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod synthetic;
mod trends;
