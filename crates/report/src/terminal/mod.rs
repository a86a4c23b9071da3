//! Lays out a page as text for a terminal.

mod table;

use std::fmt::{self, Write as _};
use std::ops::Deref;

use iotax_model::wrap;

use super::document::{Page, Part};

/// Minimum width in columns at which sentences are wrapped; a narrower terminal gets lines of this width.
const NARROWEST: usize = 40;

/// Text for a terminal. It contains no escape sequences except the colours that iotax added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Styled(String);

impl Deref for Styled {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Styled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Lays out a page for `width` columns. Sentences wrap between words; tables are made narrower, and their last columns continue below. Only long
/// names and figures may exceed the width. `colour` uses ANSI colours.
#[must_use]
pub fn set(page: &Page, width: usize, colour: bool) -> Styled {
    let page = page.visible();
    let width = width.max(NARROWEST);
    let mut text = String::new();
    for part in &page.parts {
        match part {
            Part::Head(head) => {
                wrap::lines(head, width).iter().for_each(|line| add(&mut text, "", line));
                continue;
            }
            Part::Sentence(sentence) => {
                wrap::lines(sentence, width).iter().for_each(|line| add(&mut text, "", line));
            }
            Part::Table(grid) => table::add(&mut text, grid, width, colour),
            Part::Lines(lines) => lines.iter().for_each(|line| hanging(&mut text, line, "  ", width)),
            Part::Plot(lines) => lines.iter().for_each(|line| add(&mut text, "  ", line)),
            Part::List(head, sentences) => {
                add(&mut text, "", head);
                sentences.iter().for_each(|sentence| hanging(&mut text, sentence, "  - ", width));
            }
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    Styled(text)
}

fn add(text: &mut String, before: &str, line: &str) {
    let _ = writeln!(text, "{before}{line}");
}

/// Adds a wrapped sentence with `first` in front; later lines are indented by four blanks.
fn hanging(text: &mut String, sentence: &str, first: &str, width: usize) {
    for (i, line) in wrap::lines(sentence, width - 4).iter().enumerate() {
        add(text, if i == 0 { first } else { "    " }, line);
    }
}
