//! A directory that QEMU serves to its guest over 9p.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments,
};
use crate::target::DirectoryProtocol;
use crate::units::Bytes;
use crate::words::words;
use crate::workload::{IoEngine, Workload};

words! {
    /// The place where QEMU keeps the owner and mode of a file that a guest creates over 9p.
    SecurityModel, "security_model" {
        /// Extended attributes of the file, which any user may set.
        MappedXattr = "mapped-xattr",
        /// The file itself; an owner that QEMU may not set is ignored.
        None = "none",
    }
}

words! {
    /// The guest's cache of a directory on 9p.
    NinePCache, "cache" {
        /// No cache: each read and write of a program is a request.
        None = "none",
        /// The guest's page cache, without a check for changes by others.
        Loose = "loose",
    }
}

/// A directory that QEMU serves to its guest (virtio-9p) and that the guest mounts. The file to measure is created in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NinePSpec {
    /// An existing directory, in which iotax creates the directory to share [default: the target's own `filesystem`]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Place of the owners and modes of files that the guest creates.
    pub security_model: SecurityModel,
    /// Maximum size of a 9p message; a larger read or write takes several [default: the guest kernel's, 128 KiB]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msize: Option<Bytes>,
    /// The guest's cache of the directory.
    pub cache: NinePCache,
}

impl Default for NinePSpec {
    fn default() -> Self {
        Self { dir: None, security_model: SecurityModel::MappedXattr, msize: None, cache: NinePCache::None }
    }
}

impl NinePSpec {
    /// Range of message sizes in bytes that the kernel's client accepts. It lowers a size that its transport does not support.
    const MSIZE: std::ops::RangeInclusive<u64> = 4096..=1 << 30;

    /// Returns the options with which the guest mounts the directory.
    #[must_use]
    pub fn mount_options(&self) -> String {
        let msize = self.msize.map(|size| format!(",msize={}", size.0)).unwrap_or_default();
        format!("trans=virtio,version=9p2000.L,cache={}{msize}", self.cache)
    }

    /// Returns the reason why a workload cannot run in this directory, with a remedy; `None` if it can.
    #[must_use]
    pub fn refusal(&self, workload: &Workload) -> Option<String> {
        let maps = workload.ioengine == IoEngine::Mmap && workload.modifies();
        (maps && self.cache == NinePCache::None).then(|| {
            "ioengine = \"mmap\" writes to a shared mapping, which 9p has with cache = \"loose\" alone; use that, or another engine".into()
        })
    }
}

impl LayerType for NinePSpec {
    fn key(&self) -> &'static str {
        "9p"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        if self.dir.is_some() { &[LayerInterface::Nothing] } else { &[LayerInterface::Directory] }
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::GuestDirectory
    }

    fn cache(&self) -> Option<CacheMode> {
        // QEMU's server drops O_DIRECT, so that the host's page cache is always used.
        Some(CacheMode::Writeback)
    }

    fn check(&self) -> Result<(), String> {
        match self.msize.filter(|size| !Self::MSIZE.contains(&size.0)) {
            Some(size) => Err(format!("9p: msize = {size}: accepted: 4k to 1GiB")),
            None => Ok(()),
        }
    }

    fn shared_directory(&self) -> Option<DirectoryProtocol> {
        Some(DirectoryProtocol::NineP)
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
        let Self { dir, security_model: _, msize: _, cache: _ } = self;
        area.takes_files("9p.dir", dir.as_deref())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("9p", "9p", self, &["dir"])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let more = super::keys(self, Some(&Self::default()), &["dir"]);
        let dir = self.dir.as_ref().map(|dir| super::word(&dir.to_string_lossy()));
        dir.into_iter().chain([format!("9p{more}")]).collect()
    }
}

impl FromLine for NinePSpec {
    const FORMS: &[&str] = &["9p > guest"];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "9p").then(|| segments.take().spec(below.place.map(|dir| ("dir", dir.into()))))
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;

    #[test]
    fn a_shared_mapping_is_refused_where_9p_has_none() {
        let checked = |cache: &str, rw: &str| {
            let target =
                format!("[[target]]\nname = 't'\n9p = {{ dir = '/srv', cache = '{cache}' }}\nguest = {{}}\n");
            let work = format!("[[workload]]\nrw = '{rw}'\nioengine = 'mmap'\ndirect = false\n");
            Plan::from_toml(&(target + &work)).map(drop).map_err(|error| error.to_string())
        };
        let refused = checked("none", "randwrite").expect_err("no mapping");
        assert!(refused.contains("which 9p has with cache = \"loose\" alone"), "{refused}");
        assert_eq!((checked("loose", "randwrite"), checked("none", "randread")), (Ok(()), Ok(())));
    }
}
