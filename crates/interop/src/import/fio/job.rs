//! A job parsed from any of fio's output formats, and its conversion to an entry.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use iotax_model::Histogram;
use iotax_model::record::{Tallies, Tally};
use iotax_model::workload::{KEYS, WorkloadKey};

use super::super::{Entry, Line, Stamp};
use iotax_analysis::Metric;

/// Directions in fio's order. The last one is the sum of all directions, which `unified_rw_reporting` prints.
pub(super) const DIRECTIONS: [&str; 4] = ["read", "write", "trim", MIXED];

/// fio's word for all directions together.
pub(super) const MIXED: &str = "mixed";

/// Index of [`MIXED`] in [`DIRECTIONS`].
pub(super) const ALL_IN_ONE: usize = 3;

/// A job, or one of its clones, as fio printed it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) group: Option<String>,
    /// Number of the fio output within the text; clones of a job have the same number.
    pub(super) document: usize,
    /// Host on which the job ran, in client/server mode.
    pub(super) host: Option<String>,
    /// Options by fio's names; `None` if the text does not list them. A missing option has fio's default. The value of an option is empty
    /// if it is unknown.
    pub(super) options: Option<Options>,
    /// Results by the index in [`DIRECTIONS`]; `None` for a direction without I/O.
    pub(super) directions: [Option<Box<Direction>>; 4],
    /// True if the job certainly has no other directions.
    pub(super) is_whole: bool,
    /// True if the text may lack some of the job's clones, so that their sum is unknown.
    pub(super) is_torn: bool,
    pub(super) error: Option<String>,
    /// Start time of the job if printed, else the time of fio's report.
    pub(super) time: Option<Stamp>,
    /// User and system CPU time, in percent of one CPU.
    pub(super) cpu: Option<(f64, f64)>,
    /// Duration in milliseconds; a sum if fio reports several clones as one job.
    pub(super) took_ms: Option<f64>,
    /// Mean latency of flushes in nanoseconds, if printed.
    pub(super) sync_ns: Option<f64>,
    /// Number of clones that the figures cover, as fio's human-readable output prints it (`jobs=`); `None` for the other formats.
    pub(super) clones: Option<u32>,
    /// Version of the terse format, from the first field of the job's line; empty for the other formats.
    pub(super) version: String,
    /// Note that explains the job's figures, if any.
    pub(super) note: Option<String>,
    pub(super) line: usize,
    /// Figures that are impossible or cannot be read; any of them makes the result unusable.
    pub(super) unread: Vec<Line>,
}

/// Options of a job's section, which take precedence, and options of `[global]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Options {
    pub(super) shared: Rc<BTreeMap<String, String>>,
    pub(super) own: BTreeMap<String, String>,
}

impl Options {
    fn get(&self, name: &str) -> Option<&str> {
        self.own.get(name).or_else(|| self.shared.get(name)).map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns name and value of each option in effect.
    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let shared = self.shared.iter().filter(|(name, _)| !self.own.contains_key(*name));
        shared.chain(&self.own).map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Results of one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Direction {
    pub(super) ios: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) iops: Option<f64>,
    pub(super) bytes_per_s: Option<f64>,
    pub(super) runtime_ms: Option<f64>,
    /// Mean latency in nanoseconds: fio's total latency (`lat`) if printed, else its completion latency (`clat`).
    pub(super) mean_ns: Option<f64>,
    /// True if the latencies are completion latencies (`clat`), which start at submission, and not total latencies (`lat`).
    pub(super) is_from_submission: bool,
    pub(super) max_ns: Option<f64>,
    /// Percentiles: percentage as printed, and latency in nanoseconds.
    pub(super) percentiles: Vec<(f64, f64)>,
    /// Histogram of all I/Os: latency in nanoseconds and count per bin.
    pub(super) bins: Option<Vec<(u64, u64)>>,
}

/// Largest ratio of a job's duration to its I/O runtime at which the job is a single clone; with two clones the ratio would be 2.
const OVER_ITS_IO: f64 = 1.05;

impl Job {
    /// Returns whether the job took no longer than its I/O, so that it has no clones.
    fn ran_alone(&self) -> bool {
        let runtimes = self.directions.iter().flatten().filter_map(|direction| direction.runtime_ms);
        let runtime = runtimes.fold(0.0, f64::max);
        self.took_ms.is_some_and(|took| took <= runtime * OVER_ITS_IO)
    }

    fn has_figures(&self) -> bool {
        self.directions.iter().flatten().any(|direction| **direction != Direction::default())
    }
}

/// Converts jobs to entries in order, and sums clones. Also returns a line for each unusable job, such as a clone without figures.
pub(super) fn entries(jobs: Vec<Job>) -> (Vec<Entry>, Vec<Line>) {
    let mut groups: Vec<Vec<Job>> = Vec::new();
    let mut known = HashMap::new();
    let (mut found, mut lines) = (Vec::new(), Vec::new());
    let mut without = HashSet::new();
    for job in jobs {
        // A job of the same name in another document is a repetition.
        let clone_of = (job.name.clone(), job.group.clone(), job.host.clone(), job.document);
        if !job.unread.is_empty() || !job.has_figures() {
            if job.unread.is_empty() {
                let reason = "a job without figures".to_owned();
                lines.push(Line { number: job.line, text: job.name, reason });
            }
            lines.extend(job.unread);
            without.insert(clone_of);
            continue;
        }
        let index = *known.entry(clone_of).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[index].push(job);
    }
    for group in groups {
        let job = &group[0];
        let is_part =
            without.contains(&(job.name.clone(), job.group.clone(), job.host.clone(), job.document));
        let is_whole = group.len() == 1 || group.iter().all(|job| job.is_whole);
        let asked = group[0].numjobs().filter(|asked| (*asked as usize) < group.len());
        if let Some(mut entry) = entry(&group).filter(|_| is_whole && asked.is_none()) {
            if is_part {
                let note = "another job of this name has no figures that can be read: these may be only a part of all";
                entry.notes.push(note.into());
            }
            found.push(entry);
            continue;
        }
        let reason = asked.map_or_else(
            || format!("of {} jobs at once not every figure is there", group.len()),
            |asked| format!("{} jobs of this name where numjobs is {asked}", group.len()),
        );
        lines.push(Line { number: group[0].line, text: group[0].name.clone(), reason });
    }
    (found, lines)
}

fn entry(clones: &[Job]) -> Option<Entry> {
    let count = u32::try_from(clones.len()).ok()?;
    let asked = clones[0].numjobs();
    let is_torn = clones.iter().any(|job| job.is_torn);
    // With group_reporting, one entry covers all clones. fio's JSON leaves the option out, because it has no value.
    let may_be_group = count == 1 && !is_torn && !clones[0].ran_alone();
    let is_fewer = clones[0].clones.is_none() && asked.is_some_and(|asked| asked > count);
    let lacking = is_fewer && !may_be_group;
    if (count > 1 || lacking) && is_torn {
        return None;
    }
    let job = &clones[0];
    let mut entry = Entry {
        target: target(job),
        workload: job.name.clone(),
        time: job.time,
        line: job.line,
        ..Entry::default()
    };
    let foreign = keys(&mut entry, job, count);
    let together: Vec<(usize, Vec<&Direction>)> = (0..DIRECTIONS.len())
        .map(|i| (i, clones.iter().filter_map(|job| job.directions[i].as_deref()).collect::<Vec<_>>()))
        .filter(|(_, of)| !of.is_empty())
        .collect();
    // With `unified_rw_reporting=both`, fio prints the sum in addition to its parts.
    let has_sum = together.iter().any(|(i, _)| *i == ALL_IN_ONE);
    let is_part = |i: usize| !has_sum || i == ALL_IN_ONE;
    let all: Vec<&Direction> =
        together.iter().filter(|(i, _)| is_part(*i)).flat_map(|(_, of)| of.iter().copied()).collect();
    let runtime = all.iter().filter_map(|direction| direction.runtime_ms).fold(0.0, f64::max);
    entry.duration_ns = (runtime > 0.0).then(|| whole(runtime * 1e6));
    let is_whole = clones.iter().all(|job| job.is_whole) && !lacking;
    if is_whole {
        state(&mut entry, &all);
        entry.tallies = tallies(&together);
    }
    for (i, of) in &together {
        if *i == ALL_IN_ONE && is_whole && of.len() == 1 {
            more_percentiles(&mut entry, "", of[0]);
        } else if together.len() > 1 || !is_whole {
            by_itself(&mut entry, DIRECTIONS[*i], of);
        } else if let [one] = of.as_slice() {
            more_percentiles(&mut entry, "", one);
        }
    }
    if let [job] = clones {
        entry.add("usr_cpu", job.cpu.map(|(user, _)| user), "%");
        entry.add("sys_cpu", job.cpu.map(|(_, system)| system), "%");
        entry.add("sync latency_mean", job.sync_ns, "ns");
    }
    if has_sum {
        entry
            .notes
            .push("reads, writes and trims together, as fio writes them (unified_rw_reporting)".into());
    }
    notes(&mut entry, clones, lacking);
    if is_fewer && !lacking {
        let numjobs = asked.unwrap_or_default();
        entry
            .notes
            .push(format!("{numjobs} jobs that ran at once, which fio reports as one (group_reporting)"));
    }
    entry.notes.extend(foreign);
    entry.has_figures().then_some(entry)
}

/// Sets an entry's metrics to the figures of several directions together.
fn state(entry: &mut Entry, all: &[&Direction]) {
    let sum =
        |of: fn(&Direction) -> Option<f64>| all.iter().map(|direction| of(direction)).sum::<Option<f64>>();
    entry.state(Metric::IOPS, sum(|direction| direction.iops));
    entry.state(Metric::BYTES_PER_S, sum(|direction| direction.bytes_per_s));
    entry.state(Metric::LATENCY_MEAN, mean(all));
    if let [one] = all {
        for (metric, q) in [
            (Metric::LATENCY_P50, 50.0),
            (Metric::LATENCY_P90, 90.0),
            (Metric::LATENCY_P99, 99.0),
            (Metric::LATENCY_P99_9, 99.9),
        ] {
            entry.state(metric, one.percentile(q));
        }
    }
}

/// Returns the mean latency in nanoseconds over directions, weighted by their I/Os, or by their rates if only those are known. `None` if a
/// direction's latency or weight is unknown, or if the latencies were measured differently.
fn mean(all: &[&Direction]) -> Option<f64> {
    if let [one] = all {
        return one.mean_ns;
    }
    if all.iter().any(|direction| direction.is_from_submission != all[0].is_from_submission) {
        return None;
    }
    let counted = all.iter().all(|direction| direction.ios.is_some());
    let weight =
        |direction: &Direction| if counted { direction.ios.map(|ios| ios as f64) } else { direction.iops };
    let sum: f64 = all.iter().map(|d| Some(d.mean_ns? * weight(d)?)).sum::<Option<f64>>()?;
    let weights: f64 = all.iter().map(|d| weight(d)).sum::<Option<f64>>()?;
    (weights > 0.0).then(|| sum / weights)
}

/// Adds the figures of one direction to an entry, under names that start with `word`.
fn by_itself(entry: &mut Entry, word: &str, of: &[&Direction]) {
    let sum = |figure: fn(&Direction) -> Option<f64>| {
        of.iter().map(|direction| figure(direction)).sum::<Option<f64>>()
    };
    entry.add(format!("{word} iops"), sum(|direction| direction.iops), "IOPS");
    entry.add(format!("{word} bytes_per_s"), sum(|direction| direction.bytes_per_s), "B/s");
    entry.add(format!("{word} latency_mean"), mean(of), "ns");
    if let [one] = of {
        for (name, q) in [("p50", 50.0), ("p99", 99.0), ("p99_9", 99.9)] {
            entry.add(format!("{word} latency_{name}"), one.percentile(q), "ns");
        }
        more_percentiles(entry, &format!("{word} "), one);
    }
}

/// Adds p95, p99.99 and the maximum, for which iotax has no metrics.
fn more_percentiles(entry: &mut Entry, before: &str, of: &Direction) {
    entry.add(format!("{before}latency_p95"), of.percentile(95.0), "ns");
    entry.add(format!("{before}latency_p99_99"), of.percentile(99.99), "ns");
    entry.add(format!("{before}latency_max"), of.max_ns, "ns");
}

impl Direction {
    fn percentile(&self, q: f64) -> Option<f64> {
        self.percentiles.iter().find(|(known, _)| (known - q).abs() < 1e-6).map(|(_, ns)| *ns)
    }
}

/// Returns complete histograms; `None` unless every direction of every clone has bins whose sum is its number of I/Os.
fn tallies(together: &[(usize, Vec<&Direction>)]) -> Option<Box<Tallies>> {
    let mut tallies = Box::<Tallies>::default();
    let (mut all_ios, mut all_bytes) = (0, 0);
    // The store has no direction for the sum.
    for (i, of) in together.iter().filter(|(i, _)| *i != ALL_IN_ONE) {
        for direction in of {
            let (Some(ios), Some(bytes), Some(bins)) = (direction.ios, direction.bytes, &direction.bins)
            else {
                return None;
            };
            let times = bins.iter().try_fold(0_u64, |sum, (_, times)| sum.checked_add(*times));
            // An overflow means that some count is wrong.
            let sums = added(all_ios, ios).zip(added(all_bytes, bytes)).filter(|_| times == Some(ios));
            (all_ios, all_bytes) = sums?;
            let mut latency = Histogram::new();
            bins.iter().for_each(|(ns, times)| latency.add_many(*ns, *times));
            if let Some(tally) = tallies.of_mut(DIRECTIONS[*i]) {
                tally.get_or_insert_default().merge(&Tally { ios, bytes, latency, response: None });
            }
        }
    }
    (tallies.latency().count() > 0).then_some(tallies)
}

/// Adds two counts; `None` if the sum exceeds the store's range, 2^63 - 1.
fn added(a: u64, b: u64) -> Option<u64> {
    a.checked_add(b).filter(|sum| i64::try_from(*sum).is_ok())
}

impl Job {
    fn numjobs(&self) -> Option<u32> {
        self.option("numjobs")?.parse().ok()
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.options.as_ref()?.get(name)
    }
}

/// Returns the target of the job: host, and file or directory, as far as known; `None` if none of them is known.
fn target(job: &Job) -> Option<String> {
    let path = job.option("filename").or_else(|| job.option("directory"));
    match (&job.host, path) {
        (Some(host), Some(path)) => Some(format!("{host} {path}")),
        (host, path) => host.clone().or_else(|| path.map(str::to_owned)),
    }
}

/// Workload keys that fio does not have, or uses with another meaning.
const NOT_FIOS: [&str; 9] = [
    "stamps",
    "blackout",
    "write_journal",
    "stall_timeout",
    "max_errors",
    "test",
    "nrfiles",
    "filesize",
    "nrdirs",
];

/// fio's defaults, for options that a job's list of options lacks.
const DEFAULTS: [(&str, &str); 5] =
    [("rw", "read"), ("bs", "4k"), ("iodepth", "1"), ("numjobs", "1"), ("direct", "0")];

/// Options that an entry stores elsewhere, or that only concern fio's output.
const SAID: [&str; 6] = ["name", "filename", "directory", "group_reporting", "kb_base", "description"];

/// Returns the name of the workload key for an fio option.
fn key_of(option: &str) -> &str {
    match option {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "buffered" => "direct",
        other => other,
    }
}

/// Sets an entry's keys from fio's options. Returns a note on the options that iotax cannot express; `None` if there are none, or no
/// options are known.
fn keys(entry: &mut Entry, job: &Job, clones: u32) -> Option<String> {
    let options = job.options.as_ref()?;
    for (key, value) in DEFAULTS {
        if !options.iter().any(|(option, _)| key_of(option) == key) {
            entry.set(key, value);
        }
    }
    let base_is_1000 = options.get("kb_base") == Some("1000");
    let mut foreign: Vec<String> = Vec::new();
    for (option, value) in options.iter().filter(|(option, _)| !SAID.contains(option)) {
        let key = KEYS.iter().find(|key| key.name == key_of(option) && !NOT_FIOS.contains(&key.name));
        let is_known = key.is_some_and(|key| {
            // The value of an empty option is unknown.
            value.is_empty()
                || ours(key, option, value, base_is_1000).is_some_and(|text| entry.set(key.name, &text))
        });
        if !is_known {
            foreign.push(format!("{option}={value}"));
        }
    }
    // Ranges, and sizes per direction, are no single block size.
    if options.iter().any(|(option, _)| matches!(key_of(option), "bssplit" | "bsrange")) {
        entry.keys.bs = None;
    }
    if clones > 1 {
        entry.keys.numjobs = Some(clones);
    }
    if entry.keys.rw.is_none_or(|rw| !(rw.reads() && rw.writes())) {
        entry.keys.rwmixread = None;
    }
    (!foreign.is_empty()).then(|| format!("not in iotax's terms: {}", foreign.join(", ")))
}

/// Converts an option's value to iotax's syntax; `None` if iotax cannot express it.
fn ours(key: &WorkloadKey, option: &str, value: &str, base_is_1000: bool) -> Option<String> {
    let is_whole = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    Some(match key.value {
        _ if option == "buffered" => match value {
            "1" => "0".to_owned(),
            "0" => "1".to_owned(),
            _ => return None,
        },
        // A time without a unit is in seconds, a thinktime in microseconds.
        "TIME" if is_whole => format!("{value}{}", if key.name == "thinktime" { "us" } else { "s" }),
        // In iotax an `m` would then mean something else.
        "TIME" | "SIZE" if value.contains('.') => return None,
        "SIZE" => size(value, base_is_1000)?,
        // The units in a list of sizes are ambiguous.
        "RANGE" | "SPLIT" if base_is_1000 || value.contains(['b', 'B', 'i', 'I']) => return None,
        _ => value.to_owned(),
    })
}

/// Converts a size from fio's syntax: `k` and `kb` are 1024 and `kib` is 1000, or vice versa with `kb_base` 1000.
/// `None` for an unknown unit.
fn size(value: &str, base_is_1000: bool) -> Option<String> {
    let (digits, unit) = value.split_at(value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len()));
    let unit = unit.trim().to_ascii_lowercase();
    let letter = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    if letter.is_empty() {
        return Some(digits.to_owned());
    }
    let of_1000 = unit.ends_with("ib") != base_is_1000;
    (letter.len() == 1).then(|| format!("{digits}{letter}{}", if of_1000 { "b" } else { "ib" }))
}

fn notes(entry: &mut Entry, clones: &[Job], lacking: bool) {
    if clones.len() > 1 {
        entry.notes.push(format!("{} jobs that ran at once, added up", clones.len()));
    }
    if lacking {
        entry.notes.push("the text has fewer jobs than numjobs says, so that nothing is added up".into());
    }
    if clones.iter().any(|job| job.is_torn) {
        entry.notes.push("the JSON around it is torn: what else ran is not known".into());
    }
    entry.notes.extend(clones.iter().filter_map(|job| job.note.clone()));
    for error in clones.iter().filter_map(|job| job.error.as_ref()) {
        entry.notes.push(format!("fio ended with an error: {error}"));
    }
    if entry.keys.direct == Some(false) {
        entry.notes.push("through the page cache: what memory answered or took is in the figures".into());
    }
    if entry.tallies.as_ref().is_some_and(|tallies| tallies.latency().count() > 0) {
        entry
            .notes
            .push("percentiles that fio does not state are read off its bins, which are 1.6% wide".into());
    }
}

/// Rounds a time in nanoseconds to a whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not below 0, and it saturates")]
pub(super) fn whole(value: f64) -> u64 {
    value.round() as u64
}
