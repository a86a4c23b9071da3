//! Block filters: nodes of QEMU's block layer between an image and the device or export on top.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Value;

use super::{
    Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// The kind of a block filter, under QEMU's name.
    FilterType, "filter" {
        /// Limits the I/Os or bytes per second.
        Throttle = "throttle",
        /// Compresses each cluster that is written; needs an image format that supports it (qcow2).
        Compress = "compress",
        /// Copies data that is read from a backing file into the image.
        CopyOnRead = "copy-on-read",
        /// Fails the first reads with an I/O error; `errors` sets how many.
        Blkdebug = "blkdebug",
        /// Mirrors a raw file: writes go to it and to a second file next to it, reads come from the first.
        Quorum = "quorum",
    }
}

/// Maximum number of injected errors. Each error is one rule on the command line of QEMU's storage daemon.
const MOST_ERRORS: u32 = 1000;

/// A filter node in QEMU's block layer, with its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterSpec {
    /// The kind of filter.
    #[serde(rename = "type")]
    pub kind: FilterType,
    /// throttle: highest number of I/Os per second [default: no limit]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(range(min = 1))]
    pub iops: Option<u32>,
    /// throttle: highest number of I/Os per second in a burst; requires iops, and exceeds it [default: no bursts]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(range(min = 1))]
    pub iops_max: Option<u32>,
    /// throttle: maximum length of a burst at iops_max, in seconds [default: 1].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(range(min = 1))]
    pub iops_max_length: Option<u32>,
    /// throttle: highest number of bytes per second [default: no limit]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<Bytes>,
    /// blkdebug: number of reads that fail with EIO; required for blkdebug.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(range(min = 1, max = 1000))]
    pub errors: Option<u32>,
}

impl LayerType for FilterSpec {
    fn key(&self) -> &'static str {
        "filter"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        match self.kind {
            // The second file is created next to the first.
            FilterType::Quorum => &[LayerInterface::RawFile],
            _ => super::BENEATH_A_DAEMON,
        }
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::BlockNode
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn amplifies(&self) -> bool {
        self.kind == FilterType::Quorum
    }

    fn failing_reads(&self) -> Option<String> {
        self.errors.map(|errors| format!("errors = {errors}"))
    }

    fn unfit(&self, below: &str) -> Option<String> {
        (self.kind == FilterType::Quorum).then(|| {
            format!(
                "{0} needs a raw file right below it, for a second one next to it, and {below}; in a line: DIR > raw file > {0}",
                self.kind
            )
        })
    }

    fn check(&self) -> Result<(), String> {
        let has_burst = self.iops_max.is_some() || self.iops_max_length.is_some();
        let has_limit = self.iops.is_some() || self.rate.is_some() || has_burst;
        if self.errors.is_some() != (self.kind == FilterType::Blkdebug) {
            return Err("filter: errors = 7 is what blkdebug needs, and no other filter has".into());
        }
        if self.errors.is_some_and(|errors| !(1..=MOST_ERRORS).contains(&errors)) {
            return Err(format!("filter: blkdebug: errors: accepted: 1 to {MOST_ERRORS}"));
        }
        match self.kind {
            FilterType::Throttle if !has_limit => {
                Err("filter: throttle needs iops = 500 or rate = \"100m\"".into())
            }
            FilterType::Throttle if self.iops == Some(0) || self.rate == Some(Bytes(0)) => {
                Err("filter: throttle: accepted: iops and rate of 1 and more".into())
            }
            FilterType::Throttle
                if self.iops_max.is_some_and(|most| Some(most) <= self.iops.or(Some(u32::MAX))) =>
            {
                Err("filter: throttle: iops_max: accepted: more than iops, which it needs".into())
            }
            FilterType::Throttle
                if self.iops_max_length == Some(0)
                    || self.iops_max_length.is_some() && self.iops_max.is_none() =>
            {
                Err("filter: throttle: iops_max_length: accepted: 1 and more, with iops_max".into())
            }
            kind if kind != FilterType::Throttle && has_limit => {
                Err(format!("filter: {kind} has no iops or rate"))
            }
            _ => Ok(()),
        }
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self { kind: _, iops: _, iops_max: _, iops_max_length: _, rate: _, errors: _ } = self;
        Ok(())
    }

    fn size_below(&self, above: Bytes, files: &mut Option<Bytes>) -> Bytes {
        if self.kind == FilterType::Quorum {
            *files = Some(Bytes(files.unwrap_or_default().0.saturating_add(above.0)));
        }
        above
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("filter", self.kind.word(), self, &["type"])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("{}{}", self.kind, keys(self, None, &["type"]))]
    }
}

impl FromLine for FilterSpec {
    const FORMS: &[&str] = FilterType::WORDS;

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        let kind = word.parse::<FilterType>().ok()?;
        Some(segments.take().spec([("type", Value::from(kind.word()))]))
    }
}
