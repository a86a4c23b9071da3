//! Words to people and documents to programs. A reader that went away is no reason to stop measuring or undoing, so
//! errors of writing are passed over.

/// A line on stderr.
macro_rules! say {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($argument)*);
    }};
}

/// A line on stdout.
macro_rules! print_line {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($argument)*);
    }};
}

/// A text on stdout, as it is.
pub(crate) fn print_text(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

pub(crate) use {print_line, say};
