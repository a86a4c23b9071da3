//! Pages on the terminal: tables in its width and colours, or Markdown.

use iotax_report::document::Page;
use iotax_report::{markdown, terminal};

use super::say::Stream;

/// How pages are set.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct Form {
    /// Print as Markdown, for tickets
    #[arg(long)]
    markdown: bool,
}

impl Form {
    /// Shows a page on stdout, or on stderr where stdout carries a document for programs.
    pub(super) fn show(self, page: &Page, on_stderr: bool) {
        let stream = if on_stderr { Stream::Stderr } else { Stream::Stdout };
        if self.markdown {
            stream.text(&markdown::set(page));
        } else {
            stream.page(&terminal::set(page, stream.width(), stream.has_colour()));
        }
    }
}
