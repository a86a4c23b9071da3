use super::*;

fn event(
    at_ns: u64,
    operation: TracedOperation,
    offset: u64,
    length: u64,
    latency_ns: Option<u64>,
) -> TracedIo {
    TracedIo { at_ns, latency_ns, operation, offset, length, fua: false, process: None, queue: Some(0) }
}

fn profile(events: &[TracedIo]) -> TraceProfile {
    let mut profiler = Profiler::default();
    events.iter().for_each(|event| profiler.add(event));
    profiler.profile()
}

#[test]
fn counts_rates_depth_and_order_are_those_of_the_events() {
    // 10 I/Os a second for 10 s, each 0.2 s long: two in flight. Even ones read sequentially, odd ones write
    // at scattered offsets.
    let events: Vec<TracedIo> = (0..101)
        .map(|n| {
            let (operation, offset) = if n % 2 == 0 {
                (TracedOperation::Read, n / 2 * 4096)
            } else {
                (TracedOperation::Write, (1 << 30) + (n * 7919 % 101) * (1 << 20))
            };
            event(n * 100_000_000, operation, offset, 4096, Some(200_000_000))
        })
        .collect();
    let all = profile(&events);
    assert_eq!((all.reads, all.writes, all.queues), (51, 50, 1));
    assert!((all.duration_s - 10.0).abs() < 1e-9);
    assert!((all.ios_per_s.expect("a rate") - 10.0).abs() < 1e-9);
    assert!((all.mean_depth.expect("known") - 2.02).abs() < 1e-9);
    assert_eq!((all.max_depth, all.working_set), (Some(2), 101 * 4096));
    assert!((all.sequential.expect("enough") - 50.0 / 101.0).abs() < 1e-9);
    assert!(all.gap_variation.expect("enough") < 1e-6);
    assert_eq!(all.lengths, [LengthShare { bytes: 4096, share: 1.0 }]);
}

#[test]
fn a_depth_of_ios_whose_completions_are_missing_is_unknown() {
    let events = |unknown: u64| -> Vec<TracedIo> {
        let latency = |n| (n >= unknown).then_some(200_000_000);
        (0..1001).map(|n| event(n * 100_000_000, TracedOperation::Read, 0, 4096, latency(n))).collect()
    };
    let cut = profile(&events(10));
    assert!((cut.mean_depth.expect("known") - 2.002).abs() < 1e-9, "{:?}", cut.mean_depth);
    assert_eq!((cut.max_depth, cut.mean_latency_s), (Some(2), Some(0.2)));
    let partly = profile(&events(11));
    assert_eq!((partly.mean_depth, partly.max_depth, partly.mean_latency_s), (None, None, Some(0.2)));
}

#[test]
fn nothing_and_one_io_have_no_rate() {
    let none = profile(&[]);
    assert_eq!((none.ios_per_s, none.mean_depth), (None, None));
    let one = profile(&[event(5, TracedOperation::Read, 0, u64::MAX, None)]);
    assert_eq!((one.ios_per_s, one.sequential, one.reads), (None, None, 1));
}
