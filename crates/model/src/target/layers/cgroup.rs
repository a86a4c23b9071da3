//! A cgroup I/O limit on the processes that generate the load.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::units::Bytes;

/// A control group that iotax creates for the processes that issue the target's I/O: the agent, a storage daemon, a guest's QEMU. Its
/// limits hold for the target's disk while the target is measured. Keys are those of `io.max` in cgroup v2; with cgroup v1, iotax sets the
/// corresponding limits of `blkio.throttle`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CgroupSpec {
    /// Maximum read I/Os per second [default: no limit]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(range(min = 1))]
    pub riops: Option<u32>,
    /// Maximum write I/Os per second [default: no limit]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(range(min = 1))]
    pub wiops: Option<u32>,
    /// Maximum bytes read per second [default: no limit]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rbps: Option<Bytes>,
    /// Maximum bytes written per second [default: no limit]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wbps: Option<Bytes>,
}

impl CgroupSpec {
    /// Returns the limits per second with their keys; `None` for a key without a limit.
    #[must_use]
    pub fn limits(&self) -> [(&'static str, Option<u64>); 4] {
        [
            ("riops", self.riops.map(u64::from)),
            ("wiops", self.wiops.map(u64::from)),
            ("rbps", self.rbps.map(|bytes| bytes.0)),
            ("wbps", self.wbps.map(|bytes| bytes.0)),
        ]
    }
}

impl LayerType for CgroupSpec {
    fn key(&self) -> &'static str {
        "cgroup"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[
            LayerInterface::RawFile,
            LayerInterface::Block,
            LayerInterface::VirtioQueue,
            LayerInterface::GuestDisk,
            LayerInterface::FileInGuest,
        ]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Limited
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn check(&self) -> Result<(), String> {
        let limits = self.limits();
        if let Some((key, _)) = limits.iter().find(|(_, limit)| *limit == Some(0)) {
            return Err(format!("{key} = 0: accepted: 1 or more; leave it out for no limit"));
        }
        if limits.iter().all(|(_, limit)| limit.is_none()) {
            return Err("cgroup needs a limit: riops, wiops, rbps or wbps".into());
        }
        Ok(())
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("cgroup makes a control group".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part { aside: true, ..Part::new("cgroup", "cgroup limit", self, &[]) }]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("cgroup{}", keys(self, None, &[]))]
    }
}

impl FromLine for CgroupSpec {
    const FORMS: &[&str] = &["cgroup"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "cgroup").then(|| segments.take().spec([]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_has_a_limit_that_lets_something_pass() {
        for (keys, words) in [
            ("", "needs a limit: riops, wiops, rbps or wbps"),
            ("wiops = 0", "wiops = 0: accepted: 1 or more"),
            ("riops = 5\nrbps = '0'", "rbps = 0: accepted: 1 or more"),
        ] {
            let refusal = toml::from_str::<CgroupSpec>(keys).expect(keys).check().expect_err(keys);
            assert!(refusal.contains(words), "{keys}: {refusal}");
        }
        for keys in ["iops = 5", "riops = -1", "riops = '1k'"] {
            assert!(toml::from_str::<CgroupSpec>(keys).is_err(), "{keys}");
        }
    }
}
