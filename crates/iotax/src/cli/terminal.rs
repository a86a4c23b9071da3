//! Shows pages on the terminal, in its width and colours, or as Markdown.

use iotax_report::document::Page;
use iotax_report::{markdown, terminal};

use super::say::Stream;

/// The layout of pages.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct PageArgs {
    /// Print as Markdown, for tickets
    #[arg(long)]
    markdown: bool,
    /// True for 80 columns without colours, regardless of the terminal.
    #[arg(skip)]
    is_to_paste: bool,
}

/// Width in columns of a block to paste.
const WIDTH: usize = 80;

impl PageArgs {
    /// Returns the layout of a block to paste: 80 columns without colours.
    pub(super) const fn to_paste() -> Self {
        Self { markdown: false, is_to_paste: true }
    }

    /// Shows a page on stdout, or on stderr if stdout carries a document for programs.
    pub(super) fn show(self, page: &Page, on_stderr: bool) {
        let stream = if on_stderr { Stream::Stderr } else { Stream::Stdout };
        if self.markdown {
            stream.text(&markdown::set(page));
        } else if self.is_to_paste {
            stream.page(&terminal::set(page, WIDTH, false));
        } else {
            stream.page(&terminal::set(page, stream.width(), stream.has_colour()));
        }
    }
}
