//! What a neighbour did while a target was measured, in words.

use iotax_model::Workload;
use iotax_model::net::NetTest;
use iotax_model::units::human;

use super::figure::{evenness, or_unknown, share};
use iotax_analysis::store::Run;
use iotax_analysis::{Metric, Noise};

/// `60.0k IOPS, 246 MB/s`, by the names and units of its own workload; of TCP without packets, which are what kernels made of the bytes.
pub(super) fn made(run: &Run, noise: &Noise, beside: &Workload) -> String {
    let neighbour = run.plan.neighbours.iter().find(|neighbour| neighbour.target.name == noise.name);
    let own = neighbour.map_or(beside, |neighbour| &neighbour.workload);
    let rate = or_unknown(noise.bytes_per_s, |rate| Metric::BYTES_PER_S.figure_on(own, rate));
    if own.kind().traffic().is_some_and(|net| net.test == NetTest::Tcp) {
        return rate;
    }
    format!("{} {}, {rate}", or_unknown(noise.iops, human::count), Metric::IOPS.column(own))
}

/// `together 9.41 Gbit/s, of which vm-and-host had 31% and host 69%, fairness 0.872 [0.861, 0.883]`; absent but for streams beside streams.
pub(super) fn together(noise: &Noise) -> Option<String> {
    let all = noise.together.as_ref()?;
    Some(format!(
        "together {}, of which {} had {} and {} {}, fairness {}",
        human::bits(all.bytes_per_s),
        noise.target,
        share(1.0 - all.share),
        noise.name,
        share(all.share),
        evenness(all.fairness)
    ))
}
