//! Reads `atop -P DSK,LVM,MDD`: label, host, time since 1970, date, time, seconds, device, milliseconds busy, reads, sectors read, writes,
//! sectors written; newer versions add discards and queues.

use super::super::lines::lines;
use super::super::parse_util::not_understood;
use super::super::{DeviceInterval, Found, ImportedInterval, Stamp};
use super::{Devices, LONGEST_SECONDS, SINCE_BOOT};

/// Number of fields in a line of the oldest supported version.
const FIELDS: usize = 12;

/// Adds the results of the `-P` lines in a text.
pub(super) fn read(text: &str, found: &mut Found) {
    let mut devices = Devices::default();
    for event in events(text) {
        match event {
            Event::Session => devices.entries(found),
            Event::Sample(line, device, numbers) => add(&mut devices, device, numbers, line),
            Event::Unclear(line, text, reason) => found.miss(not_understood(line, text, reason)),
        }
    }
    devices.entries(found);
}

/// Groups the `-P` samples into intervals: samples of the same time belong to one.
pub(super) fn intervals(text: &str, found: &mut Found) -> Vec<ImportedInterval> {
    let mut intervals: Vec<ImportedInterval> = Vec::new();
    for event in events(text) {
        let (device, numbers) = match event {
            Event::Session => continue,
            Event::Sample(_, device, numbers) => (device, numbers),
            Event::Unclear(line, text, reason) => {
                found.miss(not_understood(line, text, reason));
                continue;
            }
        };
        let [stamp, seconds, busy_ms, reads, sectors_read, writes, sectors_written] = numbers;
        let end = Stamp::since_1970(stamp.saturating_mul(1000));
        let rate = |count: u64, unit: f64| Some(count as f64 * unit / seconds as f64);
        let device = DeviceInterval {
            name: device.to_owned(),
            read_iops: rate(reads, 1.0),
            write_iops: rate(writes, 1.0),
            read_bytes_per_s: rate(sectors_read, 512.0),
            write_bytes_per_s: rate(sectors_written, 512.0),
            busy: rate(busy_ms, 1e-3),
            ..DeviceInterval::default()
        };
        if let Some(last) = intervals.last_mut().filter(|last| last.end == end) {
            last.devices.push(device);
        } else {
            let length_ns = seconds.checked_mul(1_000_000_000);
            intervals.push(ImportedInterval { end, length_ns, devices: vec![device] });
        }
    }
    intervals
}

/// The meaning of a `-P` line.
enum Event<'t> {
    /// A session starts: the next sample covers the time since boot.
    Session,
    /// A usable sample: line number, device and figures.
    Sample(usize, &'t str, [u64; 7]),
    /// A sample that cannot be used: line number, line and reason.
    Unclear(usize, &'t str, &'static str),
}

fn events(text: &str) -> Vec<Event<'_>> {
    let (mut events, mut since_boot) = (Vec::new(), false);
    let mut lines = lines(text).enumerate().peekable();
    while let Some((i, line)) = lines.next() {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if words.len() < FIELDS
            && let Some((_, next)) = lines.peek()
        {
            let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit() || c == '.');
            words.extend(next.split_whitespace().take_while(|word| is_number(word)));
        }
        match words[..] {
            // The next sample covers the time since boot. SEP ends every sample.
            ["RESET"] => {
                since_boot = true;
                events.push(Event::Session);
            }
            ["SEP"] => since_boot = false,
            ["DSK" | "LVM" | "MDD", _, stamp, date, ..] if is_stamp(stamp) && date.contains('/') => {
                match sample(&words) {
                    Some(_) if since_boot => {}
                    Some((_, [_, seconds, ..])) if seconds as f64 > LONGEST_SECONDS => {
                        events.push(Event::Unclear(i + 1, line, SINCE_BOOT));
                    }
                    Some((device, numbers)) => events.push(Event::Sample(i + 1, device, numbers)),
                    None => events.push(Event::Unclear(i + 1, line, "fewer fields than atop -P writes")),
                }
            }
            _ => {}
        }
    }
    events
}

fn is_stamp(word: &str) -> bool {
    word.len() >= 9 && word.chars().all(|c| c.is_ascii_digit())
}

/// Parses a sample into its device and figures: seconds since 1970, interval in seconds, milliseconds busy, reads, sectors read, writes,
/// sectors written. `None` if a figure cannot be read, or if the interval is 0.
fn sample<'a>(words: &[&'a str]) -> Option<(&'a str, [u64; 7])> {
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let numbers = [number(2)?, number(5)?, number(7)?, number(8)?, number(9)?, number(10)?, number(11)?];
    (numbers[1] > 0).then_some((words[6], numbers))
}

fn add(devices: &mut Devices, device: &str, numbers: [u64; 7], line: usize) {
    let [stamp, seconds, busy_ms, reads, sectors_read, writes, sectors_written] = numbers;
    let sums = devices.of(device, line);
    let began = stamp.saturating_sub(seconds).saturating_mul(1000);
    sums.begins(Stamp::since_1970(began));
    sums.seconds += seconds as f64;
    sums.reads += reads as f64;
    sums.writes += writes as f64;
    sums.bytes += (sectors_read as f64 + sectors_written as f64) * 512.0;
    sums.busy_seconds += busy_ms as f64 / 1e3;
    sums.io_ms = sums.io_ms.map(|sum| sum + busy_ms as f64);
    sums.samples += 1;
}
