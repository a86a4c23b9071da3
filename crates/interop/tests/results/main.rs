//! Tests of the crate's public interface: synthetic runs in, formats of other tools out.

mod classics;
mod dataset;
mod exports;
mod figures;
mod fio;
mod network;
mod suites;
mod vdbench;
