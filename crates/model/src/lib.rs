//! The data types that iotax's other crates share: plans, targets, workloads, measurements, and the wire protocol.
//!
//! This crate opens no files and starts no processes, and only [`threads`] reads a clock. Parsers take text, and [`wire`] reads from byte streams
//! that the caller opens. Keys of workloads are named as in fio and keys of guests as in QEMU, where these have the same setting.

pub mod cell;
mod compiled;
pub mod crash;
pub mod exit;
pub mod guest_abi;
pub mod histogram;
pub mod json_schema;
mod key_errors;
pub mod net;
pub mod number;
pub mod plan;
pub mod postgresql;
pub mod record;
pub mod run;
pub mod schedule;
pub mod suite;
pub mod survey;
pub mod target;
pub mod threads;
pub mod trace;
pub mod units;
pub mod verify_errors;
pub mod visible;
pub mod warning;
pub mod wire;
pub mod words;
pub mod workload;
pub mod wrap;

pub use cell::{CellKey, MeasurementKey};
pub use histogram::Histogram;
pub use plan::Plan;
pub use run::{Run, RunState};
pub use schedule::Cell;
pub use suite::Suite;
pub use target::TargetSpec;
pub use units::{Bytes, Nanos};
pub use warning::{Severity, Warning, WarningKind};
pub use workload::{IoEngine, Rw, Workload};
