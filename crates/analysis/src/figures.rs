//! The inputs of all figures: counts, times and CPU time of one measurement.

use std::collections::BTreeMap;

use iotax_model::record::{DiskActivity, HostActivity, Measurement, Sample, Tallies};
use iotax_model::target::LayerKind;

use crate::percentile::percentile;
use crate::stats::median;
use iotax_model::Run;

/// Returns the I/Os per second: reads, writes, trims and metadata operations together; `None` for an import, or if the window has no
/// length.
pub(crate) fn iops(measurement: &Measurement) -> Option<f64> {
    rate(measurement, measurement.outcome.tallies.ios())
}

/// Returns the bytes per second, all directions together; `None` for an import, or if the window has no length.
pub(crate) fn bytes_per_s(measurement: &Measurement) -> Option<f64> {
    rate(measurement, measurement.outcome.tallies.bytes())
}

/// Converts a count to a rate per second; `None` if the window has no length, and for an import, whose counts may be unknown rather than 0.
fn rate(measurement: &Measurement, count: u64) -> Option<f64> {
    measurement.stated.is_none().then(|| per_second(measurement, count))?
}

/// Returns the mean service time in nanoseconds: reads, writes, trims and metadata operations together; `None` without I/O.
pub(crate) fn latency_mean(measurement: &Measurement) -> Option<f64> {
    measurement.outcome.tallies.latency().mean()
}

/// Returns a quantile of the service time in nanoseconds; `None` if fewer than ten I/Os lie beyond it.
pub(crate) fn latency_quantile(measurement: &Measurement, q: f64) -> Option<f64> {
    percentile(&measurement.outcome.tallies.latency(), q)
}

/// Returns the measurement's intervals that are at least half as long as the median interval; drops short ones such as the last.
pub(crate) fn whole_intervals(measurement: &Measurement) -> Vec<&Sample> {
    let lengths: Vec<f64> = measurement.samples.iter().map(|sample| sample.duration_ns as f64).collect();
    let least = median(&lengths).unwrap_or_default() / 2.0;
    measurement.samples.iter().filter(|sample| sample.duration_ns as f64 >= least).collect()
}

/// Returns the number of failed I/Os, those in the warm-up included; `None` for an import, whose source may not state it.
pub(crate) fn errors(measurement: &Measurement) -> Option<f64> {
    let failed = || measurement.outcome.errors.iter().map(|error| error.count).sum::<u64>();
    measurement.stated.is_none().then(|| failed() as f64)
}

/// Returns the start of the window in milliseconds since 1970-01-01 UTC; `None` if the source of an import does not state it.
pub fn began(measurement: &Measurement) -> Option<u64> {
    Some(measurement.started_at_ms).filter(|ms| *ms > 0 || measurement.stated.is_none())
}

/// Returns the length of the window in nanoseconds; `None` if the source of an import does not state it.
pub fn lasted(measurement: &Measurement) -> Option<u64> {
    Some(measurement.outcome.duration_ns).filter(|ns| *ns > 0 || measurement.stated.is_none())
}

/// Divides a count by the time of the measurement's rates ([`rate_ns`](iotax_model::record::Outcome::rate_ns)) in seconds; `None` for 0
/// seconds.
pub(crate) fn per_second(measurement: &Measurement, count: u64) -> Option<f64> {
    let ns = measurement.outcome.rate_ns();
    (ns > 0).then(|| count as f64 / (ns as f64 / 1e9))
}

/// Returns the CPU nanoseconds of the target's machine per I/O; `None` without I/O, or if the CPU time is unknown (see [`cpu_ns`]).
pub(crate) fn cpu_per_io(measurement: &Measurement) -> Option<f64> {
    per_io(measurement, cpu_ns(measurement)?)
}

/// Returns the CPU nanoseconds of the target's machine per GiB that streams carried; `None` for other work, without bytes, or if the CPU
/// time is unknown.
pub(crate) fn cpu_per_gib(measurement: &Measurement) -> Option<f64> {
    per_gib(measurement, cpu_ns(measurement)?)
}

/// Returns the CPU nanoseconds of the target's machine over the window: those of the participating processes and of
/// interrupts, or all busy time if the processes are unknown. `None` if not observed, or if 0, which means less than
/// one tick of the kernel's accounting.
fn cpu_ns(measurement: &Measurement) -> Option<u64> {
    let machine = measurement.machine()?;
    let threads = threads_ns(machine).zip(interrupts_ns(machine)).map(|(threads, irqs)| threads + irqs);
    threads.or_else(|| Some(machine.cpu?.busy_ns())).filter(|ns| *ns > 0)
}

/// Returns the CPU nanoseconds of the participating programs and of kernel threads; `None` if either is unknown.
fn threads_ns(machine: &HostActivity) -> Option<u64> {
    Some(machine.programs_ns? + machine.kernel_ns?)
}

/// Returns the CPU nanoseconds of interrupts that no thread is charged for; `None` if the CPU time of the machine or of the participating
/// processes is unknown. Some kernels also charge interrupts to the interrupted thread, so the result is limited to the rest of the busy
/// time.
pub(crate) fn interrupts_ns(machine: &HostActivity) -> Option<u64> {
    let cpu = machine.cpu?;
    Some(cpu.irq_ns.min(cpu.busy_ns().saturating_sub(threads_ns(machine)?)))
}

/// Returns the CPU nanoseconds of the load generator's process per I/O; `None` without I/O, and for an import.
pub(crate) fn engine_cpu_per_io(measurement: &Measurement) -> Option<f64> {
    // The CPU time of other tools was not observed.
    measurement.stated.is_none().then(|| per_io(measurement, measurement.outcome.cpu.total_ns()))?
}

pub(super) fn per_io(measurement: &Measurement, ns: u64) -> Option<f64> {
    let ios = measurement.outcome.tallies.ios();
    (ios > 0).then(|| ns as f64 / ios as f64)
}

/// Divides CPU nanoseconds by the GiB that streams carried; `None` for other work, or without bytes.
pub(super) fn per_gib(measurement: &Measurement, ns: u64) -> Option<f64> {
    let bytes = measurement.outcome.tallies.bytes();
    (is_stream(measurement) && bytes > 0).then(|| ns as f64 / (bytes as f64 / GIB))
}

/// Bytes in a GiB.
const GIB: f64 = (1_u64 << 30) as f64;

/// Returns whether the measurement carried network streams: their work is counted in bytes, and the number of packets is incidental.
pub fn is_stream(measurement: &Measurement) -> bool {
    let carried = measurement.outcome.carried.as_ref();
    carried.is_some_and(|carried| carried.probes.is_none() && !carried.flows.is_empty())
}

/// Returns the amount of work that a measurement's rate counts: I/Os, or bytes of streams.
pub fn done(measurement: &Measurement, tallies: &Tallies) -> u64 {
    if is_stream(measurement) { tallies.bytes() } else { tallies.ios() }
}

/// Returns whether the measurement ran to its end but nothing completed in the window and nothing failed, as during a stall of the storage.
/// Such a window has no figures.
pub(crate) fn is_empty(measurement: &Measurement) -> bool {
    let outcome = &measurement.outcome;
    done(measurement, &outcome.tallies) == 0 && outcome.errors.is_empty() && outcome.stop.is_none()
}

/// Number of windows of which one may have no I/O.
pub(crate) const TOLERATED_EMPTY: usize = 10;

/// Returns whether `empty` of `all` windows of a workload on a target may have no I/O: at most a tenth.
pub(crate) const fn may_be_empty(empty: usize, all: usize) -> bool {
    empty * TOLERATED_EMPTY <= all
}

/// Returns the activity of the devices at the bottom of a target's stack, by name.
///
/// If the stack names no observed device, all observed layers are returned, so some I/O counts more than once. That can hide a cache
/// hit, but never invent one.
pub fn bottom_disks<'a>(
    run: &'a Run,
    target: &'a str,
    activity: &'a HostActivity,
) -> impl Iterator<Item = (&'a str, &'a DiskActivity)> {
    bottom_of(run, target, &activity.disks)
}

/// Works like [`bottom_disks`], for any map from device names to activity.
pub fn bottom_of<'a>(
    run: &'a Run,
    target: &'a str,
    disks: &'a BTreeMap<String, DiskActivity>,
) -> impl Iterator<Item = (&'a str, &'a DiskActivity)> {
    let is_bottom = move |name: &str| {
        let records = run.targets.iter().filter(|record| record.name == target);
        records.flat_map(|r| &r.layers).any(|layer| layer.kind == LayerKind::Device && layer.name == name)
    };
    let known = disks.keys().any(|name| is_bottom(name));
    disks.iter().filter(move |(name, _)| !known || is_bottom(name)).map(|(name, disk)| (name.as_str(), disk))
}
