//! Describes what layers did to I/O: how each merged, split, amplified or absorbed it, and what layers counted themselves.

use iotax_analysis::amplification::{Level, Passed};
use iotax_analysis::flushes::FlushesPerTransaction;
use iotax_analysis::{IoAmplification, Judgement, Metric};
use iotax_model::record::{LayerCounters, Measurement};
use iotax_model::units::human;
use iotax_model::{CellKey, Run, TargetSpec};

use crate::figure::grouped;

/// Ratios of I/O counts, I/O sizes or bytes that differ from 1 by at most this fraction (5%) are not mentioned.
const TELLING: f64 = 0.05;

/// Formats one line per direction with the layers that changed the I/O: `reads: vdb merged 24:1 (96 KiB each), 5.0% of the bytes, ...`.
pub(super) fn remarkable(flow: &IoAmplification) -> Vec<String> {
    let [top, below @ ..] = flow.levels.as_slice() else { return vec![] };
    let mut lines = Vec::new();
    for (direction, of) in DIRECTIONS {
        let found: Vec<String> = below
            .iter()
            .filter_map(|level| Some(format!("{} {}", level.name, in_words(direction, of(level), of(top))?)))
            .collect();
        if !found.is_empty() {
            lines.push(format!("{direction}s: {}", found.join("; ")));
        }
    }
    lines
}

/// Returns a line per target and layer that keeps counters, with what it counted in all rounds: `cached, dm-cache counted: 8,120 read hits,
/// 312 read misses`. Leaves out counts of 0, and layers whose counts are not known for every round.
pub(super) fn counted(run: &Run, workload: &str) -> Vec<String> {
    let of_target = |target: &TargetSpec| {
        let here = run.of_cell(CellKey { workload, target: &target.name });
        let line = |of: LayerCounters| {
            let counts = of.counts.iter().filter(|(_, count)| **count > 0);
            let counts: Vec<String> =
                counts.map(|(name, count)| format!("{} {name}", grouped(*count))).collect();
            (!counts.is_empty())
                .then(|| format!("{}, {} counted: {}", target.name, of.layer, counts.join(", ")))
        };
        let rounds: Vec<_> = here.map(|m| m.counters.clone()).collect();
        LayerCounters::sum(&rounds).into_iter().filter_map(line).collect::<Vec<_>>()
    };
    run.plan.targets.iter().flat_map(of_target).collect()
}

/// Returns a line per target on which a database flushed: `qcow2, a transaction of 480 us: 1.00 flushes of 410 us in QEMU, which adds 55.0 us to
/// 1.00 flushes of 355 us in vda`, with the number of flushes per transaction and the mean time of a flush in each layer. Empty for workloads
/// that are not databases.
pub(super) fn transactions(run: &Run, judgement: &Judgement, workload: &str) -> Vec<String> {
    let Some(work) = run.plan.workloads.iter().find(|work| work.name == workload) else { return vec![] };
    let of_target = |target: &TargetSpec| {
        let cell = CellKey { workload, target: &target.name };
        let here: Vec<&Measurement> = run.of_cell(cell).collect();
        let record = run.targets.iter().find(|record| record.name == target.name);
        let each = FlushesPerTransaction::of(work, record, &here);
        let whole = judgement.summary(cell)?.of(Metric::LATENCY_MEAN)?;
        (!each.is_empty())
            .then(|| format!("{}, a transaction of {}: {}", target.name, human::time(whole), waits(&each)))
    };
    run.plan.targets.iter().filter_map(of_target).collect()
}

/// Describes the flushes of a transaction from the top layer down: `1.00 flushes of 410 us in QEMU, which adds 55.0 us to 1.00 flushes of
/// 355 us in vda`.
fn waits(layers: &[FlushesPerTransaction]) -> String {
    let part = |(index, of): (usize, &FlushesPerTransaction)| {
        let each = of.wait_ns.map(|ns| format!(" of {}", human::time(ns))).unwrap_or_default();
        let flushes = format!("{:.2} flushes{each} in {}", of.flushes, of.layer);
        let next = match of.adds_ns {
            _ if index + 1 == layers.len() => String::new(),
            Some(ns) => format!(", which adds {} to ", human::time(ns)),
            None => ", ".into(),
        };
        flushes + &next
    };
    layers.iter().enumerate().map(part).collect()
}

/// Function that selects the figures of a layer's reads or writes.
type Of = fn(&Level) -> &Passed;

/// Name of each direction, and the function that selects its I/Os in a layer.
pub(super) const DIRECTIONS: [(&str, Of); 2] =
    [("read", |level| &level.read), ("write", |level| &level.write)];

/// Describes the change that a layer made: `merged 24:1 (96 KiB each)`; `None` if the layer passed I/O on unchanged (within 5%), or if the
/// program or the layer above did no I/O in this direction. `top` counts the program's own I/O.
pub(super) fn in_words(direction: &str, passed: &Passed, top: &Passed) -> Option<String> {
    if top.bytes == 0 {
        return None;
    }
    if passed.ios == 0 {
        return Some(match direction {
            "read" => "was asked for nothing: a cache above it, or holes, answered".into(),
            _ => "was given nothing: it was not written yet, or was shortened".into(),
        });
    }
    let (ios, bytes) = (passed.ios_ratio?, passed.bytes_ratio?);
    let mut parts = Vec::new();
    let longer = bytes / ios;
    let each = || human::bytes(passed.bytes / passed.ios);
    // Fewer I/Os means merged, more means split. Longer I/Os that are not fewer mean added data, such as copies of whole clusters.
    if longer > 1.0 + TELLING && ios < 1.0 - TELLING {
        parts.push(format!("merged {}:1 ({} each)", times(1.0 / ios), each()));
    } else if longer < 1.0 - TELLING && ios > 1.0 + TELLING {
        parts.push(format!("split 1:{} ({} each)", times(ios), each()));
    } else if (longer - 1.0).abs() > TELLING {
        parts.push(format!("{} each", each()));
    }
    if bytes > 1.0 + TELLING {
        parts.push(format!("{} times the bytes", times(bytes)));
    } else if bytes < 1.0 - TELLING {
        // The counts cannot tell whether a cache or holes are the cause.
        let rest = match direction {
            "read" => "a cache, or holes, answered the rest",
            _ => "the rest was not written yet, or was shortened",
        };
        parts.push(format!("{} of the bytes, {rest}", share(bytes)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Formats a ratio with two or three digits: `24`, `4.1`, `1.08`.
fn times(ratio: f64) -> String {
    match ratio {
        r if r >= 9.95 => format!("{r:.0}"),
        r if r >= 1.995 => format!("{r:.1}"),
        r => format!("{r:.2}"),
    }
}

/// Formats a ratio in percent, with one decimal below 10%: `5.0%`, `42%`.
fn share(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent < 9.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(ios: u64, bytes: u64, ios_ratio: f64, bytes_ratio: f64) -> Passed {
        Passed { ios, bytes, ios_ratio: Some(ios_ratio), bytes_ratio: Some(bytes_ratio), ..Passed::default() }
    }

    #[test]
    fn a_layer_adds_to_the_flushes_of_the_next() {
        let of = |layer: &str, wait_ns, adds_ns| FlushesPerTransaction {
            layer: layer.into(),
            flushes: 1.02,
            wait_ns: Some(wait_ns),
            adds_ns,
        };
        let qemu = of("QEMU", 410e3, Some(55e3));
        let disks = [of("loop0", 300e3, None), of("vda", 100e3, None)];
        assert_eq!(waits(&disks[1..]), "1.02 flushes of 100 us in vda");
        let volatile = FlushesPerTransaction { wait_ns: None, ..of("volatile", 0.0, None) };
        assert_eq!(waits(&[volatile]), "1.02 flushes in volatile");
        assert_eq!(
            waits(&[&[qemu], &disks[..]].concat()),
            "1.02 flushes of 410 us in QEMU, which adds 55.0 us to 1.02 flushes of 300 us in loop0, 1.02 flushes of 100 us in vda"
        );
    }

    #[test]
    fn merging_splitting_amplifying_and_caching_are_told() {
        let top = Passed { ios: 2400, bytes: 2400 * 4096, ..Passed::default() };
        let say = |direction, p: Passed| in_words(direction, &p, &top);
        assert_eq!(say("read", passed(2400, 2400 * 4096, 1.0, 1.0)), None);
        assert_eq!(say("read", passed(2300, 2400 * 4096, 0.96, 1.0)), None);
        assert_eq!(
            say("read", passed(100, 2400 * 4096, 1.0 / 24.0, 1.0)).as_deref(),
            Some("merged 24:1 (96.0 KiB each)")
        );
        assert_eq!(
            say("write", passed(4800, 2400 * 4096, 2.0, 1.0)).as_deref(),
            Some("split 1:2.0 (2.00 KiB each)")
        );
        assert_eq!(
            say("write", passed(2400, 9600 * 4096, 1.0, 4.0)).as_deref(),
            Some("16.0 KiB each, 4.0 times the bytes")
        );
        assert_eq!(
            say("read", passed(120, 120 * 4096, 0.05, 0.05)).as_deref(),
            Some("5.0% of the bytes, a cache, or holes, answered the rest")
        );
        assert_eq!(
            say("write", passed(1200, 1200 * 4096, 0.5, 0.5)).as_deref(),
            Some("50% of the bytes, the rest was not written yet, or was shortened")
        );
        assert!(say("read", Passed::default()).is_some_and(|text| text.contains("asked for nothing")));
        assert_eq!(in_words("read", &passed(5, 5, 1.0, 1.0), &Passed::default()), None);
    }
}
