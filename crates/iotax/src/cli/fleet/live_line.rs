//! Shows the progress of a fleet in a status line on the terminal.

use std::collections::VecDeque;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iotax_fleet::message::Merged;
use iotax_fleet::{Coordinator, MemberState};
use iotax_model::units::human;
use iotax_report::counted;

use super::super::say::{self, Stream};

/// Averaging period of the shown IOPS in nanoseconds. Each member sends a sample about once a second, so the period covers several samples
/// of each.
const WINDOW_NS: u64 = 5_000_000_000;

/// I/Os of all members in the last 5 s, for the IOPS that are shown.
#[derive(Debug, Default)]
pub(super) struct RecentIos {
    /// Arrival time of each sample in nanoseconds of the coordinator's monotonic clock, and the sample's number of I/Os.
    samples: VecDeque<(u64, u64)>,
}

impl RecentIos {
    pub(super) fn add(&mut self, sample: &Merged, now_ns: u64) {
        self.forget(now_ns);
        self.samples.push_back((now_ns, sample.ios));
    }

    fn forget(&mut self, now_ns: u64) {
        while self.samples.front().is_some_and(|(at_ns, _)| now_ns.saturating_sub(*at_ns) >= WINDOW_NS) {
            self.samples.pop_front();
        }
    }

    /// Formats the IOPS of all members over the last 5 s; `None` without I/Os.
    pub(super) fn text(&mut self, now_ns: u64) -> Option<String> {
        self.forget(now_ns);
        let ios: u64 = self.samples.iter().fold(0, |sum, (_, ios)| sum.saturating_add(*ios));
        let seconds = WINDOW_NS as f64 / 1e9;
        let rate = human::count(ios as f64 / seconds);
        (ios > 0).then(|| format!("{rate} IOPS together in the last {seconds} s"))
    }
}

/// The status line on stderr; hidden without a terminal and with `--quiet`.
pub(super) struct LiveLine {
    bar: ProgressBar,
}

impl LiveLine {
    pub(super) fn new() -> Self {
        let is_shown = Stream::Stderr.obeys_escapes() && !say::is_quiet();
        let draw_on = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, draw_on);
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self { bar }
    }

    pub(super) fn show(&self, coordinator: &Coordinator, ios: &mut RecentIos, now_ns: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let at_work =
            coordinator.members().filter(|(_, status)| *status.state == MemberState::AtWork).count();
        let ios = ios.text(now_ns).map_or(String::new(), |ios| format!("  {ios}"));
        self.bar.set_message(format!("{} at work{ios}", counted(at_work as u64, "member")));
        self.bar.tick();
    }

    /// Runs `say` with the line hidden, so that its output appears above the line.
    pub(super) fn above(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use iotax_model::Histogram;

    use super::*;

    #[test]
    fn samples_count_for_five_seconds() {
        let sample =
            |ios| Merged { step: 1, interval: 0, members: 1, ios, bytes: 0, latency: Histogram::new() };
        let mut ios = RecentIos::default();
        assert_eq!(ios.text(0), None);
        ios.add(&sample(500), 1_000_000_000);
        ios.add(&sample(1000), 2_000_000_000);
        assert_eq!(ios.text(5_900_000_000).as_deref(), Some("300 IOPS together in the last 5 s"));
        assert_eq!(ios.text(6_000_000_000).as_deref(), Some("200 IOPS together in the last 5 s"));
        assert_eq!(ios.text(7_000_000_000), None);
    }
}
