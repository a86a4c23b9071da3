//! Shows a store in a browser: runs, comparisons, histories and what is being measured now.
//!
//! The pages are the report's own parts in a frame, so a run looks the same here and in its file. Every page works without a script;
//! scripts draw the charts and follow a run that is measuring. Everything that a request needs of the store happens on threads of its own,
//! so a slow request holds up no other.

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
