//! Writes runs of suite `bonnie` as bonnie++ CSV, for programs that read it, such as bon_csv2html(1) and bon_csv2txt(1).
//!
//! Tests shorter than 0.5 s show `+++++`, as in bonnie++. A rate is the test's work over its duration, including the flush if the suite has
//! one; CPU is the load generator's. bonnie++ measures the latency of a whole chunk, so latency is left out where iotax needs several
//! system calls per chunk: in tests that read or write byte by byte, and in rewrites. The latency of a seek is the latency of its read.

use iotax_model::Workload;
use iotax_model::record::{Measurement, Tally};
use iotax_model::units::{Bytes, Nanos};

use iotax_model::Run;
use iotax_report::mark::{Mark, MarkPosition};

/// Versions of bonnie++'s CSV format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Written by bonnie++ 1.97.
    V1_97,
    /// Written by bonnie++ 1.98 and 2.00.
    V1_98,
}

/// Reason why a run cannot be written as bonnie++ CSV.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotBonnie {
    /// No workload of the run has the name of a test of suite `bonnie`.
    #[error(
        "run {run} is not of the suite bonnie: it has {found}; its workloads are putc, put_block, rewrite, getc, get_block, seeks"
    )]
    NotBonnie {
        /// Number of the run in its store.
        run: i64,
        /// Names of the run's workloads, separated by commas.
        found: String,
    },
}

/// Mark of files that iotax wrote: every line starts with this format version and tool version.
pub(super) const MARK: Mark =
    Mark { format: "bonnie-csv", position: MarkPosition::EveryLine(&["1.98,iotax-", "1.97,iotax-"]) };

/// Tests on a single large file, in bonnie++'s column order.
const ON_A_FILE: [&str; 6] = ["putc", "put_block", "rewrite", "getc", "get_block", "seeks"];
/// Tests on many small files, in bonnie++'s column order.
const ON_FILES: [&str; 6] = ["seq_create", "seq_stat", "seq_del", "ran_create", "ran_stat", "ran_del"];
/// Minimum duration in nanoseconds of a test whose rate is shown.
const MIN_TIME_NS: u64 = 500_000_000;
/// bonnie++'s default chunk size; other sizes are written to the CSV.
const CHUNK: Bytes = Bytes(8192);

/// Writes a line for each round and target with a measurement of the suite, in the order of the plan. Fields of an unmeasured test are
/// empty.
///
/// # Errors
/// The run has no workload of suite `bonnie`.
pub fn csv(run: &Run, version: Version) -> Result<String, NotBonnie> {
    let names = || run.plan.workloads.iter().map(|workload| workload.name.as_str());
    if !names().any(|name| ON_A_FILE.contains(&name) || ON_FILES.contains(&name)) {
        let found = names().collect::<Vec<_>>().join(", ");
        return Err(NotBonnie::NotBonnie { run: run.id, found });
    }
    let mut text = String::new();
    for round in 1..=run.measurements.iter().map(|measured| measured.round).max().unwrap_or(0) {
        for target in &run.plan.targets {
            let part = |name: &str| {
                run.measurements.iter().find(|measured| {
                    (measured.target == target.name, measured.round) == (true, round)
                        && measured.workload == name
                })
            };
            if ON_A_FILE.iter().chain(&ON_FILES).any(|name| part(name).is_some()) {
                text.push_str(&line(run, &target.name, version, &part));
                text.push('\n');
            }
        }
    }
    Ok(text)
}

fn line<'a>(
    run: &Run,
    target: &str,
    version: Version,
    part: &impl Fn(&str) -> Option<&'a Measurement>,
) -> String {
    let workload = |name: &str| run.plan.workloads.iter().find(|workload| workload.name == name);
    let large = ON_A_FILE.iter().find_map(|name| part(name).and(workload(name)));
    let format = if version == Version::V1_97 { "1.97" } else { "1.98" };
    let mut fields = vec![
        format.to_owned(),
        concat!("iotax-", env!("CARGO_PKG_VERSION")).to_owned(),
        target.to_owned(),
        "1".to_owned(),
        run.seed.to_string(),
        large.and_then(|workload| workload.size).map_or_else(String::new, size),
        large
            .map(|workload| workload.bs)
            .filter(|bs| *bs != CHUNK)
            .map_or_else(String::new, |bs| bs.to_string()),
    ];
    if version == Version::V1_98 {
        let seeks = part("seeks").and(workload("seeks"));
        fields.push(seeks.and_then(planned_seeks).map_or_else(String::new, |seeks| seeks.to_string()));
        fields.push(seeks.map_or_else(String::new, |seeks| seeks.numjobs.to_string()));
    }
    for name in ON_A_FILE {
        fields
            .extend(part(name).map_or_else(nothing, |measured| rate_and_cpu(measured, rate(name, measured))));
    }
    fields.push(part("seq_create").and_then(thousands).map_or_else(String::new, |number| number.to_string()));
    fields.extend([const { String::new() }; 4]);
    for name in ON_FILES {
        let operations =
            |measured: &Measurement| per_second(measured, measured.outcome.tallies.meta.as_ref()?.ios);
        fields
            .extend(part(name).map_or_else(nothing, |measured| rate_and_cpu(measured, operations(measured))));
    }
    for name in ON_A_FILE.iter().chain(&ON_FILES) {
        fields
            .push(part(name).and_then(|measured| longest(name, measured)).map_or_else(String::new, latency));
    }
    fields.join(",")
}

/// Returns the planned number of seeks over all seeker processes; `None` if the workload has no `io_size`.
fn planned_seeks(workload: &Workload) -> Option<u64> {
    Some(workload.io_size?.0 / workload.bs.0 * u64::from(workload.numjobs))
}

/// Returns the number of files in units of 1024, as bonnie++ writes it; `None` if the number is unknown, 0 or not a multiple of 1024.
fn thousands(measured: &Measurement) -> Option<u64> {
    let files = measured.outcome.tallies.meta.as_ref()?.ios;
    (files > 0 && files.is_multiple_of(1024)).then_some(files / 1024)
}

/// Returns empty fields for rate and CPU use, for an unmeasured test.
fn nothing() -> [String; 2] {
    [String::new(), String::new()]
}

/// Formats a rate and the CPU use in percent. Without a rate, both fields are empty; if the test was shorter than 0.5 s, they are `+++++`
/// and `+++`.
fn rate_and_cpu(measured: &Measurement, rate: Option<f64>) -> [String; 2] {
    let outcome = &measured.outcome;
    let Some(rate) = rate else { return nothing() };
    if outcome.duration_ns < MIN_TIME_NS {
        return ["+++++".into(), "+++".into()];
    }
    let cpu = 100.0 * outcome.cpu.total_ns() as f64 / outcome.duration_ns as f64;
    [if rate >= 1000.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }, format!("{cpu:.0}")]
}

/// Returns the rate of a test on one file in KiB/s, or in seeks/s; `None` if unknown. A seek that also writes counts once.
fn rate(name: &str, measured: &Measurement) -> Option<f64> {
    let tallies = &measured.outcome.tallies;
    if name == "seeks" {
        return per_second(measured, tallies.read.as_ref()?.ios);
    }
    // A rewrite reads and writes each chunk, but counts it once.
    let tally = if matches!(name, "getc" | "get_block") { &tallies.read } else { &tallies.write };
    per_second(measured, tally.as_ref()?.bytes).map(|bytes| bytes / 1024.0)
}

fn per_second(measured: &Measurement, count: u64) -> Option<f64> {
    let seconds = measured.outcome.duration_ns as f64 / 1e9;
    (seconds > 0.0).then(|| count as f64 / seconds)
}

/// Returns the longest latency of a chunk, a seek or a file operation; `None` if unknown, and for tests that need several system calls for
/// each chunk.
fn longest(name: &str, measured: &Measurement) -> Option<Nanos> {
    let tallies = &measured.outcome.tallies;
    let tally: Option<&Tally> = match name {
        "put_block" => tallies.write.as_ref(),
        "get_block" | "seeks" => tallies.read.as_ref(),
        "putc" | "getc" | "rewrite" => None,
        _ => tallies.meta.as_ref(),
    };
    tally?.latency.max().map(Nanos)
}

/// Formats a latency in microseconds up to 0.1 s, in milliseconds up to 100 s, then in seconds.
fn latency(longest: Nanos) -> String {
    match longest.0 {
        0..100_000_000 => format!("{}us", longest.0 / 1_000),
        100_000_000..100_000_000_000 => format!("{}ms", longest.0 / 1_000_000),
        _ => format!("{}s", longest.0 / 1_000_000_000),
    }
}

/// Formats a file size as bonnie++ does: `16M`, `1G`.
fn size(bytes: Bytes) -> String {
    let mib = bytes.0 >> 20;
    if mib > 0 && mib.is_multiple_of(1024) { format!("{}G", mib >> 10) } else { format!("{mib}M") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_and_lengths_are_in_its_units() {
        for (ns, text) in [
            (4_001_234, "4001us"),
            (99_999_999, "99999us"),
            (100_000_000, "100ms"),
            (1_310_000_000, "1310ms"),
            (100_000_000_000, "100s"),
        ] {
            assert_eq!(latency(Nanos(ns)), text);
        }
        assert_eq!([16 << 20, 1 << 30, 1500 << 20].map(|bytes| size(Bytes(bytes))), ["16M", "1G", "1500M"]);
    }
}
