//! Builds pages of headings, tables and sentences, which are then laid out for a terminal or as Markdown.

mod answer;
mod ask;
pub(super) mod certainty;
mod compared;
mod crash;
mod curve;
pub(crate) mod demands;
mod doctor;
pub(crate) mod durability;
pub(crate) mod figures;
mod fleet;
mod grid;
mod guests;
mod history;
mod imported;
mod layers;
pub(crate) mod limits;
mod network;
mod paste;
mod run;
pub(crate) mod steady_state;
mod suite;
mod targets;
mod timing;
mod trend;
mod tune;
mod watch;

pub use answer::{answer, so_far};
pub use compared::{SHOWN, compared, gates};
pub(crate) use crash::CRASH_HEAD;
pub use crash::{CRASH_MARK, crash};
pub use doctor::{doctor, rules};
pub use figures::figures;
pub use fleet::fleet;
pub use history::history;
pub use paste::paste;
pub use run::run;
pub use timing::timing;
pub use trend::trend;
pub use tune::tuned;

use iotax_model::record::Measurement;
use iotax_model::{Run, visible};

use crate::sentences;
use iotax_analysis::stats::verdict::Verdict;

/// A document: headings, tables and sentences in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    pub(super) parts: Vec<Part>,
}

/// Puts warnings in front of a page: one if the run is unfinished, and one for each measurement that was not verified completely.
fn behind_incomplete(mut page: Page, run: &Run) -> Page {
    let line = |m: &Measurement| {
        let reason = m.outcome.verify.as_ref()?.incomplete()?;
        let round = if run.plan.repeat > 1 { format!(", round {}", m.round) } else { String::new() };
        Some(Part::Head(format!("INCOMPLETE: {}{round}: {reason}.", m.target)))
    };
    let unfinished = sentences::unfinished(run).map(Part::Head);
    let first: Vec<Part> = unfinished.into_iter().chain(run.measurements.iter().filter_map(line)).collect();
    page.parts.splice(..0, first);
    page
}

/// An element of a page.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// A heading for the parts that follow.
    Head(String),
    /// A paragraph.
    Sentence(String),
    /// A table of figures.
    Table(Grid),
    /// Lines of text, such as conclusions or an explanation of the preceding table.
    Lines(Vec<String>),
    /// Lines of a character plot, which are not wrapped.
    Plot(Vec<String>),
    /// A heading with a list of sentences.
    List(&'static str, Vec<String>),
}

/// A table. Every row has as many fields as the head.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid {
    pub(super) head: Vec<Field>,
    pub(super) rows: Vec<Vec<Field>>,
}

/// A field of a table, in its head or in a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) text: String,
    /// Unit of a column head, which terminals put below the name; `None` in rows, and for heads without a unit.
    pub(super) unit: Option<String>,
    /// A shorter text for narrow terminals; `None` if the full text is always used.
    pub(super) short: Option<String>,
    /// True for figures, which are aligned right; names are aligned left.
    pub(super) is_figure: bool,
    pub(super) verdict: Option<Verdict>,
}

/// Creates a text field.
pub(super) fn words(text: impl Into<String>) -> Field {
    Field { text: text.into(), unit: None, short: None, is_figure: false, verdict: None }
}

/// Creates a numeric field, or the head of a numeric column.
pub(super) fn figure(text: impl Into<String>) -> Field {
    Field { is_figure: true, ..words(text) }
}

/// Creates a text field in the colour of the verdict.
fn verdict(text: impl Into<String>, verdict: Option<Verdict>) -> Field {
    Field { verdict, ..words(text) }
}

impl Grid {
    /// Creates an empty table whose columns hold figures, except the first and the last.
    fn new(head: &[&str]) -> Self {
        let last = head.len().saturating_sub(1);
        let field =
            |(i, name): (usize, &&str)| if i == 0 || i == last { words(*name) } else { figure(*name) };
        Self { head: head.iter().enumerate().map(field).collect(), rows: vec![] }
    }

    /// Returns the table; `None` if it has no rows.
    fn filled(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }
}

impl Field {
    fn visible(&mut self) {
        show(&mut self.text);
        self.short.iter_mut().for_each(show);
    }
}

/// Escapes control and invisible characters of a text in place.
fn show(text: &mut String) {
    if text.contains(visible::is_hidden) {
        *text = visible::line(text).into_owned();
    }
}

impl Page {
    /// Returns a copy of the page with control and invisible characters escaped, because texts may contain names from outside, such as a target's.
    pub(super) fn visible(&self) -> Self {
        let mut page = self.clone();
        for part in &mut page.parts {
            match part {
                Part::Head(text) | Part::Sentence(text) => show(text),
                Part::Lines(lines) | Part::List(_, lines) | Part::Plot(lines) => {
                    lines.iter_mut().for_each(show);
                }
                Part::Table(Grid { head, rows }) => {
                    head.iter_mut().chain(rows.iter_mut().flatten()).for_each(Field::visible);
                }
            }
        }
        page
    }

    fn add(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// Adds lines as a part of the page; does nothing if `lines` is empty.
    fn add_lines(&mut self, lines: Vec<String>) {
        if !lines.is_empty() {
            self.add(Part::Lines(lines));
        }
    }

    /// Adds a heading with a list of sentences; does nothing if `sentences` is empty.
    fn add_list(&mut self, head: &'static str, sentences: Vec<String>) {
        if !sentences.is_empty() {
            self.add(Part::List(head, sentences));
        }
    }
}
