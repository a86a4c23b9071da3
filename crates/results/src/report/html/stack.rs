//! Bars of parts that add up, as inline SVG with a legend.

use maud::{Markup, html};

use super::PART_COLOURS;
use super::chart::{BOTTOM, NAMES, RIGHT, TOP, linear_ticks, short};

const ROW: f64 = 30.0;
/// Room for a bar's total beyond its end.
const TOTAL: f64 = 56.0;

/// One bar.
pub(super) struct Stack {
    /// The target's name.
    pub(super) name: String,
    /// Parts from the left, each with its name; none is negative.
    pub(super) parts: Vec<(String, f64)>,
}

/// The picture and its legend; nothing without parts. `words` gives a figure with its unit, `tick` the words of a value of the
/// axis.
pub(super) fn stacks(
    bars: &[Stack],
    label: &str,
    words: &dyn Fn(f64) -> String,
    tick: &dyn Fn(f64) -> String,
    width: f64,
) -> Markup {
    let total = |bar: &Stack| bar.parts.iter().map(|(_, value)| value).sum::<f64>();
    let most = bars.iter().map(total).fold(0.0, f64::max);
    if most <= 0.0 {
        return html! {};
    }
    let names = order(bars);
    let class = |name: &str| {
        let place = names.iter().position(|known| *known == name).unwrap_or_default();
        format!("p{}", place % PART_COLOURS)
    };
    let (_, high, ticks) = linear_ticks(0.0, most, 5.0);
    let height = TOP + ROW * bars.len() as f64 + BOTTOM;
    let at = |value: f64| NAMES + value / high * (width - NAMES - RIGHT - TOTAL);
    html! {
        ul.legend.parts {
            @for name in &names { li class=(class(name)) { span.swatch {} (name) } }
        }
        svg viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(label) {
            @for value in &ticks {
                line.grid x1=(short(at(*value))) x2=(short(at(*value))) y1=(TOP) y2=(height - BOTTOM) {}
                text.tick.middle x=(short(at(*value))) y=(height - 7.0) { (tick(*value)) }
            }
            @for (place, bar) in bars.iter().enumerate() {
                @let y = TOP + ROW * place as f64;
                text.name.end x=(NAMES - 8.0) y=(short(y + ROW / 2.0 + 4.0)) { (bar.name) }
                @for ((name, value), from) in bar.parts.iter().zip(begins(bar)) {
                    g class=(class(name)) {
                        title { (bar.name) ", " (name) ": " (words(*value)) }
                        rect.part x=(short(at(from))) y=(y + 5.0) height=(ROW - 10.0)
                            width=(short(at(from + value) - at(from))) {}
                    }
                }
                text.over x=(short(at(total(bar)) + 6.0)) y=(short(y + ROW / 2.0 + 4.0)) { (words(total(bar))) }
            }
            line.zero x1=(short(at(0.0))) x2=(short(at(0.0))) y1=(TOP) y2=(height - BOTTOM) {}
        }
    }
}

/// Every part's name once, each after those that come before it in its bar.
fn order(bars: &[Stack]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for bar in bars {
        let mut next = 0;
        for (name, _) in &bar.parts {
            let known = names.iter().position(|known| known == name);
            if known.is_none() {
                names.insert(next, name);
            }
            next = known.unwrap_or(next) + 1;
        }
    }
    names
}

/// Where each part begins.
fn begins(bar: &Stack) -> impl Iterator<Item = f64> {
    bar.parts.iter().scan(0.0, |sum, (_, value)| {
        let begin = *sum;
        *sum += value;
        Some(begin)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_the_order_of_every_bar() {
        let bar = |names: &[&str]| Stack {
            name: "t".into(),
            parts: names.iter().map(|name| ((*name).to_owned(), 1.0)).collect(),
        };
        let bars = [bar(&["device", "rest"]), bar(&["device", "qemu", "guest", "rest"])];
        assert_eq!(order(&bars), ["device", "qemu", "guest", "rest"]);
    }
}
