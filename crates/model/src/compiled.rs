//! Serde's code of the large documents, compiled in this crate.
//!
//! Generic code is compiled in the first crate that names its types, and crates above use that
//! (rustc's `share-generics`, below `opt-level` 2). Without this each crate that reads a run would compile it anew.

use serde_json::{Result, Value, from_slice, to_value, to_vec};

use crate::Plan;
use crate::record::{Environment, Measurement, TargetRecord};
use crate::wire::{Event, Job};

/// Reads, writes and takes apart a document.
type Code<T> = (fn(&[u8]) -> Result<T>, fn(&T) -> Result<Vec<u8>>, fn(T) -> Result<Value>);

macro_rules! compiled {
    ($($name:ident: $document:ty),+) => {$(
        #[used]
        static $name: Code<$document> =
            (|text| from_slice(text), |document| to_vec(document), |document| to_value(document));
    )+};
}

compiled!(PLAN: Plan, ENVIRONMENT: Environment, TARGET: TargetRecord, MEASUREMENT: Measurement, EVENT: Event, JOB: Job);
