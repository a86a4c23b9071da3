//! Reads the text of CrystalDiskMark, versions 3 to 9, and of KDiskMark, which has the same rows.
//!
//! A megabyte is 1,000,000 bytes. Each row shows the rate of its fastest pass and the lowest mean latency of all passes.

use super::lines::lines;
use super::parse_util::{agree, decimal, not_understood};
use super::{Entry, Found, Stamp};
use iotax_analysis::Metric;

/// Largest relative rounding difference between a row's rate and its IOPS times I/O size.
const AGREE: f64 = 0.02;

/// Finds CrystalDiskMark's results in a text; `None` if the text has no output of CrystalDiskMark.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains("MB/s") {
        return None;
    }
    let mut reader =
        Reader { found: Found { tool: "CrystalDiskMark", ..Found::default() }, ..Reader::default() };
    for (i, line) in lines(text).enumerate() {
        if reader.found.is_cut {
            break;
        }
        reader.line(line, i + 1);
    }
    reader.close();
    let found = reader.found;
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

#[derive(Default)]
struct Reader {
    found: Found,
    is_kdiskmark: bool,
    section: Option<Direction>,
    /// Rows of the current report; its drive and time follow only at its end.
    rows: Vec<Entry>,
    drive: Option<String>,
    passes: Option<String>,
    time: Option<Stamp>,
}

/// Direction of a row; a mix holds its share of reads in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
    Mix(u8),
}

impl Reader {
    fn line(&mut self, line: &str, at: usize) {
        let plain = line.trim();
        if let Some(version) = plain.strip_prefix("CrystalDiskMark ") {
            self.begin(false);
            let version = version.split_whitespace().next();
            self.version(version);
        } else if let Some(version) = plain.strip_prefix("KDiskMark (") {
            self.begin(true);
            self.version(version.split(')').next());
        } else if let Some(section) = section(plain) {
            if self.time.is_some() {
                self.close();
            }
            self.section = Some(section);
        } else if let Some((key, value)) = plain.split_once(':').filter(|_| !plain.contains("MB/s")) {
            match key.trim() {
                "Test" => {
                    self.drive = between(value, "[", ":").map(|drive| format!("{drive}:"));
                    self.passes = between(value, "(x", ")").map(str::to_owned);
                }
                "Date" => self.time = Stamp::of(value),
                _ => {}
            }
        } else if let Some(head) = Head::of(plain) {
            match self.row(&head, plain) {
                Ok(entry) => self.rows.extend(entry.map(|entry| Entry { line: at, ..entry })),
                Err(reason) => self.found.miss(not_understood(at, line, reason)),
            }
        }
    }

    fn version(&mut self, version: Option<&str>) {
        let version = version.filter(|version| version.starts_with(|c: char| c.is_ascii_digit()));
        self.found.version = version.map(str::to_owned).or(self.found.version.take());
    }

    fn begin(&mut self, is_kdiskmark: bool) {
        self.close();
        (self.is_kdiskmark, self.section) = (is_kdiskmark, None);
    }

    /// Adds the drive, passes and time at the end of a report to its rows, and stores them.
    fn close(&mut self) {
        let (drive, passes, time) = (self.drive.take(), self.passes.take(), self.time.take());
        for mut entry in self.rows.drain(..) {
            entry.target.clone_from(&drive);
            entry.time = time;
            if self.is_kdiskmark {
                entry.notes.push("by KDiskMark, which writes as CrystalDiskMark does".into());
            } else if passes.as_deref() != Some("1") {
                let of = passes.as_deref().map_or_else(String::new, |passes| format!("{passes} "));
                entry.notes.push(format!(
                    "CrystalDiskMark keeps the best of its {of}passes: rate and latency may be of different ones"
                ));
            }
            self.found.keep(entry);
        }
    }

    /// Parses a row; `None` if it was not measured, an error if it is damaged.
    fn row(&self, head: &Head<'_>, line: &str) -> Result<Option<Entry>, &'static str> {
        let direction = head.direction.or(self.section).ok_or("nothing tells whether it reads or writes")?;
        let (_, figures) = line.rsplit_once(':').ok_or("no rate in it")?;
        let (rate, rest) = figures.split_once("MB/s").ok_or("no rate in it")?;
        let rate = decimal(rate.trim()).ok_or("no rate in it")?;
        if rate == 0.0 {
            return Ok(None);
        }
        let within = |open: &str, unit: &str| {
            if !rest.contains(open) {
                return Ok(None);
            }
            between(rest, open, unit).and_then(|text| decimal(text.trim())).map(Some).ok_or("torn")
        };
        let (iops, latency) = (within("[", "IOPS]")?, within("<", "us>")?);
        let bytes = rate * 1e6;
        let size = head.size(bytes, iops).map_err(|()| "its rate and its IOPS do not fit its size")?;
        let mut entry = Entry::default();
        entry.state(Metric::BYTES_PER_S, Some(bytes));
        entry.state(Metric::IOPS, iops);
        entry.state(Metric::LATENCY_MEAN, latency.map(|us| us * 1e3));
        head.describe(&mut entry, direction, size);
        Ok(Some(entry))
    }
}

/// Parses a section title: `[Read]`, `[Write]`, `[Mix] Read 70%/Write 30%`.
fn section(line: &str) -> Option<Direction> {
    match line {
        "[Read]" => Some(Direction::Read),
        "[Write]" => Some(Direction::Write),
        _ => {
            let (share, _) = line.strip_prefix("[Mix] Read ")?.split_once('%')?;
            share.trim().parse().ok().filter(|share| *share <= 100).map(Direction::Mix)
        }
    }
}

fn between<'t>(text: &'t str, open: &str, close: &str) -> Option<&'t str> {
    text.split_once(open)?.1.split_once(close).map(|(inner, _)| inner)
}

/// Label of a row: `RND    4KiB (Q= 32, T=16)`, `Sequential Read (Q= 32,T= 1)`, `Random Read 4KB (QD=1)`.
struct Head<'t> {
    is_random: bool,
    direction: Option<Direction>,
    /// I/O size as printed: number and unit.
    size: Option<(f64, &'t str)>,
    queue: Option<u32>,
    threads: Option<u32>,
}

impl<'t> Head<'t> {
    fn of(line: &'t str) -> Option<Self> {
        let (head, _) = line.split_once(" MB/s")?;
        let (head, _) = head.rsplit_once(':')?;
        let (name, inner) = head.split_once('(').unwrap_or((head, ""));
        let mut words = name.split_whitespace();
        let is_random = match words.next()? {
            "SEQ" | "Sequential" => false,
            "RND" | "Random" => true,
            _ => return None,
        };
        let mut found = Self { is_random, direction: None, size: None, queue: None, threads: None };
        let mut number = "";
        for word in words {
            match word {
                "Read" => found.direction = Some(Direction::Read),
                "Write" => found.direction = Some(Direction::Write),
                _ => {
                    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
                    let (digits, unit) = word.split_at(end);
                    number = if digits.is_empty() { number } else { digits };
                    if !unit.is_empty() {
                        found.size = number.parse().ok().map(|value| (value, unit));
                    }
                }
            }
        }
        for part in inner.trim_end().trim_end_matches(')').split(',') {
            let Some((key, value)) = part.split_once('=') else { continue };
            match key.trim() {
                "Q" | "QD" => found.queue = value.trim().parse().ok(),
                "T" => found.threads = value.trim().parse().ok(),
                _ => {}
            }
        }
        Some(found)
    }

    /// Returns the I/O size in bytes; `None` if unknown. Old versions write KB for 1024 bytes, so rate and IOPS decide between 1000 and
    /// 1024. Fails if rate and IOPS contradict the printed size.
    fn size(&self, bytes: f64, iops: Option<f64>) -> Result<Option<f64>, ()> {
        let Some((value, unit)) = self.size else { return Ok(None) };
        let powers = [("KiB", 1), ("MiB", 2), ("GiB", 3), ("KB", 1), ("MB", 2)];
        let Some((_, power)) = powers.into_iter().find(|(known, _)| *known == unit) else { return Ok(None) };
        let candidates = [value * 1024_f64.powi(power), value * 1000_f64.powi(power)];
        let fits = |size: &f64| iops.is_some_and(|iops| agree(size * iops, bytes, AGREE));
        let is_plain = unit.ends_with("iB");
        match iops {
            // Low IOPS are rounded to tenths.
            Some(iops) if iops < 10.0 => Ok(is_plain.then_some(candidates[0])),
            None => Ok(is_plain.then_some(candidates[0])),
            Some(_) if is_plain => fits(&candidates[0]).then_some(Some(candidates[0])).ok_or(()),
            Some(_) => candidates.into_iter().find(fits).map(Some).ok_or(()),
        }
    }

    /// Sets an entry's workload name and keys.
    fn describe(&self, entry: &mut Entry, direction: Direction, size: Option<f64>) {
        let order = if self.is_random { "rand" } else { "" };
        let rw = match direction {
            Direction::Read => format!("{order}read"),
            Direction::Write => format!("{order}write"),
            Direction::Mix(share) => {
                entry.set("rwmixread", &share.to_string());
                format!("{order}rw")
            }
        };
        entry.set("rw", &rw);
        if let Some(size) = size {
            entry.set("bs", &size.to_string());
        }
        let mut name = if self.is_random { rw } else { format!("seq{rw}") };
        if let Some((value, unit)) = self.size {
            name = format!("{name}-{value}{}", unit[..1].to_ascii_lowercase());
        }
        if let Some(queue) = self.queue {
            entry.set("iodepth", &queue.to_string());
            name = format!("{name}-q{queue}");
        }
        if let Some(threads) = self.threads {
            entry.set("numjobs", &threads.to_string());
            name = format!("{name}-t{threads}");
        }
        entry.workload = name;
    }
}
