//! Shows the runs of a store in a browser: reports, comparisons, histories and runs in progress.
//!
//! The pages contain the same elements as the HTML report, so a run looks the same here and in its file. Every page works without scripts;
//! scripts draw the charts and update the page of a run in progress. The store is accessed on threads that may block, so that a slow
//! request does not delay others.

mod api;
mod app;
mod assets;
mod auth;
mod compare;
mod config;
mod connections;
mod fleets;
mod frame;
mod guard;
mod judged;
mod last;
mod launcher;
mod limiter;
mod listen;
mod live;
mod login;
mod machines;
mod metrics;
mod notes;
mod openapi;
mod past;
mod plans;
mod pool;
mod problem;
mod query;
mod routes;
mod run;
mod runs;
mod trends;

pub use config::{Config, Launch, Tls};
pub use last::LastMetrics;
pub use listen::{ServeError, serve};
