//! A disk on NVMe/TCP: the kernel's NVMe target on this machine's loopback interface, and the kernel's initiator.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments};

/// A block device or raw file that the kernel's NVMe target (nvmet) exports as a namespace, bypassing the page cache. The kernel's own initiator
/// connects to the target by TCP on 127.0.0.1; only the run's host NQN may connect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NvmeTcpSpec {}

impl LayerType for NvmeTcpSpec {
    fn key(&self) -> &'static str {
        "nvme_tcp"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Block, LayerInterface::RawFile]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Block
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn formats(&self) -> bool {
        // The layer itself writes nothing, but its namespace gives access to the whole device.
        true
    }

    fn partitioned_by_zpool(&self) -> Option<&'static str> {
        Some("an NVMe device; put luks = {} between")
    }

    fn check_on(&self, below: &[PlannedLayer]) -> Result<(), String> {
        super::check_made(below, "nvme_tcp: a filesystem on it")
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("nvme_tcp makes a target of the kernel's".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("nvme_tcp", "NVMe/TCP", self, &[])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec!["nvme-tcp".into()]
    }
}

impl FromLine for NvmeTcpSpec {
    const FORMS: &[&str] = &["nvme-tcp"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "nvme-tcp").then(|| segments.take().spec([]))
    }
}
