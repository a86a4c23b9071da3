//! Reads a text line by line in bounded memory.

use std::io::{BufRead, BufReader, Read};

/// Maximum length of a line in bytes.
const LONGEST: u64 = 64 << 10;

/// A line reader that counts the lines.
pub(super) struct Lines {
    source: BufReader<Box<dyn Read + Send>>,
    number: u64,
    line: String,
    bytes: Vec<u8>,
}

impl Lines {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        Self {
            source: BufReader::with_capacity(1 << 18, source),
            number: 0,
            line: String::new(),
            bytes: Vec::new(),
        }
    }

    /// Returns the next non-empty line, trimmed; `None` at the end. An error if the source cannot be read, or if the line is
    /// longer than 64 KiB.
    pub(super) fn next(&mut self) -> Option<Result<&str, String>> {
        loop {
            self.bytes.clear();
            let read = self.source.by_ref().take(LONGEST + 1).read_until(b'\n', &mut self.bytes);
            self.number += 1;
            match read {
                Ok(0) => return None,
                Ok(length) if length as u64 > LONGEST => {
                    return Some(Err(
                        self.at(&format!("it is longer than {LONGEST} bytes; is this a trace?"))
                    ));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(self.at(&error.to_string()))),
            }
            self.line.clear();
            self.line.push_str(String::from_utf8_lossy(&self.bytes).trim());
            if !self.line.is_empty() {
                break;
            }
        }
        Some(Ok(&self.line))
    }

    /// Prefixes the reason for an error with the number of the last line read.
    pub(super) fn at(&self, reason: &str) -> String {
        format!("line {}: {reason}", self.number)
    }
}

/// Quotes a text for an error message, cut to 80 characters.
pub(super) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    format!("{short:?}")
}
