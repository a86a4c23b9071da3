//! A block device that iotax may overwrite after the user's explicit consent.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer,
    Segments, word,
};

/// A block device. iotax writes to it only if the command line names it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct DeviceSpec(pub PathBuf);

impl LayerType for DeviceSpec {
    fn key(&self) -> &'static str {
        "device"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Nothing]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Block
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn partitioned_by_zpool(&self) -> Option<&'static str> {
        Some("a whole device; put lvm = {} between")
    }

    fn is_reusable(&self) -> bool {
        true
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        Some(BottomLocation::Device(&self.0))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.0]
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        // Without permission to overwrite it, the device is only read.
        let Self(_) = self;
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("device {}", word(&self.0.to_string_lossy()))]
    }
}

impl FromLine for DeviceSpec {
    const FORMS: &[&str] = &["device PATH"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word, path] = segments.next_words()? else { return None };
        let spec = Self(path.into());
        (word == "device").then(|| segments.take().without_keys().map(|()| spec))
    }
}
