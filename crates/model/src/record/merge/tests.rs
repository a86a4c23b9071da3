use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::record::{
    Blackout, Carried, DirectionSample, Flow, Gap, NicActivity, Probes, ProcessCounts, ReplayPhase, Stop,
    Tallies, Tally,
};
use crate::verify_errors::{FaultKind, Findings};
use crate::workload::IoEngine;

/// Figures that are summed over several loads.
const SUMS: &str = "ios bytes count sum_ns buckets ramp_ios user_ns system_ns due delayed backlog late skipped checked uncertain failed in_ramp \
    read_bytes read_merges reads write_bytes write_merges writes read_wait_ns write_wait_ns irq_ns iowait_ns idle_ns \
    steal_ns guest_ns io_some_ns io_full_ns cpu_some_ns memory_some_ns looked_at before after sent received duplicates \
    out_of_order sent_bytes received_bytes sent_packets received_packets lost retransmits rx_bytes rx_packets rx_drops \
    tx_bytes tx_packets tx_drops total_ns done wait_ns begun left_out not_begun wrapped aligned moved \
    sequential recorded_sequential recorded_ios fua_writes";

/// Figures that are not summed: times, maxima, positions, and what is unknown for several loads.
const NO_SUMS: &str = "at_ns duration_ns before_ns after_ns longest_delay_ns backlog_ns first_offset last_offset \
    first_offsets first_io_ns flush_ns mean_wait_ns busy min_ns max_ns jitter_ns rtt_ns cwnd oldest_ns mdev_ns mss \
    context_switches major_faults minor_faults late_p50_ns late_p99_ns late_max_ns recorded_ns took_ns phase_ns \
    response_mean_ns response_p99_ns recorded_mean_ns moved_mean_bytes";

/// Returns the sum of each figure over a document, by the figure's name.
fn figures(value: &Value) -> BTreeMap<String, f64> {
    fn walk(name: &str, value: &Value, all: &mut BTreeMap<String, f64>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(name, value)| walk(name, value, all)),
            // Pairs of a bucket and its count.
            Value::Array(pairs) if matches!(name, "buckets" | "latency") => {
                let counts = pairs.iter().filter_map(|pair| pair[1].as_f64());
                *all.entry("buckets".into()).or_default() += counts.sum::<f64>();
            }
            Value::Array(values) => values.iter().for_each(|value| walk(name, value, all)),
            Value::Number(number) => {
                *all.entry(name.to_owned()).or_default() += number.as_f64().expect("a number");
            }
            _ => {}
        }
    }
    let mut all = BTreeMap::new();
    walk("", value, &mut all);
    all
}

/// Asserts that every merged figure is the sum over the parts.
fn assert_sums<'a, T: serde::Serialize + 'a>(
    merged: &T,
    parts: impl IntoIterator<Item = &'a T>,
    left_out: &[&str],
) {
    let of = |one: &T| figures(&serde_json::to_value(one).expect("JSON"));
    let mut expected: BTreeMap<String, f64> = BTreeMap::new();
    for (name, figure) in parts.into_iter().flat_map(of) {
        *expected.entry(name).or_default() += figure;
    }
    let merged = of(merged);
    for (name, sum) in expected {
        let is_in = |list: &str| list.split_whitespace().any(|word| word == name);
        assert!(is_in(SUMS) != is_in(NO_SUMS), "{name}: SUMS or NO_SUMS must have it");
        if is_in(SUMS) && !left_out.contains(&name.as_str()) {
            assert_eq!(merged.get(&name), Some(&sum), "{name}");
        }
    }
}

/// Generates numbers from 1 to 1000, and no zeros, so that an omitted figure is noticed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % 1000 + 1
    }

    fn cpu(&mut self) -> CpuTime {
        CpuTime { user_ns: self.next(), system_ns: self.next() }
    }

    fn tally(&mut self) -> Tally {
        let mut histogram = || {
            let mut all = crate::Histogram::new();
            (0..3).for_each(|_| all.add_many(self.next(), self.next()));
            all
        };
        let (latency, response) = (histogram(), Some(histogram()));
        Tally { ios: self.next(), bytes: self.next(), latency, response }
    }

    fn tallies(&mut self) -> Tallies {
        let [read, write, trim, sync, meta] = [(); 5].map(|()| Some(self.tally()));
        let mut commit = crate::Histogram::new();
        commit.add_many(self.next(), 3);
        Tallies { read, write, trim, sync, meta, commit: Some(commit) }
    }

    fn disks(&mut self) -> BTreeMap<String, DiskActivity> {
        let disk = DiskActivity {
            reads: self.next(),
            read_bytes: self.next(),
            read_merges: self.next(),
            writes: self.next(),
            write_bytes: self.next(),
            write_merges: self.next(),
            busy: 0.5,
            mean_wait_ns: Some(9.0),
            read_wait_ns: Some(self.next()),
            write_wait_ns: Some(self.next()),
            flushes: Some(DiskFlushes {
                done: self.next(),
                wait_ns: self.next(),
                volatile_cache: Some(true),
                fua: Some(false),
                fua_writes: Some(self.next()),
            }),
        };
        BTreeMap::from([("vda".to_owned(), disk)])
    }

    fn machine(&mut self) -> HostActivity {
        HostActivity {
            at_ns: self.next(),
            duration_ns: self.next(),
            disks: self.disks(),
            nics: BTreeMap::new(),
            cpu: Some(HostCpu {
                user_ns: self.next(),
                system_ns: self.next(),
                irq_ns: self.next(),
                iowait_ns: Some(self.next()),
                idle_ns: self.next(),
                steal_ns: self.next(),
                guest_ns: self.next(),
            }),
            pressure: Some(Pressure {
                io_some_ns: self.next(),
                io_full_ns: self.next(),
                cpu_some_ns: self.next(),
                memory_some_ns: self.next(),
            }),
            guest_threads: BTreeMap::new(),
            kernel_threads: BTreeMap::from([("loop0".to_owned(), self.cpu())]),
            programs_ns: None,
            kernel_ns: None,
            watching_ns: None,
            pace: None,
            flushed: self.disks(),
        }
    }

    fn carried(&mut self) -> Carried {
        let flow = Flow {
            upload: true,
            sent_bytes: Some(self.next()),
            received_bytes: Some(self.next()),
            sent_packets: Some(self.next()),
            received_packets: Some(self.next()),
            lost: Some(self.next()),
            out_of_order: Some(self.next()),
            duplicates: Some(self.next()),
            retransmits: Some(self.next()),
            ..Flow::default()
        };
        Carried {
            flows: vec![flow],
            server_cpu: Some(self.cpu()),
            probes: Some(Probes {
                sent: self.next(),
                received: self.next(),
                duplicates: self.next(),
                out_of_order: self.next(),
            }),
            gaps: vec![Gap { upload: true, at_ns: 1, duration_ns: 2, lost_bytes: None }],
            ..Carried::default()
        }
    }

    fn replayed(&mut self) -> Replayed {
        let phase = ReplayPhase {
            ios: self.next(),
            response_mean_ns: Some(self.next()),
            response_p99_ns: Some(self.next()),
            recorded_ios: self.next(),
            recorded_mean_ns: Some(self.next()),
        };
        Replayed {
            due: self.next(),
            begun: self.next(),
            left_out: self.next(),
            not_begun: self.next(),
            wrapped: self.next(),
            moved: self.next(),
            moved_mean_bytes: Some(self.next()),
            sequential: self.next(),
            recorded_sequential: self.next(),
            aligned: self.next(),
            late_p50_ns: self.next(),
            late_p99_ns: self.next(),
            late_max_ns: self.next(),
            recorded_ns: self.next(),
            took_ns: self.next(),
            phase_ns: 1_000,
            phases: vec![phase],
        }
    }

    fn outcome(&mut self) -> Outcome {
        let mut findings = Findings { uncertain: self.next(), ..Findings::default() };
        (0..=self.next() % 5).for_each(|byte| findings.add(Err(FaultKind::Torn), byte));
        let [due, delayed, backlog] = [(); 3].map(|()| self.next());
        Outcome {
            duration_ns: self.next(),
            tallies: self.tallies(),
            edges: Some(WindowEdges { before_ns: self.next(), after_ns: self.next() }),
            ramp_ios: self.next(),
            cpu: self.cpu(),
            counts: Some(ProcessCounts {
                context_switches: self.next(),
                major_faults: self.next(),
                minor_faults: self.next(),
            }),
            errors: vec![ErrorCount {
                error: "EIO".into(),
                direction: "read".into(),
                count: self.next(),
                in_ramp: self.next(),
                first_offset: self.next(),
                last_offset: Some(self.next()),
            }],
            notes: vec!["noted".into()],
            ioengine: Some(IoEngine::IoUring),
            pacing: Some(Pacing {
                due,
                delayed,
                longest_delay_ns: self.next(),
                backlog,
                backlog_ns: self.next(),
                late: Some(self.next()),
                skipped: Some(self.next()),
            }),
            replayed: Some(self.replayed()),
            stop: Some(Stop::Errors),
            steadystate: None,
            blackouts: None::<Vec<Blackout>>,
            devices: Vec::new(),
            verify: Some(findings),
            inside: Some(self.machine()),
            first_io_ns: Some(self.next()),
            flush_ns: Some(self.next()),
            page_cache: Some(PageCache { looked_at: self.next(), before: self.next(), after: self.next() }),
            carried: Some(self.carried()),
            jobs: vec![Share { name: "db".into(), duration_ns: self.next(), tallies: self.tallies() }],
        }
    }
}

fn named(outcomes: &[Outcome]) -> Vec<(String, Outcome)> {
    outcomes
        .iter()
        .enumerate()
        .map(|(number, outcome)| (format!("guest {}", number + 1), outcome.clone()))
        .collect()
}

proptest! {
    #[test]
    fn every_additive_figure_of_several_loads_is_their_sum(seed: u64, count in 1..5_usize) {
        let mut numbers = Numbers(seed);
        let outcomes: Vec<Outcome> = (0..count).map(|_| numbers.outcome()).collect();
        let merged = Outcome::merge(named(&outcomes), LoadRelation::OwnProcess);
        assert_sums(&merged, &outcomes, &[]);
        assert_eq!(merged.counts, None);

        let rounds = Outcome::merge(named(&outcomes), LoadRelation::Successive);
        let parts: Vec<Outcome> =
            outcomes.iter().map(|outcome| Outcome { inside: None, ..outcome.clone() }).collect();
        assert_sums(&rounds, &parts, &[]);
        let of = |counts: fn(&Outcome) -> u64| (counts(&rounds), outcomes.iter().map(counts).sum::<u64>());
        for (merged, sum) in [
            of(|outcome| outcome.duration_ns),
            of(|outcome| outcome.jobs.iter().map(|job| job.duration_ns).sum()),
            of(|outcome| outcome.counts.map_or(0, |counts| counts.context_switches)),
            of(|outcome| outcome.counts.map_or(0, |counts| counts.major_faults)),
            of(|outcome| outcome.counts.map_or(0, |counts| counts.minor_faults)),
        ] {
            assert_eq!(merged, sum);
        }

        let samples: Vec<Sample> = (0..count).map(|_| Sample {
            at_ns: numbers.next(),
            duration_ns: numbers.next(),
            tallies: numbers.tallies(),
            oldest_ns: Some(numbers.next()),
            failed: numbers.next(),
            directions: vec![DirectionSample {
                upload: true,
                lost: Some(numbers.next()),
                out_of_order: Some(numbers.next()),
                duplicates: Some(numbers.next()),
                jitter_ns: Some(numbers.next()),
                retransmits: Some(numbers.next()),
                rtt_ns: Some(numbers.next()),
                cwnd: Some(numbers.next()),
            }],
        }).collect();
        let mut all = Sample::default();
        samples.iter().for_each(|sample| all.merge(sample.clone()));
        assert_sums(&all, &samples, &[]);

        let blocks: Vec<BlockStats> = (0..count).map(|_| {
            let [read, write, flush] = [(); 3].map(|()| BlockTally {
                ios: numbers.next(),
                bytes: numbers.next(),
                total_ns: numbers.next(),
                latency: vec![(Some(100), numbers.next()), (None, numbers.next())],
            });
            BlockStats { read, write, flush }
        }).collect();
        let mut all = BlockStats::default();
        blocks.iter().for_each(|one| all.merge(one));
        assert_sums(&all, &blocks, &[]);

        let nics: Vec<NicActivity> = (0..count).map(|_| NicActivity {
            rx_bytes: numbers.next(),
            rx_packets: numbers.next(),
            rx_drops: numbers.next(),
            tx_bytes: numbers.next(),
            tx_packets: numbers.next(),
            tx_drops: numbers.next(),
        }).collect();
        assert_sums(&nics.iter().copied().fold(NicActivity::default(), NicActivity::plus), &nics, &[]);
    }
}

#[test]
fn a_process_that_several_jobs_share_counts_once() {
    let mut numbers = Numbers(7);
    let [mut one, mut other] = [numbers.outcome(), numbers.outcome()].map(|outcome| Outcome {
        inside: None,
        carried: None,
        ..outcome
    });
    (one.duration_ns, other.duration_ns) = (10, 20);
    let merged = Outcome::merge(named(&[one.clone(), other.clone()]), LoadRelation::SharedProcess);
    assert_eq!((merged.duration_ns, merged.cpu, merged.counts), (20, other.cpu, other.counts));
    assert_sums(&merged, &[one, other], &["user_ns", "system_ns"]);
}

#[test]
fn what_one_of_several_cannot_tell_is_absent() {
    let mut numbers = Numbers(1);
    let one = numbers.outcome();
    let mut read_only = Outcome { flush_ns: None, errors: Vec::new(), ..numbers.outcome() };
    read_only.tallies.write = None;
    let merge =
        |other: &Outcome| Outcome::merge(named(&[one.clone(), other.clone()]), LoadRelation::OwnProcess);
    assert_eq!(merge(&read_only).flush_ns, one.flush_ns, "it had nothing to flush");
    let unflushed = Outcome { flush_ns: None, ..one.clone() };
    assert_eq!(merge(&unflushed).flush_ns, None);
    assert_eq!(merge(&Outcome { page_cache: None, ..one.clone() }).page_cache, None);
    assert_eq!(merge(&Outcome { inside: None, ..one.clone() }).inside, None);
    assert_eq!(merge(&Outcome { ioengine: Some(IoEngine::Psync), ..one.clone() }).ioengine, None);
    assert_eq!(merge(&one).notes, ["guest 1: noted", "guest 2: noted"]);
}
