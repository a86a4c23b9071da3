//! What people read, before it is set for a terminal or a ticket: headings, tables and sentences.

mod answer;
pub(super) mod certainty;
mod compared;
pub(crate) mod figures;
mod guests;
mod history;
mod imported;
mod layers;
mod network;
mod run;
mod suite;
mod targets;
mod timing;

pub use answer::{answer, so_far};
pub use compared::{SHOWN, compared, gates};
pub use figures::figures;
pub use history::history;
pub use run::run;
pub use timing::timing;

use iotax_model::visible;

use iotax_analysis::stats::verdict::Verdict;

/// A text of several parts, one after another.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    pub(super) parts: Vec<Part>,
}

/// A part of a page.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// What the next parts are about.
    Head(String),
    /// A sentence or some words by themselves.
    Sentence(String),
    /// Figures.
    Table(Grid),
    /// Lines that belong to the table before them.
    Lines(Vec<String>),
    /// A heading and its sentences.
    List(&'static str, Vec<String>),
}

/// A table. Every row has as many fields as the head.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid {
    pub(super) head: Vec<Field>,
    pub(super) rows: Vec<Vec<Field>>,
}

/// One field of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) text: String,
    /// In a head: the same in several lines, for a terminal. Empty if it is one.
    pub(super) stacked: Vec<String>,
    /// What may stand there instead if the room does not suffice.
    pub(super) short: Option<String>,
    /// Figures stand to the right, names to the left.
    pub(super) is_figure: bool,
    /// What colours it.
    pub(super) verdict: Option<Verdict>,
}

/// A name or words.
fn words(text: impl Into<String>) -> Field {
    Field { text: text.into(), stacked: Vec::new(), short: None, is_figure: false, verdict: None }
}

/// A figure, or the head of a column of them.
fn figure(text: impl Into<String>) -> Field {
    Field { is_figure: true, ..words(text) }
}

/// The word for a verdict, with what else is to be said in its place.
fn verdict(text: impl Into<String>, verdict: Option<Verdict>) -> Field {
    Field { verdict, ..words(text) }
}

impl Grid {
    /// A table whose columns hold figures, but for the first and last.
    fn new(head: &[&str]) -> Self {
        let last = head.len().saturating_sub(1);
        let field =
            |(i, name): (usize, &&str)| if i == 0 || i == last { words(*name) } else { figure(*name) };
        Self { head: head.iter().enumerate().map(field).collect(), rows: vec![] }
    }

    /// Itself; absent if it has no row.
    fn filled(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }
}

impl Field {
    fn visible(&mut self) {
        show(&mut self.text);
        self.stacked.iter_mut().for_each(show);
        self.short.iter_mut().for_each(show);
    }
}

/// Makes what a terminal would obey readable.
fn show(text: &mut String) {
    if text.contains(visible::is_hidden) {
        *text = visible::line(text).into_owned();
    }
}

impl Page {
    /// Itself with nothing in it that a terminal obeys or that cannot be seen. Names and words of others stand in any part.
    pub(super) fn visible(&self) -> Self {
        let mut page = self.clone();
        for part in &mut page.parts {
            match part {
                Part::Head(text) | Part::Sentence(text) => show(text),
                Part::Lines(lines) | Part::List(_, lines) => lines.iter_mut().for_each(show),
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

    /// Unless there are none.
    fn add_lines(&mut self, lines: Vec<String>) {
        if !lines.is_empty() {
            self.add(Part::Lines(lines));
        }
    }

    /// Unless there are no sentences.
    fn add_list(&mut self, head: &'static str, sentences: Vec<String>) {
        if !sentences.is_empty() {
            self.add(Part::List(head, sentences));
        }
    }
}
