//! Converts a page of headings, tables and sentences to HTML.

use maud::{Markup, html};

use crate::document::{Field, Grid, Page, Part};

/// Returns the page as the content of a `main` element, with `h2` headings; tables that are too wide scroll horizontally.
#[must_use]
pub fn set(page: &Page) -> Markup {
    let page = page.visible();
    let mut title = "Table";
    let titled = page.parts.iter().map(|part| {
        if let Part::Head(head) = part {
            title = head;
        }
        (title, part)
    });
    html! {
        @for (title, part) in titled {
            @match part {
                Part::Head(head) => h2 { (head) },
                Part::Sentence(sentence) => p { (sentence) },
                Part::Table(grid) => (table(grid, title)),
                Part::Lines(lines) => (list(lines)),
                Part::Plot(lines) => pre { (lines.join("\n")) },
                Part::List(head, sentences) => {
                    section.means { h2 { (head) } (list(sentences)) }
                },
            }
        }
    }
}

fn list(sentences: &[String]) -> Markup {
    html! { ul { @for sentence in sentences { li { (sentence) } } } }
}

fn table(grid: &Grid, title: &str) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label=(title) {
            table {
                thead { tr {
                    @for field in &grid.head {
                        // Not every column has a name.
                        @if field.text.is_empty() { td {} } @else {
                            th class=[(!field.is_figure).then_some("left")] scope="col" {
                                (field.text) @if let Some(unit) = &field.unit { small { " " (unit) } }
                            }
                        }
                    }
                } }
                tbody { @for fields in &grid.rows { tr { @for field in fields { (cell(field)) } } } }
            }
        }
    }
}

fn cell(field: &Field) -> Markup {
    html! {
        td class=[(!field.is_figure).then_some("left")] {
            @match field.verdict {
                Some(verdict) => span class=(verdict.word()) { (field.text) },
                None => (field.text),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{figure, words};

    #[test]
    fn names_are_text_and_figures_stand_right() {
        let grid = Grid {
            head: vec![words("target"), figure("p99")],
            rows: vec![vec![words("<b>\u{202e}"), figure("1.2 ms")]],
        };
        let page = Page { parts: vec![Part::Head("<i>".into()), Part::Table(grid)] };
        let text = set(&page).into_string();
        assert!(text.contains("<h2>&lt;i&gt;</h2>"), "{text}");
        assert!(text.contains(r"&lt;b&gt;\u{202e}</td><td>1.2 ms</td>"), "{text}");
        assert!(text.contains("aria-label=\"&lt;i&gt;\""), "{text}");
    }
}
