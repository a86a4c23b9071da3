//! A chart: a table of figures, and a description of how to draw them.
//!
//! The page holds the figures only in the table. The script draws from the table and exports it as CSV, so a picture cannot disagree with its
//! table. Without scripts only the pictures are missing.

use std::fmt;

use iotax_model::visible;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;
use serde_json::Value;

/// Significant digits of a figure in a chart's table.
const DIGITS: i32 = 5;

/// Height of a curve plot in pixels. This and the heights below must match `draw.js`.
const CURVE_HEIGHT: usize = 366;
const MAP_HEIGHT: usize = 400;
const POINTS_HEIGHT: usize = 420;

/// A field of a chart's table.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    /// Text, such as a target's name.
    Text(String),
    /// A whole number, written exactly.
    Count(u64),
    /// A number, rounded to five significant digits.
    Figure(f64),
    /// Unknown; written as an empty field.
    Unknown,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => count.fmt(f),
            Self::Figure(value) if value.is_finite() => f.write_str(&digits(*value)),
            Self::Figure(_) | Self::Unknown => Ok(()),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Figure(value)
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::Unknown, Self::Figure)
    }
}

/// Formats a number in decimal with five significant digits and no trailing zeros, for spreadsheets.
fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    #[expect(clippy::cast_possible_truncation, reason = "a double's exponent is below 400")]
    let decimals = (DIGITS - 1 - value.abs().log10().floor() as i32).clamp(0, 12);
    let text = format!("{value:.*}", usize::try_from(decimals).unwrap_or_default());
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Unit of the values on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    /// Time in microseconds; the labels use a larger unit for large values.
    Time,
    /// A plain count.
    Count,
    /// Percentage, 0 to 100.
    Percent,
    /// Bytes per second.
    Rate,
    /// Bits per second.
    Bits,
    /// An ordinal number, such as a run's; the axis starts at the lowest value instead of 0.
    Ordinal,
}

/// An axis of values: its label, unit and scale.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) unit: Unit,
    /// True for a logarithmic axis. A linear axis starts at 0, unless its unit is [`Unit::Ordinal`].
    pub(super) log: bool,
    /// The axis extends at least to this value, even if all data are smaller.
    pub(super) at_least: f64,
}

/// The horizontal axis of a line plot.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Across {
    /// Categories: the texts of a column, in order of appearance.
    Words { column: usize, label: String },
    /// The values of a numeric column.
    Figures { column: usize, axis: Axis },
    /// Time within a round, with the rounds drawn side by side.
    Rounds(Rounds),
}

/// The layout of several rounds side by side on one time axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Rounds {
    /// Index of the column with the round number.
    pub(super) round: usize,
    /// Indices of the columns with an interval's start and end, in seconds from the start of the measured window.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Round numbers in the order of drawing.
    pub(super) order: Vec<u32>,
    /// Seconds between the starts of two rounds on the axis.
    pub(super) pitch: f64,
}

/// A part of a plot with its own vertical axis; panels are stacked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Panel {
    pub(super) column: usize,
    pub(super) axis: Axis,
    /// Height in pixels.
    pub(super) height: u32,
    /// Indices of the columns with the two ends of the confidence interval; `None` for a panel without intervals.
    pub(super) ends: Option<(usize, usize)>,
}

/// Text drawn above a bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Label {
    /// Name of the bar, as in the table's name column.
    pub(super) name: String,
    pub(super) words: String,
    /// Index of the label of the ladder step below, whose bar ends where this bar begins; `None` for bars that start at 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) beneath: Option<usize>,
}

/// Kinds of plots. Columns are given by index from 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Plot {
    /// One line per series and panel, over a common horizontal axis.
    Lines { series: usize, across: Across, panels: Vec<Panel>, marks: bool },
    /// Horizontal bars; rows with the same name are stacked.
    Bars {
        name: usize,
        /// Column that determines the colour.
        series: usize,
        /// Column with the start of each bar; `None` if bars are stacked from 0.
        from: Option<usize>,
        /// Column with the length of each bar.
        value: usize,
        /// Columns with the two ends of the confidence interval; `None` for bars without intervals.
        ends: Option<(usize, usize)>,
        labels: Vec<Label>,
        axis: Axis,
    },
    /// One line per series through points given by two numeric columns; points may have notes.
    Curve {
        series: usize,
        x: usize,
        across: Axis,
        y: usize,
        up: Axis,
        /// Column with the notes of points; empty for most points.
        note: usize,
    },
    /// Lines over time in seconds, in stacked panels, with events as marks and gaps as shaded spans.
    Course {
        series: usize,
        x: usize,
        across: Axis,
        panels: Vec<Panel>,
        /// Time in seconds and label of each event.
        events: Vec<(f64, String)>,
        /// Start and end in seconds of each shaded span.
        shaded: Vec<(f64, f64)>,
    },
    /// A scatter plot: one point per row, labelled with the row's name.
    Points { name: usize, series: usize, x: usize, across: Axis, y: usize, up: Axis },
    /// A map of two categories, such as file size and record size; the colour shows the value.
    Map { x: usize, across: String, y: usize, up: String, value: usize, unit: Unit },
    /// One heat map per series: number of I/Os by time and latency.
    Heat {
        series: usize,
        across: Rounds,
        /// Column of the first latency bin; the columns of the other bins follow.
        first: usize,
        /// Edges of the bins in microseconds: one more than there are bins.
        edges: Vec<f64>,
    },
}

/// A chart with its table of figures and its caption.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chart {
    /// Key that is unique among the charts of a workload; used in file names.
    pub(super) key: String,
    pub(super) title: String,
    /// Remainder of the caption, after the title: units and omissions.
    pub(super) note: String,
    /// Sentence that describes the picture, for screen readers.
    pub(super) message: String,
    /// Column names with units, such as `latency_us`.
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// Name of each series with its CSS class, in the order of the legend.
    pub(super) colours: Vec<(String, String)>,
    pub(super) plot: Plot,
}

/// The run and workload that a chart belongs to; used in file names and anchors.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChartId<'a> {
    pub(super) run: i64,
    pub(super) workload: &'a str,
    /// Number of the workload in the plan, for anchors, because its name may contain any characters.
    pub(super) number: usize,
}

impl Chart {
    /// Renders the chart as a `figure` element; empty if it has no rows.
    pub(super) fn figure(&self, chart: ChartId<'_>) -> Markup {
        self.drawn(chart, self.has_legend())
    }

    /// Renders the chart without a legend, for a page with one [`legend`] above all charts.
    pub(super) fn figure_below_legend(&self, chart: ChartId<'_>) -> Markup {
        self.drawn(chart, false)
    }

    fn drawn(&self, chart: ChartId<'_>, has_legend: bool) -> Markup {
        if self.rows.is_empty() {
            return html! {};
        }
        let file = file_name(&format!("iotax-{}-{}-{}", chart.run, chart.workload, self.key));
        html! {
            figure id=(format!("w{}-{}", chart.number, self.key)) data-file=(file) {
                figcaption { b { (self.title) } @if !self.note.is_empty() { ", " (self.note) } }
                @if has_legend { (legend(&self.colours)) }
                div.plot role="img" aria-label=(format!("{}. {}", self.title, self.message))
                    style=(format!("height:{}px", self.height())) {}
                script type="application/json" { (PreEscaped(self.spec())) }
                details.figures {
                    summary { "Figures" }
                    div.wide tabindex="0" role="region" aria-label=(format!("{}: figures", self.title)) {
                        (self.table())
                    }
                }
            }
        }
    }

    /// Renders the table of figures, whose content is also exported as CSV.
    fn table(&self) -> Markup {
        html! {
            table {
                thead { tr { @for name in &self.columns { th scope="col" { (name) } } } }
                tbody { @for row in &self.rows { tr { @for cell in row { td { (cell.to_string()) } } } } }
            }
        }
    }

    /// Returns the description of the plot as JSON, with `<` escaped so that it cannot close its script element.
    fn spec(&self) -> String {
        #[derive(Serialize)]
        struct Spec<'a> {
            #[serde(flatten)]
            plot: &'a Plot,
            colours: &'a [(String, String)],
        }
        let spec = Spec { plot: &self.plot, colours: &self.colours };
        // Numbers and strings in structures always have a JSON form.
        let mut spec = serde_json::to_value(&spec).unwrap_or_default();
        show(&mut spec);
        spec.to_string().replace('<', "\\u003c")
    }

    /// Returns whether the chart needs a colour legend. It needs none for a single series, or if labels or axes name the series.
    fn has_legend(&self) -> bool {
        match &self.plot {
            Plot::Lines { .. } | Plot::Curve { .. } | Plot::Course { .. } => self.colours.len() > 1,
            Plot::Bars { name, series, .. } => name != series,
            Plot::Heat { .. } | Plot::Map { .. } | Plot::Points { .. } => false,
        }
    }

    /// Returns the height in pixels to reserve until the script has drawn the chart.
    fn height(&self) -> usize {
        match &self.plot {
            Plot::Lines { panels, .. } | Plot::Course { panels, .. } => {
                panels.iter().map(|panel| panel.height as usize + 30).sum::<usize>() + 36
            }
            Plot::Bars { labels, .. } => labels.len() * 44 + 48,
            Plot::Curve { .. } => CURVE_HEIGHT,
            Plot::Map { .. } => MAP_HEIGHT,
            Plot::Points { .. } => POINTS_HEIGHT,
            Plot::Heat { .. } => self.colours.len() * 126 + 36,
        }
    }
}

/// Renders a colour legend with one entry per series.
pub(super) fn legend(colours: &[(String, String)]) -> Markup {
    html! {
        ul.legend.parts { @for (name, colour) in colours { li class=(colour) { span.swatch {} (name) } } }
    }
}

/// Escapes hidden characters in all strings of a JSON value as in the table, so that the script finds the same names.
fn show(value: &mut Value) {
    match value {
        Value::String(text) => *text = visible::text(text).into_owned(),
        Value::Array(values) => values.iter_mut().for_each(show),
        Value::Object(members) => members.values_mut().for_each(show),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Makes a text safe for file names: ASCII letters, digits, dots and underscores are kept, other characters become hyphens.
pub(super) fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '_' { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"&";

    fn chart() -> Chart {
        let axis = Axis { label: "latency".into(), unit: Unit::Time, log: true, at_least: 0.0 };
        Chart {
            key: "percentiles".into(),
            title: "Latency".into(),
            note: String::new(),
            message: "one is 84.1 us".into(),
            columns: vec!["target".into(), "latency_us".into()],
            rows: vec![vec![HOSTILE.into(), 84.123_456.into()], vec!["b".into(), None.into()]],
            colours: vec![(HOSTILE.into(), "t0".into()), ("b".into(), "t1".into())],
            plot: Plot::Lines {
                series: 0,
                across: Across::Words { column: 0, label: String::new() },
                panels: vec![Panel { column: 1, axis, height: 100, ends: None }],
                marks: true,
            },
        }
    }

    fn figure(chart: &Chart) -> String {
        chart.figure(ChartId { run: 17, workload: "a/../b <c>", number: 3 }).into_string()
    }

    #[test]
    fn figures_have_five_digits_and_unknown_ones_none() {
        for (value, text) in [
            (84.123_456, "84.123"),
            (0.0, "0"),
            (-0.000_123_456, "-0.00012346"),
            (1_234_567.0, "1234567"),
            (1200.0, "1200"),
            (99_999.6, "100000"),
            (f64::NAN, ""),
            (f64::INFINITY, ""),
        ] {
            assert_eq!(Cell::from(value).to_string(), text);
        }
        assert_eq!(Cell::from(None).to_string(), "");
        assert_eq!(Cell::Count(u64::MAX).to_string(), "18446744073709551615");
    }

    #[test]
    fn the_specification_is_json_and_ends_nothing() {
        let chart = chart();
        let spec = chart.spec();
        assert!(!spec.contains('<'), "{spec}");
        let read: serde_json::Value = serde_json::from_str(&spec).expect("JSON");
        assert_eq!(read["kind"], "lines");
        assert_eq!(read["colours"][0][0], HOSTILE);
        assert_eq!(read["panels"][0]["axis"]["unit"], "time");
        assert_eq!(figure(&chart).matches("</script>").count(), 1);
    }

    #[test]
    fn the_table_has_a_head_and_every_row() {
        let text = figure(&chart());
        assert!(text.contains("<th scope=\"col\">target</th><th scope=\"col\">latency_us</th>"));
        assert!(text.contains("<td>84.123</td></tr><tr><td>b</td><td></td></tr>"), "{text}");
        assert!(text.contains("&lt;/script&gt;&lt;img"), "names are text");
        assert!(!text.contains("<img"));
    }

    #[test]
    fn its_place_and_file_have_plain_names() {
        let text = figure(&chart());
        assert!(text.contains("id=\"w3-percentiles\""), "{text}");
        assert!(text.contains("data-file=\"iotax-17-a-..-b--c--percentiles\""), "{text}");
    }

    #[test]
    fn nothing_is_no_figure() {
        assert_eq!(figure(&Chart { rows: vec![], ..chart() }), "");
    }
}
