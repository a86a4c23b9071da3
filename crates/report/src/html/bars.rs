//! Draws bars of stacked parts, one bar per row.

use iotax_model::units::human;

use super::COLOURS;
use super::chart::{Axis, Chart, Label, Plot, Unit};

/// A bar of stacked parts.
pub(super) struct Stack {
    /// Name of the bar's target.
    pub(super) name: String,
    /// Parts of the bar from left to right: name and nanoseconds, not negative.
    pub(super) parts: Vec<(String, f64)>,
}

/// Builds a chart of times per I/O, per GiB or another unit (`per`); without rows if all parts are 0.
pub(super) fn stacks(bars: &[Stack], key: &'static str, per: &str, title: &str, note: &str) -> Chart {
    let total = |bar: &Stack| bar.parts.iter().map(|(_, ns)| ns).sum::<f64>();
    let drawn: Vec<&Stack> = bars.iter().filter(|bar| total(bar) > 0.0).collect();
    let words = |bar: &&Stack| {
        let parts: Vec<String> =
            bar.parts.iter().map(|(name, ns)| format!("{name} {}", human::time(*ns))).collect();
        format!("{}: {}", bar.name, parts.join(", "))
    };
    let label =
        |bar: &&Stack| Label { name: bar.name.clone(), words: human::time(total(bar)), beneath: None };
    let part = |bar: &Stack, (name, ns): &(String, f64)| {
        vec![bar.name.as_str().into(), name.as_str().into(), (ns / 1e3).into()]
    };
    let colours = order(&drawn).into_iter().enumerate();
    Chart {
        key: key.into(),
        title: title.into(),
        note: note.into(),
        message: drawn.iter().map(words).collect::<Vec<_>>().join("; "),
        columns: ["target", "part", &format!("us_per_{per}")].map(Into::into).into(),
        rows: drawn.iter().flat_map(|bar| bar.parts.iter().map(|entry| part(bar, entry))).collect(),
        colours: colours.map(|(index, name)| (name.into(), format!("t{}", index % COLOURS))).collect(),
        plot: Plot::Bars {
            name: 0,
            series: 1,
            from: None,
            value: 2,
            ends: None,
            labels: drawn.iter().map(label).collect(),
            axis: Axis { label: String::new(), unit: Unit::Time, log: false, at_least: 0.0 },
        },
    }
}

/// Lists the names of all parts once, in an order that agrees with the order within every bar.
fn order<'a>(bars: &[&'a Stack]) -> Vec<&'a str> {
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
        assert_eq!(order(&bars.iter().collect::<Vec<_>>()), ["device", "qemu", "guest", "rest"]);
    }
}
