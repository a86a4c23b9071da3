//! Turns records into answers: statistics, store, judgement, documents and reports.
//!
//! Nothing here touches a machine. The store opens its one database file; reports and documents are made as
//! strings and values, and writing them somewhere is the caller's.
//!
//! The way through: [`store`] keeps what was measured and loads it as a [`store::Run`]; [`analysis`] compares its
//! targets by the rules of [`stats`] and checks how far the figures can be trusted; [`mod@compare`] holds two runs against one another;
//! [`suite`] sets the workloads of a suite side by side;
//! [`exchange`] and [`report`] say the outcome to programs and to people.

pub mod analysis;
pub mod compare;
pub mod exchange;
pub mod mark;
pub mod report;
pub mod stats;
pub mod store;
pub mod suite;
pub mod time;

pub use analysis::{Judgement, judge};
pub use store::{Run, Store};
