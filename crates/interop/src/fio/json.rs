//! Writes fio's JSON, `json` and `json+`, with fio's keys, order, types and units.

use std::collections::BTreeMap;

use iotax_model::{Histogram, visible};
use serde::{Serialize, Serializer};

use super::job::{Direction, Disk, Job, Series};
use super::latency::{CLASSES, LAST_CLASS, Shares, Spread, bins, percentiles};
use super::{VERSION, ctime};
use crate::Unfit;
use iotax_model::Run;

/// A JSON object whose keys keep their order of insertion.
#[derive(Debug, Default)]
struct Ordered<T>(Vec<(String, T)>);

impl<T: Serialize> Serialize for Ordered<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

#[derive(Debug, Serialize)]
struct Document {
    #[serde(rename = "fio version")]
    version: &'static str,
    timestamp: u64,
    timestamp_ms: u64,
    time: String,
    #[serde(rename = "global options")]
    global: Ordered<&'static str>,
    jobs: Vec<Entry>,
    disk_util: Vec<DiskUtil>,
}

#[derive(Debug, Serialize)]
struct Entry {
    jobname: String,
    groupid: usize,
    error: i32,
    eta: u32,
    elapsed: u64,
    #[serde(rename = "job options")]
    options: Ordered<String>,
    desc: String,
    read: Moved,
    write: Moved,
    trim: Moved,
    sync: Synced,
    job_runtime: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    usr_cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sys_cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ctx: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    majf: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minf: Option<u64>,
    latency_ns: Ordered<f64>,
    latency_us: Ordered<f64>,
    latency_ms: Ordered<f64>,
    latency_depth: u32,
    latency_target: u32,
    latency_percentile: f64,
    latency_window: u32,
    /// Number of failed I/Os. fio writes it only with `continue_on_error`, which is how iotax behaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_err: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<i32>,
}

#[derive(Debug, Serialize)]
struct Moved {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    bw: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: Latency,
    clat_ns: Latency,
    lat_ns: Latency,
    bw_min: u64,
    bw_max: u64,
    bw_agg: f64,
    bw_mean: f64,
    bw_dev: f64,
    bw_samples: usize,
    iops_min: u64,
    iops_max: u64,
    iops_mean: f64,
    iops_stddev: f64,
    iops_samples: usize,
}

#[derive(Debug, Serialize)]
struct Synced {
    total_ios: u64,
    lat_ns: Latency,
}

#[derive(Debug, Serialize)]
struct Latency {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Ordered<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bins: Option<BTreeMap<u64, u64>>,
}

#[derive(Debug, Serialize)]
struct DiskUtil {
    name: String,
    read_ios: u64,
    write_ios: u64,
    read_merges: u64,
    write_merges: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_ticks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_ticks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_queue: Option<u64>,
    util: f64,
}

/// Level of detail of latency statistics.
#[derive(Clone, Copy, PartialEq)]
enum Detail {
    Spread,
    Percentiles,
    Bins,
}

impl Latency {
    fn of(histogram: Option<&Histogram>, detail: Detail) -> Self {
        let Spread { min, max, mean, stddev, count } = Spread::of(histogram);
        let counted = histogram.filter(|_| count > 0);
        let percentile = counted.filter(|_| detail != Detail::Spread).map(|histogram| {
            Ordered(percentiles(histogram).into_iter().map(|(p, value)| (format!("{p:.6}"), value)).collect())
        });
        let bins = counted.filter(|_| detail == Detail::Bins).map(bins);
        Self { min, max, mean, stddev, count, percentile, bins }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and far below 2^64"
)]
pub(super) const fn whole(value: f64) -> u64 {
    value as u64
}

impl Moved {
    fn of(job: &Job<'_>, direction: &Direction, detail: Detail) -> Self {
        let there = direction.ios > 0;
        let total = if direction.response.is_some() { detail } else { Detail::Spread };
        let (bw, iops): (Series, Series) = (direction.bytes_per_s.over(1024.0), direction.iops);
        let service = there.then_some(&direction.service);
        Self {
            io_bytes: direction.bytes,
            io_kbytes: direction.bytes / 1024,
            bw_bytes: whole(job.rate(direction.bytes)),
            bw: whole(job.rate(direction.bytes) / 1024.0),
            iops: job.rate(direction.ios),
            runtime: if there { job.runtime_ms() } else { 0 },
            total_ios: direction.ios,
            short_ios: direction.short,
            drop_ios: 0,
            slat_ns: Latency::of(None, Detail::Spread),
            clat_ns: Latency::of(service, detail),
            lat_ns: Latency::of(there.then(|| direction.total()), total),
            bw_min: whole(bw.min),
            bw_max: whole(bw.max),
            bw_agg: direction.share_of_group,
            bw_mean: bw.mean,
            bw_dev: bw.stddev,
            bw_samples: bw.samples,
            iops_min: whole(iops.min),
            iops_max: whole(iops.max),
            iops_mean: iops.mean,
            iops_stddev: iops.stddev,
            iops_samples: iops.samples,
        }
    }
}

fn classes(shares: &[f64]) -> Ordered<f64> {
    let mut names: Vec<String> = CLASSES.iter().chain([&LAST_CLASS]).map(ToString::to_string).collect();
    names.push(format!(">={LAST_CLASS}"));
    Ordered(names.into_iter().zip(shares.iter().copied()).collect())
}

fn entry(job: &Job<'_>, detail: Detail) -> Entry {
    let [read, write, trim] = &job.directions;
    let shares =
        Shares::of(job.directions.iter().filter(|direction| direction.ios > 0).map(Direction::total));
    let cpu = job.cpu_percent();
    let failed = (!job.errors.is_empty()).then(|| job.errors.iter().map(|error| error.count).sum());
    Entry {
        jobname: job.name.clone(),
        groupid: job.group,
        error: job.error(),
        eta: 0,
        elapsed: job.elapsed_s,
        options: Ordered(job.options().into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        desc: job.description.clone(),
        read: Moved::of(job, read, detail),
        write: Moved::of(job, write, detail),
        trim: Moved::of(job, trim, detail),
        sync: Synced {
            total_ios: job.sync.as_ref().map_or(0, |tally| tally.ios),
            lat_ns: Latency::of(job.sync.as_ref().map(|tally| &tally.latency), detail),
        },
        job_runtime: job.runtime_ms(),
        usr_cpu: cpu.map(|(user, _)| user),
        sys_cpu: cpu.map(|(_, system)| system),
        ctx: job.counts.map(|counts| counts.context_switches),
        majf: job.counts.map(|counts| counts.major_faults),
        minf: job.counts.map(|counts| counts.minor_faults),
        latency_ns: classes(&shares.ns),
        latency_us: classes(&shares.us),
        latency_ms: classes(&shares.ms),
        latency_depth: job.workload.iodepth,
        latency_target: 0,
        latency_percentile: 100.0,
        latency_window: 0,
        total_err: failed,
        first_error: failed.map(|_| job.error()),
    }
}

fn disk(disk: Disk) -> DiskUtil {
    DiskUtil {
        in_queue: disk.queued_ms(),
        name: disk.name,
        read_ios: disk.reads,
        write_ios: disk.writes,
        read_merges: disk.read_merges,
        write_merges: disk.write_merges,
        read_ticks: disk.read_ms,
        write_ticks: disk.write_ms,
        util: disk.busy_percent,
    }
}

/// Writes the run as fio's JSON document. `plus` adds the bins of the histograms, as `json+` does.
pub(super) fn text(run: &Run, plus: bool) -> Result<String, Unfit> {
    let jobs = Job::all(run)?;
    let ended_at_ms = jobs.iter().map(|job| job.ended_at_ms).max().unwrap_or(run.started_at_ms);
    let detail = if plus { Detail::Bins } else { Detail::Percentiles };
    let document = Document {
        version: VERSION,
        timestamp: ended_at_ms / 1000,
        timestamp_ms: ended_at_ms,
        time: ctime(ended_at_ms),
        global: Ordered(vec![("group_reporting".to_owned(), "1")]),
        jobs: jobs.iter().map(|job| entry(job, detail)).collect(),
        disk_util: Disk::all(run).into_iter().map(disk).collect(),
    };
    let text = serde_json::to_string_pretty(&document).expect("keys are texts and figures are finite");
    Ok(visible::json(&text).into_owned() + "\n")
}
