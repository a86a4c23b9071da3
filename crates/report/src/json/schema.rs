//! Generates the JSON Schemas of the documents from their types.

use std::path::Path;

use iotax_model::json_schema::without_null;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Returns the JSON Schema of a document as written: no unknown keys, no null.
fn schema<T: JsonSchema>(file: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let generator = settings.with_transform(RecursiveTransform(closed)).into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    without_null(&mut schema);
    schema["$id"] = format!("https://github.com/iotax/iotax/schema/{file}").into();
    schema
}

/// Changes a schema to reject unknown keys, and removes default values, which only matter for reading.
fn closed(schema: &mut Schema) {
    schema.remove("default");
    schema.remove("format");
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".into(), false.into());
    }
}

fn is_published<T: JsonSchema>(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(file);
    let schema = schema::<T>(file);
    if std::env::var_os("IOTAX_UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{schema:#}\n")).expect("written");
    }
    let published = std::fs::read_to_string(&path).expect("readable");
    let published: Value = serde_json::from_str(&published).expect("JSON");
    assert!(published == schema, "{file}: IOTAX_UPDATE_DOCS=1 updates it");
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
