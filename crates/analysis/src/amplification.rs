//! I/O amplification: the I/Os and bytes of each layer relative to the layer above it.
//!
//! Each layer counts for itself. Below a program that reads 4 KiB at a time, a device may see reads of 96 KiB or none at all; a
//! copy-on-write image may write four times the data. The ratios show merges, splits, amplification and cache hits. All counts cover the
//! same window. I/O that is still in flight at the end of the window, such as writes in a page cache, is missing from the counts of the
//! lower layers.

use iotax_model::record::{BlockTally, DiskActivity, HostActivity, Measurement, Tally, TargetRecord};
use iotax_model::target::LayerKind;
use schemars::JsonSchema;
use serde::Serialize;

/// I/Os that passed through a layer in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Passed {
    /// Number of I/Os that the layer completed, over all rounds.
    pub ios: u64,
    /// Bytes that these I/Os moved, over all rounds.
    pub bytes: u64,
    /// I/Os that the layer merged into an adjacent I/O before starting them; absent if the layer does not count merges.
    pub merges: Option<u64>,
    /// Mean time in the layer and all below it, in nanoseconds. Absent without I/O, if the layer does not report it, or for a block device
    /// with both reads and writes, for which only a common mean is known.
    #[serde(rename = "mean_wait_ns")]
    pub wait_ns: Option<f64>,
    /// I/Os per I/O of the layer above; absent for the top layer and if the layer above had no I/O.
    pub ios_ratio: Option<f64>,
    /// Bytes per byte of the layer above; absent for the top layer and if the layer above moved no bytes.
    pub bytes_ratio: Option<f64>,
}

impl Passed {
    /// Returns the mean size of an I/O in bytes; `None` without I/O.
    #[must_use]
    pub fn mean_size(&self) -> Option<f64> {
        (self.ios > 0).then(|| self.bytes as f64 / self.ios as f64)
    }

    /// Computes this layer's ratios to the layer `above`, for I/Os and bytes.
    fn against(self, above: Self) -> Self {
        let ratio = |mine: u64, theirs: u64| (theirs > 0).then(|| mine as f64 / theirs as f64);
        Self { ios_ratio: ratio(self.ios, above.ios), bytes_ratio: ratio(self.bytes, above.bytes), ..self }
    }
}

/// One layer's I/Os for one workload on one target, over all rounds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Level {
    /// Name of the layer: `program`, `vda in the guest`, `QEMU`, `loop0`, `vdb`; devices side by side as `vdb + vdc`.
    pub name: String,
    /// Reads that passed through the layer.
    pub read: Passed,
    /// Writes that passed through the layer.
    pub write: Passed,
}

/// I/O amplification of one workload on one target, layer by layer.
#[derive(Debug, Clone, PartialEq)]
pub struct IoAmplification {
    /// Layers from the program down; at least two.
    pub levels: Vec<Level>,
}

impl IoAmplification {
    /// Computes the amplification from all measurements of a workload on a target. `None` without measurements, if no layer but the program
    /// counted I/O, if the I/O engine moves no data, or if a noisy neighbour ran, because the layers below count its I/O too. A layer that
    /// was not observed in every measurement is left out.
    pub fn of(record: Option<&TargetRecord>, measurements: &[&Measurement]) -> Option<Self> {
        let moves_nothing = |m: &&Measurement| m.outcome.ioengine.is_some_and(|engine| !engine.moves_data());
        if measurements.iter().any(|m| m.neighbour.is_some() || moves_nothing(m)) {
            return None;
        }
        let each: Vec<Vec<IoLevel>> = measurements.iter().map(|m| levels(m, record)).collect();
        let (first, others) = each.split_first()?;
        let mut found: Vec<Level> = Vec::new();
        for at_level in first {
            let same =
                |levels: &Vec<IoLevel>| levels.iter().find(|other| other.name == at_level.name).cloned();
            let Some(rest) = others.iter().map(same).collect::<Option<Vec<IoLevel>>>() else { continue };
            let all = rest.iter().fold(at_level.clone(), IoLevel::and);
            let mut level = Level { name: all.name, read: all.read.passed(), write: all.write.passed() };
            if let Some(above) = found.last() {
                level.read = level.read.against(above.read);
                level.write = level.write.against(above.write);
            }
            found.push(level);
        }
        (found.len() > 1).then_some(Self { levels: found })
    }
}

/// Totals of the reads or of the writes at one layer.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    ios: u64,
    bytes: u64,
    merges: Option<u64>,
    /// Sum of the times of all I/Os in nanoseconds; `None` if it is unknown for any device or measurement.
    waited_ns: Option<f64>,
}

impl Sum {
    fn and(self, other: Self) -> Self {
        Self {
            ios: self.ios + other.ios,
            bytes: self.bytes + other.bytes,
            merges: self.merges.zip(other.merges).map(|(a, b)| a + b),
            waited_ns: self.waited_ns.zip(other.waited_ns).map(|(a, b)| a + b),
        }
    }

    fn passed(self) -> Passed {
        let wait_ns = self.waited_ns.filter(|_| self.ios > 0).map(|ns| ns / self.ios as f64);
        Passed { ios: self.ios, bytes: self.bytes, merges: self.merges, wait_ns, ..Passed::default() }
    }
}

/// The I/O counted at one layer, in one measurement or summed over several.
#[derive(Debug, Clone)]
struct IoLevel {
    name: String,
    read: Sum,
    write: Sum,
}

impl IoLevel {
    fn and(self, other: &Self) -> Self {
        Self { name: self.name, read: self.read.and(other.read), write: self.write.and(other.write) }
    }
}

/// Lists the I/O counted at each layer in one measurement, from the program down to the devices.
fn levels(m: &Measurement, record: Option<&TargetRecord>) -> Vec<IoLevel> {
    let tallies = &m.outcome.tallies;
    let mut found = vec![IoLevel {
        name: "program".into(),
        read: asked(tallies.read.as_ref()),
        write: asked(tallies.write.as_ref()),
    }];
    if let (Some(inside), Some(_)) = (&m.outcome.inside, &m.qemu) {
        found.extend(side_by_side(&inside.disks.iter().collect::<Vec<_>>(), " in the guest"));
    }
    if let Some(stats) = &m.qemu {
        found.push(IoLevel {
            name: "QEMU".into(),
            read: block_layer(&stats.read),
            write: block_layer(&stats.write),
        });
    }
    if let Some(machine) = m.machine() {
        found.extend(machine_levels(machine, record));
    }
    found
}

fn machine_levels(machine: &HostActivity, record: Option<&TargetRecord>) -> Vec<IoLevel> {
    levels_of_disks(machine, record).iter().filter_map(|disks| side_by_side(disks, "")).collect()
}

/// Groups the observed block devices below a target by layer, from the top down. Adjacent devices of one kind, such as the halves of a
/// mirror, share a group. Partitions are left out if their disk was observed.
pub(crate) fn levels_of_disks<'a>(
    machine: &'a HostActivity,
    record: Option<&TargetRecord>,
) -> Vec<Vec<(&'a String, &'a DiskActivity)>> {
    let layers = record.into_iter().flat_map(|record| &record.layers);
    let mut kinds: Vec<(LayerKind, Vec<(&String, &DiskActivity)>)> = Vec::new();
    let mut is_side_by_side = false;
    for layer in layers {
        let Some(disk) = machine.disks.get_key_value(&layer.name) else {
            // Disks after a filesystem stand on it.
            is_side_by_side &= layer.kind != LayerKind::Filesystem;
            continue;
        };
        match kinds.last_mut() {
            Some((kind, disks)) if is_side_by_side && *kind == layer.kind => disks.push(disk),
            _ => kinds.push((layer.kind, vec![disk])),
        }
        is_side_by_side = true;
    }
    // A partition's I/O is counted by its device too; partitions of one name on several devices would merge.
    let device = kinds.iter().any(|(kind, _)| *kind == LayerKind::Device);
    kinds.retain(|(kind, _)| !(device && *kind == LayerKind::Partition));
    kinds.into_iter().rev().map(|(_, disks)| disks).collect()
}

/// Joins device names with ` + `: `vdb + vdc`.
pub(crate) fn names_of(disks: &[(&String, &DiskActivity)]) -> String {
    disks.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" + ")
}

fn side_by_side(disks: &[(&String, &DiskActivity)], suffix: &str) -> Option<IoLevel> {
    let all = disks.iter().map(|(_, disk)| {
        // The kernel reports one mean wait for both directions, so it is used only where there is one direction.
        let waited = |ios: u64, others: u64| {
            if ios == 0 {
                Some(0.0)
            } else {
                disk.mean_wait_ns.filter(|_| others == 0).map(|ns| ns * ios as f64)
            }
        };
        let read = Sum {
            ios: disk.reads,
            bytes: disk.read_bytes,
            merges: Some(disk.read_merges),
            waited_ns: waited(disk.reads, disk.writes),
        };
        let write = Sum {
            ios: disk.writes,
            bytes: disk.write_bytes,
            merges: Some(disk.write_merges),
            waited_ns: waited(disk.writes, disk.reads),
        };
        IoLevel { name: format!("{}{suffix}", names_of(disks)), read, write }
    });
    all.reduce(|one, other| one.and(&other))
}

fn asked(tally: Option<&Tally>) -> Sum {
    tally.map_or_else(
        || Sum { waited_ns: Some(0.0), ..Sum::default() },
        |tally| Sum {
            ios: tally.ios,
            bytes: tally.bytes,
            merges: None,
            waited_ns: Some(tally.latency.mean().unwrap_or_default() * tally.ios as f64),
        },
    )
}

fn block_layer(tally: &BlockTally) -> Sum {
    Sum { ios: tally.ios, bytes: tally.bytes, merges: None, waited_ns: Some(tally.total_ns as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::IoEngine;
    use iotax_model::record::{BlockStats, Outcome, Share, Tallies};
    use iotax_model::target::Layer;
    use std::collections::BTreeMap;

    fn reads(reads: u64, read_bytes: u64, wait_ns: f64) -> DiskActivity {
        DiskActivity { reads, read_bytes, mean_wait_ns: Some(wait_ns), ..DiskActivity::default() }
    }

    fn on(disks: &[(&str, DiskActivity)]) -> HostActivity {
        let disks =
            disks.iter().map(|(name, disk)| ((*name).to_owned(), disk.clone())).collect::<BTreeMap<_, _>>();
        HostActivity { disks, ..HostActivity::default() }
    }

    fn record(layers: &[(LayerKind, &str)]) -> TargetRecord {
        let layers = layers.iter().map(|(kind, name)| Layer::new(*kind, *name, "")).collect();
        TargetRecord { name: "t".into(), layers, ..TargetRecord::default() }
    }

    fn measurement(ios: u64, bytes: u64) -> Measurement {
        let tallies = Tallies { read: Some(Tally { ios, bytes, ..Tally::default() }), ..Tallies::default() };
        Measurement {
            target: "t".into(),
            workload: "w".into(),
            round: 1,
            order: 1,
            outcome: Outcome { tallies, ..Outcome::default() },
            ..Measurement::default()
        }
    }

    #[test]
    fn each_layer_is_told_against_the_one_above() {
        let mut m = measurement(2400, 2400 * 4096);
        m.outcome.inside = Some(on(&[("vda", reads(2400, 2400 * 4096, 90_000.0))]));
        let tally = BlockTally { ios: 100, bytes: 2400 * 4096, total_ns: 100 * 70_000, latency: vec![] };
        m.qemu = Some(BlockStats { read: tally, ..BlockStats::default() });
        m.host = Some(on(&[
            ("dm-0", reads(100, 2400 * 4096, 60_000.0)),
            ("vdb", reads(200, 1200 * 4096, 50_000.0)),
            ("vdc", reads(200, 1200 * 4096, 30_000.0)),
        ]));
        let record =
            record(&[(LayerKind::Device, "vdb"), (LayerKind::Device, "vdc"), (LayerKind::Dm, "dm-0")]);
        let flow = IoAmplification::of(Some(&record), &[&m, &m]).expect("seen");
        let names: Vec<&str> = flow.levels.iter().map(|level| level.name.as_str()).collect();
        assert_eq!(names, ["program", "vda in the guest", "QEMU", "dm-0", "vdb + vdc"]);
        let ratios: Vec<_> = flow.levels.iter().map(|l| (l.read.ios_ratio, l.read.bytes_ratio)).collect();
        let one = Some(1.0);
        assert_eq!(ratios, [(None, None), (one, one), (Some(1.0 / 24.0), one), (one, one), (Some(4.0), one)]);
        let bottom = flow.levels[4].read;
        assert_eq!((bottom.ios, bottom.wait_ns, bottom.mean_size()), (800, Some(40_000.0), Some(24_576.0)));
        assert_eq!(flow.levels[4].write, Passed { merges: Some(0), ..Passed::default() });
    }

    #[test]
    fn disks_above_a_filesystem_are_not_beside_those_below() {
        let names = |layers: &[(LayerKind, &str)]| {
            let disks = ["loop0", "loop1", "loop2"].map(|name| (name, reads(1, 4096, 1.0)));
            let (machine, record) = (on(&disks), record(layers));
            let levels = levels_of_disks(&machine, Some(&record));
            levels.iter().map(|disks| names_of(disks)).collect::<Vec<_>>()
        };
        let [lowest, upper, beside] = ["loop0", "loop1", "loop2"].map(|name| (LayerKind::Loop, name));
        let ext4 = (LayerKind::Filesystem, "ext4");
        assert_eq!(names(&[lowest, ext4, upper, beside]), ["loop1 + loop2", "loop0"]);
        assert_eq!(names(&[ext4, lowest, upper]), ["loop0 + loop1"]);
    }

    #[test]
    fn what_was_not_always_seen_is_left_out() {
        let record = record(&[(LayerKind::Device, "vdb"), (LayerKind::Partition, "vdb1")]);
        let both = [("vdb", reads(1, 4096, 1.0)), ("vdb1", reads(1, 4096, 1.0))];
        let seen = Measurement { host: Some(on(&both)), ..measurement(1, 4096) };
        let unseen = measurement(1, 4096);
        let flow = IoAmplification::of(Some(&record), &[&seen]).expect("seen");
        assert_eq!(flow.levels.len(), 2, "a partition is not listed next to its device");
        assert_eq!(IoAmplification::of(Some(&record), &[&seen, &unseen]), None);
        assert_eq!(IoAmplification::of(Some(&record), &[]), None);
    }

    #[test]
    fn what_others_or_nobody_asked_for_is_no_flow() {
        let disks = record(&[(LayerKind::Device, "vdb")]);
        let seen = Measurement { host: Some(on(&[("vdb", reads(1, 4096, 1.0))])), ..measurement(1, 4096) };
        let mut null = seen.clone();
        null.outcome.ioengine = Some(IoEngine::Null);
        let share = Share { name: "loud".into(), duration_ns: 1, tallies: Tallies::default() };
        let with_neighbour = Measurement { neighbour: Some(share), ..seen.clone() };
        for (m, is_known) in [(&seen, true), (&null, false), (&with_neighbour, false)] {
            assert_eq!(IoAmplification::of(Some(&disks), &[&seen, m]).is_some(), is_known);
        }
    }

    #[test]
    fn a_wait_that_both_directions_share_is_neithers() {
        let disk = DiskActivity { writes: 3, write_bytes: 3, ..reads(1, 1, 5.0) };
        let m = Measurement { host: Some(on(&[("vdb", disk)])), ..measurement(1, 1) };
        let flow = IoAmplification::of(Some(&record(&[(LayerKind::Device, "vdb")])), &[&m]).expect("seen");
        assert_eq!((flow.levels[1].read.wait_ns, flow.levels[1].write.wait_ns), (None, None));
        assert_eq!(flow.levels[1].write.ios_ratio, None, "nobody asked for writes");
    }
}
