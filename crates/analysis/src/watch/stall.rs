//! Locates a gap: the lowest block device in which I/Os hung.

use iotax_model::record::{DeviceGaps, Measurement};
use schemars::JsonSchema;
use serde::Serialize;

use super::clock::{CompletionGap, HostClock, Stalled};

/// Smallest share of a gap for which a device's I/Os must have hung; less may only be the start or end of the gap.
const SHARE: f64 = 0.5;

/// The machine that a device belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceOwner {
    /// The machine with the target, this one or another.
    Host,
    /// The guest in which the load ran.
    Guest,
}

/// The load's gap as observed at one block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight<'a> {
    /// The machine that the device belongs to.
    pub machine: DeviceOwner,
    /// The kernel's name of the device.
    pub device: &'a str,
    /// The gap in the device's completions of the same direction (for flushes: of writes); absent if it covers less than half of the load's
    /// gap.
    pub hung: Option<CompletionGap>,
}

/// The layer in which a gap arose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapOrigin<'a> {
    /// The gap as observed at each watched block device, from the bottom up: the host's devices, then the guest's.
    pub sights: Vec<Sight<'a>>,
    /// Index in `sights` of the lowest device whose I/Os hung; `None` if no device's I/Os hung, so that the gap arose above all of them.
    pub lowest: Option<usize>,
    /// Period in which the load's machine or agent did not run; absent if it covers less than half of the gap.
    pub stood: Option<CompletionGap>,
}

/// Locates a gap of reads, writes or flushes; `None` for other gaps, and if no device was watched.
pub(super) fn origin<'a>(m: &'a Measurement, gap: &CompletionGap) -> Option<GapOrigin<'a>> {
    if matches!(gap.of, Stalled::Guest | Stalled::Machine | Stalled::RoundTrips) {
        return None;
    }
    // A device's gaps cover the writes that a flush causes, not the flush itself.
    let below = if gap.of == Stalled::Flushes { Stalled::Writes } else { gap.of };
    let in_guest = !m.devices.is_empty() || m.qemu.is_some();
    let clock = HostClock::of(m);
    let of = |devices: &'a [DeviceGaps], machine| {
        devices.iter().map(move |device| {
            let all = device.gaps.iter().map(|blackout| match machine {
                DeviceOwner::Guest => clock.gap(blackout),
                DeviceOwner::Host => HostClock::of_host().gap(blackout),
            });
            let same = all.filter(|one| one.of == below);
            let hung = same.max_by_key(|one| one.overlap_ns(gap));
            let hung = hung.filter(|one| one.overlap_ns(gap) as f64 >= SHARE * gap.duration_ns as f64);
            Sight { machine, device: &device.device, hung }
        })
    };
    let own = if in_guest { DeviceOwner::Guest } else { DeviceOwner::Host };
    let sights: Vec<Sight<'_>> =
        of(&m.devices, DeviceOwner::Host).chain(of(&m.outcome.devices, own)).collect();
    let blind = m.outcome.devices.first().into_iter().flat_map(|device| &device.blind);
    let stood = blind.map(|hole| clock.gap(hole)).max_by_key(|hole| hole.overlap_ns(gap));
    let stood = stood.filter(|hole| hole.overlap_ns(gap) as f64 >= SHARE * gap.duration_ns as f64);
    let lowest = sights.iter().position(|sight| sight.hung.is_some());
    (!sights.is_empty()).then_some(GapOrigin { sights, lowest, stood })
}
