//! A directory whose files lose unflushed writes in a simulated power cut.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments,
};

/// iotax's FUSE filesystem, which keeps writes in memory until they are flushed, as a disk's write cache does. `iotax crash` cuts its power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VolatileSpec {
    /// An existing directory that holds the flushed data [default: the target's own filesystem]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Seed of the random choice of unflushed writes that a power cut keeps, loses or tears.
    #[serde(skip_serializing_if = "is_zero")]
    pub seed: u64,
    /// Let any unflushed writes survive a power cut; if false, only the oldest, as with a cache that does not reorder.
    pub reorder: bool,
    /// Let a power cut tear writes at sector boundaries of 512 bytes.
    pub tear: bool,
    /// Acknowledge every Nth flush without performing it, as a faulty disk does [default: perform every flush]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub drop_flush: Option<u32>,
}

impl VolatileSpec {
    /// Name of this layer in a run's results.
    pub const NAME: &str = "volatile";
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Default for VolatileSpec {
    fn default() -> Self {
        Self { dir: None, seed: 0, reorder: true, tear: true, drop_flush: None }
    }
}

impl LayerType for VolatileSpec {
    fn key(&self) -> &'static str {
        Self::NAME
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        if self.dir.is_some() { &[LayerInterface::Nothing] } else { &[LayerInterface::Directory] }
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Directory
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn check(&self) -> Result<(), String> {
        if self.drop_flush == Some(0) {
            return Err("volatile: drop_flush = 0: accepted: 1 (every flush) and more".into());
        }
        Ok(())
    }

    fn is_exported_by_nfs(&self) -> bool {
        false
    }

    fn needed_at_bottom(&self) -> Option<&'static str> {
        Some(super::DIR_OR_FILESYSTEM)
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        self.dir.as_deref().map(BottomLocation::Directory)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.dir.iter_mut().collect()
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("volatile mounts one".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part { aside: true, ..Part::new("volatile", "volatile directory", self, &["dir"]) }]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let more = super::keys(self, Some(&Self::default()), &["dir"]);
        let dir = self.dir.as_ref().map(|dir| super::word(&dir.to_string_lossy()));
        dir.into_iter().chain([format!("volatile{more}")]).collect()
    }
}

impl FromLine for VolatileSpec {
    const FORMS: &[&str] = &["volatile"];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "volatile").then(|| segments.take().spec(below.place.map(|dir| ("dir", dir.into()))))
    }
}
