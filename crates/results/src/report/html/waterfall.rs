//! A ladder from its lowest rung up, as inline SVG: each bar begins where the one beneath it ends.

use maud::{Markup, html};

use super::chart::{BOTTOM, NAMES, RIGHT, TOP, linear_ticks, short};

/// Height of a rung: a line of words and a bar.
const ROW: f64 = 42.0;
/// The bar within it.
const BAR: (f64, f64) = (20.0, 16.0);

/// One rung.
pub(super) struct Fall {
    /// The target's name.
    pub(super) name: String,
    /// CSS class of its colour.
    pub(super) colour: String,
    /// Where the bar begins: the rung beneath, or nothing.
    pub(super) from: f64,
    /// Where it ends.
    pub(super) to: f64,
    /// The interval of its end.
    pub(super) ends: Option<(f64, f64)>,
    /// What it adds, and how much.
    pub(super) words: String,
    /// The place of the rung beneath in the same list, always an earlier one.
    pub(super) beneath: Option<usize>,
}

/// The picture; nothing without rungs. `tick` gives the words of a value of the axis.
pub(super) fn waterfall(rungs: &[Fall], label: &str, tick: &dyn Fn(f64) -> String, width: f64) -> Markup {
    let reach = rungs.iter().flat_map(|rung| [rung.from, rung.to, rung.ends.map_or(0.0, |ends| ends.1)]);
    let most = reach.fold(0.0, f64::max);
    if most <= 0.0 {
        return html! {};
    }
    let (_, high, ticks) = linear_ticks(0.0, most, 5.0);
    let height = TOP + ROW * rungs.len() as f64 + BOTTOM;
    let at = |value: f64| NAMES + value.max(0.0) / high * (width - NAMES - 2.0 * RIGHT);
    let top = |place: usize| TOP + ROW * place as f64 + BAR.0;
    html! {
        svg viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(label) {
            @for value in &ticks {
                line.grid x1=(short(at(*value))) x2=(short(at(*value))) y1=(TOP) y2=(height - BOTTOM) {}
                text.tick.middle x=(short(at(*value))) y=(height - 7.0) { (tick(*value)) }
            }
            @for (place, rung) in rungs.iter().enumerate() {
                @if let Some(beneath) = rung.beneath {
                    line.link x1=(short(at(rung.from))) x2=(short(at(rung.from))) y1=(short(top(beneath) + BAR.1))
                        y2=(short(top(place))) {}
                }
            }
            @for (place, rung) in rungs.iter().enumerate() {
                @let y = top(place);
                @let middle = y + BAR.1 / 2.0;
                g class=(rung.colour) {
                    title { (rung.name) ": " (rung.words) }
                    text.name.end x=(NAMES - 8.0) y=(short(middle + 4.0)) { (rung.name) }
                    text.over x=(NAMES + 3.0) y=(short(y - 5.0)) { (rung.words) }
                    rect.bar x=(short(at(rung.from.min(rung.to)))) y=(short(y)) height=(BAR.1)
                        width=(short((at(rung.to) - at(rung.from)).abs().max(1.5))) {}
                    @if let Some((low, high)) = rung.ends {
                        path.error d=(format!(
                            "M{0} {1}V{2}M{3} {1}V{2}M{0} {4}H{3}",
                            short(at(low)), y + 4.0, y + BAR.1 - 4.0, short(at(high)), short(middle)
                        )) {}
                    }
                }
            }
        }
    }
}
