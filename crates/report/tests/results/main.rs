//! Tests of the crate's public interface: synthetic runs in, answers out.

mod answer;
mod browser;
mod compare;
mod conclusions;
mod curves;
mod deciding;
mod durability;
mod failing;
mod flow;
mod html;
mod json;
mod located;
mod looks;
mod means;
mod network;
mod network_paths;
mod over_time;
mod prices;
mod statements;
mod terminal;
mod trend;
mod withheld;
