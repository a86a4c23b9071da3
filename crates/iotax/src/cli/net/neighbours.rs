//! Several far ends at once: one start for all, and only the time counted in which all were measured.

use std::sync::atomic::AtomicBool;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use iotax_engine::EngineError;
use iotax_engine::net::{Interval, Prepared, Progress, Report, Test};
use iotax_results::judge::crowd::jain;
use serde_json::{Value, json};

use super::json::{SCHEMA, Side, document};
use super::lines;
use crate::cli::say::{print_line, say};

/// One test among several.
pub(super) struct Neighbour {
    /// Where its far end is.
    name: String,
    test: Test,
    report: Report,
    intervals: Vec<Interval>,
    /// When it began to count.
    begin: Instant,
}

/// What several tests carried in the time that they have in common.
pub(super) struct Common {
    /// Nanoseconds between the latest begin and the earliest end; absent if they have none in common.
    window_ns: Option<u64>,
    /// Bits a second of each, over its whole intervals within.
    rates: Vec<Option<f64>>,
}

/// Carries out tests side by side. No far end is sent anything before all have agreed.
pub(super) fn run(tests: &[Test], stop: &AtomicBool, silent: bool) -> Result<Vec<Neighbour>, EngineError> {
    let prepared = tests.iter().map(|test| test.clone().prepare()).collect::<Result<Vec<_>, _>>()?;
    let barrier = Barrier::new(prepared.len());
    thread::scope(|scope| {
        let begun = tests.iter().zip(prepared).map(|(test, prepared)| {
            let (test, barrier) = (test.clone(), &barrier);
            scope.spawn(move || one(test, prepared, barrier, stop, silent))
        });
        let threads: Vec<_> = begun.collect();
        let ended = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(EngineError::Net("a test panicked: this is a bug in iotax".into())))
        });
        ended.collect()
    })
}

fn one(
    test: Test,
    prepared: Prepared,
    barrier: &Barrier,
    stop: &AtomicBool,
    silent: bool,
) -> Result<Neighbour, EngineError> {
    let name = format!("{}:{}", test.peer.host, test.peer.port);
    let mut intervals = Vec::new();
    let begin = Mutex::new(Instant::now());
    barrier.wait();
    let report = prepared.run(stop, &mut |progress| match progress {
        Progress::Started(start) => say!("{name}: {}", lines::asked(start)),
        Progress::Counting => *begin.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now(),
        Progress::Interval(interval) => {
            if !silent {
                say!("{name} {}", lines::interval(interval));
            }
            intervals.push(interval.clone());
        }
        Progress::Over => {}
    })?;
    intervals.retain(|interval: &Interval| !interval.omitted);
    let begin = begin.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Neighbour { name, test, report, intervals, begin })
}

/// Bytes of an interval, as this end counts them.
fn bytes(interval: &Interval) -> u64 {
    interval.streams.iter().map(|stream| stream.figures.bytes).sum()
}

/// When a test began, and its intervals since then: begin, end, bytes. Times in nanoseconds.
type Course = (u64, Vec<(u64, u64, u64)>);

/// What tests carried together.
fn common(tests: &[Course]) -> Common {
    let begin = tests.iter().map(|(begin, _)| *begin).max();
    let end = tests.iter().map(|(begin, each)| begin + each.last().map_or(0, |(_, end, _)| *end)).min();
    let Some((begin, end)) = begin.zip(end).filter(|(begin, end)| begin < end) else {
        return Common { window_ns: None, rates: vec![None; tests.len()] };
    };
    let rates = tests.iter().map(|(began, each)| {
        let within = each.iter().filter(|(from, to, _)| began + from >= begin && began + to <= end);
        let (ns, bytes) = within.fold((0, 0), |(ns, sum), (from, to, bytes)| (ns + to - from, sum + bytes));
        (ns > 0).then(|| bytes as f64 * 8e9 / ns as f64)
    });
    Common { window_ns: Some(end - begin), rates: rates.collect() }
}

impl Common {
    /// Of tests that ran side by side.
    pub(super) fn of(neighbours: &[Neighbour]) -> Self {
        let first = neighbours.iter().map(|neighbour| neighbour.begin).min();
        let each = neighbours.iter().map(|neighbour| {
            let since = first.map_or(0, |first| neighbour.begin.duration_since(first).as_nanos());
            let intervals = neighbour.intervals.iter();
            let intervals = intervals.map(|interval| (interval.begin_ns, interval.end_ns, bytes(interval)));
            (u64::try_from(since).unwrap_or(u64::MAX), intervals.collect())
        });
        common(&each.collect::<Vec<_>>())
    }

    fn total(&self) -> f64 {
        self.rates.iter().flatten().sum()
    }

    /// Jain's index, if all are known.
    fn jain(&self) -> Option<f64> {
        jain(&self.rates.iter().copied().collect::<Option<Vec<_>>>()?)
    }

    /// Each one's end, and what they carried together.
    pub(super) fn show(&self, neighbours: &[Neighbour]) {
        for neighbour in neighbours {
            print_line!("{}", neighbour.name);
            lines::summary(&neighbour.report).iter().for_each(|line| print_line!("  {line}"));
        }
        let Some(window) = self.window_ns else {
            return print_line!("The tests have no time in common, so nothing is said of them together.");
        };
        print_line!(
            "Together, in whole intervals of the {:.2} s that they have in common:",
            window as f64 / 1e9
        );
        for (neighbour, rate) in neighbours.iter().zip(&self.rates) {
            let words = rate.map_or_else(
                || "no whole interval".to_owned(),
                |rate| format!("{:>13}  {:5.1}%", lines::bits(rate), rate / self.total() * 100.0),
            );
            print_line!("  {:<24} {words}", neighbour.name);
        }
        let jain = self.jain().map_or_else(|| "unknown".to_owned(), |jain| format!("{jain:.3}"));
        print_line!(
            "  {:<24} {:>13}  fairness {jain} (Jain's index; 1 is even)",
            "all",
            lines::bits(self.total())
        );
    }

    /// A document of all: iperf3's of each, and what they carried together.
    pub(super) fn document(&self, neighbours: &[Neighbour]) -> Value {
        let tests = neighbours.iter().map(|neighbour| {
            let side = Side::Client { host: &neighbour.test.peer.host, port: neighbour.test.peer.port };
            document(&neighbour.report, &neighbour.intervals, side)
        });
        let shares = neighbours.iter().zip(&self.rates).map(|(neighbour, rate)| {
            json!({
                "name": neighbour.name,
                "bits_per_second": rate,
                "share": rate.map(|rate| rate / self.total()).filter(|share| share.is_finite()),
            })
        });
        json!({
            "tests": tests.collect::<Vec<_>>(),
            "iotax": {
                "schema": SCHEMA,
                "window_ns": self.window_ns,
                "bits_per_second": self.total(),
                "jain": self.jain(),
                "shares": shares.collect::<Vec<_>>(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_intervals_of_the_common_time_count() {
        let second = 1_000_000_000;
        let each = |bytes: u64| (0..4).map(|n| (n * second, (n + 1) * second, bytes)).collect::<Vec<_>>();
        // The second begins half a second later, so that they share 3.5 s.
        let mut late = each(500);
        late[3].2 = 99_999;
        let found = common(&[(0, each(1000)), (second / 2, late)]);
        assert_eq!(found.window_ns, Some(3 * second + second / 2));
        assert_eq!(found.rates, [Some(8000.0), Some(4000.0)]);
        assert!((found.jain().expect("known") - 0.9).abs() < 1e-9);
        assert_eq!(common(&[(0, each(1)), (9 * second, each(1))]).window_ns, None);
    }
}
