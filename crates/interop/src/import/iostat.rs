//! Reads iostat's output (sysstat 10 to 12), with and without `-x`, and its JSON; columns are identified by name.
//!
//! The first report covers the time since boot and is left out. Figures are means over the other reports: columns per second are weighted
//! with the lengths of the reports if known, columns per I/O with the I/Os.

mod reports;

use std::collections::BTreeMap;

use super::{DeviceInterval, Entry, Found, ImportedInterval};
use iotax_analysis::Metric;
use reports::{Columns, Report};

/// Finds iostat's results in a text, one entry per device with I/O; `None` if the text has no output of iostat.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains("Device") && !text.contains("\"sysstat\"") {
        return None;
    }
    let mut found = Found { tool: "iostat", ..Found::default() };
    let mut sessions = reports::of_text(text, &mut found);
    sessions.extend(reports::of_json(text, &mut found));
    for session in sessions {
        let since_boot = usize::from(!session.without_first);
        if session.reports.len() <= since_boot {
            if let Some(report) = session.reports.first() {
                let reason = "the only report is the one since boot, which is of no measurement (iostat -y leaves it out)";
                found.miss(super::parse_util::not_understood(report.line, "iostat", reason));
            }
            continue;
        }
        entries(&session.reports, since_boot, &mut found);
    }
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Returns the single reports of a text, without those since boot.
pub(super) fn intervals(text: &str, found: &mut Found) -> Vec<ImportedInterval> {
    let mut sessions = reports::of_text(text, found);
    sessions.extend(reports::of_json(text, found));
    let mut intervals = Vec::new();
    for session in &sessions {
        let first = usize::from(!session.without_first);
        let Some(counted) = session.reports.get(first..) else { continue };
        let is_timed = first > 0 && session.reports.iter().all(|report| report.at.is_some());
        let lengths = lengths(&session.reports, first);
        intervals.extend(counted.iter().zip(lengths).map(|(report, seconds)| ImportedInterval {
            end: report.time,
            length_ns: is_timed.then(|| super::parse_util::whole_nanos(seconds * 1e9)).flatten(),
            devices: report.rows.iter().map(|(device, row)| device_interval(device, row)).collect(),
        }));
    }
    intervals
}

fn device_interval(device: &str, row: &Columns) -> DeviceInterval {
    let of = |name: &str| row.get(name).copied();
    let ns = |name: &str| of(name).map(|ms| ms * 1e6);
    let bytes = BYTES.iter().find_map(|(read, write, unit)| {
        Some((of(read)? * unit, if write.is_empty() { None } else { Some(of(write)? * unit) }))
    });
    // iostat prints 0 if there was no I/O.
    let latency = |rate: &str, wait: &str| ns(wait).filter(|_| of(rate).is_none_or(|rate| rate > 0.0));
    DeviceInterval {
        name: device.to_owned(),
        read_iops: of("r/s"),
        write_iops: of("w/s"),
        read_bytes_per_s: bytes.filter(|(_, write)| write.is_some()).map(|(read, _)| read),
        write_bytes_per_s: bytes.and_then(|(_, write)| write),
        read_latency_ns: latency("r/s", "r_await"),
        write_latency_ns: latency("w/s", "w_await"),
        queue: of("aqu-sz").or_else(|| of("avgqu-sz")),
        busy: of("%util").map(|percent| percent / 100.0),
    }
}

/// A value, and its weight in a mean.
type Weighted = (f64, f64);

/// Adds an entry for each device from the reports of one iostat command, from index `first` on.
fn entries(reports: &[Report], first: usize, found: &mut Found) {
    let lengths = lengths(reports, first);
    let mut devices: BTreeMap<&str, BTreeMap<&str, Vec<Weighted>>> = BTreeMap::new();
    for (report, length) in reports[first..].iter().zip(&lengths) {
        for (device, row) in &report.rows {
            let columns = devices.entry(device).or_default();
            for (name, value) in row {
                let weight = weight(name, row).map(|ios| ios * length);
                columns.entry(name).or_default().push((*value, weight.unwrap_or(*length)));
            }
            if let Some((wait, ios)) = waits(row) {
                columns.entry(WAIT).or_default().push((wait, ios * length));
            }
        }
    }
    // The first counted interval begins when the report before it ends.
    let time = reports[first.saturating_sub(1)].time;
    let known = reports[first..].iter().all(|report| report.at.is_some()) && first > 0;
    for (device, columns) in devices {
        let (reported, all) =
            (columns.values().map(Vec::len).max().unwrap_or_default(), reports.len() - first);
        // The device was idle in the other intervals (iostat -z), or its lines are missing.
        if reported < all {
            let reason = "it is not in every report: nothing tells whether it was idle in the others (iostat without -z tells)";
            found.miss(super::parse_util::not_understood(reports[first].line, device, reason));
            continue;
        }
        let means: BTreeMap<&str, f64> =
            columns.into_iter().filter_map(|(name, values)| Some((name, mean(&values)?))).collect();
        let mut entry = entry(device, &means);
        // A device without I/O was not measured.
        if entry.stated.metrics.is_empty() {
            continue;
        }
        entry.line = reports[first].line;
        entry.time = time;
        entry.duration_ns =
            known.then(|| super::parse_util::whole_nanos(lengths.iter().sum::<f64>() * 1e9)).flatten();
        found.keep(entry);
    }
}

/// Key of the combined mean wait of reads and writes, which is not a column of iostat.
const WAIT: &str = "wait of reads and writes";

/// Returns the length in seconds of each report from index `first` on, from the times that `-t` prints. Without times, or if no report
/// precedes the first one, all lengths are 1.
fn lengths(reports: &[Report], first: usize) -> Vec<f64> {
    let times: Option<Vec<u32>> = reports.iter().map(|report| report.at).collect();
    match times {
        Some(times) if first > 0 => {
            // The clock passed midnight.
            times.windows(2).map(|pair| f64::from((pair[1] + 86_400 - pair[0]) % 86_400)).collect()
        }
        _ => vec![1.0; reports.len() - first],
    }
}

/// Returns the I/Os per second as weight for a column that is a mean per I/O; `None` for other columns, or if that rate is missing.
fn weight(column: &str, row: &Columns) -> Option<f64> {
    let rate = |name: &str| row.get(name).copied();
    match column {
        "await" | "svctm" | "avgrq-sz" | "areq-sz" => {
            rate("tps").or_else(|| Some(rate("r/s")? + rate("w/s")?))
        }
        _ => {
            let direction = column.strip_suffix("_await").or_else(|| column.strip_suffix("areq-sz"))?;
            rate(&format!("{direction}/s"))
        }
    }
}

/// Returns the mean wait in milliseconds of reads and writes together, and as its weight the I/Os per second; `None` if they are unknown.
fn waits(row: &Columns) -> Option<Weighted> {
    let of = |name: &str| row.get(name).copied();
    let both = || {
        let (reads, writes) = (of("r/s")?, of("w/s")?);
        let sum = reads * of("r_await")? + writes * of("w_await")?;
        (reads + writes > 0.0).then(|| (sum / (reads + writes), reads + writes))
    };
    let one = || Some((of("await")?, of("tps").or_else(|| Some(of("r/s")? + of("w/s")?))?));
    one().or_else(both)
}

fn mean(values: &[Weighted]) -> Option<f64> {
    let weights: f64 = values.iter().map(|(_, weight)| weight).sum();
    (weights > 0.0).then(|| values.iter().map(|(value, weight)| value * weight).sum::<f64>() / weights)
}

fn entry(device: &str, means: &BTreeMap<&str, f64>) -> Entry {
    let of = |name: &str| means.get(name).copied();
    let mut entry = Entry { target: Some(device.to_owned()), workload: "iostat".into(), ..Entry::default() };
    let split = of("r/s").zip(of("w/s")).map(|(reads, writes)| reads + writes);
    if let Some(iops) = split.or(of("tps")).filter(|iops| *iops > 0.0) {
        entry.state(Metric::IOPS, Some(iops));
        if split.is_none() {
            entry.notes.push("discards are among the I/Os: iostat reports them together".into());
        }
        if let Some(bytes) = bytes(means).filter(|bytes| *bytes > 0.0) {
            entry.state(Metric::BYTES_PER_S, Some(bytes));
        }
        if let Some(wait) = of(WAIT).filter(|wait| *wait > 0.0) {
            entry.state(Metric::LATENCY_MEAN, Some(wait * 1e6));
        }
    }
    for (name, value) in means {
        // Merge percentages refer to requests that no column counts.
        if *name != WAIT && !matches!(*name, "%rrqm" | "%wrqm" | "%drqm") {
            entry.add(*name, Some(*value), unit(name));
        }
    }
    entry
}

/// Column names of read and write rates, and bytes per unit. An empty second name marks a column for reads and writes together.
const BYTES: [(&str, &str, f64); 7] = [
    ("rsec/s", "wsec/s", 512.0),
    ("rkB/s", "wkB/s", 1024.0),
    ("rMB/s", "wMB/s", 1_048_576.0),
    ("Blk_read/s", "Blk_wrtn/s", 512.0),
    ("kB_read/s", "kB_wrtn/s", 1024.0),
    ("MB_read/s", "MB_wrtn/s", 1_048_576.0),
    ("kB/s", "", 1024.0),
];

/// Returns bytes read and written per second together; `None` without such columns.
fn bytes(means: &BTreeMap<&str, f64>) -> Option<f64> {
    let of = |name: &str| means.get(name).copied();
    BYTES
        .iter()
        .find_map(|(read, write, unit)| {
            let write = if write.is_empty() { 0.0 } else { of(write)? };
            Some((of(read)? + write) * unit)
        })
        .or_else(|| Some(of("MB/s")? * 1_048_576.0))
}

/// Returns the unit of a column, which its name implies.
fn unit(column: &str) -> &'static str {
    match column {
        "%util" => "%",
        "rareq-sz" | "wareq-sz" | "dareq-sz" | "areq-sz" => "kB",
        "avgrq-sz" => "sectors",
        "svctm" => "ms",
        _ if column.ends_with("await") => "ms",
        _ => "",
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "a figure is the text's to its last digit")]
mod tests {
    use super::*;

    fn sample(name: &str) -> Found {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/import/");
        read(&std::fs::read_to_string(format!("{data}{name}")).expect(name)).expect(name)
    }

    fn close(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-9
    }

    const OLD: &str = "Linux 3.10.0 (box) \t03/01/17 \t_x86_64_\t(4 CPU)\n\n\
        Device:         rrqm/s   wrqm/s     r/s     w/s    rkB/s    wkB/s avgrq-sz avgqu-sz   await r_await w_await  svctm  %util\n\
        sda               0.10     1.00    9.00    9.00   900.00   900.00     8.00     0.10    9.00    9.00    9.00   1.00   5.00\n\n\
        Device:         rrqm/s   wrqm/s     r/s     w/s    rkB/s    wkB/s avgrq-sz avgqu-sz   await r_await w_await  svctm  %util\n\
        sda               0.00     0.00  100.00    0.00   400.00     0.00     8.00     0.10    1.00    1.00    0.00   1.00  10.00\n\n\
        Device:         rrqm/s   wrqm/s     r/s     w/s    rkB/s    wkB/s avgrq-sz avgqu-sz   await r_await w_await  svctm  %util\n\
        sda               0.00     0.00  200.00  100.00   800.00   400.00     8.00     0.90    3.00    2.00    5.00   1.00  30.00\n";

    #[test]
    fn the_first_report_is_left_out_and_waits_are_weighted_with_their_ios() {
        let found = read(OLD).expect("iostat's");
        let [entry] = &found.entries[..] else { panic!("{found:?}") };
        let metrics = &entry.stated.metrics;
        assert_eq!((entry.target.as_deref(), metrics["iops"]), (Some("sda"), 200.0));
        assert!(
            close(metrics["bytes_per_s"], 800.0 * 1024.0) && close(metrics["latency_mean"], 2.5e6),
            "{metrics:?}"
        );
        let other = |name: &str| entry.stated.others.iter().find(|f| f.name == name).expect(name).value;
        assert!(close(other("r_await"), 500.0 / 300.0) && close(other("avgqu-sz"), 0.5));
    }

    #[test]
    fn every_layout_gives_the_same_figures() {
        let value = |found: &Found, metric: &str| found.entries[0].stated.metrics[metric];
        let wide = read(OLD).expect("iostat's");
        let wrapped =
            OLD.replace(" avgrq-sz", "\navgrq-sz").replace("     8.00     0.", "\n     8.00     0.");
        let comma: String = OLD.replace('.', ",").replace("Linux 3,10,0", "Linux 3.10.0");
        let sectors = OLD.replace("rkB/s", "rsec/s").replace("wkB/s", "wsec/s");
        for (text, factor) in [(wrapped, 1.0), (comma, 1.0), (sectors, 0.5)] {
            let found = read(&text).expect("iostat's");
            assert!(close(value(&found, "bytes_per_s"), value(&wide, "bytes_per_s") * factor), "{text}");
            assert!(close(value(&found, "latency_mean"), value(&wide, "latency_mean")), "{text}");
        }
    }

    #[test]
    fn columns_of_sysstat_12_are_known_in_text_json_and_for_people() {
        let text = sample("iostat-12.6-x.txt");
        let metrics = &text.entries[0].stated.metrics;
        assert!(close(metrics["iops"], f64::midpoint(30503.0 + 29788.0, 21309.0 + 18806.0)), "{metrics:?}");
        let json = sample("iostat-12.6-x.json");
        assert_eq!((json.entries.len(), json.entries[0].target.as_deref()), (1, Some("vda")));
        assert!(close(json.entries[0].stated.metrics["bytes_per_s"], (32748.0 + 879_576.0) * 1024.0));
        let timed = sample("iostat-12.6-xmt.txt");
        assert_eq!(timed.entries[0].duration_ns, Some(1_000_000_000));
        assert!(close(timed.entries[0].stated.metrics["bytes_per_s"], (10.66 + 1146.32) * 1_048_576.0));
        for name in ["iostat-12.6-xh.txt", "iostat-12.6-xs.txt"] {
            let found = sample(name);
            assert_eq!((found.entries.len(), found.not_understood.len()), (1, 0), "{name}");
            assert!(found.entries[0].stated.metrics.len() == 3, "{name}: {found:?}");
        }
    }

    #[test]
    fn a_report_since_boot_is_no_measurement_unless_it_was_left_out() {
        let one = &OLD[..OLD.match_indices("Device:").nth(1).expect("two").0];
        let found = read(one).expect("iostat's");
        assert_eq!((found.entries.len(), found.not_understood.len()), (0, 1));
        let without = read(&format!("$ iostat -dxy 5 1\n{one}")).expect("iostat's");
        assert_eq!(without.entries[0].stated.metrics["iops"], 18.0);
    }

    #[test]
    fn a_device_that_is_missing_in_a_report_is_listed() {
        let row = OLD.lines().nth(6).expect("a row");
        let found = read(&OLD.replace(&format!("{row}\n"), "")).expect("iostat's");
        assert!(found.entries.is_empty() && found.not_understood[0].text == "sda", "{found:?}");
    }

    #[test]
    fn rows_that_do_not_fit_their_columns_are_listed() {
        let found = read(&OLD.replace("  10.00\n", "\n")).expect("iostat's");
        assert_eq!(found.not_understood[0].number, 7);
        assert!(found.entries.is_empty());
    }
}
