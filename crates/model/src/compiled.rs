//! Instantiates serde's generic code for the large documents in this crate, to save compile time.
//!
//! The compiler instantiates generic code in the first crate that names its types, and dependent crates reuse the result (rustc's `share-generics`,
//! below `opt-level` 2). Without this module, every crate that parses a stored run would compile the same code again.

use serde_json::{Result, Value, from_slice, to_value, to_vec};

use crate::Plan;
use crate::record::{Environment, Measurement, TargetRecord};
use crate::wire::{Event, Job};

/// Functions that parse a document from JSON, serialize it to JSON, and convert it to a JSON value.
type Code<T> = (fn(&[u8]) -> Result<T>, fn(&T) -> Result<Vec<u8>>, fn(T) -> Result<Value>);

macro_rules! compiled {
    ($($name:ident: $document:ty),+) => {$(
        #[used]
        static $name: Code<$document> =
            (|text| from_slice(text), |document| to_vec(document), |document| to_value(document));
    )+};
}

compiled!(PLAN: Plan, ENVIRONMENT: Environment, TARGET: TargetRecord, MEASUREMENT: Measurement, EVENT: Event, JOB: Job);
