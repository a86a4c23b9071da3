//! The two ends over a real nats-server.

mod double;
mod failures;
mod login;
mod work;
