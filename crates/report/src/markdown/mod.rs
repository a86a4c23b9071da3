//! Formats a page as GitHub-flavoured Markdown, for tickets.

use std::fmt::Write as _;

use super::document::{Field, Grid, Page, Part};

/// Returns the page as Markdown, with headings of the third level, pipe tables, and sentences as lists.
#[must_use]
pub fn set(page: &Page) -> String {
    let page = page.visible();
    let mut text = String::new();
    for part in &page.parts {
        let _ = match part {
            Part::Head(head) => writeln!(text, "### {}", escaped(head)),
            Part::Sentence(sentence) => writeln!(text, "{}", escaped(sentence)),
            Part::Table(grid) => table(&mut text, grid),
            Part::Lines(lines) => list(&mut text, lines),
            Part::Plot(lines) => writeln!(text, "```text\n{}\n```", lines.join("\n")),
            Part::List(head, sentences) => {
                writeln!(text, "### {}\n", escaped(head)).and_then(|()| list(&mut text, sentences))
            }
        };
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn list(text: &mut String, sentences: &[String]) -> std::fmt::Result {
    sentences.iter().try_for_each(|sentence| writeln!(text, "- {}", escaped(sentence)))
}

fn table(text: &mut String, grid: &Grid) -> std::fmt::Result {
    let row = |fields: &[Field]| {
        let said = |field: &Field| match &field.unit {
            Some(unit) => escaped(&format!("{}, {unit}", field.text)),
            None => escaped(&field.text),
        };
        let fields: Vec<String> = fields.iter().map(said).collect();
        format!("| {} |", fields.join(" | "))
    };
    let sides: Vec<&str> =
        grid.head.iter().map(|field| if field.is_figure { "---:" } else { "---" }).collect();
    writeln!(text, "{}\n| {} |", row(&grid.head), sides.join(" | "))?;
    grid.rows.iter().try_for_each(|fields| writeln!(text, "{}", row(fields)))
}

/// Escapes a line so that no character acts as markup, such as a pipe, which would end a table field.
fn escaped(text: &str) -> String {
    let mut line = String::new();
    for c in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        match c {
            '<' => line.push_str("&lt;"),
            '|' | '\\' | '*' | '`' | '~' => line.extend(['\\', c]),
            // Inside a word it is no markup.
            '_' if !line.ends_with(|before: char| before.is_alphanumeric()) => line.push_str("\\_"),
            '[' if line.ends_with('!') => line.push_str("\\["),
            _ => line.push(c),
        }
    }
    line.replace("](", "\\](")
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_that_is_quoted_becomes_markup() {
        for (text, said) in [
            ("program 1 us | device 2 us", "program 1 us \\| device 2 us"),
            ("a <script> b", "a &lt;script> b"),
            ("*x* `y` \\z", "\\*x\\* \\`y\\` \\\\z"),
            ("latency_p99 of _x", "latency_p99 of \\_x"),
            ("+1.2% [0.1, 2.3]", "+1.2% [0.1, 2.3]"),
            ("[x](http://y)", "[x\\](http://y)"),
            ("two\nlines", "two lines"),
        ] {
            assert_eq!(escaped(text), said);
        }
    }
}
