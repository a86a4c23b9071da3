//! Shows progress on stderr. A terminal shows a bar with an ETA, and above it a table of the results at the last interim look. Elsewhere
//! each measurement has a line, and its result another one; if rounds are added until every comparison is decided, each interim look has a
//! line instead. Where intervals are printed, as in a network test, each interval has a line, and a measurement has none.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iotax_model::record::Sample;
use iotax_model::units::{Bytes, Nanos, human};
use iotax_model::visible;
use iotax_report::terminal::Styled;
use serde_json::Value;

use super::concurrent::ConcurrentRuns;
use super::live::Live;
use super::say::{self, Stream, note};
use crate::runner::{Progress, Step};

/// Minimum age in nanoseconds at which an I/O in flight is reported.
const LONG_NS: u64 = 1_000_000_000;

/// Minimum time between two lines about one measurement if stderr is not a terminal.
const SILENCE: Duration = Duration::from_secs(30);

/// A function that formats a sampling interval. Its arguments are the workload's name, the name of the guest or server, and its sample.
pub(super) type Line<'a> = dyn Fn(&str, &str, &Sample) -> String + 'a;

/// A function that formats the table of the results so far for a width in columns; `None` if there is nothing to show.
pub(super) type SoFar<'a> = dyn Fn(usize) -> Option<Styled> + 'a;

/// Display of a run's progress.
pub(super) struct Watcher<'a> {
    so_far: &'a SoFar<'a>,
    /// Formats each interval for printing; `None` to only move the bar.
    line: Option<&'a Line<'a>>,
    workload: String,
    bar: ProgressBar,
    terminal: bool,
    /// Start time and number of the first measurement by this process, for the ETA.
    first: Option<(Instant, usize)>,
    /// Length of each sampling interval of the current measurement, and the IOPS in it.
    intervals: Vec<(Nanos, f64)>,
    cell: String,
    /// True if rounds are added until every comparison is decided.
    is_open: bool,
    /// Time of the last printed line; used only without a terminal.
    said: Instant,
    /// Publication of the progress in the store; `None` if the store could not be opened a second time for that.
    live: Option<Live>,
    /// Detector of other runs on the same disks.
    concurrent: &'a mut ConcurrentRuns,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(
        line: Option<&'a Line<'a>>,
        so_far: &'a SoFar<'a>,
        live: Option<Live>,
        concurrent: &'a mut ConcurrentRuns,
    ) -> Self {
        let is_shown = Stream::Stderr.obeys_escapes() && !say::is_quiet();
        let draw_on = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, draw_on);
        // The prefix holds the table of the last look.
        let style = ProgressStyle::with_template("{prefix}{spinner} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        bar.set_style(if say::is_ascii_locale() { style.tick_chars("-\\|/ ") } else { style });
        let terminal = !bar.is_hidden();
        Self {
            so_far,
            line,
            workload: String::new(),
            bar,
            terminal,
            first: None,
            intervals: Vec::new(),
            cell: String::new(),
            is_open: false,
            said: Instant::now(),
            live,
            concurrent,
        }
    }

    pub(super) fn is_on_terminal(&self) -> bool {
        self.terminal
    }

    fn tell<const N: usize>(&self, changes: [(&'static str, Option<Value>); N]) {
        if let Some(live) = &self.live {
            live.set(changes);
        }
    }

    fn check_for_other_load(&mut self) {
        for line in self.concurrent.news() {
            self.note(&line);
        }
    }

    fn show(&self, text: &str) {
        if self.terminal {
            self.bar.set_message(say::in_locale(&visible::line(text)).into_owned());
            self.bar.tick();
        }
    }

    /// Prints the finished measurement's mean IOPS. Prints nothing on a terminal, if there is no interval to average, or if rounds are
    /// added until every comparison is decided.
    fn end_cell(&mut self) {
        let intervals = std::mem::take(&mut self.intervals);
        if self.terminal || self.is_open {
            return;
        }
        if let Some(mean) = mean(&intervals) {
            note!("  {} IOPS", human::count(mean));
        }
    }
}

/// Returns the mean rate over intervals, of which the last is shorter if the work ended by itself. `None` without any.
fn mean(intervals: &[(Nanos, f64)]) -> Option<f64> {
    let all: u64 = intervals.iter().map(|(length, _)| length.0).sum();
    let done: f64 = intervals.iter().map(|(length, rate)| rate * length.0 as f64).sum();
    (all > 0).then(|| done / all as f64)
}

/// Formats the remaining time; `each` is the seconds per measurement. If comparisons are undecided, also formats the time to the next
/// interim look.
fn time_left(each: f64, step: &Step<'_>) -> String {
    let left = |cells: usize| human::duration(each * (cells + 1).saturating_sub(step.cell) as f64);
    if step.open.is_some() {
        format!("ETA at most {}, next look in {}", left(step.at_most), left(step.cells))
    } else {
        format!("ETA {}", left(step.at_most))
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        self.end_cell();
        self.bar.finish_and_clear();
    }
}

/// Draws the last 16 values as bars in steps of an eighth, scaled to the largest value.
fn sparkline(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let last = &values[values.len().saturating_sub(16)..];
    let top = last.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    last.iter().map(|value| BARS[eighth(value / top)]).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 .. 7")]
fn eighth(share: f64) -> usize {
    (share * 8.0).ceil().clamp(1.0, 8.0) as usize - 1
}

impl Progress for Watcher<'_> {
    fn phase(&mut self, what: &str) {
        self.end_cell();
        self.check_for_other_load();
        self.tell([("phase", Some(what.into()))]);
        if self.terminal {
            self.show(what);
        } else {
            note!("{what}");
        }
    }

    fn filled(&mut self, target: &str, done: Bytes, total: Bytes) {
        let share = human::bytes(done.0);
        self.tell([(
            "phase",
            Some(format!("filling {target}: {share} of {}", human::bytes(total.0)).into()),
        )]);
        self.show(&format!("filling {target}: {} of {}", human::bytes(done.0), human::bytes(total.0)));
        if !self.terminal && done >= total {
            note!("filled {target}: {}", human::bytes(total.0));
        }
    }

    fn cell(&mut self, step: Step<'_>) {
        self.end_cell();
        self.check_for_other_load();
        let (start, first) = *self.first.get_or_insert((Instant::now(), step.cell));
        let each = (step.cell > first).then(|| start.elapsed().as_secs_f64() / (step.cell - first) as f64);
        let eta_s = each.map(|each| each * (step.at_most + 1).saturating_sub(step.cell) as f64);
        self.tell([
            ("phase", None),
            ("round", Some(step.round.into())),
            ("rounds", Some(step.rounds.into())),
            ("cell", Some(step.cell.into())),
            ("cells", Some(step.cells.into())),
            ("open", step.open.map(|(open, _)| open.into())),
            ("eta_s", eta_s.map(Value::from)),
            ("target", Some(step.target.as_str().into())),
            ("workload", Some(step.workload.into())),
            ("iops", None),
            ("oldest_ns", None),
        ]);
        let eta = each.map(|each| format!("  {}", time_left(each, &step))).unwrap_or_default();
        let open = step.open.map(|(open, of)| format!("  {open} of {of} open")).unwrap_or_default();
        self.is_open = step.open.is_some();
        self.cell = format!(
            "round {}/{}  cell {}/{}{open}{eta}  {}  {}",
            step.round, step.rounds, step.cell, step.cells, step.target, step.workload
        );
        step.workload.clone_into(&mut self.workload);
        if self.terminal {
            self.show(&self.cell);
        } else if self.line.is_none() && !self.is_open {
            note!("{}", self.cell);
            self.said = Instant::now();
        }
    }

    fn sample(&mut self, name: &str, sample: &Sample) {
        self.tell([("latency_mean_ns", sample.tallies.latency().mean().map(Value::from))]);
        if let Some(line) = self.line {
            self.note(&line(&self.workload, name, sample));
        }
    }

    fn interval(&mut self, length: Nanos, iops: f64, oldest_ns: Option<u64>) {
        self.check_for_other_load();
        self.tell([("iops", Some(iops.into())), ("oldest_ns", oldest_ns.map(Value::from))]);
        if self.line.is_some() {
            return;
        }
        self.intervals.push((length, iops));
        let waits = oldest_ns
            .filter(|age| *age >= LONG_NS)
            .map(|age| format!("  an I/O has been in flight for {}", human::time(age as f64)));
        let waits = waits.unwrap_or_default();
        let rates: Vec<f64> = self.intervals.iter().map(|(_, rate)| *rate).collect();
        self.show(&format!("{}  {} IOPS  {}{waits}", self.cell, human::count(iops), sparkline(&rates)));
        if !self.terminal && self.said.elapsed() >= SILENCE {
            note!("{}  {} IOPS now{waits}", self.cell, human::count(iops));
            self.said = Instant::now();
        }
    }

    fn report_look(&mut self, text: &str) {
        self.end_cell();
        if !self.terminal {
            note!("{text}");
            self.said = Instant::now();
            return;
        }
        let table = (self.so_far)(Stream::Stderr.width());
        // A table that does not fit would scroll the bar off the screen.
        let fits = |table: &&str| table.lines().count() + 3 <= Stream::Stderr.height();
        let table = table.as_deref().filter(fits).unwrap_or_default();
        self.bar.set_prefix(say::in_locale(&format!("{}\n{table}", visible::line(text))).into_owned());
    }

    fn note(&mut self, text: &str) {
        if self.terminal {
            self.bar.println(say::broken(&visible::text(text), Stream::Stderr.width()));
        } else {
            note!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eta_is_the_end_and_the_next_look_has_its_name() {
        let step = |open| Step {
            round: 1,
            rounds: 3,
            cell: 5,
            cells: 6,
            at_most: 104,
            open,
            target: "a".into(),
            workload: "w",
        };
        assert_eq!(time_left(1.5, &step(Some((2, 4)))), "ETA at most 2 min 30 s, next look in 3 s");
        assert_eq!(time_left(1.5, &step(None)), "ETA 2 min 30 s");
    }

    #[test]
    fn a_short_last_interval_counts_by_its_length() {
        let second = Nanos::from_secs(1);
        assert_eq!(mean(&[(second, 100.0), (Nanos(second.0 / 4), 20.0)]), Some(84.0));
        assert_eq!(mean(&[(second, 100.0), (second, 20.0)]), Some(60.0));
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn the_sparkline_is_scaled_to_its_largest_value() {
        assert_eq!(sparkline(&[0.0, 50.0, 100.0]), "▁▄█");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[1.0; 40]).chars().count(), 16);
    }
}
