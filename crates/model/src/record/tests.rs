use super::*;

#[test]
fn every_additive_figure_of_concurrent_loads_is_their_sum() {
    let mut latency = crate::Histogram::new();
    latency.add_many(7, 10);
    let tally = || Some(Tally { ios: 10, bytes: 40, latency: latency.clone(), response: None });
    let direction = |upload| DirectionSample {
        upload,
        lost: Some(1),
        out_of_order: Some(2),
        duplicates: Some(3),
        jitter_ns: Some(4),
        retransmits: Some(5),
        rtt_ns: Some(6),
        cwnd: Some(7),
    };
    let one = Sample {
        at_ns: 100,
        duration_ns: 50,
        tallies: Tallies {
            read: tally(),
            write: tally(),
            trim: tally(),
            sync: tally(),
            meta: tally(),
            commit: Some(latency.clone()),
        },
        oldest_ns: Some(9),
        failed: 11,
        directions: vec![direction(true), direction(false)],
    };
    let mut all = one.clone();
    all.merge(one.clone());
    all.merge(one);
    let Sample { at_ns, duration_ns, tallies, oldest_ns, failed, directions } = all;
    assert_eq!((at_ns, duration_ns, oldest_ns, failed), (100, 50, Some(9), 33));
    for (word, tally) in tallies.each() {
        let Tally { ios, bytes, latency, response } = tally.expect(word);
        assert_eq!((*ios, *bytes, latency.count(), response), (30, 120, 30, &None), "{word}");
    }
    assert_eq!(tallies.commit.map(|commit| commit.count()), Some(30));
    let merged = |upload| DirectionSample {
        lost: Some(3),
        out_of_order: Some(6),
        duplicates: Some(9),
        jitter_ns: None,
        retransmits: Some(15),
        ..direction(upload)
    };
    assert_eq!(directions, [merged(true), merged(false)]);
}

#[test]
fn rates_are_over_the_time_between_completions_at_the_edges_of_a_window() {
    const MS: u64 = 1_000_000;
    let rate_ms = |window: u64, before: u64, after: u64| {
        let edges = Some(WindowEdges { before_ns: before * MS, after_ns: after * MS });
        Outcome { duration_ns: window * MS, edges, ..Outcome::default() }.rate_ns() / MS
    };
    assert_eq!(rate_ms(1000, 40, 100), 940);
    assert_eq!(rate_ms(330, 5, 100), 235, "a slice of a throttle");
    assert_eq!(rate_ms(10_000, 0, 1250), 8750);
    for (window, before, after) in [(1000, 10, 126), (1000, 126, 10), (10_000, 0, 1251), (100, 51, 0)] {
        assert_eq!(rate_ms(window, before, after), window, "a pause this long is a result");
    }
    assert_eq!(Outcome { duration_ns: 1000, ..Outcome::default() }.rate_ns(), 1000);
    let [one, other] = [(5, 30), (20, 3)].map(|(before_ns, after_ns)| WindowEdges { before_ns, after_ns });
    assert_eq!(one.merge(other), WindowEdges { before_ns: 5, after_ns: 3 }, "the nearest of either");
}
