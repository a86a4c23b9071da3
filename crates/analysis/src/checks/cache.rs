//! Finds caches that answered I/O in place of the device.

use iotax_model::record::{CacheDrop, DiskActivity, LayerCounters, Tallies, Tally};
use iotax_model::target::PlannedLayer;
use iotax_model::units::human;
use iotax_model::{TargetSpec, WarningKind};

use super::Case;
use crate::figures::bottom_of;
use crate::finding::Finding;

/// Smallest share of the requested bytes that the bottom devices must have transferred.
const SERVED: f64 = 0.5;
/// Share of a target that may stay cached after its caches were dropped: pages in use cannot be dropped.
const LEFT: f64 = 0.01;
/// Shortest window for this check, in nanoseconds. The host sees a window's start and end by messages that may be 50 ms late; in shorter
/// windows the bytes moved in that time distort the result.
const SHORTEST_NS: u64 = 200_000_000;
/// Share of holes and unwritten space in the area above which they explain why the device saw no I/O.
const HOLES: f64 = 0.1;

/// Finds caches that could not be dropped before the measurement, or of which more than 1% stayed.
pub(super) fn kept(case: &Case<'_>) -> Option<Finding> {
    let m = case.m;
    let kept = |machine: &str, drop: Option<CacheDrop>| match drop? {
        CacheDrop::Nothing => Some(format!("{machine}: nothing was dropped")),
        CacheDrop::Target { of, left: Some(left) } if left as f64 > LEFT * of as f64 => Some(format!(
            "{machine}: the target's files and devices were dropped, {} of their {} stayed",
            human::bytes(left),
            human::bytes(of)
        )),
        CacheDrop::Target { .. } | CacheDrop::Machine => None,
    };
    let evidence: Vec<String> = [kept("on the host", m.host_cache), kept("in the guest", m.guest_cache)]
        .into_iter()
        .flatten()
        .collect();
    if evidence.is_empty() {
        return None;
    }
    let remedy = "run as the owner of the files or as root, on a filesystem on a disk, while no other program has them mapped";
    Some(case.finding(WarningKind::CacheKept, evidence.join("; "), remedy))
}

/// Finds direct reads of which the devices served less than half of the bytes, or of which ZFS's cache answered more than half.
pub(super) fn answered(case: &Case<'_>) -> Option<Finding> {
    if let Some(finding) = answered_by_arc(case) {
        return Some(finding);
    }
    let asked = case.m.outcome.tallies.read.as_ref()?.bytes;
    let served = of_device(case, |disk| disk.read_bytes, |tallies| tallies.read.as_ref())?;
    let share = short(asked, served)?;
    let evidence = format!(
        "{} read {} directly, the device served {} ({:.0}%): this measured {}",
        case.asker(),
        human::bytes(asked),
        human::bytes(served),
        share * 100.0,
        measured_instead(case)
    );
    let rest = "fill the area first, or make it larger than every cache";
    let remedy = format!("a cache below answered: {}", past_the_cache(case, PAST_THE_ARC, Some(rest)));
    Some(case.finding(WarningKind::CacheLie, evidence, &remedy).unusable_if(true))
}

/// Setting of a `zfs` layer that keeps data out of ZFS's cache in memory (ARC), so that reads reach the disk.
const PAST_THE_ARC: &str = "primarycache = \"metadata\"";

/// Finds direct random reads of which ZFS's cache in memory answered more than half. ZFS reads whole blocks, so that bytes at the disk can
/// exceed those of the program although few of its reads reached the disk. Direct I/O of OpenZFS 2.3, which bypasses the cache, is in
/// neither count.
fn answered_by_arc(case: &Case<'_>) -> Option<Finding> {
    let arc = arc(case)?;
    let asked = case.m.outcome.tallies.read.as_ref()?.ios;
    if !case.is_direct() || !case.workload.rw.is_random() || case.m.outcome.duration_ns < SHORTEST_NS {
        return None;
    }
    let from_disk = arc.of(LayerCounters::ARC_MISSES) + arc.of(LayerCounters::ARC_PREFETCHED);
    let share = short(asked, from_disk).filter(|_| arc.of(LayerCounters::ARC_HITS) > from_disk)?;
    let evidence = format!(
        "{} read {} times directly, for which ZFS read {} blocks from its disks ({:.0}%): its cache in memory (ARC) answered the rest",
        case.asker(),
        human::grouped(asked),
        human::grouped(from_disk),
        share * 100.0
    );
    let remedy = format!(
        "direct I/O does not pass the ARC: {}",
        past_the_cache(case, PAST_THE_ARC, Some("make the area larger than the ARC (zfs_arc_max)"))
    );
    Some(case.finding(WarningKind::CacheLie, evidence, &remedy).unusable_if(true))
}

/// Returns the counters of ZFS's cache in memory; `None` for targets on other storage.
fn arc<'a>(case: &Case<'a>) -> Option<&'a LayerCounters> {
    case.m.counters.iter().find(|counters| counters.layer == LayerCounters::ARC)
}

/// Finds acknowledged direct writes of which less than half of the bytes had reached the devices by the window's end.
pub(super) fn put_off(case: &Case<'_>) -> Option<Finding> {
    let outcome = &case.m.outcome;
    let acknowledged = outcome.tallies.write.as_ref()?.bytes;
    let content = case.workload.content();
    if content.filler_percentage > 0 || content.dedupe_percentage > 0 {
        // Layers may compress or deduplicate this data; a separate check reports that.
        return None;
    }
    let taken = of_device(case, |disk| disk.write_bytes, |tallies| tallies.write.as_ref())?;
    let share = short(acknowledged, taken)?;
    let flushed = bottom_of(case.run, &case.m.target, &case.m.machine()?.flushed);
    let flushed: u64 = flushed.map(|(_, disk)| disk.write_bytes).sum();
    let flush = outcome.flush_ns.map(|ns| {
        let rest = match flushed {
            0 => "nothing".into(),
            bytes => format!("another {}", human::bytes(bytes)),
        };
        format!("; the flush afterwards took {}, in which the device got {rest}", human::time(ns as f64))
    });
    let evidence = format!(
        "{} was told that {} had been written directly, the device got {} of it in the window ({:.0}%){}: this measured {}",
        case.asker(),
        human::bytes(acknowledged),
        human::bytes(taken),
        share * 100.0,
        flush.unwrap_or_default(),
        memory(case)
    );
    let is_kept = case.spec.is_none_or(|spec| spec.stack.ignores_flushes().is_none());
    let rest = is_kept.then_some("sync = \"dsync\" to count a write when it is safe");
    let remedy =
        format!("a cache below took the writes: {}", past_the_cache(case, "sync = \"always\"", rest));
    Some(case.finding(WarningKind::CacheLie, evidence, &remedy).unusable_if(true))
}

/// Returns the remedies as text: the setting that bypasses the target's topmost cache (`zfs`, if that is ZFS's cache), then `rest`, if
/// given.
fn past_the_cache(case: &Case<'_>, zfs: &str, rest: Option<&str>) -> String {
    let layers = case.spec.map(|spec| spec.stack.layers()).unwrap_or_default();
    let cached = |layer: &&PlannedLayer| layer.kind().cache().is_some_and(|mode| !mode.direct());
    let key = layers.iter().rev().find(cached).map(|layer| layer.kind().key());
    let setting = match key {
        None if case.spec.is_some_and(|spec| spec.guest().is_none()) => None,
        None | Some("guest") => Some("use cache = \"none\" for the guest".to_owned()),
        Some("xen") => Some("use backend = \"phy\" for the Xen domain".to_owned()),
        Some("loop") => Some("use direct_io = true for the loop device".to_owned()),
        Some("zfs") => Some(format!("use {zfs} for zfs")),
        Some(key @ ("virtio" | "fuse")) => Some(format!("use cache = \"none\" for {key}")),
        Some("nbd") => Some("use server = \"qemu-storage-daemon\" and cache = \"none\" for nbd".to_owned()),
        Some("virtiofs") => Some("use allow_direct_io = true for virtiofs".to_owned()),
        Some("rbd") => Some("leave buffered_read out, or use cache = \"none\" above rbd".to_owned()),
        Some(key) => Some(format!("{key} keeps files in memory, which is part of what it is")),
    };
    [setting.as_deref(), rest].into_iter().flatten().collect::<Vec<_>>().join(", or ")
}

/// Returns the bytes moved by the bottom devices, without those of a noisy neighbour. `None` if the I/O need not reach the devices, if no
/// device was observed, or if the devices were observed for less than 200 ms.
fn of_device(
    case: &Case<'_>,
    bytes: fn(&DiskActivity) -> u64,
    of_neighbour: fn(&Tallies) -> Option<&Tally>,
) -> Option<u64> {
    let machine = case.m.machine().filter(|machine| case.is_direct() && !machine.disks.is_empty())?;
    if machine.duration_ns.min(case.m.outcome.duration_ns) < SHORTEST_NS {
        return None;
    }
    let all: u64 = bottom_of(case.run, &case.m.target, &machine.disks).map(|(_, disk)| bytes(disk)).sum();
    let theirs = neighbour_on_same_devices(case).and_then(of_neighbour).map_or(0, |tally| tally.bytes);
    Some(all.saturating_sub(theirs))
}

/// Returns the I/O of a noisy neighbour if this I/O certainly reaches the same devices: same location, and no cache in between.
fn neighbour_on_same_devices<'a>(case: &Case<'a>) -> Option<&'a Tallies> {
    let share = case.m.neighbour.as_ref()?;
    let plan = &case.run.plan;
    let neighbour = plan.neighbours.iter().find(|neighbour| neighbour.target.name == share.name)?;
    let passed_on = neighbour.workload.direct
        && neighbour.workload.ioengine.moves_data()
        && !neighbour.target.stack.is_cached();
    (passed_on && storage_key(&neighbour.target) == storage_key(case.spec?)).then_some(&share.tallies)
}

/// Returns a key for a target's location: targets with equal keys are on the same devices.
fn storage_key(spec: &TargetSpec) -> impl PartialEq + '_ {
    (spec.stack.location(), spec.bottom_volume(), spec.remote().map(|it| it.machine))
}

/// Returns the share of the requested bytes that the device moved, if it is below [`SERVED`]; else `None`.
fn short(asked: u64, had: u64) -> Option<f64> {
    let share = had as f64 / asked as f64;
    (asked > 0 && share < SERVED).then_some(share)
}

/// Names the likely source of data that did not come from the device: memory or holes.
fn measured_instead(case: &Case<'_>) -> &'static str {
    let holes = case.record.and_then(|record| record.allocation).is_some_and(|allocation| {
        let nothing = allocation.unwritten + allocation.holes;
        nothing as f64 > HOLES * (nothing + allocation.written) as f64
    });
    if holes { "holes, or memory" } else { memory(case) }
}

fn memory(case: &Case<'_>) -> &'static str {
    match case.spec {
        Some(spec) if spec.remote().is_some_and(|it| it.machine.shares_kernel()) => {
            "memory of the container's host"
        }
        Some(spec) if spec.remote().is_some() => "that machine's memory",
        _ if arc(case).is_some() => "the ARC, ZFS's cache in memory",
        Some(spec) if spec.is_in_guest() => "host memory",
        _ => "memory",
    }
}
