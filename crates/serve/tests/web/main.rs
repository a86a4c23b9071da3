//! Tests of the server over sockets, on a store of synthetic runs.

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
mod trends;
