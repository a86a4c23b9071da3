//! Pages on the terminal: tables in its width and colours, or Markdown.

use std::io::{self, IsTerminal};

use iotax_results::report::page::Page;
use iotax_results::report::{markdown, terminal};

use super::say::{print_line, say};

/// Columns when there is no terminal to ask.
const DEFAULT_WIDTH: usize = 80;

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
        let text = self.set(page, on_stderr);
        if on_stderr {
            say!("{}", text.trim_end());
        } else {
            print_line!("{}", text.trim_end());
        }
    }

    fn set(self, page: &Page, on_stderr: bool) -> String {
        if self.markdown {
            return markdown::set(page);
        }
        let is_terminal = if on_stderr { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let colour = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let width = if is_terminal && columns > 0 { columns } else { DEFAULT_WIDTH };
        terminal::set(page, width, colour)
    }
}
