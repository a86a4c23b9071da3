//! Reads DiskSpd's text (2.0 to 2.2) and XML.
//!
//! `MB/s` of old versions equals `MiB/s` of new ones: 1024 * 1024 bytes per second. Latencies are in milliseconds.

mod xml;

use super::lines::lines;
use super::parse_util::{add_percentile, agree, decimal, not_understood, whole_nanos};
use super::quantity::{bytes_in, number_and_unit};
use super::{Entry, Found, Stamp};
use iotax_analysis::Metric;

/// Finds DiskSpd's results in a text; `None` if the text has no output of DiskSpd.
pub(super) fn read(text: &str) -> Option<Found> {
    let mut found = Found { tool: "DiskSpd", ..Found::default() };
    if text.contains("thread |") || text.contains("%-ile") {
        of_text(text, &mut found);
    }
    if text.contains("<TestTimeSeconds>") {
        xml::read(text, &mut found);
    }
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Workload of a timespan: the settings that its targets share.
#[derive(Debug, Clone, Default)]
struct Work {
    /// Number of targets. With several targets, settings are not known to be shared.
    targets: usize,
    path: Option<String>,
    is_random: Option<bool>,
    /// Percentage of writes.
    writes: Option<u8>,
    block: Option<u64>,
    queue: Option<u32>,
    threads: Option<u32>,
    /// True if the file is opened without the system's file cache.
    direct: Option<bool>,
}

impl Work {
    /// Sets an entry's name, target and keys for timespan `number`.
    fn describe(&self, entry: &mut Entry, number: usize) {
        entry.workload = format!("timespan {number}");
        if self.targets != 1 {
            return;
        }
        entry.target.clone_from(&self.path);
        let mut name = Vec::new();
        if let (Some(is_random), Some(writes)) = (self.is_random, self.writes) {
            let rw = match writes {
                0 => "read",
                100 => "write",
                _ => "rw",
            };
            let rw = if is_random { format!("rand{rw}") } else { rw.to_owned() };
            entry.set("rw", &rw);
            name.push(rw);
            if (1..100).contains(&writes) {
                entry.set("rwmixread", &(100 - writes).to_string());
                name.push(format!("{}r", 100 - writes));
            }
        }
        if let Some(block) = self.block {
            entry.set("bs", &block.to_string());
            name.push(iotax_model::units::Bytes(block).to_string());
        }
        for (value, key, letter) in [(self.queue, "iodepth", "o"), (self.threads, "numjobs", "t")] {
            if let Some(value) = value {
                entry.set(key, &value.to_string());
                name.push(format!("{letter}{value}"));
            }
        }
        if let Some(direct) = self.direct {
            entry.set("direct", if direct { "1" } else { "0" });
            if !direct {
                entry
                    .notes
                    .push("the system's cache is in the figures: DiskSpd was not asked to disable it".into());
            }
        }
        if !name.is_empty() {
            entry.workload = name.join("-");
        }
    }

    /// Parses a line of the input parameters that DiskSpd repeats in its output.
    fn take(&mut self, line: &str) {
        let after = |mark: &str| line.strip_prefix(mark).map(str::trim);
        if let Some(path) = after("path:") {
            self.targets += 1;
            self.path = Some(path.trim_matches('\'').to_owned());
        } else if let Some(size) = after("block size:") {
            self.block = bytes(size);
        } else if let Some(mix) = after("performing mix test (read/write ratio:") {
            let shares = mix.trim_end_matches(')').split_once('/');
            let shares = shares.and_then(|(r, w)| Some((r.parse::<u8>().ok()?, w.parse::<u8>().ok()?)));
            self.writes = shares.filter(|(r, w)| u16::from(*r) + u16::from(*w) == 100).map(|(_, w)| w);
        } else if let Some(outstanding) = after("number of outstanding I/O operations") {
            self.queue = outstanding.rsplit(' ').next().and_then(|word| word.parse().ok());
        } else if let Some(threads) = after("threads per file:") {
            self.threads = threads.parse().ok();
        } else if line.starts_with("using software") {
            self.direct = Some(false);
        } else if line == "software cache disabled"
            || line.starts_with("software and hardware cache disabled")
        {
            self.direct = Some(true);
        } else if line.starts_with("using random I/O") {
            self.is_random = Some(true);
        } else if line.starts_with("using sequential I/O") || line.starts_with("using interlocked sequential")
        {
            self.is_random = Some(false);
        } else if line == "performing read test" {
            self.writes = Some(0);
        } else if line == "performing write test" {
            self.writes = Some(100);
        }
    }
}

/// Parses a size in bytes: `4096`, `64KiB`, `1.50MiB`.
fn bytes(text: &str) -> Option<u64> {
    let (value, unit) = number_and_unit(text)?;
    let bytes = value * if unit.is_empty() { 1.0 } else { bytes_in(unit)? };
    // Large units are printed with two decimals.
    if bytes.fract() == 0.0 { whole_nanos(bytes) } else { None }
}

/// Sections of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Total = 0,
    Read = 1,
    Write = 2,
}

/// Totals of a section.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    ios: f64,
    iops: f64,
    bytes_per_s: f64,
    /// Mean latency in nanoseconds, if printed.
    latency: Option<f64>,
}

/// Percentiles: their name in DiskSpd's table, and the percentage.
const PERCENTILES: [(&str, &str); 9] = [
    ("25th", "25"),
    ("50th", "50"),
    ("75th", "75"),
    ("90th", "90"),
    ("95th", "95"),
    ("99th", "99"),
    ("3-nines", "99.9"),
    ("4-nines", "99.99"),
    ("5-nines", "99.999"),
];

/// The result of one timespan.
#[derive(Default)]
struct Outcome {
    line: usize,
    /// Number of the timespan in its run.
    number: usize,
    seconds: Option<f64>,
    cpu: Option<f64>,
    part: Option<Part>,
    heads: Vec<String>,
    sums: [Option<Sums>; 3],
    /// Rows of the latency table: name, and latencies in nanoseconds of all I/Os, of reads and of writes. The last section of the table
    /// covers all targets.
    chart: Vec<(String, [Option<f64>; 3])>,
    in_chart: bool,
    is_doubtful: bool,
}

fn of_text(text: &str, found: &mut Found) {
    let mut works: Vec<Work> = Vec::new();
    let mut time = None;
    let mut outcome: Option<Outcome> = None;
    for (i, line) in lines(text).enumerate() {
        if found.is_cut {
            return;
        }
        let plain = line.trim();
        if plain.starts_with("Command Line:") {
            close(outcome.take(), &works, time.take(), found);
            works.clear();
        } else if let Some(number) = plain.strip_prefix("timespan:") {
            // Timespans are numbered in order. After a missing one, the numbers do not match, so the settings are unknown.
            let is_next = number.trim().parse() == Ok(works.len() + 1);
            works.push(if is_next { Work::default() } else { Work { targets: 2, ..Work::default() } });
        } else if let Some(start) = plain.strip_prefix("start time:") {
            time = Stamp::of(start);
        } else if let Some(number) = plain.strip_prefix("Results for timespan") {
            close(outcome.take(), &works, time, found);
            let number = number.trim().trim_end_matches(':').parse().unwrap_or_default();
            outcome = Some(Outcome { line: i + 1, number, ..Outcome::default() });
        } else if plain == "Totals:" {
            // The sum of all timespans, which is skipped.
            close(outcome.take(), &works, time, found);
        } else if let Some(part) = part(plain) {
            let is_again = outcome.as_ref().is_some_and(|outcome| outcome.sums[part as usize].is_some());
            if is_again {
                close(outcome.take(), &works, time, found);
            }
            let outcome = outcome.get_or_insert_with(|| Outcome { line: i + 1, ..Outcome::default() });
            (outcome.part, outcome.in_chart) = (Some(part), false);
            outcome.heads.clear();
        } else if let Some(outcome) = &mut outcome {
            if let Err(reason) = outcome.take(plain) {
                found.miss(not_understood(i + 1, line, reason));
            }
        } else if let Some(work) = works.last_mut() {
            work.take(plain);
        }
    }
    close(outcome, &works, time, found);
}

fn part(line: &str) -> Option<Part> {
    match line {
        "Total IO" => Some(Part::Total),
        "Read IO" => Some(Part::Read),
        "Write IO" => Some(Part::Write),
        _ => None,
    }
}

impl Outcome {
    fn take(&mut self, line: &str) -> Result<(), &'static str> {
        if let Some(seconds) = line.strip_prefix("actual test time:") {
            self.seconds = seconds.trim().strip_suffix('s').and_then(decimal);
        } else if line.starts_with("avg.|") {
            self.cpu = line.split('|').nth(1).and_then(|share| decimal(share.trim().strip_suffix('%')?));
        } else if line.starts_with("thread |") {
            self.heads = line.split('|').map(|head| head.trim().to_owned()).collect();
        } else if let Some(row) = line.strip_prefix("total:") {
            let part = self.part.ok_or("nothing tells of what it is the total")?;
            if self.sums[part as usize].is_some() {
                self.is_doubtful = true;
                return Err("a second total of the same");
            }
            self.sums[part as usize] = Some(sums(&self.heads, row)?);
            // The next table has its own column heads.
            self.heads.clear();
            self.part = None;
        } else if line.starts_with("%-ile") {
            self.in_chart =
                line.split('|').map(str::trim).eq(["%-ile", "Read (ms)", "Write (ms)", "Total (ms)"]);
            self.chart.clear();
        } else if self.in_chart && line.contains('|') {
            self.row(line)?;
        }
        Ok(())
    }

    fn row(&mut self, line: &str) -> Result<(), &'static str> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, read, write, total] = cells[..] else { return Err("not a figure for each head") };
        if percentile(name).is_none() && !matches!(name, "min" | "max") {
            return Ok(());
        }
        if self.chart.iter().any(|(known, _)| known == name) {
            (self.in_chart, self.is_doubtful) = (false, true);
            return Err("it stands twice: the head of another chart is lost");
        }
        // Each has three decimals; with fewer, its end was cut off.
        let is_whole = |text: &&str| {
            text.rsplit(['.', ',']).next().is_some_and(|part| part.len() == 3) && text.len() > 4
        };
        let ns = |text| Some(text).filter(is_whole).and_then(decimal).map(|ms| ms * 1e6);
        self.chart.push((name.to_owned(), [ns(total), ns(read), ns(write)]));
        Ok(())
    }
}

/// Parses a row of totals by the column heads above it.
fn sums(heads: &[String], row: &str) -> Result<Sums, &'static str> {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    // A row of totals has no cells for thread and file.
    let is_whole = heads.last().is_some_and(|head| head == "file") && cells.len() + 2 == heads.len();
    if !is_whole {
        return Err("not a figure for each head above it");
    }
    let of = |names: &[&str]| {
        let at = heads.iter().position(|head| names.contains(&head.as_str()))?;
        decimal(cells[at.checked_sub(1)?])
    };
    let rate = of(&["MiB/s", "MB/s"]).map(|mib| mib * 1_048_576.0);
    let (Some(bytes), Some(ios), Some(bytes_per_s), Some(iops)) =
        (of(&["bytes"]), of(&["I/Os"]), rate, of(&["I/O per s"]))
    else {
        return Err("not all of bytes, I/Os, MiB/s and I/O per s");
    };
    // MiB/s and I/O per s are rounded to hundredths.
    let fits = bytes_per_s < 1e5 || iops < 1.0 || agree(bytes / bytes_per_s, ios / iops, 0.1);
    if !fits {
        return Err("its figures contradict one another");
    }
    Ok(Sums { ios, iops, bytes_per_s, latency: of(&["AvgLat"]).map(|ms| ms * 1e6) })
}

fn close(outcome: Option<Outcome>, works: &[Work], time: Option<Stamp>, found: &mut Found) {
    let Some(outcome) = outcome else { return };
    let Some(total) = outcome.sums[Part::Total as usize].filter(|total| total.iops > 0.0) else {
        let reason = "a result of DiskSpd without the totals of its I/O";
        return found.miss(not_understood(outcome.line, "", reason));
    };
    let mut entry = Entry { line: outcome.line, time, ..Entry::default() };
    let number = outcome.number.max(1);
    works.get(number - 1).cloned().unwrap_or_default().describe(&mut entry, number);
    entry.duration_ns = outcome.seconds.and_then(|seconds| whole_nanos(seconds * 1e9));
    entry.state(Metric::IOPS, Some(total.iops));
    entry.state(Metric::BYTES_PER_S, Some(total.bytes_per_s));
    entry.state(Metric::LATENCY_MEAN, total.latency);
    let parts =
        [Part::Read, Part::Write].map(|part| outcome.sums[part as usize].filter(|sums| sums.ios > 0.0));
    let is_mix = parts.iter().all(Option::is_some);
    let chart = if outcome.is_doubtful { &[][..] } else { &outcome.chart[..] };
    add_chart(&mut entry, "", chart, Part::Total);
    for (before, part, sums) in [("read ", Part::Read, parts[0]), ("write ", Part::Write, parts[1])] {
        let Some(sums) = sums.filter(|_| is_mix) else { continue };
        entry.add(format!("{before}iops"), Some(sums.iops), "IOPS");
        entry.add(format!("{before}bytes_per_s"), Some(sums.bytes_per_s), "B/s");
        entry.add(format!("{before}latency_mean"), sums.latency, "ns");
        add_chart(&mut entry, before, chart, part);
    }
    entry.add("cpu", outcome.cpu, "%");
    found.keep(entry);
}

fn add_chart(entry: &mut Entry, before: &str, chart: &[(String, [Option<f64>; 3])], part: Part) {
    for (name, figures) in chart {
        let ns = figures[part as usize];
        match percentile(name) {
            Some(percent) => add_percentile(entry, before, percent, ns),
            None => entry.add(format!("{before}latency_{name}"), ns, "ns"),
        }
    }
}

/// Returns the percentage of a row in the latency table, such as `25` for `25th`; `None` for other rows.
fn percentile(name: &str) -> Option<&'static str> {
    PERCENTILES.iter().find(|(known, _)| *known == name).map(|(_, percent)| *percent)
}
