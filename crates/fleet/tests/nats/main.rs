//! Tests of coordinator and agents over a real nats-server.

mod double;
mod failures;
mod login;
mod work;
