//! Tests of the store, on both of its databases where both can do it.

mod both;
mod copying;
mod damage;
mod file;
mod planted;
mod server;
mod sql;
mod test_store;
mod trends;
