//! Parts of targets, the units in which targets are compared. A layer contributes any number of parts.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::Format;

/// A layer of a target with its settings, in a form that can be compared with other targets.
#[derive(Debug)]
pub struct Part {
    /// Identifies the kind of layer, independent of its settings. Empty if the part only adds settings to the layer below.
    pub kind: String,
    /// Name of the layer in reports.
    pub name: String,
    /// Keys of the layer with the values that the plan sets.
    pub settings: BTreeMap<String, String>,
    /// Values that follow from other keys, for keys that the plan does not set.
    pub open: BTreeMap<&'static str, String>,
    /// True if the layer does not affect how the layers above are built.
    pub aside: bool,
}

impl Part {
    /// Prefix of `kind` for disk image formats. A raw image is not a separate part.
    pub const IMAGE: &str = "image ";

    /// Creates a part without settings, whose kind is also its name.
    pub fn plain(name: impl Into<String>) -> Self {
        let name = name.into();
        let (settings, open) = (BTreeMap::new(), BTreeMap::new());
        Self { kind: name.clone(), name, settings, open, aside: false }
    }

    /// Creates a part with the keys of `spec` as its settings. The keys in `without` are left out, because they form separate parts.
    pub fn new(kind: &str, name: impl Into<String>, spec: &impl Serialize, without: &[&str]) -> Self {
        Self { kind: kind.into(), settings: Self::settings_of(spec, without), ..Self::plain(name) }
    }

    /// Creates a part that adds the keys of `spec`, except those in `without`, to the settings of the layer below.
    pub fn of_below(spec: &impl Serialize, without: &[&str]) -> Self {
        Self::new("", "", spec, without)
    }

    /// Marks a part as an image format.
    pub(super) fn format(format: Format, part: Self) -> Self {
        Self { kind: format!("{}{format}", Self::IMAGE), ..part }
    }

    /// Returns whether this part is a disk image format.
    #[must_use]
    pub fn is_format(&self) -> bool {
        self.kind.starts_with(Self::IMAGE)
    }

    /// Returns the value of a key, set by the plan or derived from other keys; `None` if neither determines it.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&String> {
        self.settings.get(key).or_else(|| self.open.get(key))
    }

    /// Returns whether a key differs between two parts of the same kind. A difference only counts if at least one plan sets the key.
    #[must_use]
    pub fn differs(&self, other: &Self, key: &str) -> bool {
        self.settings.get(key) != other.settings.get(key) && self.value(key) != other.value(key)
    }

    /// Converts the keys of `spec`, except those in `without`, to texts. New keys are included automatically, because this uses the serialized
    /// form.
    #[must_use]
    pub fn settings_of(spec: &impl Serialize, without: &[&str]) -> BTreeMap<String, String> {
        let Ok(Value::Object(keys)) = serde_json::to_value(spec) else { return BTreeMap::new() };
        keys.into_iter()
            .filter(|(key, value)| !value.is_null() && !without.contains(&key.as_str()))
            .map(|(key, value)| match value {
                Value::String(text) => (key, text),
                other => (key, other.to_string()),
            })
            .collect()
    }
}
