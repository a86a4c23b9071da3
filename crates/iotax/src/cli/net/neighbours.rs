//! Several far ends at once: one start for all, and only the time counted in which all were measured.

use std::sync::atomic::AtomicBool;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use iotax_engine::EngineError;
use iotax_engine::net::{End, Interval, Prepared, Progress, Report, Test};
use iotax_model::record::CpuTime;
use iotax_results::analysis::fairness::jain;
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
    /// What its report says of the CPU time of the processes at its two ends, which may have other tests as well.
    cpu: [Option<CpuTime>; 2],
}

/// What several tests carried in the time that they have in common.
pub(super) struct Common {
    /// Nanoseconds between the latest begin and the earliest end; absent if they have none in common.
    window_ns: Option<u64>,
    /// Bits a second of each, over its whole intervals within: what got through, as far as the far ends tell.
    rates: Vec<Option<f64>>,
}

/// CPU time of a process, over the longest of the tests that it carried out.
struct Burden {
    /// `here`, or which far end.
    who: String,
    cpu: CpuTime,
    duration_ns: u64,
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
    let mut report = prepared.run(stop, &mut |progress| match progress {
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
    // A process has its CPU time once, however many tests it carries out.
    let cpu = [report.near.cpu.take(), report.far.as_mut().and_then(|far| far.cpu.take())];
    Ok(Neighbour { name, test, report, intervals, begin, cpu })
}

/// Which part of what this end sent got through by the far end's word; `None` if it does not tell.
fn part_received(near: &End, far: Option<&End>) -> Option<f64> {
    let (mut sent, mut received) = (0, 0);
    for stream in near.streams.iter().filter(|stream| stream.sends) {
        sent += stream.figures.bytes;
        received += far?.streams.iter().find(|other| other.id == stream.id)?.figures.bytes;
    }
    (sent > 0).then(|| received as f64 / sent as f64)
}

impl Neighbour {
    /// Which part of what it sent got through.
    fn part_received(&self) -> Option<f64> {
        part_received(&self.report.near, self.report.far.as_ref())
    }

    /// Whether what it sent must stand for what got through.
    fn counts_what_was_sent(&self) -> bool {
        self.report.near.streams.iter().any(|stream| stream.sends) && self.part_received().is_none()
    }

    /// Bytes of an interval: those that came, and of those sent the part that got through in the whole test.
    fn bytes(&self, interval: &Interval) -> f64 {
        let part = self.part_received().unwrap_or(1.0);
        let bytes = |sent: bool| {
            let streams = interval.streams.iter().filter(|stream| stream.sends == sent);
            streams.map(|stream| stream.figures.bytes).sum::<u64>() as f64
        };
        bytes(true) * part + bytes(false)
    }
}

/// CPU time of each process once: of this one, and of each far end.
fn burdens(neighbours: &[Neighbour]) -> Vec<Burden> {
    let mut found: Vec<Burden> = Vec::new();
    let near = neighbours.iter().map(|each| ("here".to_owned(), each.cpu[0], Some(&each.report.near)));
    let far = neighbours.iter();
    let far = far.map(|each| (format!("far end {}", each.name), each.cpu[1], each.report.far.as_ref()));
    for (who, cpu, end) in near.chain(far) {
        let Some((cpu, end)) = cpu.zip(end) else { continue };
        let burden = Burden { who, cpu, duration_ns: end.duration_ns };
        match found.iter_mut().find(|other| other.who == burden.who) {
            Some(other) if other.duration_ns < burden.duration_ns => *other = burden,
            Some(_) => {}
            None => found.push(burden),
        }
    }
    found
}

/// When a test began, and its intervals since then: begin, end, bytes. Times in nanoseconds.
type Course = (u64, Vec<(u64, u64, f64)>);

/// What tests carried together.
fn common(tests: &[Course]) -> Common {
    let begin = tests.iter().map(|(begin, _)| *begin).max();
    let end = tests.iter().map(|(begin, each)| begin + each.last().map_or(0, |(_, end, _)| *end)).min();
    let Some((begin, end)) = begin.zip(end).filter(|(begin, end)| begin < end) else {
        return Common { window_ns: None, rates: vec![None; tests.len()] };
    };
    let rates = tests.iter().map(|(began, each)| {
        let within = each.iter().filter(|(from, to, _)| began + from >= begin && began + to <= end);
        let (ns, bytes) = within.fold((0, 0.0), |(ns, sum), (from, to, bytes)| (ns + to - from, sum + bytes));
        (ns > 0).then(|| bytes * 8e9 / ns as f64)
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
            let intervals =
                intervals.map(|interval| (interval.begin_ns, interval.end_ns, neighbour.bytes(interval)));
            (u64::try_from(since).unwrap_or(u64::MAX), intervals.collect())
        });
        common(&each.collect::<Vec<_>>())
    }

    /// All together, if all are known.
    fn total(&self) -> Option<f64> {
        self.rates.iter().copied().sum()
    }

    /// The share of one, if all are known.
    fn share(&self, rate: Option<f64>) -> Option<f64> {
        rate.zip(self.total()).map(|(rate, total)| rate / total).filter(|share| share.is_finite())
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
        for Burden { who, cpu, duration_ns } in burdens(neighbours) {
            print_line!("cpu {who}, all its tests together: {}", lines::cpu(cpu, duration_ns));
        }
        let Some(window) = self.window_ns else {
            return print_line!("The tests have no time in common, so nothing is said of them together.");
        };
        print_line!(
            "Together, in whole intervals of the {:.2} s that they have in common:",
            window as f64 / 1e9
        );
        for (neighbour, rate) in neighbours.iter().zip(&self.rates) {
            let share = self.share(*rate);
            let share = share.map_or_else(|| "     -".to_owned(), |share| format!("{:5.1}%", share * 100.0));
            let words = rate.map_or_else(
                || "no whole interval".to_owned(),
                |rate| format!("{:>13}  {share}", lines::bits(rate)),
            );
            let sent = if neighbour.counts_what_was_sent() {
                "  sent: the far end does not tell what it received"
            } else {
                ""
            };
            print_line!("  {:<24} {words}{sent}", neighbour.name);
        }
        let jain = self.jain().map_or_else(|| "unknown".to_owned(), |jain| format!("{jain:.3}"));
        print_line!(
            "  {:<24} {:>13}  fairness {jain} (Jain's index; 1 is even)",
            "all",
            self.total().map_or_else(|| "unknown".to_owned(), lines::bits)
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
                "share": self.share(*rate),
                "counted": if neighbour.counts_what_was_sent() { "sent" } else { "received" },
            })
        });
        let burdens = burdens(neighbours);
        let cpu = burdens
            .iter()
            .map(|burden| json!({ "who": burden.who, "cpu": burden.cpu, "duration_ns": burden.duration_ns }));
        json!({
            "tests": tests.collect::<Vec<_>>(),
            "iotax": {
                "schema": SCHEMA,
                "window_ns": self.window_ns,
                "bits_per_second": self.total(),
                "jain": self.jain(),
                "shares": shares.collect::<Vec<_>>(),
                "cpu": cpu.collect::<Vec<_>>(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_engine::net::{Figures, StreamEnd};

    fn stream(id: u32, sends: bool, bytes: u64) -> StreamEnd {
        StreamEnd { id, sends, figures: Figures { bytes, ..Figures::default() }, ..StreamEnd::default() }
    }

    #[test]
    fn what_got_through_is_what_the_far_end_tells() {
        let ends = |near: &[StreamEnd], far: Option<&[StreamEnd]>| {
            let end = |streams: &[StreamEnd]| End { streams: streams.to_vec(), ..End::default() };
            part_received(&end(near), far.map(end).as_ref())
        };
        let near = [stream(1, true, 600), stream(3, true, 400), stream(4, false, 77)];
        let far = [stream(1, false, 500), stream(3, false, 0), stream(4, true, 99)];
        assert_eq!(ends(&near, Some(&far)), Some(0.5));
        assert_eq!(ends(&near, Some(&far[1..])), None, "of one stream it tells nothing");
        assert_eq!((ends(&near, None), ends(&near[2..], Some(&far))), (None, None));
    }

    #[test]
    fn of_shares_all_must_be_known() {
        let common = Common { window_ns: Some(1), rates: vec![Some(30.0), Some(10.0)] };
        assert_eq!((common.total(), common.share(Some(30.0))), (Some(40.0), Some(0.75)));
        let partly = Common { window_ns: Some(1), rates: vec![Some(30.0), None] };
        assert_eq!((partly.total(), partly.share(Some(30.0)), partly.jain()), (None, None, None));
    }

    #[test]
    fn only_whole_intervals_of_the_common_time_count() {
        let second = 1_000_000_000;
        let each = |bytes: f64| (0..4).map(|n| (n * second, (n + 1) * second, bytes)).collect::<Vec<_>>();
        // The second begins half a second later, so that they share 3.5 s.
        let mut late = each(500.0);
        late[3].2 = 99_999.0;
        let found = common(&[(0, each(1000.0)), (second / 2, late)]);
        assert_eq!(found.window_ns, Some(3 * second + second / 2));
        assert_eq!(found.rates, [Some(8000.0), Some(4000.0)]);
        assert!((found.jain().expect("known") - 0.9).abs() < 1e-9);
        assert_eq!(common(&[(0, each(1.0)), (9 * second, each(1.0))]).window_ns, None);
    }
}
