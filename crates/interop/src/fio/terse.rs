//! Writes fio's terse lines, version 3: fields by position, separated by semicolons.

use std::fmt::Write;

use super::job::{Direction, Disk, Job};
use super::json::whole;
use super::latency::{PERCENTILES, Shares, Spread, percentiles};
use super::{VERSION, shown_share};
use crate::Unfit;
use iotax_model::Run;

/// Number of percentile fields per direction.
const COLUMNS: usize = 20;
const NS_PER_US: u64 = 1_000;

/// Writes one line per job. Unknown figures are empty fields.
pub(super) fn text(run: &Run) -> Result<String, Unfit> {
    let disks: Vec<String> = Disk::all(run).iter().flat_map(disk).collect();
    let mut text = String::new();
    for job in Job::all(run)? {
        let mut fields = line(&job);
        fields.extend(disks.iter().cloned());
        // fio puts a description at the end.
        fields.push(plain(&job.description));
        let _ = writeln!(text, "{}", fields.join(";"));
    }
    Ok(text)
}

fn line(job: &Job<'_>) -> Vec<String> {
    let mut fields = vec!["3".to_owned(), VERSION.to_owned(), plain(&job.name)];
    fields.extend([job.group.to_string(), job.error().to_string()]);
    let [read, write, _] = &job.directions;
    fields.extend(direction(job, read));
    fields.extend(direction(job, write));
    let cpu = job.cpu_percent();
    fields.push(known(cpu.map(|(user, _)| format!("{user:.6}%"))));
    fields.push(known(cpu.map(|(_, system)| format!("{system:.6}%"))));
    fields.push(known(job.counts.map(|counts| counts.context_switches.to_string())));
    fields.push(known(job.counts.map(|counts| counts.major_faults.to_string())));
    fields.push(known(job.counts.map(|counts| counts.minor_faults.to_string())));
    // Shares of I/Os by queue depth, which iotax does not count.
    fields.extend((0..7).map(|_| known(None)));
    let shares =
        Shares::of(job.directions.iter().filter(|direction| direction.ios > 0).map(Direction::total));
    // The terse format has no classes below 1 us, so these shares count in its first class.
    let mut us = shares.us;
    us[0] += shares.ns.iter().sum::<f64>();
    fields.extend(us.iter().chain(&shares.ms).map(|share| format!("{:.2}%", shown_share(*share))));
    fields
}

fn direction(job: &Job<'_>, direction: &Direction) -> Vec<String> {
    let there = direction.ios > 0;
    let bw = direction.bytes_per_s.over(1024.0);
    let mut fields = vec![
        (direction.bytes / 1024).to_string(),
        whole(job.rate(direction.bytes) / 1024.0).to_string(),
        whole(job.rate(direction.ios)).to_string(),
        if there { job.runtime_ms() } else { 0 }.to_string(),
    ];
    let service = there.then_some(&direction.service);
    fields.extend(latency(Spread::default()));
    fields.extend(latency(Spread::of(service)));
    let counted = service.map(percentiles).unwrap_or_default();
    for index in 0..COLUMNS {
        let value = counted.get(index).map_or(0, |(_, ns)| ns / NS_PER_US);
        fields.push(PERCENTILES.get(index).map_or_else(|| "0%=0".to_owned(), |p| format!("{p:.6}%={value}")));
    }
    fields.extend(latency(Spread::of(there.then(|| direction.total()))));
    fields.extend([whole(bw.min).to_string(), whole(bw.max).to_string()]);
    fields.push(format!("{:.6}%", direction.share_of_group));
    fields.extend([format!("{:.6}", bw.mean), format!("{:.6}", bw.stddev)]);
    fields
}

/// Formats minimum, maximum, mean and standard deviation of latencies, in microseconds.
fn latency(spread: Spread) -> [String; 4] {
    let Spread { min, max, mean, stddev, .. } = spread.scaled(NS_PER_US);
    [min.to_string(), max.to_string(), format!("{mean:.6}"), format!("{stddev:.6}")]
}

fn disk(disk: &Disk) -> Vec<String> {
    let ms = |ms: Option<u64>| known(ms.map(|ms| ms.to_string()));
    let counts = [disk.reads, disk.writes, disk.read_merges, disk.write_merges];
    let mut fields = vec![plain(&disk.name)];
    fields.extend(counts.map(|count| count.to_string()));
    fields.extend([ms(disk.read_ms), ms(disk.write_ms), ms(disk.queued_ms())]);
    fields.push(format!("{:.2}%", disk.busy_percent));
    fields
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_default()
}

/// Replaces semicolons and newlines with underscores, because they would end a field.
fn plain(text: &str) -> String {
    text.replace([';', '\n'], "_")
}
