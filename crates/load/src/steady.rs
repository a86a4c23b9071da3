//! Watches for the steady state that ends a measurement early (`steadystate`).

use std::collections::VecDeque;

use iotax_model::record::Sample;
use iotax_model::workload::{SteadyCriterion, SteadyFigure, SteadyResult, Workload};

/// The values of a workload's criterion so far.
#[derive(Debug)]
pub(crate) struct SteadyWatch {
    criterion: SteadyCriterion,
    /// Time between two values in nanoseconds.
    interval_ns: u64,
    /// Time at the start of the window that is left out, in nanoseconds.
    ramp_ns: u64,
    /// Number of values that are judged together.
    count: usize,
    values: VecDeque<f64>,
    /// The sum of the samples since the last value.
    open: Option<Sample>,
    result: SteadyResult,
}

impl SteadyWatch {
    /// Returns the watch of a workload; `None` if the workload does not end early.
    pub(crate) fn new(workload: &Workload) -> Option<Self> {
        let (criterion, duration) = (workload.steadystate?, workload.steadystate_duration?);
        let interval_ns = workload.steady_interval().0;
        Some(Self {
            criterion,
            interval_ns,
            ramp_ns: workload.steadystate_ramp_time.unwrap_or_default().0,
            count: usize::try_from(duration.0 / interval_ns).unwrap_or(usize::MAX),
            values: VecDeque::new(),
            open: None,
            result: SteadyResult { attained_ns: None, value: None },
        })
    }

    /// Adds a sample. Returns true from the sample on with which the criterion held.
    pub(crate) fn add(&mut self, sample: &Sample) -> bool {
        if self.result.attained_ns.is_some() || sample.at_ns - sample.duration_ns < self.ramp_ns {
            return self.result.attained_ns.is_some();
        }
        let open = match self.open.take() {
            None => sample.clone(),
            Some(mut open) => {
                open.duration_ns += sample.duration_ns;
                open.tallies.merge(&sample.tallies);
                open
            }
        };
        // Half a sample may be missing: intervals of samples need not divide those of values.
        if open.duration_ns + sample.duration_ns / 2 < self.interval_ns {
            self.open = Some(open);
            return false;
        }
        self.values.push_back(self.value(&open));
        if self.values.len() > self.count {
            self.values.pop_front();
        }
        if self.values.len() == self.count {
            self.result.value = self.criterion.of(self.values.make_contiguous());
            let holds = self.result.value.is_some_and(|value| self.criterion.holds(value));
            self.result.attained_ns = holds.then_some(sample.at_ns);
        }
        self.result.attained_ns.is_some()
    }

    /// Returns the result so far.
    pub(crate) const fn result(&self) -> SteadyResult {
        self.result
    }

    fn value(&self, sample: &Sample) -> f64 {
        let seconds = sample.duration_ns as f64 / 1e9;
        match self.criterion.figure {
            SteadyFigure::Iops => sample.tallies.ios() as f64 / seconds,
            SteadyFigure::Bw => sample.tallies.bytes() as f64 / seconds,
            // As in fio, an interval without any I/O counts as 0.
            SteadyFigure::Lat => sample.tallies.latency().mean().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::record::{Tallies, Tally};
    use iotax_model::workload::WorkloadKeys;

    fn watch(keys: &[(&str, &str)]) -> SteadyWatch {
        let mut own = WorkloadKeys::default();
        for (key, text) in keys {
            own.set(key, text).expect(key);
        }
        SteadyWatch::new(&own.complete(&WorkloadKeys::default())).expect("a criterion")
    }

    /// Gives a watch seconds with these numbers of I/Os, each in samples of `length_ms`. Returns the milliseconds after which it holds.
    fn end(watch: &mut SteadyWatch, length_ms: u64, seconds: &[u64]) -> Option<u64> {
        let samples =
            seconds.iter().flat_map(|ios| (0..1000 / length_ms).map(move |_| ios * length_ms / 1000));
        (1..).zip(samples).find_map(|(number, ios)| {
            let mut tally = Tally { ios, bytes: 4096 * ios, ..Tally::default() };
            // Latencies grow as the rate falls.
            tally.latency.add_many(1_000_000 / ios, ios);
            let tallies = Tallies { write: Some(tally), ..Tallies::default() };
            let duration_ns = length_ms * 1_000_000;
            let at_ns = number * duration_ns;
            let sample =
                Sample { at_ns, duration_ns, tallies, oldest_ns: None, failed: 0, directions: Vec::new() };
            watch.add(&sample).then_some(at_ns / 1_000_000)
        })
    }

    #[test]
    fn a_load_ends_as_soon_as_the_last_values_are_alike() {
        let seconds = [1000, 800, 500, 400, 404, 396, 400, 400, 400];
        for (criterion, more, ends) in [
            ("iops:2%", None, Some(7000)),
            ("iops:3.5", None, Some(9000)),
            ("bw:20k", None, Some(7000)),
            ("bw:2%", Some(("steadystate_ramp_time", "5s")), Some(9000)),
            ("lat:2%", None, Some(7000)),
            ("iops_slope:1%", None, Some(7000)),
            ("iops:0.5%", None, None),
            // Two values of two seconds each.
            ("iops:2%", Some(("steadystate_check_interval", "2s")), Some(8000)),
        ] {
            let keys = [("steadystate", criterion), ("steadystate_duration", "4s")];
            let keys: Vec<_> = keys.into_iter().chain(more).collect();
            for length_ms in [1000, 500, 250] {
                let mut watch = watch(&keys);
                assert_eq!(end(&mut watch, length_ms, &seconds), ends, "{keys:?}, samples of {length_ms} ms");
                assert_eq!(watch.result().attained_ns, ends.map(|ms| ms * 1_000_000));
                assert!(watch.result().value.is_some());
            }
        }
        let mut short = watch(&[("steadystate", "iops:2%"), ("steadystate_duration", "10s")]);
        assert_eq!(end(&mut short, 1000, &seconds), None);
        assert_eq!(short.result(), SteadyResult { attained_ns: None, value: None });
    }
}
