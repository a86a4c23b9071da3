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
        /// A QEMU for each domain, past the page cache (`direct-io-safe`).
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
    /// The backend of the disk [default: phy on a block device, qdisk on a file or image]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backend: Option<XenBackend>,
    /// Number of virtual CPUs.
    #[serde(default = "one")]
    pub vcpus: u32,
    /// Memory of the domain.
    #[serde(default = "usual_memory")]
    pub memory: Bytes,
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
        Self { domain_type, backend: None, vcpus: one(), memory: usual_memory() }
    }

    /// Returns the backend of the disk: the plan's, else phy on a block device and qdisk on a file.
    #[must_use]
    pub fn backend_on(&self, is_device: bool) -> XenBackend {
        self.backend.unwrap_or(if is_device { XenBackend::Phy } else { XenBackend::Qdisk })
    }

    /// Returns the layers of the domain's disk and of the domain. `hypervisor` is the version of Xen, if it is known.
    #[must_use]
    pub fn layers(&self, is_device: bool, hypervisor: Option<&str>) -> [Layer; 2] {
        let backend = self.backend_on(is_device);
        let detail = match backend {
            XenBackend::Phy => backend.to_string(),
            XenBackend::Qdisk => format!("{backend} direct-io-safe"),
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
        Some(CacheMode::None)
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
            "/srv > qcow2 file preallocation=metadata > pvh domain vcpus=2 memory=1g",
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
            ("/srv > raw file > pv domain backend=tap", "expected phy or qdisk"),
            ("/srv > raw file > virtio > pv domain", "xen needs a block device, a raw file, a disk image"),
        ] {
            let refused = Stack::parse(line).and_then(|stack| stack.check()).expect_err(line);
            assert!(refused.contains(words), "{line}: {refused}");
        }
    }

    #[test]
    fn the_backend_follows_from_what_is_below() {
        let usual = XenSpec::new(DomainType::Pv);
        assert_eq!(usual.backend_on(true), XenBackend::Phy);
        assert_eq!(usual.backend_on(false), XenBackend::Qdisk);
        let named = XenSpec { backend: Some(XenBackend::Qdisk), ..usual.clone() };
        assert_eq!(named.backend_on(true), XenBackend::Qdisk);
        let [disk, domain] = usual.layers(false, Some("4.17.7"));
        assert_eq!((disk.name.as_str(), disk.detail.as_str()), ("xen-blk", "qdisk direct-io-safe"));
        assert_eq!(domain.detail, "pv, 1 vCPU, 512.0 MiB, Xen 4.17.7");
        assert_eq!(usual.layers(true, None)[1].detail, "pv, 1 vCPU, 512.0 MiB");
    }
}
