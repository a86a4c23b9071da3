//! Finds the synthetic workload that comes closest to a trace.

use iotax_analysis::trace::{HitShare, LengthShare, TraceProfile};
use iotax_model::units::{Bytes, human};
use schemars::JsonSchema;
use serde::Serialize;

/// Minimum coefficient of variation of the interarrival times at which arrivals count as bursty instead of random.
const BURSTY: f64 = 1.3;
/// Coefficient of variation of the interarrival times below which arrivals count as evenly spaced.
const EVEN: f64 = 0.5;
/// Minimum share of sequential reads and writes at which a trace counts as sequential.
const SEQUENTIAL: f64 = 0.5;
/// If half of the trace's I/Os go to an area smaller than this share of the area that half of the workload's I/Os go to, the loss of the
/// hot area is reported.
const LESS: f64 = 0.8;
/// If the share of reads that an LRU cache answers is higher for the trace than for the workload by more than this, the loss of reuse is
/// reported.
const REUSED: f64 = 0.1;

/// The synthetic workload that comes closest to a trace, as flags of `iotax bench`, and the properties of the trace that it lacks.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Nearest {
    /// Flags of `iotax bench`.
    pub flags: String,
    /// Properties of the trace that the workload lacks, as text.
    pub loses: Vec<String>,
}

/// Returns the synthetic workload that is closest to the trace; `None` for a trace without reads and writes.
#[must_use]
pub fn nearest(profile: &TraceProfile) -> Option<Nearest> {
    let data = profile.reads + profile.writes;
    if data == 0 {
        return None;
    }
    let mut loses = Vec::new();
    let is_sequential = profile.sequential.is_some_and(|share| share >= SEQUENTIAL);
    let rw = match (profile.reads, profile.writes, is_sequential) {
        (_, 0, true) => "read",
        (0, _, true) => "write",
        (_, _, true) => "rw",
        (_, 0, false) => "randread",
        (0, _, false) => "randwrite",
        (_, _, false) => "randrw",
    };
    let mut flags = vec![format!("--rw {rw}")];
    let reads = (profile.reads as f64 / data as f64 * 100.0).round().clamp(1.0, 99.0);
    if profile.reads > 0 && profile.writes > 0 {
        flags.push(format!("--rwmixread {reads:.0}"));
    }
    flags.push(sizes(profile, &mut loses));
    if let Some(rate) = profile.ios_per_s {
        flags.push(format!("--rate-iops {:.0}", rate.max(1.0)));
        if profile.gap_variation.is_none_or(|variation| variation >= EVEN) {
            flags.push("--rate-process poisson".into());
        }
    }
    flags.push(format!("--iodepth {}", profile.max_depth.unwrap_or(128).clamp(1, 4096)));
    // Sizes are at least 1 MiB and at most 2^62 bytes.
    let reach = profile.reach.clamp(1, 1 << 62).next_multiple_of(1 << 20);
    flags.push(format!("--size {}", Bytes(reach)));
    if let (Some(variation), Some(rate), Some(peak)) =
        (profile.gap_variation, profile.ios_per_s, profile.peak_ios_per_s)
        && variation > BURSTY
    {
        loses.push(format!(
            "bursts: its busiest tenth of a second has {:.0} times the mean rate",
            peak / rate
        ));
    }
    let spread = profile.working_set as f64 / profile.reach.max(1) as f64;
    if spread < 0.9 {
        let (set, reach) = (human::bytes(profile.working_set), human::bytes(profile.reach));
        loses.push(format!(
            "places: it touches {set} of the {reach} that it reaches over, and the workload all of them"
        ));
    }
    if let Some(share) = profile.sequential.filter(|share| *share > 0.05 && *share < 0.95) {
        loses.push(format!("order: {:.0}% of its I/Os are sequential", share * 100.0));
    }
    locality(profile, is_sequential, &mut loses);
    for (count, what) in
        [(profile.flushes, "flushes"), (profile.trims, "trims"), (profile.fua, "writes with FUA")]
    {
        if count > 0 {
            loses.push(format!("{count} {what}"));
        }
    }
    Some(Nearest { flags: flags.join(" "), loses })
}

/// Adds to `loses` the locality that a uniform workload lacks: hot areas, and blocks that are soon read again.
fn locality(profile: &TraceProfile, is_sequential: bool, loses: &mut Vec<String>) {
    if let Some(hot) = profile.hot.all {
        let even = if is_sequential { 0.5 } else { hot.half_by_chance };
        if hot.half < LESS * even {
            loses.push(format!(
                "hot places: half of its I/Os go to {:.1}% of the area that it touches, and of the workload's to about {:.0}%",
                hot.half * 100.0,
                even * 100.0
            ));
        }
    }
    // With uniform random I/O, an LRU cache hits in proportion to its size; with sequential I/O, a cache smaller than the area never hits.
    let workloads = |cache: u64| {
        let held = cache as f64 / profile.reach.max(1) as f64;
        if is_sequential && held < 1.0 { 0.0 } else { held.min(1.0) }
    };
    let most = |hits: &(u64, HitShare)| hits.1.share - hits.1.error - workloads(hits.0);
    let reads = profile.reuse.caches.iter().filter_map(|cache| Some((cache.cache, cache.reads?)));
    if let Some(hits) = reads.max_by(|a, b| most(a).total_cmp(&most(b))).filter(|hits| most(hits) > REUSED) {
        loses.push(format!(
            "reuse: an LRU cache of {} would answer {:.0}% of its reads, and at most {:.0}% of the workload's",
            human::bytes(hits.0),
            hits.1.share * 100.0,
            (workloads(hits.0) * 100.0).ceil()
        ));
    }
}

/// Returns the `--bs` or `--bssplit` flag for a trace: its only block size, or its most frequent ones with their percentages.
fn sizes(profile: &TraceProfile, loses: &mut Vec<String>) -> String {
    let fit = |bytes: u64| bytes.clamp(1, 64 << 20).next_multiple_of(512);
    let known: Vec<&LengthShare> =
        profile.lengths.iter().filter(|length| length.share >= 0.02 && length.bytes > 0).collect();
    match known[..] {
        [] => format!("--bs {}", Bytes(fit(profile.longest))),
        [one] => {
            if one.share < 0.995 {
                loses.push(format!(
                    "lengths: {:.0}% are not {}",
                    (1.0 - one.share) * 100.0,
                    Bytes(one.bytes)
                ));
            }
            format!("--bs {}", Bytes(fit(one.bytes)))
        }
        _ => {
            let sum: f64 = known.iter().map(|length| length.share).sum();
            let mut left = 100;
            let mut parts = Vec::new();
            for (number, length) in known.iter().enumerate() {
                #[expect(clippy::cast_possible_truncation, reason = "a percentage")]
                let percent = ((length.share / sum * 100.0).round() as i32).min(left);
                let percent = if number + 1 == known.len() { left } else { percent };
                left -= percent;
                if percent > 0 {
                    parts.push(format!("{}/{percent}", Bytes(fit(length.bytes))));
                }
            }
            if sum < 0.98 {
                loses.push(format!("lengths: {:.0}% have others", (1.0 - sum) * 100.0));
            }
            format!("--bssplit {}", parts.join(":"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_analysis::trace::Profiler;
    use iotax_model::trace::{TracedIo, TracedOperation};

    fn event(at_ns: u64, operation: TracedOperation, offset: u64, length: u64) -> TracedIo {
        TracedIo {
            at_ns,
            latency_ns: None,
            operation,
            offset,
            length,
            fua: false,
            process: None,
            queue: None,
        }
    }

    fn of(events: &[TracedIo]) -> Option<Nearest> {
        let mut profiler = Profiler::default();
        events.iter().for_each(|event| profiler.add(event));
        nearest(&profiler.profile())
    }

    #[test]
    fn lengths_are_split_and_what_a_workload_lacks_is_said() {
        let length = |n: u64| if n.is_multiple_of(4) { 65536 } else { 4096 };
        let mut events: Vec<TracedIo> = (0..100)
            .map(|n| {
                event(n / 10 * 1_000_000_000 + n, TracedOperation::Write, n * 7919 % 100 * 65536, length(n))
            })
            .collect();
        events.push(event(10_000_000_000, TracedOperation::Flush, 0, 0));
        let nearest = of(&events).expect("it writes");
        assert!(
            nearest.flags.starts_with("--rw randwrite --bssplit 4k/75:64k/25 --rate-iops 10 "),
            "{}",
            nearest.flags
        );
        let said = nearest.loses.join("; ");
        assert!(
            said.contains("bursts: ") && said.contains("places: ") && said.contains("1 flushes"),
            "{said}"
        );
    }

    #[test]
    fn hot_places_and_reuse_are_losses_and_reads_at_random_lose_neither() {
        // Three of four reads go to the first 100 of 10,000 blocks.
        let block = |n: u64| n * 7919 % if n.is_multiple_of(4) { 10_000 } else { 100 };
        let reads = |block: &dyn Fn(u64) -> u64| -> Vec<TracedIo> {
            (0..40_000).map(|n| event(n * 1_000_000, TracedOperation::Read, block(n) * 4096, 4096)).collect()
        };
        let said = of(&reads(&block)).expect("it reads").loses.join("; ");
        let (hot, reuse) = (
            "hot places: half of its I/Os go to 1.9%",
            "reuse: an LRU cache of 512 KiB would answer 75% of its reads, and at most 2% of the workload's",
        );
        assert!(said.contains(hot) && said.contains(reuse), "{said}");
        let mut state = 1_u64;
        let mut random = Vec::new();
        for _ in 0..40_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random.push((state >> 33) % 10_000);
        }
        let index = |n: u64| random[usize::try_from(n).expect("small")];
        let said = of(&reads(&index)).expect("it reads").loses.join("; ");
        assert!(!said.contains("hot") && !said.contains("reuse"), "{said}");
    }

    #[test]
    fn flags_are_those_of_a_workload_whatever_a_trace_says() {
        assert_eq!(of(&[event(0, TracedOperation::Flush, 0, 0)]), None);
        let many: Vec<TracedIo> =
            (0..7000).map(|n| event(n, TracedOperation::Read, u64::MAX - n, 512 * (n % 70))).collect();
        for events in [
            &many[..],
            &[event(5, TracedOperation::Read, u64::MAX, u64::MAX)],
            &[event(0, TracedOperation::Write, 0, 0)],
        ] {
            let flags = of(events).expect("it does something").flags;
            let mut keys = iotax_model::workload::WorkloadKeys::default();
            let words: Vec<&str> = flags.split(' ').collect();
            for pair in words.chunks(2) {
                keys.set(&pair[0][2..].replace('-', "_"), pair[1]).expect(&flags);
            }
            assert_eq!(
                keys.complete(&iotax_model::workload::WorkloadKeys::default()).check(),
                Ok(()),
                "{flags}"
            );
        }
    }
}
