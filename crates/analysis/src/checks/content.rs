//! Checks of the data in a target's area: holes, zeros, and data that a layer can compress.

use iotax_model::record::TargetRecord;
use iotax_model::target::{Discard, Layer, LayerInterface, LayerKind};
use iotax_model::units::human;
use iotax_model::{TargetSpec, Warning, WarningKind, Workload};

use super::{Case, about_target};
use crate::finding::Finding;
use iotax_model::Run;

/// Share of holes or shared extents in an area above which they change the figures.
const HOLES: f64 = 0.01;
/// Share of zeros in the sampled content above which the zeros are no coincidence.
const ZEROS: f64 = 0.1;
/// Compressed size, as a share, below which a layer gains from compressing the data.
const COMPRESSED: f64 = 0.9;

/// Finds areas with holes or unwritten space where data should be and, in runs that write, extents shared with other files or in a backing
/// image.
pub(super) fn holes(run: &Run) -> Vec<Warning> {
    let writes = run.plan.workloads.iter().any(Workload::modifies);
    // The space that the plan touches beyond the filled part is unwritten on purpose.
    let filled = run.plan.filled().0;
    let asked_for = run.plan.touched().0.saturating_sub(filled);
    let mut found = Vec::new();
    for record in &run.targets {
        let Some(allocation) = record.allocation else { continue };
        let all = allocation.written + allocation.unwritten + allocation.holes;
        let share = |bytes: u64| bytes as f64 / all as f64;
        let missing = allocation.unwritten + allocation.holes;
        if filled > 0 && share(missing.saturating_sub(asked_for)) > HOLES {
            let evidence = format!(
                "{} of {} ({:.0}%) have no data behind them: {} of holes, {} allocated and never written ({})",
                human::bytes(missing),
                human::bytes(all),
                share(missing) * 100.0,
                human::bytes(allocation.holes),
                human::bytes(allocation.unwritten),
                allocation.source
            );
            let remedy = "reads of them never reach the device, and the first write allocates: measure a file that iotax makes and \
                          fills, or a copy without holes (cp --sparse=never)";
            found.push(about_target(record, WarningKind::Holes, evidence, remedy));
        }
        if all > 0 && writes && share(allocation.shared) > HOLES {
            let evidence = format!(
                "{} of {} ({:.0}%) are shared with other files or lie in a backing image ({})",
                human::bytes(allocation.shared),
                human::bytes(all),
                share(allocation.shared) * 100.0,
                allocation.source
            );
            let remedy = "the first write to each place copies: measure a file of its own, or a snapshot that is recreated before each measurement";
            found.push(about_target(record, WarningKind::Holes, evidence, remedy));
        }
    }
    found
}

/// Finds workloads that trim data which later I/O of the same or another workload accesses: such reads meet holes.
pub(super) fn discarded(case: &Case<'_>) -> Option<Finding> {
    let bytes = case.m.outcome.tallies.trim.as_ref()?.bytes;
    // A file that iotax made is refilled before the next workload.
    let is_refilled =
        case.spec.is_some_and(|spec| spec.file().is_some() && spec.stack.offers() == LayerInterface::RawFile);
    // Holes do not matter to a workload that only trims.
    let meets_holes = |workload: &Workload| workload.reads() || workload.writes();
    let others =
        meets_holes(case.workload) || !is_refilled && case.run.plan.workloads.iter().any(meets_holes);
    let layers = case.record.into_iter().flat_map(|record| &record.layers);
    let mounted = layers.filter(|layer| has_option(layer, |word| word == "discard")).map(|layer| &layer.name);
    let mut passed: Vec<String> = mounted.map(|name| format!("{name} is mounted with discard")).collect();
    let guest = case.spec.filter(|spec| spec.shared_directory().is_none()).and_then(TargetSpec::guest);
    if guest.is_some_and(|guest| guest.discard == Discard::Ignore) {
        // The guest's disk ignores the discards.
        return None;
    }
    if guest.is_some() {
        passed.push("the guest's disk passes them on (discard=unmap)".into());
    }
    if case.spec.is_some_and(|spec| spec.xen().is_some()) {
        passed.push("the domain's disk passes them on".into());
    }
    (bytes > 0 && others).then(|| {
        let passed = if passed.is_empty() { String::new() } else { format!("; {}", passed.join(", ")) };
        let evidence =
            format!("{} were discarded: later reads there meet holes{passed}", human::bytes(bytes));
        let remedy = "keep workloads that discard apart from those that read: give them a plan of their own";
        case.finding(WarningKind::Holes, evidence, remedy)
    })
}

/// Finds data that a layer below can compress or deduplicate, and areas with many zeros that iotax did not fill.
pub(super) fn compressible(run: &Run) -> Vec<Warning> {
    let mut found = Vec::new();
    for record in &run.targets {
        found.extend(area(record));
        let Some(layer) = squeezer(record) else { continue };
        for workload in run.plan.workloads.iter().filter(|workload| workload.writes()) {
            found.extend(written(workload).map(|what| Warning {
                kind: WarningKind::Compressible,
                target: Some(record.name.clone()),
                workload: Some(workload.name.clone()),
                round: None,
                evidence: format!("{what}, and {layer} can make use of it"),
                remedy: "leave buffer_compress_percentage, dedupe_percentage, zero_buffers and buffer_pattern alone, unless this is \
                         what is to be measured"
                    .into(),
            }));
        }
    }
    found
}

/// Describes suspicious content of an area that iotax did not fill; `None` if nothing is suspicious, or if the content was not sampled.
fn area(record: &TargetRecord) -> Option<Warning> {
    let found = record.found.filter(|found| found.bytes > 0)?;
    let share = |bytes: u64| bytes as f64 / found.bytes as f64;
    let looked_at = human::bytes(found.bytes);
    let evidence = if share(found.zeros) > ZEROS {
        format!(
            "{:.0}% of the {looked_at} looked at are zeros, which layers and drives need not keep",
            share(found.zeros) * 100.0
        )
    } else {
        let layer = squeezer(record).filter(|_| share(found.compressed) < COMPRESSED)?;
        format!(
            "what is there compresses to {:.0}% in the {looked_at} looked at, and {layer} can make use of it",
            share(found.compressed) * 100.0
        )
    };
    let remedy = "measure a file that iotax makes and fills with data that cannot be compressed";
    Some(about_target(record, WarningKind::Compressible, evidence, remedy))
}

/// Describes the part of a workload's writes that can be compressed or deduplicated; `None` if nothing can.
fn written(workload: &Workload) -> Option<String> {
    let content = workload.content();
    match (content.filler_percentage, content.dedupe_percentage) {
        (0, 0) => None,
        (0, percent) => Some(format!("{percent}% of its writes repeat earlier ones")),
        (percent, _) if content.filler.is_some() => {
            Some(format!("{percent}% of what it writes is a repeated pattern"))
        }
        (percent, _) => Some(format!("{percent}% of what it writes is zeros")),
    }
}

/// Names a layer of a target that compresses or deduplicates data; `None` if no layer does.
fn squeezer(record: &TargetRecord) -> Option<String> {
    if let Some(allocation) = record.allocation.filter(|allocation| allocation.compressed > 0) {
        return Some(format!(
            "its image or file, of which {} are compressed,",
            human::bytes(allocation.compressed)
        ));
    }
    record
        .layers
        .iter()
        .find(|layer| compresses(layer) || removes_duplicates(layer))
        .map(|layer| layer.name.clone())
}

/// Property by which ZFS stores data uncompressed.
const NOT_COMPRESSED: &str = "compression=off";

/// Returns whether a layer compresses data written through it.
pub(super) fn compresses(layer: &Layer) -> bool {
    match layer.kind {
        LayerKind::Zvol => !has_option(layer, |word| word == NOT_COMPRESSED),
        LayerKind::Filesystem if layer.name == "zfs" => !has_option(layer, |word| word == NOT_COMPRESSED),
        LayerKind::Filesystem => has_option(layer, |word| {
            let asked = word.strip_prefix("compress").or_else(|| word.strip_prefix("compression"));
            asked.is_some() && !word.ends_with("=no") && !word.ends_with("=none")
        }),
        _ => layer.name.starts_with("zram"),
    }
}

fn removes_duplicates(layer: &Layer) -> bool {
    matches!(layer.kind, LayerKind::Dm) && has_option(layer, |word| word.eq_ignore_ascii_case("vdo"))
}

/// Returns whether any option in a layer's description satisfies `is`. Options are separated by commas or spaces.
fn has_option(layer: &Layer, is: impl Fn(&str) -> bool) -> bool {
    layer.detail.split([',', ' ']).any(is)
}
