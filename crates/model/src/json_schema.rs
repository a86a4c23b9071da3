//! JSON Schemas generated from types. In plan files and documents, an absent value has no key, so that schemas never accept null.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Removes null from a schema. A key whose value could be null becomes optional instead.
pub fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(form) => {
            let optional: Vec<String> = form.get("properties").map(nullable).unwrap_or_default();
            if let Some(Value::Array(required)) = form.get_mut("required") {
                required.retain(|key| optional.iter().all(|optional| *key != **optional));
                if required.is_empty() {
                    form.remove("required");
                }
            }
            form.retain(|key, value| key != "default" || !value.is_null());
            for key in FORMS {
                if let Some(Value::Array(forms)) = form.get_mut(key) {
                    forms.retain(|form| !is_null(form));
                }
            }
            if let Some(Value::Array(types)) = form.get_mut("type")
                && let [one] = &mut types[..]
            {
                let one = one.take();
                form.insert("type".into(), one);
            }
            if let Some(Value::Array(forms)) = form.get_mut("anyOf")
                && let [Value::Object(one)] = &mut forms[..]
            {
                let one = std::mem::take(one);
                form.remove("anyOf");
                form.extend(one.into_iter().filter(|(key, _)| key != "description"));
            }
            form.values_mut().for_each(without_null);
        }
        Value::Array(forms) => forms.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// JSON Schema keywords that can list null as an alternative.
const FORMS: [&str; 3] = ["type", "enum", "anyOf"];

fn is_null(form: &Value) -> bool {
    *form == json!("null") || *form == json!({ "type": "null" }) || form.is_null()
}

/// Returns the names of the properties whose schema allows null.
fn nullable(properties: &Value) -> Vec<String> {
    let may_be_null = |form: &Value| {
        FORMS
            .iter()
            .any(|key| form.get(key).and_then(Value::as_array).is_some_and(|forms| forms.iter().any(is_null)))
    };
    let properties = properties.as_object().into_iter().flatten();
    properties.filter(|(_, form)| may_be_null(form)).map(|(key, _)| key.clone()).collect()
}

/// Returns the JSON Schema of a document that iotax writes: no unknown keys, no null. `file` is the schema's file name.
#[must_use]
pub fn of_document<T: JsonSchema>(file: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let generator = settings.with_transform(RecursiveTransform(close)).into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    without_null(&mut schema);
    schema["$id"] = format!("https://github.com/iotax/iotax/schema/{file}").into();
    schema
}

/// Changes a schema to reject unknown keys, and removes default values, which only matter for reading.
fn close(schema: &mut Schema) {
    schema.remove("default");
    schema.remove("format");
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".into(), false.into());
    }
}
