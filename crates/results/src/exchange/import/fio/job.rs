//! A job of fio as any of its formats tells it, and the entry that it becomes.

use std::collections::BTreeMap;

use iotax_model::Histogram;
use iotax_model::record::{Tallies, Tally};

use super::super::{Entry, Line};
use crate::judge::Metric;

/// The directions in fio's order.
pub(super) const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];

/// One job, or one of its clones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) group: Option<String>,
    /// Tells the outputs of several runs in one text apart; clones have it in common.
    pub(super) document: String,
    /// Where it ran, in client/server mode.
    pub(super) host: Option<String>,
    /// What was asked, by fio's names. Absent if the text does not tell; else what is not in it has fio's default, and what is
    /// empty is not known.
    pub(super) options: Option<BTreeMap<String, String>>,
    /// As [`DIRECTIONS`]; one in which nothing was done is absent.
    pub(super) directions: [Option<Direction>; 3],
    /// Whether it is known that there is no direction beside these.
    pub(super) is_whole: bool,
    /// Whether clones of it may be missing in the text, so that nothing may be added up.
    pub(super) is_torn: bool,
    pub(super) error: Option<String>,
    pub(super) started_at_ms: Option<u64>,
    /// Shares of one CPU in percent.
    pub(super) cpu: Option<(f64, f64)>,
    /// Mean latency of its flushes.
    pub(super) sync_ns: Option<f64>,
    /// How many clones these figures are the sum of already.
    pub(super) clones: Option<u32>,
    pub(super) line: usize,
}

/// What was done in one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Direction {
    pub(super) ios: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) iops: Option<f64>,
    pub(super) bytes_per_s: Option<f64>,
    pub(super) runtime_ms: Option<f64>,
    /// From issue to completion where it is told, else from submission.
    pub(super) mean_ns: Option<f64>,
    /// Whether it is from submission.
    pub(super) is_from_submission: bool,
    pub(super) max_ns: Option<f64>,
    /// In percent, as text, and nanoseconds.
    pub(super) percentiles: Vec<(f64, f64)>,
    /// Nanoseconds and how often, of all I/Os.
    pub(super) bins: Option<Vec<(u64, u64)>>,
}

impl Job {
    fn has_figures(&self) -> bool {
        self.directions.iter().flatten().any(|direction| *direction != Direction::default())
    }
}

/// The entries of jobs: clones added up, the others as they are, in their order.
/// And the jobs of which nothing can be said: of clones that ran at once some figures are not there, so that there is no sum.
pub(super) fn entries(jobs: Vec<Job>) -> (Vec<Entry>, Vec<Line>) {
    let mut groups: Vec<Vec<Job>> = Vec::new();
    for job in jobs.into_iter().filter(Job::has_figures) {
        let same = |one: &Job| one.name == job.name && one.group == job.group && one.host == job.host;
        // One that stands in another document is a repetition.
        match groups.iter_mut().find(|group| same(&group[0]) && group[0].document == job.document) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    let (mut found, mut lines) = (Vec::new(), Vec::new());
    for group in groups {
        let reason = format!("of {} jobs at once not every figure is there", group.len());
        let line = Line { number: group[0].line, text: group[0].name.clone(), reason };
        let is_whole = group.len() == 1 || group.iter().all(|job| job.is_whole);
        match entry(&group).filter(|_| is_whole) {
            Some(entry) => found.push(entry),
            None => lines.push(line),
        }
    }
    (found, lines)
}

fn entry(clones: &[Job]) -> Option<Entry> {
    let count = u32::try_from(clones.len()).ok()?;
    let asked = clones[0].option("numjobs").and_then(|text| text.parse::<u32>().ok());
    let reports_groups =
        clones[0].options.as_ref().is_some_and(|options| options.contains_key("group_reporting"));
    let lacking = !reports_groups && clones[0].clones.is_none() && asked.is_some_and(|asked| asked > count);
    if (count > 1 || lacking) && clones.iter().any(|job| job.is_torn) {
        return None;
    }
    let job = &clones[0];
    let mut entry = Entry {
        target: target(job),
        workload: job.name.clone(),
        started_at_ms: job.started_at_ms,
        line: job.line,
        ..Entry::default()
    };
    keys(&mut entry, job, count);
    let together: Vec<(usize, Vec<&Direction>)> = (0..DIRECTIONS.len())
        .map(|i| (i, clones.iter().filter_map(|job| job.directions[i].as_ref()).collect::<Vec<_>>()))
        .filter(|(_, of)| !of.is_empty())
        .collect();
    let all: Vec<&Direction> = together.iter().flat_map(|(_, of)| of.iter().copied()).collect();
    let runtime = all.iter().filter_map(|direction| direction.runtime_ms).fold(0.0, f64::max);
    entry.duration_ns = (runtime > 0.0).then(|| whole(runtime * 1e6));
    let is_whole = clones.iter().all(|job| job.is_whole) && !lacking;
    if is_whole {
        state(&mut entry, &all);
        entry.tallies = tallies(&together);
    }
    for (i, of) in &together {
        if together.len() > 1 || !is_whole {
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
    notes(&mut entry, clones, lacking);
    entry.has_figures().then_some(entry)
}

/// The metrics of directions together.
fn state(entry: &mut Entry, all: &[&Direction]) {
    let sum =
        |of: fn(&Direction) -> Option<f64>| all.iter().map(|direction| of(direction)).sum::<Option<f64>>();
    entry.state(Metric::Iops, sum(|direction| direction.iops));
    entry.state(Metric::BytesPerS, sum(|direction| direction.bytes_per_s));
    entry.state(Metric::LatencyMean, mean(all));
    if let [one] = all {
        for (metric, q) in [
            (Metric::LatencyP50, 50.0),
            (Metric::LatencyP90, 90.0),
            (Metric::LatencyP99, 99.0),
            (Metric::LatencyP999, 99.9),
        ] {
            entry.state(metric, one.percentile(q));
        }
    }
}

/// The mean over directions, weighted by their I/Os, or by their rates where only those are told.
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

/// The figures of one direction, by its name.
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

/// Those that no metric is, and the maximum.
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

/// Whole histograms, if every direction of every clone has its bins.
fn tallies(together: &[(usize, Vec<&Direction>)]) -> Tallies {
    let mut tallies = Tallies::default();
    for (i, of) in together {
        for direction in of {
            let (Some(ios), Some(bytes), Some(bins)) = (direction.ios, direction.bytes, &direction.bins)
            else {
                return Tallies::default();
            };
            let mut latency = Histogram::new();
            bins.iter().for_each(|(ns, times)| latency.add_many(*ns, *times));
            if latency.count() != ios {
                return Tallies::default();
            }
            if let Some(tally) = tallies.of_mut(DIRECTIONS[*i]) {
                tally.get_or_insert_default().merge(&Tally { ios, bytes, latency, response: None });
            }
        }
    }
    tallies
}

impl Job {
    fn option(&self, name: &str) -> Option<&str> {
        self.options.as_ref()?.get(name).map(String::as_str)
    }
}

/// What it worked on: its host, its file, its directory.
fn target(job: &Job) -> Option<String> {
    let place = job.option("filename").or_else(|| job.option("directory"));
    match (&job.host, place) {
        (Some(host), Some(place)) => Some(format!("{host} {place}")),
        (host, place) => host.clone().or_else(|| place.map(str::to_owned)),
    }
}

/// fio's names that are ours, with what holds in fio if they are not given.
const KEYS: [(&str, Option<&str>); 18] = [
    ("rw", Some("read")),
    ("bs", Some("4k")),
    ("iodepth", Some("1")),
    ("numjobs", Some("1")),
    ("direct", Some("0")),
    ("ioengine", None),
    ("rwmixread", None),
    ("size", None),
    ("offset", None),
    ("runtime", None),
    ("ramp_time", None),
    ("fsync", None),
    ("fdatasync", None),
    ("rate_iops", None),
    ("bssplit", None),
    ("bsrange", None),
    ("random_distribution", None),
    ("norandommap", None),
];

fn keys(entry: &mut Entry, job: &Job, clones: u32) {
    let Some(options) = &job.options else { return };
    let mut foreign: Vec<String> = Vec::new();
    for (key, default) in KEYS {
        let told = match key {
            "rw" => options.get("rw").or_else(|| options.get("readwrite")),
            "bs" => options.get("bs").or_else(|| options.get("blocksize")),
            _ => options.get(key),
        };
        let Some(value) = told.map(String::as_str).or(default) else { continue };
        let is_time = matches!(key, "runtime" | "ramp_time");
        // A time without a unit is seconds, and a switch without a value is on.
        let value = match value {
            "" if key == "norandommap" => "1".to_owned(),
            "" => continue,
            value if is_time && value.bytes().all(|b| b.is_ascii_digit()) => format!("{value}s"),
            value => value.to_owned(),
        };
        if !entry.set(key, &value) {
            foreign.push(format!("{key}={value}"));
        }
    }
    // What was meant is not known where ranges are given for each direction and the like.
    if options.contains_key("bssplit")
        || options.contains_key("bsrange")
        || options.contains_key("blocksize_range")
    {
        entry.keys.bs = None;
    }
    if clones > 1 {
        entry.keys.numjobs = Some(clones);
    }
    if entry.keys.rw.is_none_or(|rw| !(rw.reads() && rw.writes())) {
        entry.keys.rwmixread = None;
    }
    if !foreign.is_empty() {
        entry.notes.push(format!("not in iotax's terms: {}", foreign.join(", ")));
    }
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
    for error in clones.iter().filter_map(|job| job.error.as_ref()) {
        entry.notes.push(format!("fio ended with an error: {error}"));
    }
    if entry.keys.direct == Some(false) {
        entry.notes.push("through the page cache: what memory answered or took is in the figures".into());
    }
    if entry.tallies.latency().count() > 0 {
        entry
            .notes
            .push("percentiles that fio does not state are read off its bins, which are 1.6% wide".into());
    }
}

/// A time in nanoseconds as a whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not below 0, and it saturates")]
pub(super) fn whole(value: f64) -> u64 {
    value.round() as u64
}
