//! Reads atop's disk statistics: the `DSK`, `LVM` and `MDD` lines of its screens and of `atop -P`.
//!
//! The first sample of a session covers the time since boot and is left out; the other samples are summed. `avio` is busy time per I/O, not a
//! latency: it is lower if I/Os overlap. Screens round the busy share to 1%, so `avio` is taken from them as printed; for `-P` it is
//! calculated.

mod parseable;

use std::collections::HashMap;

use super::lines::lines;
use super::parse_util::{decimal, not_understood, whole_nanos};
use super::quantity::{impossible, nanos_in};
use super::{DeviceInterval, Entry, Found, ImportedInterval, Stamp};
use iotax_analysis::Metric;

/// Finds atop's results in a text, one entry per device with I/O; `None` if the text has no output of atop.
pub(super) fn read(text: &str) -> Option<Found> {
    if !["DSK", "LVM", "MDD"].iter().any(|label| text.contains(label)) {
        return None;
    }
    let mut found = Found { tool: "atop", ..Found::default() };
    let mut devices = Devices::default();
    let screens = screens(text, &mut found);
    let head_since_boot = screens.iter().find(|screen| screen.since_boot).map(|screen| screen.line);
    // Lines that were cut out of a screen. Without the screens' headers, their intervals are unknown.
    let is_cut_out = !text.contains("ATOP");
    for screen in screens {
        screen.close(is_cut_out, &mut devices, &mut found);
    }
    devices.entries(&mut found);
    parseable::read(text, &mut found);
    if let Some(line) =
        head_since_boot.filter(|_| found.entries.is_empty() && found.not_understood.is_empty())
    {
        found.miss(not_understood(line, "ATOP", SINCE_BOOT));
    }
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Returns the single intervals of screens and `-P` samples, without those since boot.
pub(super) fn intervals(text: &str, found: &mut Found) -> Vec<ImportedInterval> {
    let screens = screens(text, found);
    let mut intervals = Vec::new();
    // A screen without disk lines is an interval too: atop leaves out idle disks.
    if screens.iter().any(|screen| !screen.disks.is_empty()) {
        for screen in screens.into_iter().filter(|screen| !screen.since_boot) {
            screen.list_without_head(found);
            intervals.extend(screen.interval());
        }
    }
    intervals.extend(parseable::intervals(text, found));
    intervals
}

/// Reason for leaving out a sample that covers the time since boot.
const SINCE_BOOT: &str = "its figures are since boot, which is no measurement";

/// Longest plausible length of a sample in seconds: one day.
const LONGEST_SECONDS: f64 = 86_400.0;

/// Returns all screens, including one that the text's end cuts off. Marks samples since boot even if atop did not label them.
fn screens<'t>(text: &'t str, found: &mut Found) -> Vec<Screen<'t>> {
    let mut screens = Vec::new();
    let mut screen = Screen::default();
    for (i, line) in lines(text).enumerate() {
        if let Some(seconds) = elapsed(line) {
            let next =
                Screen { line: i + 1, time: Stamp::of(line), seconds: Some(seconds), ..Screen::default() };
            screens.push(std::mem::replace(&mut screen, next));
        } else if line.to_lowercase().contains("since boot") {
            screen.since_boot = true;
        } else if let Some(disk) = Disk::of(line) {
            match disk {
                Ok(disk) => screen.disks.push((i + 1, line, disk)),
                Err(reason) => found.miss(not_understood(i + 1, line, &reason)),
            }
        }
    }
    screens.push(screen);
    mark_since_boot(&mut screens, found);
    screens
}

/// Marks unlabelled samples since boot: any sample longer than a day, and a first one that is more than twice as long as the second.
fn mark_since_boot(screens: &mut [Screen<'_>], found: &mut Found) {
    let lengths: Vec<f64> = screens.iter().filter_map(|screen| screen.seconds).collect();
    let is_first_longer = matches!(lengths[..], [first, next, ..] if first > 2.0 * next);
    for (i, screen) in screens.iter_mut().filter(|screen| screen.seconds.is_some()).enumerate() {
        let is_long = lengths[i] > LONGEST_SECONDS || i == 0 && is_first_longer;
        if is_long && !screen.since_boot {
            screen.since_boot = true;
            let text = format!("ATOP, {} s elapsed", lengths[i]);
            found.miss(not_understood(screen.line, &text, SINCE_BOOT));
        }
    }
}

/// Totals of a device over its samples.
#[derive(Debug, Default)]
struct Sums {
    line: usize,
    time: Option<Stamp>,
    seconds: f64,
    reads: f64,
    writes: f64,
    bytes: f64,
    /// True if a sample has no byte counts, so that the total of bytes is unknown.
    without_bytes: bool,
    busy_seconds: f64,
    /// Sum of I/O times in milliseconds, from the `avio` of each sample; `None` if a sample with I/O has none.
    io_ms: Option<f64>,
    samples: usize,
}

impl Sums {
    /// Sets the start time if this sample begins earlier.
    fn begins(&mut self, time: Option<Stamp>) {
        self.time = self.time.into_iter().chain(time).min_by_key(|time| time.ms);
    }
}

/// Totals of all devices of a session, in the order of the text.
#[derive(Default)]
struct Devices {
    all: Vec<(String, Sums)>,
    /// Index in `all` of each device, by name.
    indices: HashMap<String, usize>,
    /// Number of screens in the session so far.
    screens: usize,
}

impl Devices {
    fn of(&mut self, device: &str, line: usize) -> &mut Sums {
        let known = self.indices.get(device).copied();
        let at = known.unwrap_or_else(|| {
            self.all.push((device.to_owned(), Sums { line, io_ms: Some(0.0), ..Sums::default() }));
            self.indices.insert(device.to_owned(), self.all.len() - 1);
            self.all.len() - 1
        });
        &mut self.all[at].1
    }

    /// Adds the totals of the session as entries, and starts a new session.
    fn entries(&mut self, found: &mut Found) {
        let Self { all, screens, .. } = std::mem::take(self);
        let entry = |(device, sums): (String, Sums)| {
            let ios = sums.reads + sums.writes;
            // A device without I/O was not measured.
            (sums.seconds > 0.0 && ios > 0.0).then(|| {
                let mut entry = Entry { target: Some(device), workload: "atop".into(), ..Entry::default() };
                entry.line = sums.line;
                entry.time = sums.time;
                entry.duration_ns = whole_nanos(sums.seconds * 1e9);
                entry.state(Metric::IOPS, Some(ios / sums.seconds));
                if sums.bytes > 0.0 && !sums.without_bytes {
                    entry.state(Metric::BYTES_PER_S, Some(sums.bytes / sums.seconds));
                }
                entry.add("reads", Some(sums.reads / sums.seconds), "/s");
                entry.add("writes", Some(sums.writes / sums.seconds), "/s");
                entry.add("busy", Some(sums.busy_seconds / sums.seconds * 100.0), "%");
                entry.add("avio", sums.io_ms.map(|ms| ms / ios), "ms");
                if sums.samples < screens {
                    entry.notes.push(format!(
                        "in {} of {screens} screens: atop leaves out what is idle, or what has no room",
                        sums.samples
                    ));
                }
                entry
            })
        };
        all.into_iter().filter_map(entry).for_each(|entry| found.keep(entry));
    }
}

/// An atop screen.
#[derive(Default)]
struct Screen<'t> {
    /// Line number of the screen's header.
    line: usize,
    /// End of the screen's interval, if printed.
    time: Option<Stamp>,
    seconds: Option<f64>,
    since_boot: bool,
    /// Disk lines of the screen, each with its line number.
    disks: Vec<(usize, &'t str, Disk)>,
}

impl Screen<'_> {
    /// Converts the screen to an interval; `None` without a header, because its length is unknown then.
    fn interval(self) -> Option<ImportedInterval> {
        let seconds = self.seconds?;
        let devices = self.disks.into_iter().map(|(_, _, disk)| DeviceInterval {
            name: disk.name,
            read_iops: Some(disk.reads / seconds),
            write_iops: Some(disk.writes / seconds),
            read_bytes_per_s: disk.bytes_per_s.map(|(read, _)| read),
            write_bytes_per_s: disk.bytes_per_s.map(|(_, written)| written),
            busy: Some(disk.busy / 100.0),
            ..DeviceInterval::default()
        });
        let length_ns = whole_nanos(seconds * 1e9);
        Some(ImportedInterval { end: self.time, length_ns, devices: devices.collect() })
    }

    fn close(self, is_cut_out: bool, devices: &mut Devices, found: &mut Found) {
        let Some(seconds) = self.seconds else {
            if self.since_boot || !is_cut_out {
                return self.list_without_head(found);
            }
            self.disks.into_iter().for_each(|(line, _, disk)| disk.without_time(line, found));
            return;
        };
        if self.since_boot {
            return devices.entries(found);
        }
        devices.screens += 1;
        for (line, _, disk) in self.disks {
            let ios = disk.reads + disk.writes;
            let sums = devices.of(&disk.name, line);
            let length_ms = whole_nanos(seconds * 1e9).unwrap_or_default() / 1_000_000;
            sums.begins(self.time.map(|end| end.before(length_ms)));
            sums.seconds += seconds;
            sums.reads += disk.reads;
            sums.writes += disk.writes;
            sums.bytes += disk.bytes_per_s.map_or(0.0, |(read, written)| read + written) * seconds;
            sums.without_bytes |= disk.bytes_per_s.is_none();
            sums.busy_seconds += disk.busy / 100.0 * seconds;
            let io_ms = if ios > 0.0 { disk.avio_ms.map(|ms| ms * ios) } else { Some(0.0) };
            sums.io_ms = sums.io_ms.zip(io_ms).map(|(sum, more)| sum + more);
            sums.samples += 1;
        }
    }

    fn list_without_head(&self, found: &mut Found) {
        if self.seconds.is_none() {
            let reason =
                "its screen's head (ATOP - ... elapsed) is not there, so that its length is not known";
            self.disks.iter().for_each(|(line, text, _)| found.miss(not_understood(*line, text, reason)));
        }
    }
}

/// Parses the length of the interval in seconds, from `ATOP - box   2023/03/01  10:00:10   -----------   10s elapsed`.
fn elapsed(line: &str) -> Option<f64> {
    let inside = line.trim_end().strip_suffix("elapsed")?;
    line.contains("ATOP").then_some(())?;
    let span = inside.split_whitespace().last()?.trim_start_matches('-');
    let mut seconds = 0.0;
    let mut digits = String::new();
    for c in span.chars() {
        match (c, digits.parse::<u32>()) {
            ('0'..='9', _) => digits.push(c),
            ('d' | 'h' | 'm' | 's', Ok(number)) => {
                let unit = [('d', 86_400.0), ('h', 3600.0), ('m', 60.0), ('s', 1.0)];
                seconds += f64::from(number) * unit.iter().find(|(known, _)| *known == c)?.1;
                digits.clear();
            }
            _ => return None,
        }
    }
    (seconds > 0.0 && digits.is_empty()).then_some(seconds)
}

/// A disk line of a screen: `DSK |  sda | busy 12% | read 10 | write 100 | MBr/s 0.0 | MBw/s 1.2 | avio 0.50 ms |`.
#[derive(Debug)]
struct Disk {
    name: String,
    busy: f64,
    reads: f64,
    writes: f64,
    /// Bytes read and written per second; `None` for old versions of atop.
    bytes_per_s: Option<(f64, f64)>,
    /// Busy time per I/O in milliseconds, if printed.
    avio_ms: Option<f64>,
}

impl Disk {
    /// Parses a disk line; `None` for any other line, an error for a disk line that cannot be read.
    fn of(line: &str) -> Option<Result<Self, String>> {
        let mut parts = line.split('|').map(str::trim);
        let label = parts.next()?;
        let name = parts.next()?;
        (matches!(label, "DSK" | "LVM" | "MDD") && !name.is_empty()).then_some(())?;
        let fields: Vec<(&str, &str)> =
            parts.filter_map(|part| part.split_once(char::is_whitespace)).collect();
        let value = |wanted: &str| {
            let (_, value) = fields.iter().find(|(name, _)| *name == wanted)?;
            decimal(value.trim().trim_end_matches('%'))
        };
        let avio = fields.iter().find(|(name, _)| *name == "avio");
        let avio_ms = avio.and_then(|(_, text)| {
            let mut words = text.split_whitespace();
            Some(decimal(words.next()?)? * nanos_in(words.next()?)? / 1e6)
        });
        let rate = |wanted: &str| Some(value(wanted)? * 1_048_576.0);
        let disk = || {
            Some(Self {
                name: name.to_owned(),
                busy: value("busy")?,
                reads: value("read")?,
                writes: value("write")?,
                bytes_per_s: rate("MBr/s").zip(rate("MBw/s")),
                avio_ms,
            })
        };
        let disk = disk().ok_or_else(|| "without one of busy, read and write".to_owned());
        Some(disk.and_then(|disk| disk.impossible().map_or(Ok(disk), Err)))
    }

    /// Explains which figure is impossible and why; `None` if all figures are plausible.
    fn impossible(&self) -> Option<String> {
        let (read, written) = self.bytes_per_s.unzip();
        [
            ("busy", Some(self.busy), "%"),
            ("read", Some(self.reads), ""),
            ("write", Some(self.writes), ""),
            ("MBr/s", read, "B/s"),
            ("MBw/s", written, "B/s"),
            ("avio", self.avio_ms, "ms"),
        ]
        .into_iter()
        .find_map(|(name, value, unit)| Some(format!("{name}: {}", impossible(value?, unit)?)))
    }

    /// Adds the figures that do not need the sample's length: byte rate, busy share and `avio`.
    fn without_time(self, line: usize, found: &mut Found) {
        // A device without I/O was not measured.
        if self.reads + self.writes == 0.0 {
            return;
        }
        let mut entry = Entry { target: Some(self.name), workload: "atop".into(), line, ..Entry::default() };
        entry.state(Metric::BYTES_PER_S, self.bytes_per_s.map(|(read, written)| read + written));
        entry.add("busy", Some(self.busy), "%");
        entry.add("avio", self.avio_ms, "ms");
        entry.notes.push(
            "without its screen's head (ATOP - ... elapsed): neither its time nor its I/Os per second are known, \
             and it may be since boot"
                .into(),
        );
        found.keep(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str) -> Found {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/import/");
        read(&std::fs::read_to_string(format!("{data}{name}")).expect(name)).expect(name)
    }

    fn other(entry: &Entry, name: &str) -> f64 {
        entry.stated.others.iter().find(|figure| figure.name == name).expect(name).value
    }

    #[test]
    fn screens_are_taken_together_without_the_one_since_boot() {
        let found = sample("atop-2.x.txt");
        let names: Vec<_> =
            found.entries.iter().map(|entry| entry.target.as_deref().expect("a device")).collect();
        assert_eq!(names, ["vg0-data", "sda"]);
        let sda = &found.entries[1];
        assert_eq!((sda.stated.metrics["iops"], sda.duration_ns), (150.0, Some(20_000_000_000)));
        assert!((sda.stated.metrics["bytes_per_s"] / 1_048_576.0 - 2.0).abs() < 1e-9);
        assert!((other(sda, "busy") - 15.0).abs() < 1e-9 && (other(sda, "avio") - 1.0).abs() < 1e-9);
        assert!(!sda.stated.metrics.contains_key("latency_mean"));
    }

    #[test]
    fn parseable_lines_are_exact_and_what_follows_a_reset_is_since_boot() {
        let found = sample("atop-P-DSK.txt");
        let [sda] = &found.entries[..] else { panic!("{found:?}") };
        assert_eq!((sda.stated.metrics["iops"], sda.stated.metrics["bytes_per_s"]), (150.0, 614_400.0));
        assert_eq!((sda.time, sda.duration_ns), (Stamp::since_1970(1_677_664_800_000), Some(20_000_000_000)));
    }

    #[test]
    fn a_line_that_is_cut_is_listed() {
        let found = read(
            "ATOP - box 2023/03/01 10:00:10 ---- 10s elapsed\nDSK |  sda | busy  12% | read   10 | wri\n",
        )
        .expect("atop's");
        assert_eq!((found.entries.len(), found.not_understood[0].number), (0, 2));
        assert_eq!(elapsed("ATOP - box 2023/03/01 10:00:10 ---- 1d2h3m4s elapsed"), Some(93_784.0));
        assert_eq!(elapsed("some minutes elapsed"), None);
    }
}
