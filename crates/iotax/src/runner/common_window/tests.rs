use super::*;
use iotax_model::Histogram;
use iotax_model::record::Tally;
use iotax_model::record::{DiskActivity, ErrorCount, HostActivity, HostCpu};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// A guest that began after `after_ms`, with intervals of `interval_ms` and a fixed number of 4 KiB reads in each.
fn ran(start: Instant, after_ms: u64, interval_ms: u64, reads: &[u64]) -> AgentRun {
    let sample = |(number, ios): (u64, &u64)| Sample {
        at_ns: number * interval_ms * MS,
        duration_ns: interval_ms * MS,
        tallies: Tallies {
            read: Some(Tally {
                ios: *ios,
                bytes: *ios * 4096,
                latency: (0..*ios).fold(Histogram::new(), |mut all, _| {
                    all.add(1000);
                    all
                }),
                response: None,
            }),
            ..Tallies::default()
        },
        oldest_ns: None,
        failed: 0,
        directions: Vec::new(),
    };
    let samples: Vec<Sample> = (1..).zip(reads).map(sample).collect();
    let duration_ns = reads.len() as u64 * interval_ms * MS;
    let tallies = sum(samples.iter());
    let cpu = CpuTime { user_ns: duration_ns, system_ns: 0 };
    AgentRun {
        name: "1".into(),
        began: start + Duration::from_millis(after_ms),
        samples,
        outcome: Outcome { duration_ns, tallies, cpu, ..Outcome::default() },
    }
}

#[test]
fn one_alone_keeps_all_of_its_own() {
    let only = ran(Instant::now(), 5, 100, &[1, 2, 3]);
    let all = merge(std::slice::from_ref(&only)).expect("measured");
    assert_eq!((all.outcome, all.samples, all.shares), (only.outcome, only.samples, Vec::new()));
    assert_eq!(all.window.begin, only.began);
    assert_eq!(all.window.end - all.window.begin, Duration::from_millis(300));
}

#[test]
fn what_lies_in_the_common_window_counts() {
    let start = Instant::now();
    // The second begins within the first's first interval, and the first ends within the second's last.
    let mut guests = [ran(start, 0, 100, &[1000, 1, 2, 3]), ran(start, 30, 100, &[10, 20, 30, 4000])];
    guests[1].name = "2".into();
    let all = merge(&guests).expect("a window");
    let ios: Vec<u64> = all.shares.iter().map(|share| share.tallies.ios()).collect();
    let names: Vec<&str> = all.shares.iter().map(|share| share.name.as_str()).collect();
    assert_eq!((ios, names), (vec![6, 60], vec!["1", "2"]));
    assert_eq!((all.outcome.duration_ns, all.outcome.tallies.ios()), (300 * MS, 66));
    let by_interval: Vec<(u64, u64)> =
        all.samples.iter().map(|sample| (sample.at_ns / MS, sample.tallies.ios())).collect();
    assert_eq!(by_interval, [(100, 11), (200, 22), (300, 33)]);
    // Each used 400 ms of CPU time in 400 ms.
    assert_eq!(all.outcome.cpu.user_ns, 600 * MS);
    assert_eq!(all.window.begin, start + Duration::from_millis(30));
}

#[test]
fn without_a_common_interval_there_is_no_measurement() {
    let start = Instant::now();
    let error = merge(&[ran(start, 0, 100, &[1, 1]), ran(start, 150, 100, &[1, 1])])
        .expect_err("nothing in common")
        .to_string();
    assert!(error.contains("150 ms apart"), "{error}");
    assert!(merge(&[ran(start, 0, 100, &[1]), ran(start, 0, 100, &[])]).is_err());
}

#[test]
fn remarks_and_errors_tell_whose_they_are() {
    let start = Instant::now();
    let mut guests = [ran(start, 0, 100, &[1]), ran(start, 0, 100, &[1])];
    let error = |count| ErrorCount {
        error: "EIO".into(),
        direction: "read".into(),
        count,
        in_ramp: 0,
        first_offset: 0,
        last_offset: Some(count),
    };
    let machine = |steal_ns| HostActivity {
        duration_ns: 7,
        cpu: Some(HostCpu { steal_ns, ..HostCpu::default() }),
        disks: [(
            "vda".to_owned(),
            DiskActivity {
                reads: steal_ns,
                busy: 0.5,
                mean_wait_ns: Some(steal_ns as f64),
                ..DiskActivity::default()
            },
        )]
        .into(),
        ..HostActivity::default()
    };
    for (ran, count) in guests.iter_mut().zip([1, 3]) {
        ran.outcome.errors = vec![error(count)];
        ran.outcome.inside = Some(machine(count));
    }
    guests[1].name = "2".into();
    guests[1].outcome.notes = vec!["odd".into()];
    let outcome = merge(&guests).expect("measured").outcome;
    assert_eq!(outcome.notes, ["guest 1: 1 I/Os failed", "guest 2: odd", "guest 2: 3 I/Os failed"]);
    assert_eq!(outcome.errors, [ErrorCount { last_offset: Some(3), ..error(4) }]);
    let inside = outcome.inside.expect("known of both");
    assert_eq!(inside.cpu.map(|cpu| cpu.steal_ns), Some(4));
    let disk = &inside.disks["vda"];
    assert_eq!((disk.reads, disk.busy, disk.mean_wait_ns), (4, 0.5, Some(2.5)));
    guests[0].outcome.inside = None;
    assert_eq!(merge(&guests).expect("measured").outcome.inside, None);
}

#[test]
fn a_neighbour_counts_within_the_window_and_says_if_it_ended_early() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let noise = [ran(start, 0, 100, &[1, 10, 100, 1000, 10_000])];
    let (share, notes) = neighbour_share("noise", &noise, Window { begin: at(90), end: at(410) });
    assert_eq!((share.duration_ns, share.tallies.ios(), notes.len()), (300 * MS, 1110, 1));
    let (share, notes) = neighbour_share("noise", &noise, Window { begin: at(350), end: at(600) });
    assert_eq!((share.duration_ns, share.tallies.ios(), notes.len()), (100 * MS, 10_000, 2));
    assert!(notes[1].contains("noise fell silent"), "{notes:?}");
}

proptest! {
    /// Guests that complete one I/O in each millisecond of their windows. Each counts exactly as many I/Os as the common window has milliseconds,
    /// none of them from outside of it.
    #[test]
    fn no_share_counts_outside(
        guests in prop::collection::vec((0_u64..400, 1_usize..12), 2..6),
        interval_ms in 1_u64..120,
    ) {
        let start = Instant::now();
        let all: Vec<AgentRun> = guests
            .iter()
            .map(|(after, count)| ran(start, *after, interval_ms, &vec![interval_ms; *count]))
            .collect();
        let begin = guests.iter().map(|(after, _)| *after).max().unwrap();
        let end = guests.iter().map(|(after, count)| after + *count as u64 * interval_ms).min().unwrap();
        let common = end.saturating_sub(begin);
        match merge(&all) {
            Err(_) => prop_assert!(common < 2 * interval_ms, "{} ms were lost", common),
            Ok(merged) => {
                let length = merged.outcome.duration_ns / MS;
                // At most an incomplete interval at either end is lost.
                prop_assert!(length <= common && common < length + 2 * interval_ms);
                prop_assert!(merged.shares.iter().all(|share| share.tallies.ios() == length));
                prop_assert_eq!(merged.outcome.tallies.ios(), length * guests.len() as u64);
                prop_assert_eq!(merged.samples.iter().map(|s| s.tallies.ios()).sum::<u64>(), length * guests.len() as u64);
                let window = Window::common(&all).unwrap();
                for (ran, part) in all.iter().zip(aligned(&all, window)) {
                    let first = part.first().unwrap();
                    prop_assert!(ran.began + Duration::from_nanos(first.at_ns - first.duration_ns) >= window.begin);
                    prop_assert!(ran.began + Duration::from_nanos(part.last().unwrap().at_ns) <= window.end);
                }
            }
        }
    }
}
