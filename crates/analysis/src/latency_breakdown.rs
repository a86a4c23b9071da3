//! Latency breakdown: the same latency as observed by the program, the guest's disk, QEMU's block layer and the host's device.
//!
//! Each layer observes an I/O from its arrival there to its completion there. So a lower layer's time lies within that of the layer
//! above, and the difference is the time spent between the two. That holds only if both observe the same I/Os: after a cache hit, a
//! merge or a split, the means of two layers are not comparable.

use iotax_model::TargetSpec;
use iotax_model::record::{BlockTally, DiskActivity, HostActivity, Measurement, TargetRecord};
use iotax_model::target::LayerKind;
use iotax_model::units::human;

use crate::stats::median;

/// Largest relative difference between the I/O counts of two layers that still count as having observed the same I/Os.
const SAME_IOS: f64 = 0.1;

/// Layers at which latency is observed, from the bottom up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum View {
    /// The host's device at the bottom, by its own counters.
    Device,
    /// QEMU's block layer, by QEMU's own counters.
    Qemu,
    /// The guest's disk, by the guest kernel's counters.
    GuestDisk,
    /// The program that issued the I/O, by its own measurements.
    Program,
}

impl View {
    /// All views, from the bottom up.
    pub const ALL: [Self; 4] = [Self::Device, Self::Qemu, Self::GuestDisk, Self::Program];

    /// Returns the view's name in JSON and CSV.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Qemu => "qemu",
            Self::GuestDisk => "guest_disk",
            Self::Program => "program",
        }
    }

    /// Returns the view's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "host device",
            Self::Qemu => "QEMU",
            Self::GuestDisk => "guest disk",
            Self::Program => "program",
        }
    }

    /// Names the components between this layer and the next lower one.
    fn adds(self, spec: &TargetSpec) -> String {
        if let (Self::Program, Some(protocol)) = (self, spec.shared_directory()) {
            let (name, server) = (protocol.word(), protocol.server());
            return format!("guest kernel, {name}, {server}, host kernel and filesystem, and program");
        }
        match (self, &spec.guest()) {
            (Self::Device, _) => "host device".into(),
            (Self::Qemu, _) => "QEMU + host kernel and filesystem".into(),
            (Self::GuestDisk, _) if spec.xen().is_some() => {
                "disk backend, host kernel and filesystem, xen-blk + virtual interrupt".into()
            }
            (Self::GuestDisk, guest) => {
                let bus = guest.as_ref().map_or("disk", |guest| guest.bus.word());
                format!("{} + virtual interrupt", bus.split('-').next().unwrap_or(bus))
            }
            (Self::Program, Some(guest)) if guest.filesystem.is_some() => {
                "guest kernel, filesystem and program".into()
            }
            (Self::Program, Some(_)) => "guest kernel and program".into(),
            (Self::Program, None) if spec.xen().is_some() => "guest kernel and program".into(),
            (Self::Program, None) => "host kernel, filesystem and program".into(),
        }
    }

    /// Returns the number of I/Os and their mean time in nanoseconds at this layer, for one measurement; `None` if the layer was not
    /// observed, or had no I/O.
    fn counted(self, m: &Measurement, record: Option<&TargetRecord>) -> Option<(f64, f64)> {
        match self {
            Self::Program => {
                let latency = m.outcome.tallies.latency();
                Some((latency.count() as f64, latency.mean()?))
            }
            Self::GuestDisk => over_disks(m.outcome.inside.as_ref()?.disks.values()),
            Self::Qemu => {
                let stats = m.qemu.as_ref()?;
                let ios = (stats.read.ios + stats.write.ios) as f64;
                (ios > 0.0).then(|| (ios, (stats.read.total_ns + stats.write.total_ns) as f64 / ios))
            }
            Self::Device => over_disks(bottom(m.host.as_ref()?, record)?.into_iter()),
        }
    }
}

/// Returns the devices at the bottom of the stack: those that the target's record names, or the only device observed on the host. `None` if
/// neither identifies them.
fn bottom<'a>(host: &'a HostActivity, record: Option<&TargetRecord>) -> Option<Vec<&'a DiskActivity>> {
    let is_device = |name: &str| {
        let layers = record.into_iter().flat_map(|record| &record.layers);
        layers.clone().any(|layer| layer.kind == LayerKind::Device && layer.name == name)
    };
    let named: Vec<_> = host.disks.iter().filter(|(name, _)| is_device(name)).map(|(_, disk)| disk).collect();
    match (named.is_empty(), host.disks.len()) {
        (false, _) => Some(named),
        (true, 1) => Some(host.disks.values().collect()),
        (true, _) => None,
    }
}

/// Returns the I/Os of all disks and their mean wait in nanoseconds; `None` without I/O, or if a disk with I/O reports no wait.
fn over_disks<'a>(disks: impl Iterator<Item = &'a DiskActivity>) -> Option<(f64, f64)> {
    let (mut ios, mut waited) = (0.0, 0.0);
    for disk in disks {
        let count = (disk.reads + disk.writes) as f64;
        if count > 0.0 {
            ios += count;
            waited += count * disk.mean_wait_ns?;
        }
    }
    (ios > 0.0).then(|| (ios, waited / ios))
}

/// The latency of a workload on a target, by component.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyBreakdown {
    /// Mean latency at each observed layer, from the bottom up: medians over the rounds, in nanoseconds.
    pub views: Vec<(View, f64)>,
    /// Time between adjacent layers in nanoseconds, from the bottom up; the times add up to the program's latency.
    pub stretches: Vec<(String, f64)>,
    /// The reasons why the times of some layers could not be separated, as text.
    pub not_separable: Vec<String>,
    /// Median service time in QEMU's block layer, interpolated from its histogram, in nanoseconds. Absent without a histogram, if
    /// histograms have different bins, or if the median lies in the last bin, which has no upper bound.
    pub qemu_p50_ns: Option<f64>,
    /// 99th percentile of the service time in QEMU's block layer, interpolated from its histogram, in nanoseconds. Absent without a
    /// histogram, if histograms have different bins, or if the percentile lies in the last bin, which has no upper bound.
    pub qemu_p99_ns: Option<f64>,
}

impl LatencyBreakdown {
    /// Computes the breakdown from all rounds of a workload on a target; `None` without I/O, if no layer but the program observed the
    /// latency in every round, or if the work ran on another machine.
    pub fn of(
        spec: &TargetSpec,
        record: Option<&TargetRecord>,
        measurements: &[&Measurement],
    ) -> Option<Self> {
        if spec.remote().is_some() {
            return None;
        }
        let measurements: Vec<&Measurement> =
            measurements.iter().copied().filter(|m| m.outcome.tallies.ios() > 0).collect();
        // A layer that was not observed in every round would be compared over different rounds.
        let over_rounds = |figure: &dyn Fn(&Measurement) -> Option<f64>| {
            let all: Option<Vec<f64>> = measurements.iter().map(|m| figure(m)).collect();
            median(&all?)
        };
        let mut views = Vec::new();
        let mut not_separable = Vec::new();
        let mut ends: Vec<(View, f64)> = Vec::new();
        for view in View::ALL.into_iter().rev() {
            let Some(mean) = over_rounds(&|m| Some(view.counted(m, record)?.1)) else { continue };
            views.push((view, mean));
            let per_io =
                over_rounds(&|m| Some(view.counted(m, record)?.0 / View::Program.counted(m, record)?.0))?;
            let above = ends.last();
            if (per_io - 1.0).abs() > SAME_IOS {
                let seen = format!("{} saw {per_io:.2} I/Os for each of the program's", view.name());
                not_separable.push(format!("{seen}, of {} in the mean", human::time(mean)));
            } else if let Some((above, least)) = above.filter(|(_, least)| mean > *least) {
                let more = format!(
                    "{} saw {}, more than the {}",
                    view.name(),
                    human::time(mean),
                    human::time(*least)
                );
                not_separable.push(format!("{more} that {} saw above it", above.name()));
            } else {
                ends.push((view, mean));
            }
        }
        if views.len() < 2 {
            return None;
        }
        views.reverse();
        ends.reverse();
        let (qemu_p50_ns, qemu_p99_ns) = qemu_percentiles(&measurements);
        Some(Self { views, stretches: stretches(spec, &ends), not_separable, qemu_p50_ns, qemu_p99_ns })
    }

    /// Returns whether a layer between the device and the program was observed.
    #[must_use]
    pub fn within(&self) -> bool {
        self.views.iter().any(|(view, _)| matches!(view, View::Qemu | View::GuestDisk))
    }

    /// Returns the mean latency at a layer (a view) in nanoseconds; `None` if that layer was not observed.
    #[must_use]
    pub fn latency_at(&self, view: View) -> Option<f64> {
        self.views.iter().find(|(known, _)| *known == view).map(|(_, ns)| *ns)
    }
}

/// Computes the time between adjacent layers of `ends`; each time is named after the components in which it is spent.
fn stretches(spec: &TargetSpec, ends: &[(View, f64)]) -> Vec<(String, f64)> {
    let on_the_way: Vec<View> = match spec.guest() {
        Some(_) if spec.shared_directory().is_none() => View::ALL.to_vec(),
        None if spec.xen().is_some() => vec![View::Device, View::GuestDisk, View::Program],
        _ => vec![View::Device, View::Program],
    };
    let (mut beneath, mut names, mut found) = (0.0, Vec::new(), Vec::new());
    for view in on_the_way {
        names.push(view.adds(spec));
        if let Some((_, ns)) = ends.iter().find(|(end, _)| *end == view) {
            found.push((names.join(", "), ns - beneath));
            beneath = *ns;
            names.clear();
        }
    }
    found
}

/// Returns the median and the 99th percentile of the service time in QEMU's block layer, in nanoseconds, over all rounds, reads and writes
/// together. `None` if the histograms have different bins, and where [`quantile`] has no result.
fn qemu_percentiles(measurements: &[&Measurement]) -> (Option<f64>, Option<f64>) {
    let mut all: Vec<(Option<u64>, u64)> = Vec::new();
    for stats in measurements.iter().filter_map(|m| m.qemu.as_ref()) {
        for BlockTally { latency, .. } in [&stats.read, &stats.write] {
            if all.is_empty() {
                all.clone_from(latency);
            } else if !latency.is_empty() {
                if !all.iter().map(|bin| bin.0).eq(latency.iter().map(|bin| bin.0)) {
                    return (None, None);
                }
                all.iter_mut().zip(latency).for_each(|(sum, bin)| sum.1 += bin.1);
            }
        }
    }
    (quantile(&all, 0.5), quantile(&all, 0.99))
}

/// Interpolates a quantile of a histogram, given as (upper bound, count) of each bin. `None` without counts, or if the quantile lies in a
/// bin without an upper bound.
#[must_use]
pub fn quantile(bins: &[(Option<u64>, u64)], q: f64) -> Option<f64> {
    let rank = q * bins.iter().map(|bin| bin.1).sum::<u64>() as f64;
    let (mut below, mut from) = (0.0, 0.0);
    for (bound, count) in bins.iter().filter(|_| rank > 0.0) {
        let count = *count as f64;
        if below + count >= rank {
            let to = (*bound)? as f64;
            return Some(from + (to - from) * (rank - below) / count);
        }
        below += count;
        from = bound.map_or(from, |bound| bound as f64);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn a_quantile_is_interpolated_within_its_bin() {
        let bins = [(Some(100), 50), (Some(200), 40), (None, 10)];
        assert_eq!(quantile(&bins, 0.5), Some(100.0));
        assert_eq!(quantile(&bins, 0.25), Some(50.0));
        assert_eq!(quantile(&bins, 0.7), Some(150.0));
        assert_eq!(quantile(&bins, 0.9), Some(200.0));
        assert_eq!(quantile(&bins, 0.99), None, "beyond the last bound");
        assert_eq!((quantile(&[], 0.5), quantile(&[(Some(5), 0)], 0.5)), (None, None));
    }
}
