//! Writes fio's human-readable output, which many scripts parse.

use std::fmt::{self, Write};

use iotax_model::Histogram;
use iotax_model::units::Bytes;
use iotax_model::workload::Workload;

use super::job::{DIRECTIONS, Direction, Disk, Job};
use super::json::whole;
use super::latency::{CLASSES, LAST_CLASS, Shares, Spread, percentiles};
use super::{VERSION, ctime, shown_share};
use crate::Unfit;
use iotax_model::Run;

/// Maximum number of characters in a number as fio prints it, including the decimal point.
const FIGURES: usize = 4;
const NS_PER_US: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;

/// Writes the run: job headers, results of each job, group summaries, disks.
pub(super) fn text(run: &Run) -> Result<String, Unfit> {
    let jobs = Job::all(run)?;
    let mut text = String::new();
    written(print(&mut text, &jobs, &Disk::all(run)));
    Ok(text)
}

fn written(result: fmt::Result) {
    result.expect("a text takes everything");
}

fn print(text: &mut String, jobs: &[Job<'_>], disks: &[Disk]) -> fmt::Result {
    for job in jobs {
        head(text, job)?;
    }
    let threads: u32 = jobs.iter().map(|job| job.workload.numjobs).sum();
    writeln!(text, "{VERSION}\nStarting {threads} thread{}\n", if threads == 1 { "" } else { "s" })?;
    for job in jobs {
        body(text, job)?;
    }
    for group in jobs.chunk_by(|one, other| one.group == other.group) {
        status(text, group)?;
    }
    if !disks.is_empty() {
        writeln!(text, "\nDisk stats (read/write):")?;
    }
    for disk in disks {
        let Disk { name, reads, writes, read_merges, write_merges, busy_percent, .. } = disk;
        write!(text, "  {name}: ios={reads}/{writes}, merge={read_merges}/{write_merges}")?;
        if let (Some(read), Some(write), Some(both)) = (disk.read_ms, disk.write_ms, disk.queued_ms()) {
            write!(text, ", ticks={read}/{write}, in_queue={both}")?;
        }
        writeln!(text, ", util={busy_percent:.2}%")?;
    }
    Ok(())
}

/// Writes the line that describes a job's settings.
fn head(text: &mut String, job: &Job<'_>) -> fmt::Result {
    let Workload { rw, iodepth, numjobs, ioengine, .. } = job.workload;
    let [read, write, trim] = lengths(job.workload);
    let ioengine = job.ioengine.unwrap_or(*ioengine);
    writeln!(
        text,
        "{}: (g={}): rw={rw}, bs=(R) {read}, (W) {write}, (T) {trim}, ioengine={ioengine}, iodepth={iodepth}",
        job.name, job.group
    )?;
    if *numjobs > 1 { writeln!(text, "...") } else { Ok(()) }
}

/// Returns the smallest and the largest I/O size of each direction, as text.
fn lengths(workload: &Workload) -> [String; 3] {
    let range = |min: Bytes, max: Bytes| {
        let shown = |bytes: Bytes| amount(bytes.0, FIGURES, 1024, "B");
        format!("{}-{}", shown(min), shown(max))
    };
    if let Some(by) = &workload.bsrange {
        return [&by.read, &by.write, &by.trim].map(|one| range(one.min(), one.max()));
    }
    if let Some(by) = &workload.bssplit {
        return [&by.read, &by.write, &by.trim].map(|one| {
            let all: Vec<Bytes> = one.shares().map(|(length, _)| length).collect();
            let least = all.iter().min().copied().unwrap_or(workload.bs);
            range(least, all.iter().max().copied().unwrap_or(workload.bs))
        });
    }
    [workload.bs; 3].map(|bs| range(bs, bs))
}

/// Writes the result lines of a job.
fn body(text: &mut String, job: &Job<'_>) -> fmt::Result {
    let (Job { name, group, .. }, jobs) = (job, job.workload.numjobs);
    let (error, ended) = (job.error(), ctime(job.ended_at_ms));
    writeln!(text, "{name}: (groupid={group}, jobs={jobs}): err={error:2}: pid=0: {ended}")?;
    writeln!(text, "  Description  : [{}]", job.description)?;
    for (word, direction) in DIRECTIONS.into_iter().zip(&job.directions).filter(|(_, d)| d.ios > 0) {
        moved(text, job, word, direction)?;
    }
    let shares =
        Shares::of(job.directions.iter().filter(|direction| direction.ios > 0).map(Direction::total));
    classes(text, "nsec", &shares.ns)?;
    classes(text, "usec", &shares.us)?;
    classes(text, "msec", &shares.ms)?;
    if let Some(tally) = job.sync.as_ref().filter(|tally| tally.ios > 0) {
        writeln!(text, "  fsync/fdatasync/sync_file_range:")?;
        latency(text, "sync", Spread::of(Some(&tally.latency)))?;
        quantiles(text, "sync", &tally.latency)?;
    }
    if let Some((user, system)) = job.cpu_percent() {
        write!(text, "  cpu          : usr={user:3.2}%, sys={system:3.2}%")?;
        if let Some(counts) = job.counts {
            let (switches, major, minor) =
                (counts.context_switches, counts.major_faults, counts.minor_faults);
            write!(text, ", ctx={switches}, majf={major}, minf={minor}")?;
        }
        writeln!(text)?;
    }
    let [read, write, trim] = &job.directions;
    let syncs = job.sync.as_ref().map_or(0, |tally| tally.ios);
    writeln!(
        text,
        "     issued rwts: total={},{},{},{syncs} short={},{},{},0 dropped=0,0,0,0",
        read.ios, write.ios, trim.ios, read.short, write.short, trim.short
    )?;
    let failed: u64 = job.errors.iter().map(|error| error.count).sum();
    if failed > 0 {
        writeln!(text, "     errors    : total={failed}, first_error={error}/<{}>", job.errors[0].error)?;
    }
    writeln!(text, "     latency   : target=0, window=0, percentile=100.00%, depth={}", job.workload.iodepth)
}

/// Writes the lines of one direction of a job.
fn moved(text: &mut String, job: &Job<'_>, word: &str, direction: &Direction) -> fmt::Result {
    let iops = amount(whole(job.rate(direction.ios)), FIGURES, 1000, "");
    let rate = both(whole(job.rate(direction.bytes)), "/s");
    let io = amount(direction.bytes, FIGURES, 1024, "B");
    let zones = if word == "write" { "; 0 zone resets" } else { "" };
    writeln!(text, "  {word}: IOPS={iops}, BW={rate}({io}/{}msec){zones}", job.runtime_ms())?;
    latency(text, "clat", Spread::of(Some(&direction.service)))?;
    latency(text, "lat", Spread::of(Some(direction.total())))?;
    quantiles(text, "clat", &direction.service)?;
    if let Some(response) = &direction.response {
        quantiles(text, "lat", response)?;
    }
    if direction.bytes_per_s.samples == 0 {
        return Ok(());
    }
    let (unit, scale) = if direction.bytes_per_s.mean / 1024.0 > f64::from(1 << 20) {
        ("MiB", f64::from(1 << 20))
    } else {
        ("KiB", 1024.0)
    };
    let bw = direction.bytes_per_s.over(scale);
    writeln!(
        text,
        "   bw ({unit:>5}/s): min={:5}, max={:5}, per={:3.2}%, avg={:5.2}, stdev={:5.2}, samples={}",
        whole(bw.min),
        whole(bw.max),
        direction.share_of_group,
        bw.mean,
        bw.stddev,
        bw.samples
    )?;
    let iops = direction.iops;
    writeln!(
        text,
        "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
        whole(iops.min),
        whole(iops.max),
        iops.mean,
        iops.stddev,
        iops.samples
    )
}

/// Returns the unit in which fio shows latencies with this minimum, maximum and standard deviation, all in nanoseconds: the unit's length in
/// nanoseconds and its name.
fn unit(min: u64, max: u64, stddev: f64) -> (u64, &'static str) {
    if min > 2 * NS_PER_MS && max >= 100 * NS_PER_MS && stddev > NS_PER_MS as f64 {
        (NS_PER_MS, "msec")
    } else if min > 2 * NS_PER_US && max >= 100 * NS_PER_US && stddev > NS_PER_US as f64 {
        (NS_PER_US, "usec")
    } else {
        (1, "nsec")
    }
}

fn latency(text: &mut String, name: &str, spread: Spread) -> fmt::Result {
    let (scale, unit) = unit(spread.min, spread.max, spread.stddev);
    let Spread { min, max, mean, stddev, .. } = spread.scaled(scale);
    let end = |value: u64| amount(value, 6, 1000, "");
    writeln!(
        text,
        "    {name:>4} ({unit}): min={}, max={}, avg={mean:5.2}, stdev={stddev:5.2}",
        end(min),
        end(max)
    )
}

/// Writes percentiles, with as many on a line as fit in 80 columns.
fn quantiles(text: &mut String, name: &str, histogram: &Histogram) -> fmt::Result {
    let all = percentiles(histogram);
    let ends = all.iter().map(|(_, ns)| *ns);
    let (min, max) = (ends.clone().min().unwrap_or_default(), ends.max().unwrap_or_default());
    let (scale, unit) = unit(min, max, f64::INFINITY);
    let width = max.div_ceil(scale).to_string().len().max(5);
    writeln!(text, "    {name} percentiles ({unit}):")?;
    let lines = all.chunks(73 / (12 + width));
    let count = lines.len();
    for (number, line) in (1..).zip(lines) {
        let shown = line.iter().map(|(p, ns)| format!("{p:5.2}th=[{:width$}]", ns.div_ceil(scale)));
        let comma = if number < count { "," } else { "" };
        writeln!(text, "     | {}{comma}", shown.collect::<Vec<_>>().join(", "))?;
    }
    Ok(())
}

/// Writes the shares above 0 of I/Os by latency class, five per line.
fn classes(text: &mut String, unit: &str, shares: &[f64]) -> fmt::Result {
    let names = CLASSES.iter().chain([&LAST_CLASS]).map(ToString::to_string);
    let names = names.chain([format!(">={LAST_CLASS}")]);
    let there: Vec<String> = names
        .zip(shares)
        .filter(|(_, share)| **share > 0.0)
        .map(|(name, share)| format!("{name}={:3.2}%", shown_share(*share)))
        .collect();
    there.chunks(5).try_for_each(|line| writeln!(text, "  lat ({unit})   : {}", line.join(", ")))
}

/// Writes the summary of a group of concurrent jobs.
fn status(text: &mut String, group: &[Job<'_>]) -> fmt::Result {
    writeln!(text, "\nRun status group {} (all jobs):", group[0].group)?;
    for (index, word) in DIRECTIONS.into_iter().enumerate() {
        let there: Vec<&Job<'_>> = group.iter().filter(|job| job.directions[index].ios > 0).collect();
        let bytes: u64 = there.iter().map(|job| job.directions[index].bytes).sum();
        let rates = there.iter().map(|job| whole(job.rate(job.directions[index].bytes)));
        let times = there.iter().map(|job| job.runtime_ms());
        let (Some(slowest), Some(fastest)) = (rates.clone().min(), rates.max()) else { continue };
        let (Some(shortest), Some(longest)) = (times.clone().min(), times.max()) else { continue };
        let all = (u128::from(bytes) * 1000 / u128::from(longest.max(1))).try_into().unwrap_or(u64::MAX);
        let of = |base: u64, bytes: u64| amount(bytes, FIGURES, base, "B");
        let range = |base: u64| format!("{}/s-{}/s", of(base, slowest), of(base, fastest));
        writeln!(
            text,
            "{:>7}: bw={}, {} ({}), io={}, run={shortest}-{longest}msec",
            word.to_uppercase(),
            both(all, "/s"),
            range(1024),
            range(1000),
            both(bytes, ""),
        )?;
    }
    Ok(())
}

/// Formats bytes with a binary prefix and, in parentheses, with a decimal prefix.
fn both(bytes: u64, per: &str) -> String {
    format!("{}{per} ({}{per})", amount(bytes, FIGURES, 1024, "B"), amount(bytes, FIGURES, 1000, "B"))
}

/// Formats an amount with a unit prefix, its number in at most `figures` characters: `32.7k`, `1426MiB`, `64.0KiB`.
fn amount(value: u64, figures: usize, base: u64, unit: &str) -> String {
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let prefixes = if base == 1024 { BINARY } else { DECIMAL };
    let (mut whole, mut rest, mut power) = (value, None, 0);
    while whole.to_string().len() > figures && power + 1 < prefixes.len() {
        (whole, rest, power) = (whole / base, Some(whole % base), power + 1);
    }
    let digits = whole.to_string().len();
    let tail = format!("{}{unit}", prefixes[power]);
    let Some(rest) = rest else { return format!("{whole}{tail}") };
    let decimals = figures.saturating_sub(digits + 1);
    format!("{:.decimals$}{tail}", whole as f64 + rest as f64 / base as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_set_as_fio_sets_them() {
        // As fio 3.33 prints them.
        for (value, figures, base, unit, shown) in [
            (32681, 4, 1000, "", "32.7k"),
            (22820, 4, 1000, "", "22.8k"),
            (9999, 4, 1000, "", "9999"),
            (133_869_568, 4, 1024, "B", "128MiB"),
            (133_869_568, 4, 1000, "B", "134MB"),
            (1_495_569_408, 4, 1024, "B", "1426MiB"),
            (1_495_569_408, 4, 1000, "B", "1496MB"),
            (65536, 4, 1024, "B", "64.0KiB"),
            (4096, 4, 1024, "B", "4096B"),
            (4_113_400, 6, 1000, "", "4113.4k"),
            (0, 4, 1000, "", "0"),
        ] {
            assert_eq!(amount(value, figures, base, unit), shown, "{value}");
        }
    }

    #[test]
    fn units_of_latencies_are_chosen_as_fio_chooses_them() {
        assert_eq!(unit(210, 4_113_400, 46_319.0).1, "nsec");
        assert_eq!(unit(7_900, 269_100, 6_097.0).1, "usec");
        assert_eq!(unit(2_100_000, 200_000_000, 1_500_000.0).1, "msec");
    }
}
