//! Writes a run as vdbench prints it: a line per interval, and an average that leaves out the first interval.
//!
//! The columns are those of vdbench 5.04.06. Unknown values are `NaN`, as in vdbench.

use std::fmt::{self, Write};

use iotax_model::record::{HostActivity, Measurement, Sample, Tallies, Tally};
use iotax_model::units::Bytes;
use iotax_model::workload::Workload;

use crate::Unfit;
use iotax_analysis::time::{month, utc};
use iotax_model::Run;
use iotax_report::mark::Mark;

/// First line of the file, which marks it as iotax's; vdbench prints no such line.
const FIRST: &str = "iotax in the form of vdbench 5.04.06\n";

pub(super) const MARK: Mark = Mark::start("vdbench", FIRST);

/// Writes a run in vdbench's form, with one run definition per measurement.
///
/// # Errors
/// The run has no measurement, or one with trims, metadata operations or fewer than two intervals.
pub fn text(run: &Run) -> Result<String, Unfit> {
    if run.measurements.is_empty() {
        return Err(Unfit(format!("run {} has no measurement yet", run.id)));
    }
    let mut text = format!("{FIRST}\n");
    for m in &run.measurements {
        refuse(run, m)?;
        definition(&mut text, run, m).expect("a text takes everything");
    }
    Ok(text)
}

fn refuse(run: &Run, m: &Measurement) -> Result<(), Unfit> {
    let refused = |why: &str| Err(Unfit(format!("run {}, workload {:?}: {why}", run.id, m.workload)));
    let tallies = &m.outcome.tallies;
    if tallies.trim.is_some() || tallies.meta.is_some() {
        return refused("vdbench's columns are about reads and writes only");
    }
    match m.samples.len() {
        0 => refused("there are no figures by interval, which vdbench's lines are"),
        1 => refused("there is one interval, and vdbench's average leaves the first one out"),
        _ => Ok(()),
    }
}

fn definition(text: &mut String, run: &Run, m: &Measurement) -> fmt::Result {
    let workload = run.plan.workloads.iter().find(|workload| workload.name == m.workload);
    let name = match run.plan.share_of(&m.workload) {
        Some((work, share)) => format!("{work}_({share}%)"),
        None => m.workload.clone(),
    };
    let name = if run.plan.targets.len() > 1 { format!("{}/{name}", m.target) } else { name };
    let seconds = m.outcome.duration_ns.div_ceil(1_000_000_000);
    let clock = |ns: u64| clock(m.started_at_ms + ns / 1_000_000);
    let is_curve = run.plan.curve().is_some_and(|curve| !curve.shares.is_empty());
    let highest = if is_curve { "Uncontrolled curve" } else { "Uncontrolled MAX" };
    let rate = workload.and_then(asked).unwrap_or_else(|| highest.to_owned());
    writeln!(
        text,
        "{} Starting RD={name}; I/O rate: {rate}; elapsed={seconds}; For loops: None\n",
        clock(0)
    )?;
    head(text, m.started_at_ms)?;
    for (number, sample) in (1..).zip(&m.samples) {
        let host = host(m, number);
        line(text, &clock(sample.at_ns), &number.to_string(), &Figures::of(&[sample], host.as_slice()))?;
    }
    let count = m.samples.len();
    let counted: Vec<&Sample> = m.samples.iter().skip(1).collect();
    let hosts: Vec<&HostActivity> = (2..=count).filter_map(|number| host(m, number)).collect();
    let figures = Figures::of(&counted, &hosts);
    line(text, &clock(m.outcome.duration_ns), &format!("avg_2-{count}"), &figures)?;
    writeln!(text)
}

/// Returns the requested rate of a workload in I/Os per second, that of all its concurrent jobs and clones together; `None` if a job runs
/// in a closed loop.
fn asked(workload: &Workload) -> Option<String> {
    let of_job = |job: &Workload| {
        let of_one = job.rate_iops.or_else(|| job.rate.map(|Bytes(rate)| rate / job.bs.0.max(1)))?;
        Some(of_one * u64::from(job.numjobs))
    };
    workload.jobs().map(of_job).sum::<Option<u64>>().map(|rate| rate.to_string())
}

/// Returns the host's activity in interval `number`, from 1; `None` if the host was not sampled in the same intervals.
fn host(m: &Measurement, number: usize) -> Option<&HostActivity> {
    m.host_samples.get(number.checked_sub(1)?).filter(|_| m.host_samples.len() == m.samples.len())
}

/// Formats the time of day in UTC.
fn clock(ms: u64) -> String {
    format!("{}.{:03}", &utc(ms)[11..19], ms % 1000)
}

fn head(text: &mut String, ms: u64) -> fmt::Result {
    let day = utc(ms);
    writeln!(
        text,
        "{} {}, {}  interval        i/o   MB/sec   bytes   read     resp     read    write     resp     resp queue  cpu%  cpu%",
        month(&day),
        &day[8..10],
        &day[..4]
    )?;
    writeln!(
        text,
        "                             rate  1024**2     i/o    pct     time     resp     resp      max   stddev depth sys+u   sys"
    )
}

/// Figures of an output line. Latencies are in nanoseconds.
struct Figures {
    rate: f64,
    mib_per_s: f64,
    bytes: u64,
    read_percent: f64,
    mean: f64,
    read: f64,
    write: f64,
    max: f64,
    stddev: f64,
    depth: f64,
    cpu: Option<(f64, f64)>,
}

impl Figures {
    fn of(samples: &[&Sample], hosts: &[&HostActivity]) -> Self {
        let mut all = Tallies::default();
        samples.iter().for_each(|sample| all.merge(&sample.tallies));
        let ns = samples.iter().map(|sample| sample.duration_ns).sum::<u64>() as f64;
        let per_s = |amount: u64| if ns > 0.0 { amount as f64 * 1e9 / ns } else { 0.0 };
        let latency = all.response().unwrap_or_else(|| all.latency());
        let mean = |tally: Option<&Tally>| {
            let times = tally.map(|tally| tally.response.as_ref().unwrap_or(&tally.latency));
            times.and_then(iotax_model::Histogram::mean).unwrap_or_default()
        };
        let (ios, reads) = (all.ios(), all.read.as_ref().map_or(0, |tally| tally.ios));
        Self {
            rate: per_s(ios),
            mib_per_s: per_s(all.bytes()) / f64::from(1 << 20),
            bytes: all.bytes().checked_div(ios).unwrap_or_default(),
            read_percent: if ios > 0 { 100.0 * reads as f64 / ios as f64 } else { 0.0 },
            mean: latency.mean().unwrap_or_default(),
            read: mean(all.read.as_ref()),
            write: mean(all.write.as_ref()),
            max: latency.max().unwrap_or_default() as f64,
            stddev: latency.stddev().unwrap_or_default(),
            // The mean number of I/Os in flight, by Little's law.
            depth: if ns > 0.0 { latency.sum() as f64 / ns } else { 0.0 },
            cpu: cpu(hosts),
        }
    }
}

/// Returns CPU use in percent of all CPUs: first user and kernel time together, then kernel time. `None` without intervals, or if it is
/// unknown for one.
fn cpu(hosts: &[&HostActivity]) -> Option<(f64, f64)> {
    let (mut busy, mut kernel, mut total) = (0, 0, 0);
    for host in hosts {
        let cpu = host.cpu?;
        let system = cpu.system_ns + cpu.irq_ns;
        busy += cpu.user_ns + system;
        kernel += system;
        total += cpu.user_ns + system + cpu.idle_ns + cpu.steal_ns + cpu.iowait_ns.unwrap_or_default();
    }
    let percent = |ns: u64| 100.0 * ns as f64 / total as f64;
    (total > 0).then(|| (percent(busy), percent(kernel)))
}

fn line(text: &mut String, clock: &str, interval: &str, figures: &Figures) -> fmt::Result {
    let Figures { rate, mib_per_s, bytes, read_percent, depth, .. } = figures;
    write!(text, "{clock}{interval:>10}{rate:11.2}{mib_per_s:9.2}{bytes:8}{read_percent:7.2}")?;
    for ns in [figures.mean, figures.read, figures.write, figures.max, figures.stddev] {
        write!(text, "{:9.3}", ns / 1e6)?;
    }
    let shown = |part: Option<f64>| part.map_or_else(|| "NaN".to_owned(), |percent| format!("{percent:.1}"));
    let (both, kernel) = (figures.cpu.map(|(both, _)| both), figures.cpu.map(|(_, kernel)| kernel));
    writeln!(text, "{depth:6.1}{:>6}{:>6}", shown(both), shown(kernel))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::workload::WorkloadKeys;

    #[test]
    fn the_rate_asked_for_is_that_of_all_jobs_and_unknown_if_one_is_a_closed_loop() {
        let workload = |keys: WorkloadKeys| keys.complete(&WorkloadKeys::default());
        let paced =
            || workload(WorkloadKeys { rate_iops: Some(250), numjobs: Some(2), ..WorkloadKeys::default() });
        let with = |other| Workload { beside: vec![other], ..paced() };
        let in_bytes =
            WorkloadKeys { rate: Some(Bytes(4 << 20)), bs: Some(Bytes(4096)), ..WorkloadKeys::default() };
        assert_eq!(asked(&paced()).as_deref(), Some("500"));
        assert_eq!(asked(&with(workload(in_bytes))).as_deref(), Some("1524"));
        assert_eq!(asked(&with(workload(WorkloadKeys::default()))), None);
    }
}
