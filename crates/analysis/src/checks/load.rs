//! Finds other users of the device or the CPUs during a measurement.

use iotax_model::record::{DiskActivity, Measurement, Tallies, Tally};
use iotax_model::target::LayerKind;
use iotax_model::units::human;
use iotax_model::workload::{SyncMode, Test};
use iotax_model::{WarningKind, Workload};

use super::Case;
use crate::figures::bottom_of;
use crate::finding::Finding;

/// Largest number of bytes read by a device per byte requested that the measurement itself explains.
const READS: f64 = 1.25;
/// Largest number of bytes written by a device per byte requested that the measurement itself explains: with a journal, metadata and a
/// mirror's other half.
const WRITES: f64 = 2.5;
/// Page size in bytes: the smallest write of the kernel or a filesystem.
const PAGE: u64 = 4096;
/// Bytes that a journal may write per flush: a descriptor, some metadata and a commit record.
const FLUSH: u64 = 16 << 10;
/// Background I/O of a quiet machine in bytes per second: logs, metadata, iotax's own records.
const QUIET: f64 = 4e6;
/// Largest tolerated CPU time of other programs, as a share of all CPU time.
const CPU: f64 = 0.1;

/// Finds a device that moved far more data than the measurement requested, because another program used the device.
pub(super) fn device(case: &Case<'_>) -> Option<Finding> {
    // The bytes that a database writes are only known together with those that it reads.
    let is_unknown = case.workload.kind.test().is_some_and(Test::is_of_transactions);
    if is_unknown || case.is_amplified() || case.is_gathered() || case.has_others() {
        return None;
    }
    let machine = case.m.machine()?;
    let seconds = machine.duration_ns as f64 / 1e9;
    let (read, written) = asked(case.m);
    // A write that covers only part of a block may read the block first.
    let most_read = READS * read + due(case) + QUIET * seconds;
    let most_written = WRITES * due(case) + QUIET * seconds;
    let mut evidence = Vec::new();
    for (name, disk) in bottom_of(case.run, &case.m.target, &machine.disks) {
        // Buffered reads include read-ahead.
        if case.is_direct() && disk.read_bytes as f64 > most_read {
            evidence.push(more(name, "read", disk.read_bytes, read, seconds, disk));
        }
        if disk.write_bytes as f64 > most_written {
            evidence.push(more(name, "wrote", disk.write_bytes, written, seconds, disk));
        }
    }
    let remedy = "someone else used the device: measure when it is idle, or stop what iotop(8) names";
    (!evidence.is_empty()).then(|| case.finding(WarningKind::OtherLoad, evidence.join("; "), remedy))
}

fn more(name: &str, did: &str, bytes: u64, asked: f64, seconds: f64, disk: &DiskActivity) -> String {
    let ios = if did == "read" { disk.reads } else { disk.writes };
    let others = bytes as f64 - asked;
    format!(
        "{name} {did} {} in {ios} I/Os, {} of them asked for by this measurement: {}/s are not its own, {:.0}% of all",
        human::bytes(bytes),
        human::bytes(whole(asked)),
        human::bytes(whole(others / seconds.max(1e-3))),
        others / bytes as f64 * 100.0
    )
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes, not below zero")]
fn whole(bytes: f64) -> u64 {
    bytes.max(0.0).round() as u64
}

/// Returns the bytes that the measured workload and its noisy neighbour should write to a device that writes each byte once: whole pages,
/// plus a journal record per flush.
fn due(case: &Case<'_>) -> f64 {
    let of = |workload: Option<&Workload>, tallies: &Tallies| {
        let ios = |tally: &Option<Tally>| tally.as_ref().map_or(0, |tally| tally.ios);
        let pages = tallies.write.as_ref().map_or(0, |tally| {
            let each = tally.bytes.checked_div(tally.ios).unwrap_or(0);
            (tally.ios * each.next_multiple_of(PAGE)).max(tally.bytes)
        });
        // With a sync mode, every write is flushed.
        let safe = workload.is_some_and(|workload| workload.sync != SyncMode::None);
        let flushes = ios(&tallies.sync) + if safe { ios(&tallies.write) } else { 0 };
        (pages + flushes * FLUSH) as f64
    };
    let neighbour = case.m.neighbour.as_ref().map_or(0.0, |share| {
        let known = case.run.plan.neighbours.iter().find(|neighbour| neighbour.target.name == share.name);
        of(known.map(|neighbour| &neighbour.workload), &share.tallies)
    });
    of(Some(case.workload), &case.m.outcome.tallies) + neighbour
}

/// Returns the bytes read and written by the measured workload and its noisy neighbour.
fn asked(m: &Measurement) -> (f64, f64) {
    let neighbour = m.neighbour.as_ref().map(|share| &share.tallies);
    let all = || std::iter::once(&m.outcome.tallies).chain(neighbour);
    let read = all().filter_map(|tallies| tallies.read.as_ref()).map(|tally| tally.bytes as f64).sum();
    let written = all().filter_map(|tallies| tallies.write.as_ref()).map(|tally| tally.bytes as f64).sum();
    (read, written)
}

impl Case<'_> {
    /// Returns whether other targets are measured concurrently, possibly on the same device.
    fn has_others(&self) -> bool {
        self.run.plan.is_together()
    }

    /// Returns whether the workload makes buffered writes smaller than a page: the kernel may then write the same page several times.
    fn is_gathered(&self) -> bool {
        self.workload.writes() && !self.workload.direct && self.workload.min_bs().0 < PAGE
    }

    /// Returns whether a layer may move far more data than requested: copy-on-write, RAID, a write cache, or an area with holes or shared
    /// extents.
    fn is_amplified(&self) -> bool {
        let copies = |name: &str| ["btrfs", "zfs", "bcachefs"].contains(&name);
        let layers = || self.record.into_iter().flat_map(|record| &record.layers);
        let stack = layers().any(|layer| {
            matches!(layer.kind, LayerKind::Md | LayerKind::Snapshot | LayerKind::Zvol)
                || layer.kind == LayerKind::Filesystem && copies(&layer.name)
        });
        let Some(spec) = self.spec else { return true };
        let shared = self
            .record
            .and_then(|record| record.allocation)
            .is_some_and(|allocation| allocation.shared + allocation.holes + allocation.unwritten > 0);
        // Fill data that is still in a cache is written while something else is measured.
        let late = spec.stack.is_cached();
        stack || spec.stack.amplifies() || late || shared && self.workload.modifies()
    }
}

/// Finds CPUs that were busy with other programs.
pub(super) fn cpu(case: &Case<'_>) -> Option<Finding> {
    let m = case.m;
    // A neighbour's CPU time is not recorded separately.
    let host = m.host.as_ref().filter(|_| m.neighbour.is_none() && !case.has_others())?;
    let cpu = host.cpu?;
    let all = cpu.busy_ns() + cpu.idle_ns + cpu.iowait_ns.unwrap_or(0);
    // Kernel threads are not programs that a user could stop.
    let own = host.programs_ns? + host.kernel_ns? + host.watching_ns?;
    // Interrupt time belongs to the devices, so only user and system time count.
    let others = (cpu.user_ns + cpu.system_ns).saturating_sub(own);
    let share = others as f64 / all as f64;
    (all > 0 && share > CPU).then(|| {
        let evidence = format!(
            "programs that are not part of the measurement used {} of CPU time in {}: {:.0}% of this host's CPUs, of which {:.0}% \
             were busy",
            human::time(others as f64),
            human::time(host.duration_ns as f64),
            share * 100.0,
            cpu.busy_ns() as f64 / all as f64 * 100.0
        );
        let remedy = "end them, or measure when the machine is idle; top(1) names them";
        case.finding(WarningKind::OtherLoad, evidence, remedy)
    })
}
