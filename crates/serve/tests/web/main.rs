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
mod trends;
