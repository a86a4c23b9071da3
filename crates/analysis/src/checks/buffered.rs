//! Finds direct I/O that went through the page cache anyway.

use iotax_model::record::TargetRecord;
use iotax_model::target::{Layer, LayerKind};
use iotax_model::units::human;
use iotax_model::{Warning, WarningKind, Workload};

use super::Case;
use crate::finding::Finding;
use iotax_model::Run;

/// Smallest growth of the page cache that counts, in bytes; looking at the file can itself cause smaller growth.
const FLOOR: u64 = 64 << 10;
/// Smallest growth of the page cache that counts, as a share of the growth that buffered I/O would have caused.
const SHARE: f64 = 0.1;
/// First Linux version whose btrfs copies direct writes to files with checksums, according to its documentation.
const BTRFS_COPIES: (u32, u32) = (6, 14);

/// Finds direct I/O that left parts of the area in the page cache.
pub(super) fn cached_direct_io(case: &Case<'_>) -> Option<Finding> {
    let cache = case.m.outcome.page_cache.filter(|_| case.is_direct())?;
    let grown = cache.after.saturating_sub(cache.before);
    // An area of unknown size counts as no longer than the part looked at, which is the stricter assumption.
    let area = case.workload.size.map_or(cache.looked_at, |size| size.0).max(1);
    let moved = case.m.outcome.tallies.bytes().min(area);
    let buffered = cache.looked_at as f64 * moved as f64 / area as f64;
    (grown >= FLOOR && grown as f64 >= SHARE * buffered).then(|| {
        let owner = if case.in_guest() { "guest's" } else { "machine's" };
        let evidence = format!(
            "direct I/O was asked for, and {} of the {} looked at were in the {owner} page cache afterwards, {} before",
            human::bytes(cache.after),
            human::bytes(cache.looked_at),
            human::bytes(cache.before)
        );
        let remedy = "the filesystem carries out direct I/O on this file through memory, as it does with data journalling, \
                      compression or encryption: use another, or direct = false and compare like with like";
        case.finding(WarningKind::BufferedDirect, evidence, remedy).unusable_if(true)
    })
}

/// Finds direct I/O on filesystems that are known to buffer it, judged by their settings and the kernel version.
pub(super) fn known(run: &Run) -> Vec<Warning> {
    let direct = |workload: &&Workload| workload.direct && workload.ioengine.moves_data();
    let mut found = Vec::new();
    for record in &run.targets {
        for workload in run.plan.workloads.iter().filter(direct) {
            let reason = filesystems(run, record)
                .find_map(|(layer, kernel)| copies(run, record, layer, kernel, workload));
            found.extend(reason.map(|reason| Warning {
                kind: WarningKind::BufferedDirect,
                target: Some(record.name.clone()),
                workload: Some(workload.name.clone()),
                round: None,
                evidence: reason,
                remedy:
                    "its costs contain that of the copy: use nodatacow = true, or another filesystem".into(),
            }));
        }
    }
    found
}

/// Lists the filesystems of a target, each with the kernel that runs it.
fn filesystems<'a>(
    run: &'a Run,
    record: &'a TargetRecord,
) -> impl Iterator<Item = (&'a Layer, Option<&'a str>)> {
    let guest = record.layers.iter().position(|layer| layer.kind == LayerKind::Guest);
    let away = run.plan.targets.iter().any(|spec| spec.name == record.name && spec.remote().is_some());
    let layers = record.layers.iter().enumerate().filter(|(_, layer)| layer.kind == LayerKind::Filesystem);
    layers.map(move |(index, layer)| {
        let elsewhere = away || guest.is_some_and(|guest| index > guest);
        let kernel = if elsewhere { &record.guest_kernel } else { &run.environment.kernel };
        (layer, kernel.as_deref())
    })
}

/// Returns the reason why a filesystem copies a workload's direct I/O through the page cache; `None` if no copy is known.
fn copies(
    run: &Run,
    record: &TargetRecord,
    layer: &Layer,
    kernel: Option<&str>,
    workload: &Workload,
) -> Option<String> {
    if layer.name != "btrfs" {
        return None;
    }
    let option = |name: &str| layer.detail.split([',', ' ']).any(|word| word == name);
    if super::content::compresses(layer) {
        return Some("btrfs carries out direct I/O on compressed files through the page cache".into());
    }
    let spec = run.plan.targets.iter().find(|spec| spec.name == record.name);
    let nodatacow = spec.and_then(|spec| spec.filesystem()).is_some_and(|filesystem| filesystem.nodatacow);
    if !workload.writes() || nodatacow || option("nodatasum") || option("nodatacow") {
        return None;
    }
    let kernel = kernel.filter(|release| version(release).is_some_and(|version| version >= BTRFS_COPIES))?;
    let (major, minor) = BTRFS_COPIES;
    Some(format!(
        "btrfs carries out direct writes to files with checksums through the page cache (Linux {major}.{minor} and later; this is \
         {kernel})"
    ))
}

/// Parses the major and minor version of a kernel release: `6.18.5-cloud` is (6, 18). `None` if the release does not begin with two
/// numbers.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
