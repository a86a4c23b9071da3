//! Tests of the store, on both of its databases where both can do it.

mod both;
mod copying;
mod damage;
mod file;
mod place;
mod planted;
mod server;
mod sql;
#[path = "../../../interop/tests/results/synthetic.rs"]
#[expect(dead_code, reason = "made for the results' tests")]
mod synthetic;
mod trends;
