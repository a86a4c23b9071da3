//! Compares the published JSON Schemas with those of the documents' types.

use std::path::Path;

use iotax_model::json_schema::of_document;
use schemars::JsonSchema;

fn is_published<T: JsonSchema>(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(file);
    iotax_testkit::documents::is_published(path, &of_document::<T>(file));
}

#[test]
fn the_published_schemas_are_those_of_the_types() {
    is_published::<super::RunDocument<'_>>("iotax-1.schema.json");
    is_published::<super::comparison::CompareDocument<'_>>("iotax-compare-1.schema.json");
    is_published::<super::doctor::DoctorDocument<'_>>("iotax-doctor-1.schema.json");
    is_published::<super::fleet::FleetDocument<'_>>("iotax-fleet-1.schema.json");
    is_published::<super::history::HistoryDocument<'_>>("iotax-history-1.schema.json");
    is_published::<super::trace::TraceDocument<'_>>("iotax-trace-1.schema.json");
    is_published::<super::trend::TrendDocument<'_>>("iotax-trend-1.schema.json");
    is_published::<super::tune::TuneDocument<'_>>("iotax-tune-1.schema.json");
}
