//! Reads single intervals of iostat's and atop's output, which [`super::recognise`] combines into one result.

use super::{Found, Line, Stamp, atop, clean, iostat, prefix};

/// An interval in the output of iostat or atop.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportedInterval {
    /// Time at the end of the interval, if printed.
    pub end: Option<Stamp>,
    /// Length of the interval in nanoseconds, if known.
    pub length_ns: Option<u64>,
    /// Figures of each device, in the order of the text.
    pub devices: Vec<DeviceInterval>,
}

/// Figures of a device in an interval; `None` for a figure that the text lacks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceInterval {
    /// The device's name.
    pub name: String,
    /// Reads per second.
    pub read_iops: Option<f64>,
    /// Writes per second.
    pub write_iops: Option<f64>,
    /// Bytes read per second.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes written per second.
    pub write_bytes_per_s: Option<f64>,
    /// Mean latency of reads in nanoseconds.
    pub read_latency_ns: Option<f64>,
    /// Mean latency of writes in nanoseconds.
    pub write_latency_ns: Option<f64>,
    /// Mean number of I/Os queued or in flight.
    pub queue: Option<f64>,
    /// Share of time with I/O in flight, from 0 to 1.
    pub busy: Option<f64>,
}

/// All intervals of a text, except those that cover the time since boot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Intervals {
    /// Name of the tool: `iostat` or `atop`.
    pub tool: &'static str,
    /// Intervals in the order of the text.
    pub intervals: Vec<ImportedInterval>,
    /// Lines of the tool that could not be read, with reasons.
    pub not_understood: Vec<Line>,
}

/// Reads the intervals of a text; `None` if it has no intervals of iostat or atop apart from those since boot.
#[must_use]
pub fn intervals(text: &str) -> Option<Intervals> {
    let text = clean(text);
    read(&text).or_else(|| read(&prefix::without(&text)?))
}

fn read(text: &str) -> Option<Intervals> {
    let read_by = |tool, read: fn(&str, &mut Found) -> Vec<ImportedInterval>| {
        let mut found = Found::default();
        let intervals = read(text, &mut found);
        (!intervals.is_empty()).then_some(Intervals { tool, intervals, not_understood: found.not_understood })
    };
    read_by("iostat", iostat::intervals).or_else(|| read_by("atop", atop::intervals))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str) -> Intervals {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/import/");
        intervals(&std::fs::read_to_string(format!("{data}{name}")).expect(name)).expect(name)
    }

    #[test]
    fn screens_of_atop_are_intervals() {
        let found = sample("atop-2.x.txt");
        assert_eq!((found.tool, found.intervals.len()), ("atop", 2), "not the one since boot");
        let [_, sda, sdb] = &found.intervals[1].devices[..] else { panic!("{found:?}") };
        assert_eq!((sda.name.as_str(), sda.read_iops, sda.busy), ("sda", Some(100.0), Some(0.2)));
        assert_eq!((sdb.read_iops, sdb.read_latency_ns), (Some(0.0), None), "avio is no latency");
        assert_eq!(found.intervals[1].length_ns, Some(10_000_000_000));
        assert_eq!(found.intervals[0].end.map(|end| end.ms), Some(1_677_664_810_000));
    }

    #[test]
    fn parseable_lines_of_atop_are_intervals() {
        let found = sample("atop-P-DSK.txt");
        assert_eq!(found.intervals.len(), 2);
        let [sda] = &found.intervals[0].devices[..] else { panic!("{found:?}") };
        assert_eq!((sda.read_iops, sda.read_bytes_per_s, sda.busy), (Some(50.0), Some(204_800.0), Some(0.1)));
    }

    #[test]
    fn reports_of_iostat_are_intervals() {
        let found = sample("iostat-12.6-xmt.txt");
        assert_eq!(found.tool, "iostat");
        let first = &found.intervals[0];
        assert_eq!(first.length_ns, Some(1_000_000_000));
        let vda = &first.devices[0];
        assert_eq!(vda.read_bytes_per_s, Some(10.66 * 1_048_576.0));
        assert!(vda.read_latency_ns.is_some() && vda.queue.is_some() && vda.busy.is_some(), "{vda:?}");
        assert!(intervals("nothing of either").is_none());
    }
}
