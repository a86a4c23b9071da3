//! I/O counters and latencies of the guest's disk in QEMU's block layer, which exclude the virtual controller.
//!
//! The counters belong to the disk device, not to its image, so they continue when the image is swapped.

use iotax_model::record::{BlockStats, BlockTally};
use serde_json::{Value, json};

use super::disk::DISK;
use super::qmp::{Qmp, QmpError};

/// I/O counters of the guest's disk since QEMU started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockCounters {
    read: Counters,
    write: Counters,
    flush: Counters,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Counters {
    ios: u64,
    bytes: u64,
    total_ns: u64,
    /// Upper bounds in nanoseconds of all histogram bins but the last; empty if QEMU keeps no histogram.
    boundaries: Vec<u64>,
    bins: Vec<u64>,
}

/// Enables QEMU's latency histogram for the disk, if QEMU has one: four bins per doubling from 1 us to 10 s. Returns QEMU's name of the
/// disk device; `None` if the guest has no disk.
pub(super) fn begin(qmp: &mut Qmp) -> Result<Option<String>, QmpError> {
    let answer = qmp.execute("query-blockstats", &json!({}))?;
    let Some(device) = entries(&answer).find_map(|entry| is_disk(entry.get("qdev")?.as_str()?)) else {
        return Ok(None);
    };
    match qmp.execute("block-latency-histogram-set", &json!({ "id": device, "boundaries": boundaries() })) {
        // QEMU before 4.0 has counters without a histogram.
        Ok(_) | Err(QmpError::Refused { .. }) => Ok(Some(device)),
        Err(error) => Err(error),
    }
}

/// Returns the device name if it is that of the guest's disk: `disk0`, or a path below it in QEMU's device tree.
fn is_disk(device: &str) -> Option<String> {
    let behind = device.strip_prefix("/machine/peripheral/").and_then(|rest| rest.split('/').next());
    (device == DISK || behind == Some(DISK)).then(|| device.to_owned())
}

fn boundaries() -> Vec<u64> {
    const FIRST: f64 = 1e3;
    const LAST: f64 = 1e10;
    const PER_DOUBLING: f64 = 4.0;
    let count = ((LAST / FIRST).log2() * PER_DOUBLING).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 10^3 to little over 10^10"
    )]
    (0..=count as u32).map(|bin| (FIRST * (f64::from(bin) / PER_DOUBLING).exp2()).round() as u64).collect()
}

/// Extracts the disk's counters from an answer to query-blockstats; `None` if the device or one of its counters is missing.
pub(super) fn counters(answer: &Value, device: &str) -> Option<BlockCounters> {
    let entry = entries(answer).find(|entry| entry.get("qdev").and_then(Value::as_str) == Some(device))?;
    let stats = entry.get("stats")?;
    Some(BlockCounters {
        read: Counters::parse(stats, "rd")?,
        write: Counters::parse(stats, "wr")?,
        flush: Counters::parse(stats, "flush")?,
    })
}

fn entries(answer: &Value) -> impl Iterator<Item = &Value> {
    answer.as_array().into_iter().flatten()
}

impl Counters {
    fn parse(stats: &Value, direction: &str) -> Option<Self> {
        let number = |name: &str| stats.get(format!("{direction}_{name}"))?.as_u64();
        let list = |key: &str| -> Vec<u64> {
            let values =
                stats.get(format!("{direction}_latency_histogram")).and_then(|h| h.get(key)?.as_array());
            values.into_iter().flatten().filter_map(Value::as_u64).collect()
        };
        let (boundaries, bins) = (list("boundaries"), list("bins"));
        let whole = bins.len() == boundaries.len() + 1;
        Some(Self {
            ios: number("operations")?,
            // A flush moves no data.
            bytes: number("bytes").unwrap_or(0),
            total_ns: number("total_time_ns")?,
            boundaries: if whole { boundaries } else { Vec::new() },
            bins: if whole { bins } else { Vec::new() },
        })
    }

    fn until(&self, later: &Self) -> Option<BlockTally> {
        let ios = later.ios.checked_sub(self.ios)?;
        let bins = later.bins.iter().zip(&self.bins).map(|(later, earlier)| later.checked_sub(*earlier));
        let bins: Vec<u64> = bins.collect::<Option<_>>()?;
        let bounds = later.boundaries.iter().copied().map(Some).chain([None]);
        Some(BlockTally {
            ios,
            bytes: later.bytes.checked_sub(self.bytes)?,
            total_ns: later.total_ns.checked_sub(self.total_ns)?,
            latency: if ios == 0 { Vec::new() } else { bounds.zip(bins).collect() },
        })
    }
}

/// Returns the disk's I/O between two readings; `None` if a counter ran backwards, as after a restart of the guest.
#[must_use]
pub fn between(earlier: &BlockCounters, later: &BlockCounters) -> Option<BlockStats> {
    Some(BlockStats {
        read: earlier.read.until(&later.read)?,
        write: earlier.write.until(&later.write)?,
        flush: earlier.flush.until(&later.flush)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(device: &str, ios: u64, bins: [u64; 3]) -> Value {
        let of = |direction: &str| {
            json!({
                format!("{direction}_operations"): ios,
                format!("{direction}_bytes"): ios * 4096,
                format!("{direction}_total_time_ns"): ios * 100,
                format!("{direction}_latency_histogram"): { "boundaries": [1000, 2000], "bins": bins },
            })
        };
        let mut stats = of("rd");
        for direction in ["wr", "flush"] {
            for (key, value) in of(direction).as_object().expect("an object") {
                stats[key] = value.clone();
            }
        }
        json!([{ "qdev": "cdrom" }, { "qdev": device, "stats": stats }])
    }

    #[test]
    fn bins_divide_each_doubling_by_four_and_reach_ten_seconds() {
        let bounds = boundaries();
        assert_eq!((bounds[0], bounds[4], bounds[8]), (1000, 2000, 4000));
        assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
        assert!((10_000_000_000..12_000_000_000).contains(bounds.last().expect("some")), "{bounds:?}");
    }

    #[test]
    fn the_difference_is_what_happened_between() {
        for device in ["disk0", "/machine/peripheral/disk0/virtio-backend"] {
            assert!(is_disk(device).is_some());
            let (before, after) = (answer(device, 5, [1, 4, 0]), answer(device, 9, [1, 6, 2]));
            let read = |answer| counters(answer, device).expect("there");
            let stats = between(&read(&before), &read(&after)).expect("forwards");
            assert_eq!((stats.read.ios, stats.read.bytes, stats.read.total_ns), (4, 16_384, 400));
            assert_eq!(stats.write.latency, [(Some(1000), 0), (Some(2000), 2), (None, 2)]);
            assert_eq!(between(&read(&after), &read(&before)), None);
        }
        assert!(is_disk("disk01").is_none() && is_disk("/machine/peripheral/disk1/x").is_none());
        assert_eq!(counters(&answer("disk1", 1, [0; 3]), "disk0"), None);
    }
}
