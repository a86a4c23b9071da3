//! Where a run's time went.

use std::fmt::Write as _;

use comfy_table::{Cell, Table};

use super::table::{add_table, plain, right};
use crate::judge::Timing;

/// A table of the phases, and the share of the time in which nothing was measured; `measure` is a measurement with its
/// warm-up. It is set tighter if it would be wider than `width`.
#[must_use]
pub fn timing(timing: Option<&Timing>, width: usize) -> String {
    let Some(timing) = timing else { return "This run recorded no timing.\n".into() };
    let seconds = |ns: u64| format!("{:.1}", ns as f64 / 1e9);
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let mut table: Table = plain(&["", "seconds", "share"]);
    for (phase, share) in &timing.phases {
        table.add_row(vec![
            Cell::new(&phase.name),
            right(seconds(phase.duration_ns)),
            right(percent(*share)),
        ]);
    }
    table.add_row(vec![Cell::new("all"), right(seconds(timing.total_ns)), right(percent(1.0))]);
    let mut text = String::new();
    add_table(&mut text, table, width, false);
    let _ = writeln!(text, "Outside the measured windows: {}", percent(timing.outside));
    text
}
