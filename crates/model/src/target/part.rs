//! Parts of targets, one or more per layer, by which targets are compared.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// A layer of a target with its settings.
#[derive(Debug)]
pub struct Part {
    /// Identifies the layer, whatever its settings. Empty for a layer that always comes with the one below, to which its settings belong.
    pub kind: String,
    /// Its usual name.
    pub name: String,
    /// The plan's keys for it; unset keys are absent.
    pub settings: BTreeMap<String, String>,
    /// Values of keys that the plan may leave unset, and that follow from other keys.
    pub open: BTreeMap<&'static str, String>,
    /// True if it adds only itself: the layers above are the same without it.
    pub aside: bool,
}

impl Part {
    /// Prefix of the kind of an image's format; a raw image is not a layer.
    pub const IMAGE: &str = "image ";

    /// A layer without settings, identified by its name.
    pub fn plain(name: impl Into<String>) -> Self {
        let name = name.into();
        let (settings, open) = (BTreeMap::new(), BTreeMap::new());
        Self { kind: name.clone(), name, settings, open, aside: false }
    }

    /// A layer whose settings are the keys of `spec`, except those that are layers themselves.
    pub fn new(kind: &str, name: impl Into<String>, spec: &impl Serialize, without: &[&str]) -> Self {
        Self { kind: kind.into(), settings: Self::settings_of(spec, without), ..Self::plain(name) }
    }

    /// The keys of `spec` as settings of the layer below.
    pub fn of_below(spec: &impl Serialize, without: &[&str]) -> Self {
        Self::new("", "", spec, without)
    }

    /// Returns whether it is the format of an image.
    #[must_use]
    pub fn is_format(&self) -> bool {
        self.kind.starts_with(Self::IMAGE)
    }

    /// The value of a key, as far as the plan alone determines it.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&String> {
        self.settings.get(key).or_else(|| self.open.get(key))
    }

    /// Returns whether a key is set differently in another part of this kind. Values that follow from other keys do not count.
    #[must_use]
    pub fn differs(&self, other: &Self, key: &str) -> bool {
        self.settings.get(key) != other.settings.get(key) && self.value(key) != other.value(key)
    }

    /// The keys of a spec with their values, taken from the plan's form, so that a new key becomes a setting automatically.
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
