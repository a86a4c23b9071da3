//! A directory on NFS: the kernel's NFS server on this machine, and the kernel's client.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments,
};

/// A directory that the kernel's NFS server (nfsd) exports by NFS 4.2 over TCP, on a loopback of the run's own, and that the kernel's client
/// mounts again: the place of an image on NFS storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShareSpec {
    /// An existing directory, in which the exported one is created [default: the target's own `filesystem`]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Number of TCP connections of the mount, 1 to 16, as in nfs(5).
    #[schemars(range(min = 1, max = 16))]
    pub nconnect: u8,
    /// The server answers a durable write or a flush when its disk has the data, as `sync` of exports(5). With `false` (`async`) it answers
    /// at once, and what it acknowledged does not outlive its crash.
    pub sync: bool,
}

impl ShareSpec {
    /// Most connections that the kernel's client takes for a mount (`NFS_MAX_CONNECTIONS`).
    const MOST: u8 = 16;
}

impl Default for ShareSpec {
    fn default() -> Self {
        Self { dir: None, nconnect: 1, sync: true }
    }
}

impl LayerType for ShareSpec {
    fn key(&self) -> &'static str {
        "share"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        if self.dir.is_some() { &[LayerInterface::Nothing] } else { &[LayerInterface::Directory] }
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Directory
    }

    fn cache(&self) -> Option<CacheMode> {
        // The server keeps the files in its page cache.
        Some(if self.sync { CacheMode::Writeback } else { CacheMode::Unsafe })
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=Self::MOST).contains(&self.nconnect) {
            return Err(format!("share: nconnect = {}: accepted: 1 to {}", self.nconnect, Self::MOST));
        }
        Ok(())
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        self.dir.as_deref().map(BottomLocation::Directory)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.dir.iter_mut().collect()
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("share exports and mounts one".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part { aside: true, ..Part::new("share", "NFS share", self, &["dir"]) }]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let more = super::keys(self, Some(&Self::default()), &["dir"]);
        let dir = self.dir.as_ref().map(|dir| super::word(&dir.to_string_lossy()));
        dir.into_iter().chain([format!("nfs share{more}")]).collect()
    }
}

impl FromLine for ShareSpec {
    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let [protocol, share] = segments.next_words()? else { return None };
        (protocol == "nfs" && share == "share")
            .then(|| segments.take().spec(below.place.map(|dir| ("dir", dir.into()))))
    }
}
