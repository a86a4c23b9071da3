//! The JSON Schema of plan files, for editors; generated from the types that parse them.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::file::PlanHead;
use crate::json_schema::without_null;
use crate::workload::WorkloadKeys;

/// Generates the JSON Schema of plan files. Every key of a target or workload except `name` accepts a value or a list of values.
#[must_use]
pub fn schema() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<PlanHead>().to_value();
    without_null(&mut schema);
    schema["title"] = json!("A plan of iotax run");
    schema["description"] =
        json!("Targets x workloads x rounds: what is built, what work is done on it, how often.");
    let known = serde_json::to_value(WorkloadKeys::default().complete(&WorkloadKeys::default()));
    for place in [
        "/properties/defaults",
        "/properties/workload/items",
        "/properties/neighbour/items/properties/workload",
    ] {
        let keys = schema.pointer_mut(&format!("{place}/properties"));
        for (key, form) in keys.and_then(Value::as_object_mut).into_iter().flatten() {
            if let (Ok(known), true) = (&known, key != "name")
                && let Some(default) = known.get(key)
            {
                form["default"] = default.clone();
            }
        }
    }
    for place in ["/properties/target/items", "/properties/workload/items", "/properties/defaults"] {
        if let Some(table) = schema.pointer_mut(place) {
            with_axes(table);
        }
    }
    schema
}

/// Extends the schema of a table, so that each key also accepts a list of values.
fn with_axes(table: &mut Value) {
    let keys = table.get_mut("properties").and_then(Value::as_object_mut);
    for (key, form) in keys.into_iter().flatten() {
        if key == "name" {
            continue;
        }
        if form.get("properties").is_some() {
            with_axes(form);
            continue;
        }
        let mut one = form.take();
        let said = ["description", "default"]
            .map(|word| (word, one.as_object_mut().and_then(|one| one.remove(word))));
        let list = json!({ "type": "array", "items": one, "minItems": 1, "uniqueItems": true });
        *form = json!({ "anyOf": [one, list] });
        for (word, value) in said {
            if let Some(value) = value {
                form[word] = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_a_workload_may_be_quoted() {
        let schema = schema();
        for place in ["/properties/defaults", "/properties/workload/items"] {
            let of = |key: &str| schema.pointer(&format!("{place}/properties/{key}/anyOf/0")).expect(key);
            assert_eq!(of("rate_iops")["type"], json!(["integer", "string"]), "{place}");
            assert_eq!(of("numjobs")["pattern"], of("rate_iops")["pattern"], "{place}");
            assert_ne!(of("rwmixread")["pattern"], of("rate_iops")["pattern"], "{place}");
        }
    }

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/plan.schema.json");
        if std::env::var_os("IOTAX_UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{:#}\n", schema())).expect("written");
        }
        let published = std::fs::read_to_string(path).expect("readable");
        let published: Value = serde_json::from_str(&published).expect("JSON");
        assert!(published == schema(), "IOTAX_UPDATE_DOCS=1 updates it");
    }
}
