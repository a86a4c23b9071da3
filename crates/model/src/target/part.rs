//! Parts of targets, one or more per layer, by which targets are compared.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// A layer of a target with its settings.
#[derive(Debug)]
pub struct Part {
    /// Identifies the layer, whatever its settings; empty if it is there with what lies below it, to which its settings count.
    pub kind: String,
    /// Its usual name.
    pub name: String,
    /// The plan's keys for it; what the plan leaves open is absent.
    pub settings: BTreeMap<String, String>,
    /// Values of keys that the plan may leave open, where other keys decide them.
    pub open: BTreeMap<&'static str, String>,
    /// True if it adds itself alone: what stands on it is what it is without it too.
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

    /// The value of a key, as far as the plan alone decides it.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&String> {
        self.settings.get(key).or_else(|| self.open.get(key))
    }

    /// Returns whether a key is set differently in another part of this kind. A value that follows from another key does not
    /// count.
    #[must_use]
    pub fn differs(&self, other: &Self, key: &str) -> bool {
        self.settings.get(key) != other.settings.get(key) && self.value(key) != other.value(key)
    }

    /// The keys of a spec with their values, from the plan's own form, so that a new key is a setting without being named here.
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
