//! Flushes by layer: how many the program requested, and how many each layer below counted.
//!
//! A layer swallows flushes if the program requested some and the next device that counts flushes saw none, if the `volatile` layer
//! (iotax's filesystem that simulates a volatile write cache) counted flushes that it dropped, or if a setting discards flushes, such as
//! QEMU's `cache=unsafe`. Fewer flushes than requested are only reported as a ratio: a journal commits for several callers at once, and the
//! kernel merges flushes that wait for one another. Additional flushes come from a journal or from other programs.

use iotax_model::TargetSpec;
use iotax_model::record::{DiskActivity, DiskFlushes, LayerCounters, Measurement, TargetRecord};
use iotax_model::target::{FilesystemSpec, Layer, LayerKind, PlannedLayer, VolatileSpec};
use iotax_model::workload::{SyncMode, Test, Workload};

use crate::amplification::{levels_of_disks, names_of};

/// Name of QEMU's block layer among the levels.
const QEMU: &str = "QEMU";
/// Suffix that marks a disk as the guest's in layer names: `vda in the guest`.
const IN_GUEST: &str = " in the guest";

/// Number of flushes that a layer counted, or the reason why there is no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushCount {
    /// The layer completed this many flushes.
    Counted(u64),
    /// The layer acknowledged flushes and dropped some or all of them.
    Dropping {
        /// Number of flushes that the layer acknowledged.
        done: u64,
        /// Number of acknowledged flushes that the layer did not pass on.
        dropped: u64,
    },
    /// The kernel considers the device's cache non-volatile and sends it no flushes.
    NoVolatileCache,
    /// The device receives durable writes as FUA and completed this many flushes and writes with FUA.
    WithFua {
        /// Number of flushes that the device completed.
        flushes: u64,
        /// Number of writes with FUA that the device completed.
        fua_writes: u64,
    },
    /// The device receives durable writes as FUA, which were not counted.
    Fua,
    /// The layer does not count flushes: devices without request queues, and QEMU for writes that it makes durable itself
    /// (cache=writethrough, directsync).
    NotCounted,
}

/// One layer below the program, with its flushes over all rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushLevel {
    /// Name of the layer: `vda in the guest`, `QEMU`, `loop0`, `volatile`, or devices side by side as `vdb + vdc`.
    pub name: String,
    /// Number of flushes that the layer counted, or the reason why there is no number.
    pub flushes: FlushCount,
}

impl FlushLevel {
    /// Returns whether the layer is a device of the host other than a loop device.
    #[must_use]
    pub fn is_device(&self) -> bool {
        let name = self.name.as_str();
        name != QEMU && !name.ends_with(IN_GUEST) && name != VolatileSpec::NAME && !name.starts_with("loop")
    }
}

/// The fate of the flushes that the program requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlushFate {
    /// No layer swallowed the flushes; the lowest layer completed this many, writes with FUA among them.
    Kept(u64),
    /// A layer swallowed flushes: by its setting, by its own count, or because the next layer that counts flushes saw none.
    Swallowed {
        /// The layer that swallowed the flushes, or the two layers between which they were lost.
        by: String,
        /// Evidence that the layer swallowed the flushes.
        evidence: SwallowEvidence,
    },
    /// No flush is needed: the lowest device has no volatile cache, according to the kernel.
    NotNeeded {
        /// Name of the lowest device.
        device: String,
    },
    /// The lowest layer does not count these flushes (durable writes as FUA included), or no layer below the program was observed.
    NotCountable {
        /// The reason, as text.
        reason: String,
    },
}

/// The evidence that a layer swallowed flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwallowEvidence {
    /// The next layer that counts flushes saw none.
    NoneBelow,
    /// A setting of the layer discards flushes; no counter shows dropped ones.
    Setting,
    /// The layer itself counted dropped flushes.
    OwnCount {
        /// Number of flushes that the layer acknowledged.
        done: u64,
        /// Number of acknowledged flushes that the layer did not pass on.
        dropped: u64,
    },
}

/// The flushes of a workload on a target, over all rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushAccount {
    /// Number of flushes that the program requested, or of writes if the program requests each write as durable.
    pub asked: u64,
    /// Layers below the program that were observed in every measurement, from the top down.
    pub levels: Vec<FlushLevel>,
    /// The layer that ignores flushes because of a setting, such as `QEMU (cache=unsafe)`; absent if no layer does.
    pub ignored_by: Option<String>,
    /// Outcome of the flushes: completed, swallowed, not needed or not countable.
    pub fate: FlushFate,
}

impl FlushAccount {
    /// Sums the flushes over all rounds. `None` if the program requested no flushes, or with a noisy neighbour, because the layers count
    /// its flushes too.
    #[must_use]
    pub fn of(
        workload: &Workload,
        spec: &TargetSpec,
        record: Option<&TargetRecord>,
        measurements: &[&Measurement],
    ) -> Option<Self> {
        let asked: u64 = measurements.iter().map(|m| asked(workload, m)).sum();
        if asked == 0 || measurements.iter().any(|m| m.neighbour.is_some()) {
            return None;
        }
        let is_durable_write = workload.sync != SyncMode::None;
        let levels = over_all(measurements.iter().map(|m| levels(m, record)));
        let mut levels: Vec<FlushLevel> = levels
            .into_iter()
            .map(|flushed| FlushLevel { flushes: counted(&flushed, is_durable_write), name: flushed.name })
            .collect();
        // A guest sends no flushes to a disk without a volatile cache; QEMU then flushes after each write.
        if let [guest, qemu, ..] = levels.as_mut_slice()
            && guest.flushes == FlushCount::NoVolatileCache
            && qemu.name == QEMU
        {
            qemu.flushes = FlushCount::NotCounted;
        }
        let ignored_by = ignoring(spec);
        let fate = fate(&levels, ignored_by.as_deref(), spec);
        Some(Self { asked, levels, ignored_by, fate })
    }
}

impl FlushAccount {
    /// Returns whether another account of the same target has the same outcome at the same layers. If not, the two
    /// cannot be added.
    #[must_use]
    pub fn ends_as(&self, other: &Self) -> bool {
        let by = |account: &Self| match &account.fate {
            // Compares completed flushes per requested flush, rounded: a journal adds flushes to some methods
            // and not to others.
            FlushFate::Kept(flushes) => {
                FlushFate::Kept((2 * flushes + account.asked) / (2 * account.asked).max(1))
            }
            FlushFate::Swallowed { by, .. } => {
                FlushFate::Swallowed { by: by.clone(), evidence: SwallowEvidence::NoneBelow }
            }
            fate => fate.clone(),
        };
        let kind = |level: &FlushLevel| match level.flushes {
            FlushCount::Counted(flushes) if flushes > 0 => FlushCount::Counted(1),
            FlushCount::Dropping { .. } => FlushCount::Dropping { done: 1, dropped: 1 },
            FlushCount::WithFua { .. } => FlushCount::WithFua { flushes: 1, fua_writes: 1 },
            other => other,
        };
        let alike =
            |(one, other): (&FlushLevel, &FlushLevel)| one.name == other.name && kind(one) == kind(other);
        by(self) == by(other)
            && self.levels.len() == other.levels.len()
            && self.levels.iter().zip(&other.levels).all(alike)
    }

    /// Adds the flush counts of another account, which must have the same outcome at the same layers, see [`Self::ends_as`].
    pub fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        for (mine, theirs) in self.levels.iter_mut().zip(&other.levels) {
            mine.flushes = mine.flushes.plus(theirs.flushes);
        }
        match (&mut self.fate, &other.fate) {
            (FlushFate::Kept(mine), FlushFate::Kept(theirs)) => *mine += theirs,
            (FlushFate::Swallowed { evidence: mine, .. }, FlushFate::Swallowed { evidence, .. }) => {
                *mine = mine.plus(*evidence);
            }
            _ => {}
        }
    }
}

impl FlushCount {
    /// Adds two counts of the same variant; returns `self` if the variants differ.
    const fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Counted(one), Self::Counted(other)) => Self::Counted(one + other),
            (Self::Dropping { done, dropped }, Self::Dropping { done: more, dropped: others }) => {
                Self::Dropping { done: done + more, dropped: dropped + others }
            }
            (Self::WithFua { flushes, fua_writes }, Self::WithFua { flushes: more, fua_writes: others }) => {
                Self::WithFua { flushes: flushes + more, fua_writes: fua_writes + others }
            }
            _ => self,
        }
    }
}

impl SwallowEvidence {
    /// Adds evidence of the same variant; returns `self` if the variants differ.
    const fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::OwnCount { done, dropped }, Self::OwnCount { done: more, dropped: others }) => {
                Self::OwnCount { done: done + more, dropped: dropped + others }
            }
            _ => self,
        }
    }
}

/// The flushes of a layer for each transaction of a database, which flushes by itself; over all rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct FlushesPerTransaction {
    /// Name of the layer: `vda in the guest`, `QEMU`, `loop0`.
    pub layer: String,
    /// Number of flushes of the layer for each transaction.
    pub flushes: f64,
    /// Mean time of a flush in nanoseconds; `None` if the layer does not measure it.
    pub wait_ns: Option<f64>,
    /// Time of a transaction's flushes in this layer, less that of its flushes in the next layer below, in nanoseconds. `None` if one of the
    /// times is not known, if several disks below flush at the same time, or if flushes below take longer, so that others wait for them too.
    pub adds_ns: Option<f64>,
}

impl FlushesPerTransaction {
    /// Returns the layers that completed flushes during a database's transactions, from the top down. Empty for other workloads, and with a
    /// noisy neighbour, because the layers count its flushes too.
    #[must_use]
    pub fn of(
        workload: &Workload,
        record: Option<&TargetRecord>,
        measurements: &[&Measurement],
    ) -> Vec<Self> {
        let transactions: u64 =
            measurements.iter().filter_map(|m| Some(m.outcome.tallies.meta.as_ref()?.ios)).sum();
        let is_shared = measurements.iter().any(|m| m.neighbour.is_some());
        let is_database = workload.kind.test().is_some_and(Test::is_of_transactions);
        if !is_database || transactions == 0 || is_shared {
            return Vec::new();
        }
        let mut flushed = over_all(measurements.iter().map(|m| levels(m, record)));
        flushed.retain(|flushed| flushed.flushes.is_some_and(|flushes| flushes.done > 0));
        let below = flushed.iter().skip(1).map(Some).chain([None]);
        flushed
            .iter()
            .zip(below)
            .filter_map(|(flushed, below)| Self::in_layer(flushed, below, transactions))
            .collect()
    }

    fn in_layer(flushed: &FlushCounters, below: Option<&FlushCounters>, transactions: u64) -> Option<Self> {
        let done = flushed.flushes?.done;
        let below_ns = below.filter(|below| below.devices == 1).and_then(FlushCounters::wait_ns);
        let adds_ns = flushed.wait_ns().zip(below_ns).and_then(|(own, below)| own.checked_sub(below));
        Some(Self {
            layer: flushed.name.clone(),
            flushes: done as f64 / transactions as f64,
            wait_ns: flushed.wait_ns().map(|ns| ns as f64 / done as f64),
            adds_ns: adds_ns.map(|ns| ns as f64 / transactions as f64),
        })
    }
}

/// Returns the number of flushes, or of individually durable writes, that the program requested in one measurement.
fn asked(workload: &Workload, m: &Measurement) -> u64 {
    if workload.writes_per_commit().is_none() {
        return 0;
    }
    let tallies = &m.outcome.tallies;
    let done = if workload.sync == SyncMode::None { &tallies.sync } else { &tallies.write };
    done.as_ref().map_or(0, |tally| tally.ios)
}

/// Flush counters of one layer, in one measurement or summed over several.
#[derive(Debug, Clone)]
struct FlushCounters {
    name: String,
    /// Number of devices side by side in the layer.
    devices: usize,
    /// The layer's flush counters; `None` if it does not count flushes.
    flushes: Option<DiskFlushes>,
    /// Number of flushes that the layer did not pass on, by the layer's own count.
    dropped: u64,
}

impl FlushCounters {
    const fn new(name: String, flushes: Option<DiskFlushes>) -> Self {
        Self { name, devices: 1, flushes, dropped: 0 }
    }

    /// Returns the total time of the flushes in nanoseconds; `None` if the layer does not measure it.
    fn wait_ns(&self) -> Option<u64> {
        self.flushes.map(|flushes| flushes.wait_ns).filter(|ns| *ns > 0)
    }

    /// Creates the sum of disks side by side.
    fn of_disks(disks: &[(&String, &DiskActivity)], suffix: &str) -> Self {
        Self { devices: disks.len(), ..Self::new(names_of(disks) + suffix, together(disks)) }
    }
}

/// Lists the flush counters of the layers in one measurement, from the guest's disks down to the machine's devices.
fn levels(m: &Measurement, record: Option<&TargetRecord>) -> Vec<FlushCounters> {
    let mut found = Vec::new();
    if let (Some(inside), Some(_)) = (&m.outcome.inside, &m.qemu) {
        let disks: Vec<_> = inside.disks.iter().collect();
        if !disks.is_empty() {
            found.push(FlushCounters::of_disks(&disks, IN_GUEST));
        }
    }
    if let Some(stats) = &m.qemu {
        let flushes =
            DiskFlushes { done: stats.flush.ios, wait_ns: stats.flush.total_ns, ..DiskFlushes::default() };
        found.push(FlushCounters::new(QEMU.into(), Some(flushes)));
    }
    let disks = m.machine().map(|machine| levels_of_disks(machine, record)).unwrap_or_default();
    let volatile = m.counters.iter().find(|counters| counters.layer == VolatileSpec::NAME);
    let above = disks.iter().take_while(|disks| volatile.is_some() && are_on_volatile(disks, record));
    let above = above.count();
    let flushed = |disks: &Vec<_>| FlushCounters::of_disks(disks, "");
    found.extend(disks[..above].iter().map(flushed));
    found.extend(volatile.map(|counters| {
        let flushes = DiskFlushes { done: counters.of(LayerCounters::FLUSHES), ..DiskFlushes::default() };
        let dropped = counters.of(LayerCounters::DROPPED_FLUSHES);
        FlushCounters { dropped, ..FlushCounters::new(VolatileSpec::NAME.into(), Some(flushes)) }
    }));
    found.extend(disks[above..].iter().map(flushed));
    found
}

/// Returns whether the disks are above the stack's `volatile` filesystem layer rather than below it.
fn are_on_volatile(disks: &[(&String, &DiskActivity)], record: Option<&TargetRecord>) -> bool {
    let layers = record.map(|record| record.layers.as_slice()).unwrap_or_default();
    let is_volatile = |layer: &Layer| layer.kind == LayerKind::Filesystem && layer.name == VolatileSpec::NAME;
    let Some(index) = layers.iter().position(is_volatile) else { return false };
    layers[index..].iter().any(|layer| disks.iter().any(|(name, _)| **name == layer.name))
}

fn together(disks: &[(&String, &DiskActivity)]) -> Option<DiskFlushes> {
    disks.iter().map(|(_, disk)| disk.flushes).reduce(|one, other| Some(one?.plus(other?)))?
}

/// Sums each layer's flush counters over the measurements; leaves out layers that any measurement lacks.
fn over_all(each: impl Iterator<Item = Vec<FlushCounters>>) -> Vec<FlushCounters> {
    let plus = |one: Option<DiskFlushes>, other: Option<DiskFlushes>| Some(one?.plus(other?));
    each.reduce(|all, more| {
        all.into_iter()
            .filter_map(|sum| {
                let one = more.iter().find(|other| other.name == sum.name)?;
                let (flushes, dropped) = (plus(sum.flushes, one.flushes), sum.dropped + one.dropped);
                Some(FlushCounters { flushes, dropped, ..sum })
            })
            .collect()
    })
    .unwrap_or_default()
}

fn counted(flushed: &FlushCounters, is_durable_write: bool) -> FlushCount {
    match flushed.flushes {
        None => FlushCount::NotCounted,
        Some(DiskFlushes { done, .. }) if flushed.dropped > 0 => {
            FlushCount::Dropping { done, dropped: flushed.dropped }
        }
        Some(DiskFlushes { fua: Some(true), fua_writes: Some(fua_writes @ 1..), done: flushes, .. })
            if is_durable_write =>
        {
            FlushCount::WithFua { flushes, fua_writes }
        }
        Some(flushes) if flushes.done > 0 => FlushCount::Counted(flushes.done),
        Some(DiskFlushes { volatile_cache: Some(false), .. }) => FlushCount::NoVolatileCache,
        Some(DiskFlushes { fua: Some(true), fua_writes: None, .. }) if is_durable_write => FlushCount::Fua,
        Some(_) => FlushCount::Counted(0),
    }
}

/// Names the layer that ignores flushes because of its cache mode, such as `QEMU (cache=unsafe)`; `None` if no layer does.
fn ignoring(spec: &TargetSpec) -> Option<String> {
    spec.stack.ignores_flushes().map(|(layer, mode)| match layer {
        PlannedLayer::Share(share) => format!("the {} server (sync=false)", share.protocol.name()),
        PlannedLayer::Zfs(_) => "ZFS (sync=disabled)".into(),
        _ => format!("QEMU (cache={mode})"),
    })
}

/// Names a filesystem that is mounted without barriers, such as `ext4 (nobarrier)`, and so sends no flushes; `None` without one. Direct writes
/// with FUA pass it all the same.
fn without_barriers(spec: &TargetSpec) -> Option<String> {
    let filesystem = spec.stack.find::<FilesystemSpec>()?;
    let mut options = filesystem.mount_options.iter().flat_map(|options| options.split(','));
    let option = options.find(|option| matches!(option.trim(), "nobarrier" | "barrier=0"))?;
    Some(format!("{} ({})", filesystem.kind.word(), option.trim()))
}

/// Names a layer and the setting that makes it drop flushes: `volatile (drop_flush=1)`.
fn dropping(name: &str, spec: &TargetSpec) -> String {
    let each = spec.stack.find::<VolatileSpec>().and_then(|volatile| volatile.drop_flush);
    each.map_or_else(|| name.to_owned(), |each| format!("{name} (drop_flush={each})"))
}

fn fate(levels: &[FlushLevel], ignored_by: Option<&str>, spec: &TargetSpec) -> FlushFate {
    let mut above = "the program".to_owned();
    for level in levels {
        if level.flushes == FlushCount::Counted(0) {
            let is_of_host = level.name != QEMU && !level.name.ends_with(IN_GUEST);
            let named =
                ignored_by.map(str::to_owned).or_else(|| without_barriers(spec)).filter(|_| is_of_host);
            let by = named.unwrap_or_else(|| format!("a layer between {above} and {}", level.name));
            return FlushFate::Swallowed { by, evidence: SwallowEvidence::NoneBelow };
        }
        if let FlushCount::Dropping { done, dropped } = level.flushes {
            let by = dropping(&level.name, spec);
            return FlushFate::Swallowed { by, evidence: SwallowEvidence::OwnCount { done, dropped } };
        }
        if matches!(level.flushes, FlushCount::Counted(_) | FlushCount::WithFua { .. }) {
            above.clone_from(&level.name);
        }
    }
    if let Some(layer) = ignored_by {
        return FlushFate::Swallowed { by: layer.to_owned(), evidence: SwallowEvidence::Setting };
    }
    match levels.last().map(|level| (level, level.flushes)) {
        None => FlushFate::NotCountable { reason: "no layer below the program was seen".into() },
        Some((_, FlushCount::Counted(flushes) | FlushCount::Dropping { done: flushes, .. })) => {
            FlushFate::Kept(flushes)
        }
        Some((_, FlushCount::WithFua { flushes, fua_writes })) => FlushFate::Kept(flushes + fua_writes),
        Some((level, FlushCount::NoVolatileCache)) => FlushFate::NotNeeded { device: level.name.clone() },
        Some((level, FlushCount::Fua)) => FlushFate::NotCountable {
            reason: format!(
                "{} takes durable writes as such (FUA), which are counted by the kernel's tracing only: as root, with CONFIG_HIST_TRIGGERS",
                level.name
            ),
        },
        Some((level, FlushCount::NotCounted)) => {
            let reason = format!("no flushes of {} are counted", level.name);
            FlushFate::NotCountable { reason }
        }
    }
}

#[cfg(test)]
mod tests;
