//! A Xen domain that has the target as its disk.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::target::{Layer, LayerKind};
use crate::units::{Bytes, human};
use crate::words::words;

words! {
    /// The type of a Xen domain.
    DomainType, "type" {
        /// Paravirtualized: the kernel in the domain calls the hypervisor, and no CPU feature is needed.
        Pv = "pv",
        /// Paravirtualized disk and console on a CPU that is virtualized in hardware.
        Pvh = "pvh",
    }
}

words! {
    /// The program or driver in the control domain that serves a Xen domain's disk.
    XenBackend, "backend" {
        /// The kernel's driver xen-blkback, on a block device.
        Phy = "phy",
        /// A QEMU for each domain, on a file or device, through the control domain's page cache.
        Qdisk = "qdisk",
    }
}

/// A Xen domain that `xl` starts with the target as its disk `xvda`. iotax must run in the control domain (dom0).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct XenSpec {
    /// Type of the domain.
    #[serde(rename = "type")]
    pub domain_type: DomainType,
    /// The backend of the disk; a file needs qdisk.
    #[serde(default = "usual_backend")]
    pub backend: XenBackend,
    /// Number of virtual CPUs.
    #[serde(default = "one")]
    pub vcpus: u32,
    /// Memory of the domain.
    #[serde(default = "usual_memory")]
    pub memory: Bytes,
}

const fn usual_backend() -> XenBackend {
    XenBackend::Phy
}

const fn one() -> u32 {
    1
}

const fn usual_memory() -> Bytes {
    Bytes(512 << 20)
}

impl XenSpec {
    /// Returns a domain of this type with the default settings.
    #[must_use]
    pub const fn new(domain_type: DomainType) -> Self {
        Self { domain_type, backend: usual_backend(), vcpus: one(), memory: usual_memory() }
    }

    /// Returns the layers of the domain's disk and of the domain. `hypervisor` is the version of Xen, if it is known.
    #[must_use]
    pub fn layers(&self, hypervisor: Option<&str>) -> [Layer; 2] {
        let detail = match self.backend {
            XenBackend::Phy => self.backend.to_string(),
            XenBackend::Qdisk => format!("{} through the page cache", self.backend),
        };
        let xen = hypervisor.map(|version| format!(", Xen {version}")).unwrap_or_default();
        let memory = human::bytes(self.memory.0);
        let domain = format!("{}, {} vCPU, {memory}{xen}", self.domain_type, self.vcpus);
        [Layer::new(LayerKind::Bus, "xen-blk", detail), Layer::new(LayerKind::Guest, "domain", domain)]
    }
}

impl LayerType for XenSpec {
    fn key(&self) -> &'static str {
        "xen"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Block, LayerInterface::RawFile, LayerInterface::Image]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::GuestDisk
    }

    fn cache(&self) -> Option<CacheMode> {
        Some(match self.backend {
            XenBackend::Phy => CacheMode::None,
            XenBackend::Qdisk => CacheMode::Writeback,
        })
    }

    fn wants_filesystem(&self) -> Option<&'static str> {
        Some("the domain sees a raw disk; use a target of the host, or a guest with filesystem = \"ext4\"")
    }

    fn check(&self) -> Result<(), String> {
        if self.vcpus == 0 || self.vcpus > 64 {
            return Err(format!("xen: vcpus = {}: accepted: 1 to 64", self.vcpus));
        }
        if self.memory < Bytes(256 << 20) {
            return Err(format!("xen: memory = {}: at least 256m is needed to boot", self.memory));
        }
        Ok(())
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("xen starts a domain of the hypervisor's".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("xen", format!("Xen {} domain", self.domain_type), self, &[])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let usual = Self::new(self.domain_type);
        vec![format!("{} domain{}", self.domain_type, keys(self, Some(&usual), &["type"]))]
    }
}

impl FromLine for XenSpec {
    const FORMS: &[&str] = &["pv domain"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [domain_type, domain] = segments.next_words()? else { return None };
        let domain_type: DomainType = domain_type.parse().ok().filter(|_| domain == "domain")?;
        Some(segments.take().spec([("type", domain_type.word().into())]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Stack;

    #[test]
    fn a_domain_is_read_from_a_line_and_printed_alike() {
        for line in [
            "/srv > raw file > loop direct_io=true > pv domain",
            "/srv > qcow2 file preallocation=metadata > pvh domain backend=qdisk vcpus=2 memory=1g",
            "device /dev/sdx > pv domain backend=qdisk",
        ] {
            let stack = Stack::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(stack.check(), Ok(()), "{line}");
            let printed = stack.line();
            assert_eq!(Stack::parse(&printed).as_ref(), Ok(&stack), "{printed}");
            assert_eq!(stack.find::<XenSpec>().expect("a domain").offers(), LayerInterface::GuestDisk);
        }
        for (line, words) in [
            ("/srv > raw file > hvm domain", "pv domain"),
            ("/srv > raw file > pv domain vcpus=0", "vcpus = 0: accepted: 1 to 64"),
            ("/srv > raw file > pv domain memory=64m", "at least 256m"),
            ("/srv > raw file > pv domain backend=tap", "accepted: phy, qdisk"),
            ("/srv > raw file > virtio > pv domain", "xen needs a block device, a raw file or a disk image"),
        ] {
            let refused = Stack::parse(line).and_then(|stack| stack.check()).expect_err(line);
            assert!(refused.contains(words), "{line}: {refused}");
        }
    }

    #[test]
    fn a_backend_says_whether_it_keeps_data_in_memory() {
        let phy = XenSpec::new(DomainType::Pv);
        let qdisk = XenSpec { backend: XenBackend::Qdisk, ..phy.clone() };
        assert_eq!((phy.cache(), qdisk.cache()), (Some(CacheMode::None), Some(CacheMode::Writeback)));
        let [disk, domain] = qdisk.layers(Some("4.17.7"));
        assert_eq!((disk.name.as_str(), disk.detail.as_str()), ("xen-blk", "qdisk through the page cache"));
        assert_eq!(domain.detail, "pv, 1 vCPU, 512 MiB, Xen 4.17.7");
        assert_eq!(phy.layers(None)[1].detail, "pv, 1 vCPU, 512 MiB");
    }
}
