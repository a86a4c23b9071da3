//! The crate from outside: synthetic runs in, answers out.

mod browser;
mod classics;
mod compare;
mod conclusions;
mod crossing;
mod edges;
mod exports;
mod failing;
mod fio;
mod flow;
mod honesty;
mod html;
mod inside;
mod json;
mod judge;
mod looks;
mod network;
mod observed;
mod over_time;
mod store;
mod suites;
mod synthetic;
mod terminal;
mod trips;
mod vdbench;
mod ways;
