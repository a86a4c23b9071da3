//! Reads dd's final report: GNU's in any language, busybox's and toybox's, BSD's and macOS's.
//!
//! Languages differ in the words but not in their order: bytes, seconds, rate. A line is accepted only if the rate equals bytes over seconds,
//! which rejects truncated and wrongly joined lines.

use iotax_model::units::Bytes;
use iotax_model::workload::{Rw, SyncMode};

use super::lines::Lines;
use super::parse_util::{decimal, half_a_digit, not_understood, whole_nanos};
use super::{Entry, Found};
use iotax_analysis::Metric;

/// Finds dd's results in a text; `None` if the text has no output of dd. Results of the same command are repetitions.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains("/s") {
        return None;
    }
    let lines = Lines::of(text);
    let mut found = Found { tool: "dd", ..Found::default() };
    let mut command = Command::default();
    let mut paragraph = Paragraph::default();
    let mut said = None;
    let line_before = |i: usize, by: usize| i.checked_sub(by).and_then(|i| lines.get(i));
    let mut i = 0;
    while let Some(line) = lines.get(i).filter(|_| !found.is_cut) {
        if let Some(new) = Command::of(line) {
            (command, said) = (new, None);
        }
        said = message(line).or(said).filter(|_| !line.trim().is_empty());
        let written = line_before(i, 1).and_then(records);
        let after_records = written.is_some();
        if let Some((done, end)) = Done::at(&lines, i) {
            // Lines before the records in the same paragraph are progress reports of a running dd.
            if after_records || !paragraph.has_records(&lines, end) {
                // If a count is truncated, the two counts differ. They also differ if input and output block size do.
                let read = line_before(i, 2).and_then(records);
                let counts = read.filter(|read| written.as_ref() == Some(read));
                // Repetitions of a command move the same number of bytes.
                if command.moved.is_some_and(|moved| moved != done.bytes) {
                    command = Command::default();
                }
                command.moved = Some(done.bytes);
                let mut entry = entry(&done, &command, counts);
                entry.line = i + 1;
                entry.notes.extend(said.take().map(|said| format!("dd reported: {said}")));
                add_time(&mut entry, lines.from(end));
                found.keep(entry);
            }
            i = end;
            continue;
        }
        let counted = || records(line).is_none() && line.split_whitespace().any(|word| whole(word).is_some());
        // The words of GNU's and BSD's result lines. GNU's progress reports are on one line, so they match more than once.
        let is_result = || line.matches(" copied, ").count() == 1 || line.contains("bytes transferred in ");
        if after_records && counted() || is_result() {
            let reason = "no bytes and seconds that the rate fits";
            found.miss(not_understood(i + 1, line, reason));
        }
        i += 1;
    }
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Returns the error message of a line such as `dd: error writing 'x': No space left on device`, in any language.
fn message(line: &str) -> Option<&str> {
    let (program, words) = line.trim().split_once(": ")?;
    (program.rsplit('/').next() == Some("dd")).then_some(words)
}

/// Look-ahead in the current paragraph of the text, so that each line is read only once.
#[derive(Default)]
struct Paragraph {
    /// Index of the first line with record counts, or of the end of the paragraph.
    stop: usize,
    has_records: bool,
}

impl Paragraph {
    /// Returns whether record counts follow before an empty line or a command.
    fn has_records(&mut self, lines: &Lines<'_>, from: usize) -> bool {
        if self.stop < from {
            let ends = |line: &str| line.trim().is_empty() || Command::of(line).is_some();
            let stop = lines.from(from).position(|line| records(line).is_some() || ends(line));
            self.stop = stop.map_or(usize::MAX, |ahead| from + ahead);
            self.has_records = lines.get(self.stop).is_some_and(|line| !ends(line));
        }
        self.has_records
    }
}

/// Bytes and seconds of a result line, whose printed rate agrees with them.
struct Done {
    bytes: u64,
    seconds: f64,
}

impl Done {
    /// Parses the result at line index `i`, joined with the next line if wrapped. Also returns the index of the line after the result.
    /// `None` if the line is not a result.
    fn at(lines: &Lines<'_>, i: usize) -> Option<(Self, usize)> {
        let line = lines.get(i).filter(|line| records(line).is_none())?;
        let wrapped = || {
            let next = lines.get(i + 1).filter(|next| records(next).is_none() && Self::of(next).is_none())?;
            Some((Self::of(&format!("{line} {next}"))?, i + 2))
        };
        Self::of(line).map(|done| (done, i + 1)).or_else(wrapped)
    }

    fn of(line: &str) -> Option<Self> {
        // No space follows the Chinese comma.
        let line = line.replace('\u{ff0c}', ", ");
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first()?.ends_with("/s") {
            // The second half of a wrapped line.
            return None;
        }
        let rate = Rate::of(&words)?;
        let second =
            |word: &str| matches!(word, "s" | "s," | "sec," | "secs" | "seconds" | "seconds," | "\u{441},");
        let seconds = words.windows(2).find_map(|pair| decimal(pair[0]).filter(|_| second(pair[1])))?;
        let fits = |bytes: &u64| *bytes > 0 && seconds > 0.0 && rate.fits(*bytes as f64 / seconds);
        let bytes = words.iter().filter_map(|word| whole(word)).find(fits)?;
        Some(Self { bytes, seconds })
    }
}

/// The rate at the end of a result line.
struct Rate {
    value: f64,
    /// Largest rounding error, in the printed unit.
    slack: f64,
    /// Possible sizes of the printed unit in bytes: two, because a letter such as `M` means 1000-based in one dd and 1024-based in another.
    units: [f64; 2],
}

impl Rate {
    /// Parses the rate at the end of a line: `289 MB/s`, `1.5GB/s`, `(428908187 bytes/sec)`.
    fn of(words: &[&str]) -> Option<Self> {
        let (last, before) = words.split_last()?;
        let end = last.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',')).unwrap_or(last.len());
        let (number, unit) =
            if end == 0 { (before.last()?.trim_start_matches('('), *last) } else { last.split_at(end) };
        let unit = unit.trim_end_matches(')');
        let letter = match unit {
            "bytes/sec" | "bytes/s" | "B/s" => "",
            _ => unit.strip_suffix("/s")?.trim_end_matches('B').trim_end_matches('i'),
        };
        let power = ["", "k", "M", "G", "T"].iter().position(|known| known.eq_ignore_ascii_case(letter))?;
        let power = i32::try_from(power).ok()?;
        let units = [1000_f64.powi(power), 1024_f64.powi(power)];
        Some(Self { value: decimal(number)?, slack: half_a_digit(number), units })
    }

    fn fits(&self, bytes_per_s: f64) -> bool {
        // The seconds are rounded too.
        self.units
            .iter()
            .any(|unit| (bytes_per_s - self.value * unit).abs() <= self.slack * unit + 0.002 * bytes_per_s)
    }
}

fn whole(word: &str) -> Option<u64> {
    word.chars().all(|c| c.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}

/// Parses the whole and partial records of a line such as `256+0 records out`.
fn records(line: &str) -> Option<(u64, u64)> {
    line.split_whitespace().find_map(|word| {
        let (full, partial) = word.split_once('+')?;
        Some((whole(full)?, whole(partial)?))
    })
}

/// Options of the dd command above the result; empty if the text does not include the command.
#[derive(Default)]
struct Command {
    input: Option<String>,
    output: Option<String>,
    /// Flags given with `iflag`.
    reads: Vec<String>,
    /// Flags given with `oflag` and `conv`.
    writes: Vec<String>,
    /// Bytes moved in the command's first result.
    moved: Option<u64>,
}

impl Command {
    fn of(line: &str) -> Option<Self> {
        let mut words =
            line.split_whitespace().skip_while(|word| !matches!(word.rsplit('/').next(), Some("dd")));
        words.next()?;
        let mut command = Self::default();
        let mut known = false;
        for word in words.take_while(|word| !matches!(*word, ";" | "|" | "&&" | "||" | "&")) {
            let Some((key, value)) = word.trim_end_matches(';').split_once('=') else { continue };
            let value = value.trim_matches(['"', '\'']);
            match key {
                "if" => command.input = Some(value.to_owned()),
                "of" => command.output = Some(value.to_owned()),
                // conv=sync pads records and flushes nothing.
                "conv" => {
                    command.writes.extend(value.split(',').filter(|flag| *flag != "sync").map(str::to_owned));
                }
                "oflag" => command.writes.extend(value.split(',').map(str::to_owned)),
                "iflag" => command.reads.extend(value.split(',').map(str::to_owned)),
                "bs" | "ibs" | "obs" | "count" | "status" | "skip" | "seek" => {}
                _ => continue,
            }
            known = true;
        }
        known.then_some(command)
    }

    /// Returns the flags of the measured side. Empty if that side is unknown, or for a copy between two files, where no flag applies to both.
    fn flags(&self, rw: Option<Rw>) -> &[String] {
        match rw {
            Some(Rw::Read) => &self.reads,
            Some(_) => &self.writes,
            None => &[],
        }
    }

    /// Returns the measured file and its direction; both `None` unless one side is a real file and the other a device such as /dev/zero.
    fn measured(&self) -> (Option<&str>, Option<Rw>) {
        let real = |file: &Option<String>| {
            let made_up = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];
            file.as_ref().is_some_and(|file| !made_up.contains(&file.as_str()))
        };
        match (real(&self.input), real(&self.output)) {
            (true, false) if self.output.is_some() => (self.input.as_deref(), Some(Rw::Read)),
            (false, true) if self.input.is_some() => (self.output.as_deref(), Some(Rw::Write)),
            _ => (None, None),
        }
    }
}

fn entry(done: &Done, command: &Command, counts: Option<(u64, u64)>) -> Entry {
    let mut entry = Entry { duration_ns: whole_nanos(done.seconds * 1e9), ..Entry::default() };
    let (target, rw) = command.measured();
    entry.target = target.map(str::to_owned);
    entry.keys.rw = rw;
    entry.state(Metric::BYTES_PER_S, Some(done.bytes as f64 / done.seconds));
    entry.add("bytes", Some(done.bytes as f64), "B");
    let mut name = rw.map_or("copy", |rw| if rw == Rw::Read { "read" } else { "write" }).to_owned();
    if let Some((full, partial)) = counts {
        entry.add("records", Some((full + partial) as f64), "");
        if full > 0 && partial == 0 && done.bytes.is_multiple_of(full) {
            let bs = Bytes(done.bytes / full);
            entry.keys.bs = Some(bs);
            name = format!("{name}-{bs}");
        }
    }
    let flags = command.flags(rw);
    let has = |flag: &str| flags.iter().any(|known| known == flag);
    for flag in flags {
        name = format!("{name}-{flag}");
    }
    entry.workload = name;
    if has("direct") {
        entry.keys.direct = Some(true);
    } else if rw.is_some() {
        entry.keys.direct = Some(false);
        entry.notes.push("the page cache is in the rate: dd was not asked for direct I/O".into());
    }
    if has("dsync") {
        entry.keys.sync = Some(SyncMode::DSync);
    } else if has("sync") {
        entry.keys.sync = Some(SyncMode::Sync);
    }
    if has("fsync") || has("fdatasync") {
        entry.notes.push("one flush at the end is in the time".into());
    }
    entry
}

/// Adds the CPU times that `time` of bash or POSIX printed after the command.
fn add_time<'t>(entry: &mut Entry, after: impl Iterator<Item = &'t str>) {
    for line in after.take(4) {
        let mut words = line.split_whitespace();
        let (Some(name @ ("real" | "user" | "sys")), Some(value), None) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let seconds = match value.strip_suffix('s').and_then(|value| value.split_once('m')) {
            Some((minutes, seconds)) => {
                whole(minutes).zip(decimal(seconds)).map(|(m, s)| m as f64 * 60.0 + s)
            }
            None => decimal(value),
        };
        if let Some(seconds) = seconds {
            entry.add(format!("time {name}"), Some(seconds), "s");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes per second of each entry, rounded.
    fn rates(text: &str) -> Vec<f64> {
        read(text)
            .unwrap_or_default()
            .entries
            .iter()
            .map(|e| e.stated.metrics["bytes_per_s"].round())
            .collect()
    }

    #[test]
    fn every_dd_and_language_is_read_alike() {
        for (line, rate) in [
            ("1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2.5 s, 429 MB/s", 429_496_730.0),
            ("1073741824 bytes (1.1 GB) copied, 2.5 seconds, 429 MB/s", 429_496_730.0),
            ("1073741824 Bytes (1,1 GB, 1,0 GiB) kopiert, 2,5 s, 429 MB/s", 429_496_730.0),
            ("67108864 字节 (67 MB, 64 MiB) 已复制，0.05 s，1.3 GB/s", 1_342_177_280.0),
            ("скопировано 67108864 байта (67 MB), 0,05 с, 1,3 GB/s", 1_342_177_280.0),
            ("67108864 bytes (64.0MB) copied, 0.050000 seconds, 1.2GB/s", 1_342_177_280.0),
            ("67108864 bytes transferred in 0.050000 secs (1342177280 bytes/sec)", 1_342_177_280.0),
            ("4096 bytes (4.1 kB, 4.0 KiB) copied, 2.3555e-05 s, 174 MB/s", 173_890_894.0),
        ] {
            assert_eq!(rates(line), [rate], "{line}");
        }
    }

    #[test]
    fn figures_that_contradict_each_other_are_none_of_dd() {
        for line in [
            "3741824 bytes (1.1 GB, 1.0 GiB) copied, 2.5 s, 429 MB/s",
            "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 5 s, 429 MB/s",
            "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2.5 s, 42",
            "12 apples, 3 s, 4 MB/s",
            "0 bytes copied, 1.331e-05 s, 0.0 kB/s",
        ] {
            assert!(rates(line).is_empty(), "{line}");
        }
        let found =
            read("1+0 records in\n1+0 records out\n1024 bytes copied, 1 s, 7.0 kB/s\n").expect("dd's");
        assert_eq!((found.entries.len(), found.not_understood[0].number), (0, 3));
    }

    #[test]
    fn the_command_tells_target_and_direction() {
        let text = "# sudo dd if=/dev/zero of=/data/x bs=4k oflag=direct,dsync count=256\n256+0 records in\n256+0 records out\n\
                    1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.5 s, 2.1 MB/s\n\nreal\t0m1.503s\nuser\t0m0.001s\nsys\t0m0.010s\n\
                    # dd if=/data/x of=/dev/null oflag=direct\n2048+0 records in\n2048+0 records out\n1048576 bytes copied, 0.5 s, 2.1 MB/s\n";
        let found = read(text).expect("dd's");
        let [write, read] = &found.entries[..] else { panic!("{found:?}") };
        assert_eq!((write.target.as_deref(), &*write.workload), (Some("/data/x"), "write-4k-direct-dsync"));
        assert_eq!((write.keys.direct, write.keys.sync), (Some(true), Some(SyncMode::DSync)));
        assert_eq!((write.keys.bs, write.line), (Some(Bytes(4096)), 4));
        let real = write.stated.others.iter().find(|figure| figure.name == "time real").expect("time");
        assert!((real.value - 1.503).abs() < 1e-9);
        assert_eq!((read.keys.rw, &*read.workload, read.notes.len()), (Some(Rw::Read), "read-512", 1));
    }

    #[test]
    fn a_wrapped_line_is_read_and_progress_is_no_result() {
        assert_eq!(
            rates("Here:\n1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.5 s, 2.1 MB/s\nand that is all\n"),
            [2_097_152.0]
        );
        assert_eq!(rates("1048576 bytes (1.0 MB, 1.0 MiB) copied,\n0.5 s, 2.1 MB/s\n"), [2_097_152.0]);
        let text = "1048576 bytes (1.0 MB, 1.0 MiB) copied, 1 s, 1.0 MB/s\n2+0 records in\n2+0 records out\n\
                    2097152 bytes (2.1 MB, 2.0 MiB) copied, 1 s, 2.1 MB/s\n";
        assert_eq!(rates(text), [2_097_152.0]);
        let progress = "1048576 bytes (1.0 MB, 1.0 \nMiB) copied, 1 s, 1.0 MB/s\n";
        assert_eq!(rates(&format!("{progress}{text}")), [2_097_152.0]);
        assert_eq!(rates(&format!("{progress}{progress}")).len(), 2, "nothing tells these from results");
    }
}
