//! The crate from outside: synthetic runs in, the forms of other tools out.

mod classics;
mod dataset;
mod exports;
mod figures;
mod fio;
mod network;
mod suites;
mod vdbench;
