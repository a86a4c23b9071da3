//! Reads elbencho's table of phases and its CSV (`--csvfile`).
//!
//! Figures cover the time until the last thread finished. Percentiles are upper bounds of histogram buckets that are 19% wide.

use std::borrow::Cow;

use super::lines::lines;
use super::parse_util::{add_percentile, decimal, not_understood, whole_nanos};
use super::quantity::{nanos_in, number_and_unit};
use super::{Entry, Found, Stamp};
use iotax_analysis::Metric;

const MIB: f64 = 1_048_576.0;

/// Finds elbencho's results in a text; `None` if the text has no output of elbencho.
pub(super) fn read(text: &str) -> Option<Found> {
    let mut found = Found { tool: "elbencho", ..Found::default() };
    if text.contains("Elapsed time") {
        of_table(text, &mut found);
    }
    if text.contains("MiB/s [last]") {
        of_csv(text, &mut found);
    }
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// A phase of a table, such as `WRITE`: the name and figures of each row.
struct Phase<'t> {
    line: usize,
    name: &'t str,
    time: Option<Stamp>,
    rows: Vec<(&'t str, &'t str)>,
    is_doubtful: bool,
}

/// Maximum number of rows per phase; no version prints more.
const MOST_OF_A_PHASE: usize = 100;

impl<'t> Phase<'t> {
    /// Adds a row, unless the phase is doubtful. A repeated name, or more than [`MOST_OF_A_PHASE`] rows, make it doubtful: the rows then
    /// belong to more than one phase, and a header is missing.
    fn take(&mut self, head: &'t str, value: &'t str) {
        self.is_doubtful = self.is_doubtful
            || self.rows.len() == MOST_OF_A_PHASE
            || self.rows.iter().any(|(known, _)| *known == head);
        if !self.is_doubtful {
            self.rows.push((head, value));
        }
    }
}

fn of_table(text: &str, found: &mut Found) {
    let mut phase: Option<Phase<'_>> = None;
    let mut time = None;
    for (i, line) in lines(text).enumerate() {
        if found.is_cut {
            return;
        }
        let plain = line.trim();
        if let Some(date) = plain.strip_prefix("ISO DATE:") {
            time = Stamp::of(date);
        } else if plain == "---" || plain.starts_with("OPERATION ") {
            close(phase.take(), found);
        } else if let Some((head, value)) = plain.split_once(':') {
            let (head, value) = (head.trim_end(), value.trim());
            if let Some(name) = head.strip_suffix("Elapsed time").map(str::trim).filter(|name| is_phase(name))
            {
                close(phase.take(), found);
                phase = Some(Phase {
                    line: i + 1,
                    name,
                    time,
                    rows: vec![("Elapsed time", value)],
                    is_doubtful: false,
                });
            } else if let Some(phase) = &mut phase {
                phase.take(head, value);
            }
        }
    }
    close(phase, found);
}

/// Returns whether a word is the name of a phase, such as `WRITE`, `RWMIX70` or `READ+s`.
fn is_phase(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && !name.contains(char::is_whitespace)
}

fn close(phase: Option<Phase<'_>>, found: &mut Found) {
    let Some(phase) = phase else { return };
    let miss = |reason| not_understood(phase.line, phase.name, reason);
    if phase.is_doubtful {
        return found.miss(miss("figures stand twice in it: the head of another phase is lost"));
    }
    let row =
        |names: &[&str]| phase.rows.iter().find(|(known, _)| names.contains(known)).map(|(_, value)| *value);
    // Values when the first thread was done, and when the last one was.
    let pair = |names: &[&str]| {
        let words: Vec<&str> = row(names)?.split_whitespace().collect();
        let [first, last] = words[..] else { return None };
        Some((decimal(first)?, decimal(last)?))
    };
    let last = |names: &[&str]| pair(names).map(|(_, last)| last);
    let mut entry =
        Entry { workload: phase.name.to_owned(), line: phase.line, time: phase.time, ..Entry::default() };
    entry.duration_ns = row(&["Elapsed time"]).and_then(|text| elapsed(text.split_whitespace().nth(1)?));
    entry.state(Metric::IOPS, last(&["IOPS", "IOPS total"]));
    let bytes = last(&["Throughput MiB/s", "MiB/s total"]).map(|mib| mib * MIB);
    let decimal_bytes = || last(&["Throughput MB/s", "MB/s total"]).map(|mb| mb * 1e6);
    entry.state(Metric::BYTES_PER_S, bytes.or_else(decimal_bytes));
    for (before, direction) in [("read ", "read"), ("write ", "write")] {
        entry.add(format!("{before}iops"), last(&[&*format!("IOPS {direction}")]), "IOPS");
        let rate =
            |unit: &str, bytes: f64| last(&[&*format!("{unit} {direction}")]).map(|value| value * bytes);
        entry.add(format!("{before}bytes_per_s"), rate("MiB/s", MIB).or_else(|| rate("MB/s", 1e6)), "B/s");
    }
    for name in ["Files/s", "Dirs/s", "Objects/s", "Buckets/s"] {
        entry.add(name, last(&[name]), "/s");
    }
    entry.add("IOPS until the first was done", pair(&["IOPS", "IOPS total"]).map(|(first, _)| first), "IOPS");
    entry.add("cpu", last(&["CPU util %"]), "%");
    for (before, latency, percentiles) in [
        ("", "IO latency", "IO lat % us"),
        ("write ", "IO wr latency", "IO wr lat % us"),
        ("read ", "IO rd latency", "IO rd lat % us"),
    ] {
        add_latencies(&mut entry, before, row(&[latency]), row(&[percentiles]));
    }
    if !entry.has_figures() {
        return found.miss(miss("no figures of it"));
    }
    found.keep(entry);
}

/// Adds latencies from rows such as `[ min=73us avg=94us max=1.20ms ]` and `[ 1%<=90 50%<=107 99%<=152 ]`; the percentiles are in
/// microseconds.
fn add_latencies(entry: &mut Entry, before: &str, latency: Option<&str>, percentiles: Option<&str>) {
    let inner = |text: &'_ str| text.strip_prefix('[')?.strip_suffix(']').map(str::to_owned);
    for word in latency.and_then(inner).unwrap_or_default().split_whitespace() {
        let Some((name, value)) = word.split_once('=') else { continue };
        let ns = number_and_unit(value).and_then(|(value, unit)| Some(value * nanos_in(unit)?));
        match name {
            "avg" if before.is_empty() => entry.state(Metric::LATENCY_MEAN, ns),
            "avg" => entry.add(format!("{before}latency_mean"), ns, "ns"),
            "min" | "max" => entry.add(format!("{before}latency_{name}"), ns, "ns"),
            _ => {}
        }
    }
    let percentiles = percentiles.and_then(inner).unwrap_or_default();
    let mut is_any = false;
    for word in percentiles.split_whitespace() {
        let Some((percent, bound)) = word.split_once("%<=") else { continue };
        let Some(us) = decimal(bound) else { continue };
        add_percentile(entry, before, &percent.replace(',', "."), Some(us * 1e3));
        is_any = true;
    }
    if is_any {
        entry.notes.push("elbencho's percentiles are upper bounds of bins that are 19% wide".into());
    }
}

/// Parses a duration such as `1h2m3s`, `30m0.262s`, `11.559s` or `61ms` into nanoseconds.
fn elapsed(text: &str) -> Option<u64> {
    if let Some(ms) = text.strip_suffix("ms") {
        return whole_nanos(decimal(ms)? * 1e6);
    }
    let (hours, rest) = text.split_once('h').unwrap_or(("0", text));
    let (minutes, rest) = rest.split_once('m').unwrap_or(("0", rest));
    let seconds = decimal(rest.strip_suffix('s')?)?;
    whole_nanos((decimal(hours)? * 3600.0 + decimal(minutes)? * 60.0 + seconds) * 1e9)
}

/// Reads the rows of a `--csvfile` file by the column heads above them.
fn of_csv(text: &str, found: &mut Found) {
    let mut heads: Vec<&str> = Vec::new();
    for (i, line) in lines(text).enumerate() {
        if found.is_cut {
            return;
        }
        let line = line.trim();
        if line.contains("MiB/s [last]") && line.contains("operation") {
            heads = line.split(',').collect();
        } else if !heads.is_empty() && line.matches(',').count() >= FEWEST_COMMAS {
            let fields: Vec<&str> = line.split(',').collect();
            if fields.len() == heads.len() {
                csv_row(&heads, &fields, i + 1, found);
            } else {
                let reason = format!("{} fields of {}", fields.len(), heads.len());
                found.miss(not_understood(i + 1, &line.chars().take(80).collect::<String>(), &reason));
            }
        }
    }
}

/// Minimum number of commas at which a line below the column heads is taken for a CSV row.
const FEWEST_COMMAS: usize = 10;

fn csv_row(heads: &[&str], fields: &[&str], line: usize, found: &mut Found) {
    let field = |name: &str| {
        let at = heads.iter().position(|head| *head == name)?;
        Some(fields[at].trim()).filter(|field| !field.is_empty())
    };
    let of = |name: &str| field(name).and_then(decimal);
    let Some(phase) = field("operation").filter(|name| is_phase(name)) else {
        return found.miss(not_understood(line, fields[0], "a row without its operation"));
    };
    // In a mix, the plain columns cover only the writes.
    let reads = ["rwmix read IOPS [last]", "rwmix read MiB/s [last]"].map(of);
    let plain = ["IOPS [last]", "MiB/s [last]"].map(of);
    let sum = |i: usize| plain[i].map_or(reads[i], |value| Some(value + reads[i].unwrap_or_default()));
    let is_mix = reads.iter().any(Option::is_some);
    let name: Cow<'_, str> = field("label").map_or(phase.into(), |label| format!("{phase} {label}").into());
    let mut entry = Entry { workload: name.into_owned(), line, ..Entry::default() };
    entry.time = field("ISO date").and_then(Stamp::of);
    entry.duration_ns = of("time ms [last]").and_then(|ms| whole_nanos(ms * 1e6));
    entry.state(Metric::IOPS, sum(0));
    entry.state(Metric::BYTES_PER_S, sum(1).map(|mib| mib * MIB));
    if is_mix {
        for (before, [iops, mib]) in [("read ", reads), ("write ", plain)] {
            entry.add(format!("{before}iops"), iops, "IOPS");
            entry.add(format!("{before}bytes_per_s"), mib.map(|mib| mib * MIB), "B/s");
        }
    } else {
        entry.state(Metric::LATENCY_MEAN, of("IO lat us [avg]").map(|us| us * 1e3));
        entry.add("latency_min", of("IO lat us [min]").map(|us| us * 1e3), "ns");
        entry.add("latency_max", of("IO lat us [max]").map(|us| us * 1e3), "ns");
    }
    entry.add("entries", of("entries/s [last]"), "/s");
    entry.add("cpu", of("CPU% [last]").filter(|cpu| *cpu > 0.0), "%");
    csv_keys(&mut entry, phase, field);
    found.version = field("version").map(str::to_owned).or(found.version.take());
    if entry.stated.metrics.is_empty() && of("entries/s [last]").is_none() {
        return found.miss(not_understood(line, phase, "no figures of it"));
    }
    found.keep(entry);
}

fn csv_keys<'t>(entry: &mut Entry, phase: &str, field: impl Fn(&str) -> Option<&'t str>) {
    let order = match field("random") {
        Some("1") => Some("rand"),
        Some("0") => Some(""),
        _ => None,
    };
    let direction = match phase {
        "READ" => Some("read"),
        "WRITE" => Some("write"),
        _ => None,
    };
    let (Some(order), Some(direction)) = (order, direction) else { return };
    entry.set("rw", &format!("{order}{direction}"));
    for (name, key) in
        [("block size", "bs"), ("threads", "numjobs"), ("IO depth", "iodepth"), ("direct IO", "direct")]
    {
        if let Some(value) = field(name) {
            entry.set(key, value);
        }
    }
    if field("direct IO") == Some("0") {
        entry
            .notes
            .push("the page cache may be in the figures: elbencho was not asked for direct I/O".into());
    }
}
