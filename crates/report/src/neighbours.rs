//! Describes the load of a neighbour that ran during a target's measurement.

use iotax_model::Workload;
use iotax_model::net::NetTest;
use iotax_model::units::human;

use super::figure::{evenness, or_unknown, share};
use iotax_analysis::{Metric, NeighbourLoad};
use iotax_model::Run;

/// Formats the neighbour's rates in the units of its workload: `60.0k IOPS, 246 MB/s`. TCP streams have no packet rate, because the kernel
/// chooses the packet size.
pub(super) fn made(run: &Run, noise: &NeighbourLoad, beside: &Workload) -> String {
    let neighbour = run.plan.neighbours.iter().find(|neighbour| neighbour.target.name == noise.name);
    let own = neighbour.map_or(beside, |neighbour| &neighbour.workload);
    let rate = or_unknown(noise.bytes_per_s, |rate| Metric::BYTES_PER_S.figure_on(own, rate));
    if own.kind.traffic().is_some_and(|net| net.test == NetTest::Tcp) {
        return rate;
    }
    format!("{} {}, {rate}", or_unknown(noise.iops, human::count), Metric::IOPS.column(own))
}

/// Describes how target and neighbour shared the throughput:
/// `together 9.41 Gbit/s, of which vm-and-host had 31% and host 69%, fairness 0.872 [0.861, 0.883]`; `None` unless both carry network
/// streams.
pub(super) fn together(target: &str, noise: &NeighbourLoad) -> Option<String> {
    let all = noise.together.as_ref()?;
    Some(format!(
        "together {}, of which {} had {} and {} {}, fairness {}",
        human::bits(all.bytes_per_s),
        target,
        share(1.0 - all.share),
        noise.name,
        share(all.share),
        evenness(all.fairness)
    ))
}
