//! Round trips: how long they took, what became of the messages, and what a load added.

use iotax_model::histogram::Histogram;
use iotax_model::record::{Outcome, Tally};
use iotax_model::units::human;

use super::{Field, Grid, Page, Part, figure, words};

/// One measurement of round trips.
#[derive(Debug, Clone)]
pub struct Trips {
    /// What went on meanwhile: `idle`, `download`, `upload`.
    pub name: String,
    /// What it came to.
    pub outcome: Outcome,
}

impl Trips {
    /// Those that came back.
    #[must_use]
    pub const fn tally(&self) -> Option<&Tally> {
        self.outcome.tallies.read.as_ref()
    }

    /// The standard deviation in nanoseconds.
    pub(crate) fn mdev_ns(&self) -> Option<u64> {
        self.outcome.carried.as_ref()?.mdev_ns
    }

    /// Bits a second of the load in the near end's direction of sending and in the other; absent without a load.
    pub(crate) fn load_bits(&self) -> [Option<f64>; 2] {
        [true, false].map(|up| {
            let flows = self.outcome.carried.as_ref().map_or(&[][..], |carried| &carried.flows);
            let bytes: Vec<u64> =
                flows.iter().filter(|flow| flow.up == up).filter_map(|flow| flow.received_bytes).collect();
            let seconds = self.outcome.duration_ns as f64 / 1e9;
            (!bytes.is_empty() && seconds > 0.0).then(|| bytes.iter().sum::<u64>() as f64 * 8.0 / seconds)
        })
    }
}

/// The quantiles that are told, with their names.
pub(crate) const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Tables of measurements that belong together; the first is what the others are held against. `head` says what was done.
#[must_use]
pub fn trips(head: &str, all: &[Trips]) -> Page {
    let mut page = Page::default();
    page.add(Part::Head(head.to_owned()));
    let mut times = Grid::new(&["round trip", "min", "mean", "p50", "p90", "p99", "p99.9", "max", "mdev"]);
    times.head[8].is_figure = true;
    for trips in all {
        let Some(tally) = trips.tally().filter(|tally| tally.ios > 0) else { continue };
        times.rows.push(row(&trips.name, &tally.latency, trips.mdev_ns()));
        if let Some(response) = &tally.response {
            times.rows.push(row(&format!("{}, due", trips.name), response, None));
        }
    }
    match times.filled() {
        Some(times) => page.add(Part::Table(times)),
        None => page.add(Part::Sentence("Nothing came back.".into())),
    }
    if all.iter().any(|trips| trips.tally().is_some_and(|tally| tally.response.is_some())) {
        page.add_lines(vec!["due: from when each was due, with what it waited for its turn".into()]);
    }
    let mut counts =
        Grid::new(&["messages", "sent", "back", "lost", "loss", "twice", "out of order", "a second", "CPU"]);
    counts.head[8].is_figure = true;
    counts.rows.extend(all.iter().map(counted));
    page.add(Part::Table(counts));
    page.add_lines(all.iter().filter_map(|trips| loaded(trips, all.first()?)).collect());
    page.add_list("Remarks", remarks(all));
    page
}

fn row(name: &str, times: &Histogram, mdev_ns: Option<u64>) -> Vec<Field> {
    let time = |ns: Option<f64>| figure(ns.map_or_else(String::new, human::time));
    let whole = |ns: Option<u64>| time(ns.map(|ns| ns as f64));
    let quantiles = QUANTILES.iter().map(|(_, q)| time(times.quantile(*q)));
    [words(name), whole(times.min()), time(times.mean())]
        .into_iter()
        .chain(quantiles)
        .chain([whole(times.max()), whole(mdev_ns)])
        .collect()
}

fn counted(trips: &Trips) -> Vec<Field> {
    let outcome = &trips.outcome;
    let seconds = outcome.duration_ns as f64 / 1e9;
    let cpu = percent(outcome.cpu.total_ns() as f64 / outcome.duration_ns.max(1) as f64, 0);
    let probes = outcome.carried.as_ref().and_then(|carried| carried.probes);
    let count = |of: Option<u64>| figure(of.map_or_else(String::new, |count| count.to_string()));
    let lost = probes.map(|probes| probes.sent.saturating_sub(probes.received));
    let share = probes.zip(lost).filter(|(probes, _)| probes.sent > 0);
    let share = share.map(|(probes, lost)| percent(lost as f64 / probes.sent as f64, 2));
    let a_second = trips.tally().filter(|_| seconds > 0.0).map(|tally| tally.ios as f64 / seconds);
    vec![
        words(&trips.name),
        count(probes.map(|probes| probes.sent)),
        count(probes.map(|probes| probes.received)),
        count(lost),
        figure(share.unwrap_or_default()),
        count(probes.map(|probes| probes.duplicates)),
        count(probes.map(|probes| probes.out_of_order)),
        figure(a_second.map_or_else(String::new, human::count)),
        figure(cpu),
    ]
}

fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$}%", share * 100.0)
}

/// What a load was and what it added.
fn loaded(trips: &Trips, idle: &Trips) -> Option<String> {
    let bits = |bits: f64| {
        let count = human::count(bits);
        let number = count.trim_end_matches(char::is_alphabetic);
        format!("{number} {}bit/s", &count[number.len()..])
    };
    let loads: Vec<String> = [("up", 0), ("down", 1)]
        .into_iter()
        .filter_map(|(way, place)| Some(format!("{} {way}", bits(trips.load_bits()[place]?))))
        .collect();
    if loads.is_empty() {
        return None;
    }
    let times = |trips: &Trips, q: f64| {
        let tally = trips.tally()?;
        tally.response.as_ref().unwrap_or(&tally.latency).quantile(q)
    };
    let added = QUANTILES.iter().filter_map(|(name, q)| {
        let added = times(trips, *q)? - times(idle, *q)?;
        let sign = if added < 0.0 { "-" } else { "+" };
        Some(format!("{sign}{} {name}", human::time(added.abs())))
    });
    let added: Vec<String> = added.collect();
    Some(format!("{}: with {} over TCP; {}", trips.name, loads.join(" and "), added.join(", ")))
}

fn remarks(all: &[Trips]) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    for trips in all {
        let errors = trips.outcome.errors.iter().map(|error| {
            let what = if error.direction == "write" { "sending" } else { "receiving" };
            format!("{what} failed {} times with {}", error.count, error.error)
        });
        for remark in trips.outcome.notes.iter().cloned().chain(errors) {
            let remark = if all.len() > 1 { format!("{}: {remark}", trips.name) } else { remark };
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
    }
    remarks
}
