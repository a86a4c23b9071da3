//! Counters that layers keep themselves, such as a cache's hits.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use iotax_model::record::LayerCounters;

/// The counters of a layer.
pub trait Counters: fmt::Debug + Send + Sync {
    /// Returns the layer's name in a stack, such as `dm-cache`.
    fn layer(&self) -> &'static str;

    /// Reads the layer's cumulative counts, by name. Most count since the layer was built, those of ZFS's cache since ZFS was loaded.
    fn read(&self) -> io::Result<BTreeMap<String, u64>>;
}

/// Reads a layer's counters; `None` if the layer does not answer.
#[must_use]
pub fn reading(counters: &dyn Counters) -> Option<LayerCounters> {
    let counts = counters.read().ok()?;
    Some(LayerCounters { layer: counters.layer().to_owned(), counts })
}
