//! A file or device given by its path, here or on another machine. A missing file is created.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer,
    Segments, word,
};
use crate::target::Remote;

/// A file or block device, on this machine, on another (`ssh://[user@]host[:port]/path`) or in a container (`podman://container/path`), or a
/// scratch disk of a running guest (`libvirt://domain[:disk]`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct PathSpec(pub PathBuf);

impl LayerType for PathSpec {
    fn key(&self) -> &'static str {
        "path"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Nothing]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Found
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn check(&self) -> Result<(), String> {
        if Remote::is_meant(&self.0) { Remote::parse(&self.0.to_string_lossy()).map(drop) } else { Ok(()) }
    }

    fn is_reusable(&self) -> bool {
        true
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        (!Remote::is_meant(&self.0)).then_some(BottomLocation::Path(&self.0))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        if Remote::is_meant(&self.0) { Vec::new() } else { vec![&mut self.0] }
    }

    fn confine(&self, area: &dyn Area) -> Result<(), String> {
        let Self(path) = self;
        if Remote::is_meant(path) {
            return Err("it is on another machine or in a container".into());
        }
        // An existing file is only read.
        if !area.exists(path) && !area.holds(path.parent()) {
            return Err(format!("path = {}: a file would be made there", path.display()));
        }
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let path = self.0.to_string_lossy();
        vec![if path.contains('/') { word(&path) } else { word(&format!("./{path}")) }]
    }
}

impl FromLine for PathSpec {
    const FORMS: &[&str] = &[];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let is_whole = segments.len() == 1 && below.layer.is_none() && below.place.is_none();
        let [path] = segments.next_words()? else { return None };
        // Without a slash it is rather a layer or a rung that was misspelt.
        if !path.contains('/') {
            return None;
        }
        let name = path.strip_prefix("./").filter(|name| !name.contains('/'));
        let spec = Self(name.unwrap_or(path).into());
        is_whole.then(|| segments.take().without_keys().map(|()| spec))
    }
}
