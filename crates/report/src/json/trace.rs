//! The document `iotax-trace/1`, whose JSON Schema is `crates/report/schema/iotax-trace-1.schema.json`.

use iotax_analysis::trace::TraceProfile;
use iotax_model::trace::TraceFormat;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::json;
use crate::mark::Mark;
use crate::nearest::{Nearest, nearest};

/// Value of the key `schema`; see [`super::SCHEMA`] for when its number rises.
pub const SCHEMA: &str = "iotax-trace/1";

/// Identifies a file as an `iotax-trace/1` document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// The characteristics of a trace. Unknown values have no key.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "A trace as iotax sees it")]
pub(super) struct TraceDocument<'a> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    file: &'a str,
    format: TraceFormat,
    /// The device that was recorded, or the name of the trace that was converted; absent if the trace does not state it.
    source: Option<&'a str>,
    /// Events that the kernel dropped because its buffers were full; absent if the trace does not state it.
    lost: Option<u64>,
    profile: &'a TraceProfile,
    /// The synthetic workload that comes closest to the trace; absent if nothing is read or written.
    nearest: Option<Nearest>,
}

/// Builds the document that describes a trace.
#[must_use]
pub fn document(
    file: &str,
    format: TraceFormat,
    source: Option<&str>,
    lost: Option<u64>,
    profile: &TraceProfile,
) -> Value {
    json(&TraceDocument { schema: SCHEMA, file, format, source, lost, profile, nearest: nearest(profile) })
}
