//! Converts measurements to entries of `jobs` in fio's JSON output.

use iotax_model::Histogram;
use iotax_model::record::{
    CpuTime, ErrorCount, HostActivity, Measurement, ProcessCounts, Sample, Tallies, Tally,
};
use iotax_model::workload::{IoEngine, KEYS, Workload};
use serde_json::Value;

use super::rounds::MergedRounds;
use crate::Unfit;
use iotax_model::Run;

/// Workload keys that fio does not have, or uses with another meaning.
const NOT_FIOS: [&str; 10] = [
    "stamps",
    "blackout",
    "write_journal",
    "stall_timeout",
    "max_errors",
    "test",
    "invalidate_each_pass",
    "invalidate_machine",
    "layout",
    "tolerated_errors",
];
/// Options that are written even at their defaults, because scripts expect them.
const ALWAYS: [&str; 7] = ["rw", "bs", "iodepth", "numjobs", "direct", "runtime", "ramp_time"];

/// Directions that move data, in fio's order.
pub(super) const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];

/// An entry of fio's `jobs` list: a workload on a target over all rounds, or the part of one of its concurrent jobs or guests. The clones
/// of a job are summed, as with fio's `group_reporting`.
pub(super) struct Job<'a> {
    pub(super) name: String,
    /// Index of the cell (target and workload), from 0; jobs with the same index ran concurrently.
    pub(super) group: usize,
    pub(super) description: String,
    pub(super) workload: &'a Workload,
    pub(super) ioengine: Option<IoEngine>,
    pub(super) filename: Option<String>,
    pub(super) ended_at_ms: u64,
    /// Seconds from the start of the run to the end of the job.
    pub(super) elapsed_s: u64,
    /// Total length of the measured windows of all rounds in nanoseconds; for one of several concurrent jobs or guests, the time for which
    /// it ran.
    pub(super) duration_ns: u64,
    /// I/O by direction: reads, writes and trims.
    pub(super) directions: [Direction; 3],
    pub(super) sync: Option<Tally>,
    /// CPU time of the job; `None` for one of several concurrent jobs or guests.
    pub(super) cpu: Option<CpuTime>,
    /// Context switches and page faults; `None` if unknown, and for one of several concurrent jobs or guests.
    pub(super) counts: Option<ProcessCounts>,
    pub(super) errors: Vec<ErrorCount>,
    /// Names of the workload keys that an imported text states; `None` for a measurement by iotax, where all keys are known.
    known: Option<&'a [String]>,
}

/// I/O of a job in one direction.
#[derive(Default)]
pub(super) struct Direction {
    pub(super) ios: u64,
    pub(super) bytes: u64,
    pub(super) short: u64,
    /// Histogram of latencies from submission to completion.
    pub(super) service: Histogram,
    /// Histogram of latencies from an I/O's due time to its completion; `None` in a closed loop.
    pub(super) response: Option<Histogram>,
    /// Summary of each interval's bandwidth in bytes/s.
    pub(super) bytes_per_s: Series,
    /// Summary of each interval's IOPS.
    pub(super) iops: Series,
    /// Mean bandwidth in percent of the bandwidth of all jobs in the group.
    pub(super) share_of_group: f64,
}

impl Direction {
    /// Returns fio's `lat`: latencies from when the I/Os were due in an open loop, else from submission.
    pub(super) fn total(&self) -> &Histogram {
        self.response.as_ref().unwrap_or(&self.service)
    }
}

/// Summary of per-interval values as fio gives it: minimum, maximum, mean, standard deviation and number of samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Series {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
    pub(super) stddev: f64,
    pub(super) samples: usize,
}

impl Series {
    fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(0.0, f64::max),
            mean,
            stddev: (squares / (values.len().max(2) - 1) as f64).sqrt(),
            samples: values.len(),
        }
    }

    /// Divides the summary's values by `unit`, to convert them to a larger unit.
    pub(super) fn over(self, unit: f64) -> Self {
        let Self { min, max, mean, stddev, samples } = self;
        Self { min: min / unit, max: max / unit, mean: mean / unit, stddev: stddev / unit, samples }
    }
}

impl<'a> Job<'a> {
    /// Returns all jobs of a run in the plan's order. Each job appears once, because readers of fio's formats expect unique jobs.
    ///
    /// # Errors
    /// The run has no measurement, or one that fio's formats cannot express.
    pub(super) fn all(run: &'a Run) -> Result<Vec<Self>, Unfit> {
        let mut jobs = Vec::new();
        for (group, cell) in MergedRounds::all(run)?.iter().enumerate() {
            let m = &cell.merged;
            let first = jobs.len();
            if m.shares.is_empty() && m.outcome.jobs.is_empty() {
                jobs.extend(Self::new(
                    run,
                    cell,
                    group,
                    &m.workload,
                    m.outcome.duration_ns,
                    &m.outcome.tallies,
                ));
            }
            for job in &m.outcome.jobs {
                jobs.extend(Self::new(run, cell, group, &job.name, job.duration_ns, &job.tallies));
            }
            for guest in &m.shares {
                let name = format!("{}/{}", m.workload, guest.name);
                jobs.extend(Self::new(run, cell, group, &name, guest.duration_ns, &guest.tallies));
            }
            // I/O errors of concurrent jobs are known only in total; they are listed with the first job, so that none is counted twice.
            if let Some(job) = jobs.get_mut(first) {
                job.errors.clone_from(&m.outcome.errors);
            }
            share_of_group(&mut jobs[first..]);
        }
        if jobs.is_empty() {
            return Err(Unfit(format!("run {} has no measurement yet", run.id)));
        }
        Ok(jobs)
    }

    fn new(
        run: &'a Run,
        cell: &MergedRounds,
        group: usize,
        name: &str,
        duration_ns: u64,
        tallies: &Tallies,
    ) -> Option<Self> {
        let MergedRounds { merged: m, rounds, ended_at_ms } = cell;
        let first = run.plan.workloads.iter().find(|workload| workload.name == m.workload)?;
        let own = first.beside.iter().find(|beside| beside.name == name);
        let alone = m.shares.is_empty() && m.outcome.jobs.is_empty();
        let samples = if alone { m.samples.as_slice() } else { &[] };
        let errors = if alone { m.outcome.errors.clone() } else { Vec::new() };
        let several = run.plan.targets.len() > 1;
        let spec = run.plan.targets.iter().find(|target| target.name == m.target);
        let target_path = spec.and_then(|spec| spec.path().or(spec.device()));
        Some(Self {
            name: if several { format!("{}/{name}", m.target) } else { name.to_owned() },
            group,
            description: match rounds {
                1 => m.target.clone(),
                _ => format!("{}, {rounds} rounds together", m.target),
            },
            workload: own.unwrap_or(first),
            ioengine: m.outcome.ioengine,
            filename: target_path.map(|path| path.display().to_string()),
            ended_at_ms: *ended_at_ms,
            elapsed_s: ended_at_ms.saturating_sub(run.started_at_ms).div_ceil(1000),
            duration_ns,
            directions: DIRECTIONS.map(|word| direction(word, tallies, samples, &errors)),
            sync: tallies.sync.clone(),
            cpu: alone.then_some(m.outcome.cpu),
            counts: m.outcome.counts.filter(|_| alone),
            errors,
            known: run
                .source
                .imported()
                .map(|source| source.known.get(&m.workload).map_or(&[][..], Vec::as_slice)),
        })
    }

    /// Returns an amount per second of the measured windows; 0 if their length is 0.
    pub(super) fn rate(&self, amount: u64) -> f64 {
        if self.duration_ns == 0 { 0.0 } else { amount as f64 * 1e9 / self.duration_ns as f64 }
    }

    pub(super) const fn runtime_ms(&self) -> u64 {
        self.duration_ns / 1_000_000
    }

    /// Returns whether the job ran in an open loop, in which every I/O has a due time.
    pub(super) fn is_open_loop(&self) -> bool {
        self.directions.iter().any(|direction| direction.response.is_some())
    }

    /// Returns user and kernel CPU time, each in percent of the window; `None` if unknown.
    pub(super) fn cpu_percent(&self) -> Option<(f64, f64)> {
        let percent = |ns: u64| 100.0 * ns as f64 / self.duration_ns as f64;
        self.cpu.filter(|_| self.duration_ns > 0).map(|cpu| (percent(cpu.user_ns), percent(cpu.system_ns)))
    }

    /// Returns Linux's errno of the first I/O error; 0 without errors, and for a short read or write.
    pub(super) fn error(&self) -> i32 {
        self.errors.first().map_or(0, |error| errno(&error.error))
    }

    fn is_known(&self, key: &str) -> bool {
        self.known.is_none_or(|known| known.iter().any(|one| one == key))
    }

    /// Returns the workload's known settings as fio options: those in [`ALWAYS`], all others that differ from their defaults, the engine
    /// and the file.
    pub(super) fn options(&self) -> Vec<(&'static str, String)> {
        let lengths = self.workload.bsrange.is_some() || self.workload.bssplit.is_some();
        let keys = serde_json::to_value(self.workload).unwrap_or_default();
        let mut options = Vec::new();
        for key in KEYS.iter().filter(|key| !NOT_FIOS.contains(&key.name)) {
            let is_known = self.is_known(key.name);
            let Some(value) = keys.get(key.name).and_then(text).filter(|_| is_known) else { continue };
            let is_default = key.default.is_none_or(|default| {
                let default = default();
                value != default && value != switched(&default)
            });
            let wanted = ALWAYS.contains(&key.name) && !(key.name == "bs" && lengths);
            if key.name != "ioengine" && (is_default || wanted) {
                // fio's GiB is 1000 to the third.
                let is_length = matches!(key.value, "SIZE" | "RANGE" | "SPLIT");
                options.push((key.name, if is_length { value.replace("iB", "") } else { value }));
            }
        }
        if self.ioengine.is_some() || self.is_known("ioengine") {
            let ioengine = self.ioengine.unwrap_or(self.workload.ioengine);
            options.push(("ioengine", ioengine.word().to_owned()));
        }
        if self.is_open_loop() {
            options.push(("lat_percentiles", "1".to_owned()));
        }
        options.extend(self.filename.clone().map(|name| ("filename", name)));
        options
    }
}

/// Formats the value of a key as fio writes it: booleans as 1 or 0. `None` for lists, maps and null.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(on) => Some(u8::from(*on).to_string()),
        _ => None,
    }
}

fn switched(default: &str) -> String {
    match default {
        "true" => "1".to_owned(),
        "false" => "0".to_owned(),
        other => other.to_owned(),
    }
}

fn direction(word: &str, tallies: &Tallies, samples: &[Sample], errors: &[ErrorCount]) -> Direction {
    let Some(tally) = of(tallies, word) else { return Direction::default() };
    let each = |amount: fn(&Tally) -> u64| -> Vec<f64> {
        let timed = samples.iter().filter(|sample| sample.duration_ns > 0);
        timed
            .map(|sample| {
                of(&sample.tallies, word).map_or(0, amount) as f64 * 1e9 / sample.duration_ns as f64
            })
            .collect()
    };
    let short = errors.iter().filter(|error| error.direction == word && is_short(&error.error));
    Direction {
        ios: tally.ios,
        bytes: tally.bytes,
        short: short.map(|error| error.count).sum(),
        service: tally.latency.clone(),
        response: tally.response.clone(),
        bytes_per_s: Series::of(&each(|tally| tally.bytes)),
        iops: Series::of(&each(|tally| tally.ios)),
        share_of_group: 0.0,
    }
}

fn of<'a>(tallies: &'a Tallies, direction: &str) -> Option<&'a Tally> {
    tallies.each().find(|(word, _)| *word == direction)?.1
}

/// Computes each job's share of its group's bandwidth from the mean of its intervals; at most 100%, as in fio.
fn share_of_group(jobs: &mut [Job<'_>]) {
    for index in 0..DIRECTIONS.len() {
        let bytes: u64 = jobs.iter().map(|job| job.directions[index].bytes).sum();
        let longest = jobs.iter().map(|job| job.duration_ns).max().unwrap_or_default();
        let group = bytes as f64 * 1e9 / longest.max(1) as f64;
        for job in jobs.iter_mut().filter(|_| group > 0.0) {
            let direction = &mut job.directions[index];
            direction.share_of_group = (100.0 * direction.bytes_per_s.mean / group).min(100.0);
        }
    }
}

/// Activity of a disk during the measurements.
pub(super) struct Disk {
    pub(super) name: String,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) read_merges: u64,
    pub(super) write_merges: u64,
    /// Sum of the read latencies in milliseconds, from queueing to completion; `None` if not recorded.
    pub(super) read_ms: Option<u64>,
    /// Sum of the write latencies in milliseconds; `None` if not recorded.
    pub(super) write_ms: Option<u64>,
    pub(super) busy_percent: f64,
}

impl Disk {
    /// Returns all disks below the targets, summed over all measurements. In a run of several targets, the disk of a machine other than the
    /// host is named after its target too.
    pub(super) fn all(run: &Run) -> Vec<Self> {
        let mut disks: Vec<(Self, u64)> = Vec::new();
        for m in &run.measurements {
            let Some(machine) = m.machine() else { continue };
            let elsewhere = m.host.is_none() && run.plan.targets.len() > 1;
            for (name, ..) in &machine.disks {
                let name = if elsewhere { format!("{}:{name}", m.target) } else { name.clone() };
                if !disks.iter().any(|(disk, _)| disk.name == name) {
                    disks.push((Self::new(name), 0));
                }
            }
            add(&mut disks, m, machine, elsewhere);
        }
        let named = |(mut disk, ns): (Self, u64)| {
            disk.busy_percent /= ns.max(1) as f64;
            disk
        };
        disks.into_iter().map(named).collect()
    }

    /// Returns the sum of the latencies of all I/Os in milliseconds, from queueing to completion; `None` if not recorded.
    pub(super) fn queued_ms(&self) -> Option<u64> {
        Some(self.read_ms? + self.write_ms?)
    }

    const fn new(name: String) -> Self {
        Self {
            name,
            reads: 0,
            writes: 0,
            read_merges: 0,
            write_merges: 0,
            read_ms: Some(0),
            write_ms: Some(0),
            busy_percent: 0.0,
        }
    }
}

fn add(disks: &mut [(Disk, u64)], m: &Measurement, machine: &HostActivity, elsewhere: bool) {
    for (disk, ns) in disks {
        let own = if elsewhere {
            disk.name.strip_prefix(&format!("{}:", m.target))
        } else {
            Some(disk.name.as_str())
        };
        let Some(did) = own.and_then(|name| machine.disks.get(name)) else { continue };
        disk.reads += did.reads;
        disk.writes += did.writes;
        disk.read_merges += did.read_merges;
        disk.write_merges += did.write_merges;
        disk.read_ms = disk.read_ms.zip(did.read_wait_ns).map(|(ms, ns)| ms + ns / 1_000_000);
        disk.write_ms = disk.write_ms.zip(did.write_wait_ns).map(|(ms, ns)| ms + ns / 1_000_000);
        disk.busy_percent += 100.0 * did.busy * machine.duration_ns as f64;
        *ns += machine.duration_ns;
    }
}

/// Returns whether the error is a short read or write, which has no errno.
fn is_short(name: &str) -> bool {
    name.starts_with("short ") || name.starts_with("empty ")
}

/// Returns Linux's errno of an I/O error by its name: 0 for a short read or write, EIO for an unknown name.
fn errno(name: &str) -> i32 {
    const EIO: i32 = 5;
    const NUMBERS: [(&str, i32); 24] = [
        ("EPERM", 1),
        ("EIO", EIO),
        ("ENXIO", 6),
        ("EBADF", 9),
        ("EAGAIN", 11),
        ("ENOMEM", 12),
        ("EACCES", 13),
        ("EFAULT", 14),
        ("EBUSY", 16),
        ("ENODEV", 19),
        ("EINVAL", 22),
        ("EFBIG", 27),
        ("ENOSPC", 28),
        ("EROFS", 30),
        ("ENODATA", 61),
        ("ETIME", 62),
        ("ENOLINK", 67),
        ("EILSEQ", 84),
        ("EOPNOTSUPP", 95),
        ("ETIMEDOUT", 110),
        ("ESTALE", 116),
        ("EREMOTEIO", 121),
        ("EDQUOT", 122),
        ("ECANCELED", 125),
    ];
    if is_short(name) {
        return 0;
    }
    NUMBERS.iter().find(|(known, _)| *known == name).map_or(EIO, |(_, number)| *number)
}
