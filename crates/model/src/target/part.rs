//! Parts of targets, at least one per layer, by which targets are compared.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// A layer of a target with its settings.
#[derive(Debug)]
pub struct Part {
    /// Identifies the layer independent of its settings. Empty if the part only adds settings to the layer below.
    pub kind: String,
    /// The name of the layer in reports.
    pub name: String,
    /// The layer's keys that the plan sets, with their values.
    pub settings: BTreeMap<String, String>,
    /// Values of keys that the plan need not set, as derived from other keys.
    pub open: BTreeMap<&'static str, String>,
    /// True if the layer is independent: the layers above are the same with and without it.
    pub aside: bool,
}

impl Part {
    /// Prefix of `kind` for an image format. A raw image adds no layer.
    pub const IMAGE: &str = "image ";

    /// A layer without settings, identified by its name.
    pub fn plain(name: impl Into<String>) -> Self {
        let name = name.into();
        let (settings, open) = (BTreeMap::new(), BTreeMap::new());
        Self { kind: name.clone(), name, settings, open, aside: false }
    }

    /// A layer whose settings are the keys of `spec`, except `without`, which are layers themselves.
    pub fn new(kind: &str, name: impl Into<String>, spec: &impl Serialize, without: &[&str]) -> Self {
        Self { kind: kind.into(), settings: Self::settings_of(spec, without), ..Self::plain(name) }
    }

    /// A part that adds the keys of `spec`, except `without`, to the settings of the layer below.
    pub fn of_below(spec: &impl Serialize, without: &[&str]) -> Self {
        Self::new("", "", spec, without)
    }

    /// Returns whether this part is an image format.
    #[must_use]
    pub fn is_format(&self) -> bool {
        self.kind.starts_with(Self::IMAGE)
    }

    /// The value of a key, set in the plan or derived from other keys; `None` if the plan does not determine it.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&String> {
        self.settings.get(key).or_else(|| self.open.get(key))
    }

    /// Returns whether a key has different values in two parts of the same kind. Two derived values do not count as different.
    #[must_use]
    pub fn differs(&self, other: &Self, key: &str) -> bool {
        self.settings.get(key) != other.settings.get(key) && self.value(key) != other.value(key)
    }

    /// The keys of a spec with their values, from its serialized form, so that a new key becomes a setting automatically.
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
