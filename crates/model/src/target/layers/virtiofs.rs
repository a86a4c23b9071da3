//! A directory that virtiofsd serves to a guest.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments,
};
use crate::target::DirectoryProtocol;
use crate::words::words;

words! {
    /// virtiofsd's cache mode, by which the guest caches the directory.
    VirtiofsCache, "cache" {
        /// Data is cached while a file is open, metadata for a second.
        Auto = "auto",
        /// Data and metadata are cached without a check for changes by others.
        Always = "always",
        /// Nothing is cached in the guest.
        Never = "never",
    }
}

/// A directory that the daemon virtiofsd serves to a guest (vhost-user-fs) and that the guest mounts. The file to measure is created in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VirtiofsSpec {
    /// An existing directory, in which iotax creates the directory to share [default: the target's own `filesystem`]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// virtiofsd's cache mode.
    pub cache: VirtiofsCache,
    /// Open files on the host with O_DIRECT if the guest does; otherwise direct I/O of the guest uses the host's page cache.
    pub allow_direct_io: bool,
    /// Support extended attributes.
    pub xattr: bool,
    /// Maximum number of virtiofsd's worker threads; 0 serves requests in the thread of their queue [default: virtiofsd's]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_pool_size: Option<u32>,
}

impl Default for VirtiofsSpec {
    fn default() -> Self {
        Self {
            dir: None,
            cache: VirtiofsCache::Auto,
            allow_direct_io: false,
            xattr: false,
            thread_pool_size: None,
        }
    }
}

impl LayerType for VirtiofsSpec {
    fn key(&self) -> &'static str {
        "virtiofs"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        if self.dir.is_some() { &[LayerInterface::Nothing] } else { &[LayerInterface::Directory] }
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::GuestDirectory
    }

    fn cache(&self) -> Option<CacheMode> {
        Some(if self.allow_direct_io { CacheMode::None } else { CacheMode::Writeback })
    }

    fn shared_directory(&self) -> Option<DirectoryProtocol> {
        Some(DirectoryProtocol::Virtiofs)
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

    fn confine(&self, area: &dyn Area) -> Result<(), String> {
        let Self { dir, cache: _, allow_direct_io: _, xattr: _, thread_pool_size: _ } = self;
        area.takes_files("virtiofs.dir", dir.as_deref())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("virtiofs", "virtiofs", self, &["dir"])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let more = super::keys(self, Some(&Self::default()), &["dir"]);
        let dir = self.dir.as_ref().map(|dir| super::word(&dir.to_string_lossy()));
        dir.into_iter().chain([format!("virtiofs{more}")]).collect()
    }
}

impl FromLine for VirtiofsSpec {
    const FORMS: &[&str] = &["virtiofs > guest"];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "virtiofs").then(|| segments.take().spec(below.place.map(|dir| ("dir", dir.into()))))
    }
}
