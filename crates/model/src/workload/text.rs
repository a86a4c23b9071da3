//! Support for values that are texts in plan files: their error type, and a macro that implements serde.

/// A text that cannot be parsed as the value of a workload key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} is not {what}: {reason}; accepted: {accepted}")]
pub struct TextError {
    what: &'static str,
    input: String,
    reason: String,
    accepted: &'static str,
}

impl TextError {
    /// Creates an error that quotes the input and names the reason and the accepted form.
    pub(super) fn new(what: &'static str, input: &str, reason: String, accepted: &'static str) -> Self {
        Self { what, input: input.to_owned(), reason, accepted }
    }
}

/// Implements serde for a type through its `FromStr` and `Display`.
macro_rules! text_form {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "minLength": 1 })
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(super) use text_form;
