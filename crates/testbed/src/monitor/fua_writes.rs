//! Reads the number of writes with FUA that each block device completed, which /proc/diskstats does not tell from other writes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use crate::tracefs::TraceFs;

/// A running count of the writes with FUA of all block devices; see [`crate::fua_writes`].
#[derive(Debug)]
pub struct FuaWrites {
    /// The histogram's file.
    counts: PathBuf,
    /// Keeps the tracing filesystem mounted as long as the counts are read.
    _tracing: TraceFs,
}

impl FuaWrites {
    /// Creates a reader of a histogram in the tracing filesystem.
    pub(crate) const fn new(counts: PathBuf, tracing: TraceFs) -> Self {
        Self { counts, _tracing: tracing }
    }

    /// Reads the number of writes with FUA of each device so far, by its number, `major << 20 | minor`. A device that completed none is
    /// missing.
    pub(super) fn read(&self) -> io::Result<BTreeMap<u64, u64>> {
        Ok(counts(&fs::read_to_string(&self.counts)?))
    }
}

/// Parses the lines `{ dev:    8388608 } hitcount:         12` of a histogram.
fn counts(text: &str) -> BTreeMap<u64, u64> {
    let of = |line: &str| {
        let (device, count) = line.trim().strip_prefix("{ dev:")?.split_once("} hitcount:")?;
        Some((device.trim().parse().ok()?, count.trim().parse().ok()?))
    };
    text.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_gives_a_count_for_each_device() {
        let text = "# event histogram\n#\n# trigger info: hist:keys=dev:vals=hitcount:sort=hitcount:size=2048 [active]\n#\n\n\
            { dev:    8388624 } hitcount:         12\n{ dev:  271581184 } hitcount:        345\n\nTotals:\n    Hits: 357\n    Entries: 2\n    Dropped: 0\n";
        assert_eq!(counts(text), BTreeMap::from([(8_388_624, 12), (271_581_184, 345)]));
        assert_eq!(counts("Totals:\n    Hits: 0\n"), BTreeMap::new());
    }
}
