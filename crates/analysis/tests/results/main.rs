//! Tests of the crate's public interface: synthetic runs in, judgements out.

mod clocks;
mod demands;
mod edges;
mod honesty;
mod inside;
mod judge;
mod limits;
mod network;
mod network_paths;
mod replays;
mod steady;
