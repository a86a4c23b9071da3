//! Charts as inline SVG.
//!
//! Drawn here and not by a charting library: a plotly build alone is 4.6 MB, needs scripts, cannot follow the
//! reader's light or dark preference by CSS and prints poorly. These charts are text, weigh a few kilobytes, and every
//! mark carries its figure as a tooltip.

use std::fmt::Write as _;

use maud::{Markup, html};

const LEFT: f64 = 64.0;
pub(super) const RIGHT: f64 = 14.0;
pub(super) const TOP: f64 = 10.0;
pub(super) const BOTTOM: f64 = 24.0;
const BAR: f64 = 30.0;
pub(super) const NAMES: f64 = 138.0;
/// Height that a tick of a vertical axis takes up at least.
const TICK: f64 = 40.0;

/// One target's figures.
pub(super) struct Series {
    /// What the tooltip begins with.
    pub(super) name: String,
    /// CSS class of its colour.
    pub(super) colour: String,
    /// Lines that are not joined with one another: (x, y, words for y). Without words a point has no
    /// mark.
    pub(super) lines: Vec<Vec<(f64, f64, String)>>,
}

/// One bar with its error bar.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) colour: String,
    pub(super) value: f64,
    pub(super) ends: Option<(f64, f64)>,
    pub(super) words: String,
}

/// The vertical axis of a line chart.
pub(super) struct Axis<'a> {
    /// What it shows, with its unit.
    pub(super) label: &'a str,
    /// Logarithmic; else it begins at 0.
    pub(super) log: bool,
    /// At least this far up.
    pub(super) at_least: f64,
    /// A tick's words.
    pub(super) words: &'a dyn Fn(f64) -> String,
}

/// The horizontal axis of a line chart.
pub(super) struct Across {
    /// Where it ends; it begins at 0.
    pub(super) end: f64,
    /// Places and the words beneath them.
    pub(super) ticks: Vec<(f64, String)>,
    /// Where a faint upright line stands.
    pub(super) notches: Vec<f64>,
    /// Whether a mark is drawn at each point.
    pub(super) marks: bool,
}

/// Lines over a common horizontal axis; nothing if there is no figure.
pub(super) fn lines(series: &[Series], across: &Across, axis: &Axis<'_>, width: f64, height: f64) -> Markup {
    let values = || series.iter().flat_map(|s| &s.lines).flatten().map(|point| point.1);
    let Some(most) = values().reduce(f64::max) else { return html! {} };
    let least = values().reduce(f64::min).unwrap_or(most);
    let (low, high, ticks) = if axis.log {
        log_ticks(least, most)
    } else {
        linear_ticks(0.0, most.max(axis.at_least), (height / TICK).max(2.0))
    };
    let (plot_width, plot_height) = (width - LEFT - RIGHT, height - TOP - BOTTOM);
    let at_x = |x: f64| LEFT + x / across.end * plot_width;
    let at_y = |y: f64| {
        let share = if axis.log { (y / low).ln() / (high / low).ln() } else { (y - low) / (high - low) };
        TOP + (1.0 - share) * plot_height
    };
    html! {
        svg viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(axis.label) {
            @for tick in &ticks {
                line.grid x1=(LEFT) x2=(width - RIGHT) y1=(short(at_y(*tick))) y2=(short(at_y(*tick))) {}
                text.tick.end x=(LEFT - 6.0) y=(short(at_y(*tick) + 4.0)) { ((axis.words)(*tick)) }
            }
            @for x in &across.notches {
                line.notch x1=(short(at_x(*x))) x2=(short(at_x(*x))) y1=(TOP) y2=(height - BOTTOM) {}
            }
            @for (x, words) in &across.ticks {
                text.tick.middle x=(short(at_x(*x))) y=(height - 7.0) { (words) }
            }
            @for s in series {
                g class=(s.colour) {
                    @for line in &s.lines {
                        path.line d=(path(line, &at_x, &at_y)) {}
                        @for (x, y, words) in line.iter().filter(|point| !point.2.is_empty()) {
                            circle.mark.dot[across.marks] cx=(short(at_x(*x))) cy=(short(at_y(*y))) r="3.5" {
                                title { (s.name) ": " (words) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Horizontal bars from zero, each with its interval.
pub(super) fn bars(bars: &[Bar], label: &str, words: &dyn Fn(f64) -> String, width: f64) -> Markup {
    let ends = || {
        bars.iter().flat_map(|b| [b.value, b.ends.map_or(b.value, |e| e.0), b.ends.map_or(b.value, |e| e.1)])
    };
    let (least, most) = (ends().fold(0.0, f64::min), ends().fold(0.0, f64::max));
    if bars.is_empty() || (least == 0.0 && most == 0.0) {
        return html! {};
    }
    let (low, high, ticks) = linear_ticks(least, most, 5.0);
    let height = TOP + BAR * bars.len() as f64 + BOTTOM;
    let at = |value: f64| NAMES + (value - low) / (high - low) * (width - NAMES - 2.0 * RIGHT);
    html! {
        svg viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(label) {
            @for tick in &ticks {
                line.grid x1=(short(at(*tick))) x2=(short(at(*tick))) y1=(TOP) y2=(height - BOTTOM) {}
                text.tick.middle x=(short(at(*tick))) y=(height - 7.0) { (words(*tick)) }
            }
            @for (i, bar) in bars.iter().enumerate() {
                @let y = TOP + BAR * i as f64;
                g class=(bar.colour) {
                    title { (bar.name) ": " (bar.words) }
                    text.name.end x=(NAMES - 8.0) y=(y + BAR / 2.0 + 4.0) { (bar.name) }
                    rect.bar x=(short(at(bar.value.min(0.0)))) y=(y + 5.0) height=(BAR - 10.0)
                        width=(short((at(bar.value) - at(0.0)).abs().max(1.0))) {}
                    @if let Some((from, to)) = bar.ends {
                        path.error d=(format!(
                            "M{0} {1}V{2}M{3} {1}V{2}M{0} {4}H{3}",
                            short(at(from)), y + 10.0, y + BAR - 10.0, short(at(to)), y + BAR / 2.0
                        )) {}
                    }
                }
            }
            line.zero x1=(short(at(0.0))) x2=(short(at(0.0))) y1=(TOP) y2=(height - BOTTOM) {}
        }
    }
}

fn path(points: &[(f64, f64, String)], at_x: &dyn Fn(f64) -> f64, at_y: &dyn Fn(f64) -> f64) -> String {
    let mut text = String::new();
    for (i, (x, y, _)) in points.iter().enumerate() {
        let _ = write!(text, "{}{} {}", if i == 0 { 'M' } else { 'L' }, short(at_x(*x)), short(at_y(*y)));
    }
    text
}

/// A coordinate to a tenth of a pixel.
pub(super) fn short(value: f64) -> String {
    format!("{value:.1}").trim_end_matches(".0").to_owned()
}

/// About so many round steps that cover both ends: where the axis begins and ends, and its ticks.
pub(super) fn linear_ticks(low: f64, high: f64, steps: f64) -> (f64, f64, Vec<f64>) {
    let span = if high > low { high - low } else { 1.0 };
    let raw = span / steps;
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= raw).unwrap_or(raw);
    let (first, last) = ((low / step).floor(), ((low + span) / step).ceil());
    let mut ticks = Vec::new();
    let mut tick = first;
    while tick <= last {
        ticks.push(tick * step);
        tick += 1.0;
    }
    (first * step, last * step, ticks)
}

/// The same for a logarithmic axis: 1, 2 and 5 of each decade, or decades alone where there are many. Both ends
/// must be positive.
fn log_ticks(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let decades = (high / low).log10();
    let steps: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let mut all = Vec::new();
    let mut decade = 10_f64.powf(low.log10().floor());
    while decade <= high * 10.0 {
        all.extend(steps.iter().map(|step| step * decade));
        decade *= 10.0;
    }
    let first = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let last = all.iter().position(|tick| *tick >= high && *tick > all[first]).unwrap_or(all.len() - 1);
    let ticks = all[first..=last].to_vec();
    (ticks[0], ticks[ticks.len() - 1], ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ticks_cover_what_they_measure(low in -1e9_f64..1e9, span in 1e-3_f64..1e9) {
            let (first, last, ticks) = linear_ticks(low, low + span, 5.0);
            prop_assert!(first <= low && last >= low + span * 0.999_999);
            prop_assert!((3..=9).contains(&ticks.len()), "{ticks:?}");
        }

        #[test]
        fn logarithmic_ticks_cover_what_they_measure(low in 1.0_f64..1e9, factor in 1.0_f64..1e6) {
            let (first, last, ticks) = log_ticks(low, low * factor);
            prop_assert!(first <= low * 1.000_001 && last >= low * factor * 0.999_999 && last > first);
            prop_assert!(ticks.len() <= 11, "{ticks:?}");
        }
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(linear_ticks(0.0, 100.0, 5.0).2, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(log_ticks(84.0, 700.0).2, [50.0, 100.0, 200.0, 500.0, 1000.0]);
    }
}
