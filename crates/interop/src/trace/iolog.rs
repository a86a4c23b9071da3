//! Reads fio's iolog, versions 2 and 3.
//!
//! Version 2 has lines `FILE ACTION [OFFSET LENGTH]` with waits between them. Version 3 starts each line with a time in microseconds.

use std::collections::HashMap;
use std::io::Read;

use iotax_model::trace::{TracedIo, TracedOperation};

use super::fields::{times, whole};
use super::lines::{Lines, quoted};

/// Text at the start of the first line, before the version.
pub(super) const MARK: &str = "fio version ";
/// Maximum number of distinct files in a trace.
const MOST_FILES: usize = 1 << 16;

/// State of the reader between lines.
struct Iolog {
    lines: Lines,
    /// True for version 3, whose lines start with a time; `None` before the first line.
    has_times: Option<bool>,
    now_ns: u64,
    files: HashMap<String, u32>,
    is_over: bool,
}

pub(super) fn events(
    source: Box<dyn Read + Send>,
) -> impl Iterator<Item = Result<TracedIo, String>> + Send + use<> {
    let mut log = Iolog {
        lines: Lines::new(source),
        has_times: None,
        now_ns: 0,
        files: HashMap::new(),
        is_over: false,
    };
    std::iter::from_fn(move || log.next())
}

impl Iolog {
    fn next(&mut self) -> Option<Result<TracedIo, String>> {
        while !self.is_over {
            let line = match self.lines.next()? {
                Ok(line) => line.to_owned(),
                Err(reason) => return Some(self.end(reason)),
            };
            let found = match self.has_times {
                None => version(&line).map(|has_times| {
                    self.has_times = Some(has_times);
                    None
                }),
                Some(has_times) => self.line(&line, has_times),
            };
            match found {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) => {}
                Err(reason) => return Some(self.end(self.lines.at(&reason))),
            }
        }
        None
    }

    fn end(&mut self, reason: String) -> Result<TracedIo, String> {
        self.is_over = true;
        Err(reason)
    }

    /// Parses a line; `None` if it describes no I/O, such as a wait or the opening of a file.
    fn line(&mut self, line: &str, has_times: bool) -> Result<Option<TracedIo>, String> {
        let mut rest = line;
        if has_times {
            let (time, others) = rest.split_once(' ').unwrap_or((rest, ""));
            let at_ns = times("the time", whole("the time", Some(time))?, 1000)?;
            if at_ns < self.now_ns {
                return Err(format!(
                    "its time, {time} us, is before that of the line above; sort the trace by time"
                ));
            }
            (self.now_ns, rest) = (at_ns, others.trim_start());
        }
        // A file name may contain blanks; the fields after it do not.
        let words: Vec<&str> = rest.split_whitespace().collect();
        let behind = words.iter().rev().take_while(|word| word.parse::<u64>().is_ok()).count().min(2);
        let Some(action) = words.len().checked_sub(behind + 1).filter(|index| *index > 0) else {
            return Err(refused(line));
        };
        let (name, action, numbers) = (words[..action].join(" "), words[action], &words[action + 1..]);
        let number = |index: usize, what| whole(what, numbers.get(index).copied());
        let operation = match action {
            "add" | "open" | "close" => return Ok(None),
            "wait" if has_times => {
                return Err("wait belongs to version 2; version 3 has a time in each line".into());
            }
            "wait" => {
                let waited = times("the wait", number(0, "the wait")?, 1000)?;
                self.now_ns = self.now_ns.checked_add(waited).ok_or("the waits are longer than 584 years")?;
                return Ok(None);
            }
            "read" => TracedOperation::Read,
            "write" => TracedOperation::Write,
            "trim" => TracedOperation::Trim,
            "sync" | "datasync" => TracedOperation::Flush,
            other => {
                let accepted = "accepted: add, open, close, read, write, trim, sync, datasync, wait";
                return Err(format!("{} is not an action; {accepted}", quoted(other)));
            }
        };
        let is_flush = operation == TracedOperation::Flush;
        let (offset, length) =
            if is_flush { (0, 0) } else { (number(0, "the offset")?, number(1, "the length")?) };
        let queue = self.file(name)?;
        Ok(Some(TracedIo {
            at_ns: self.now_ns,
            latency_ns: None,
            operation,
            offset,
            length,
            fua: false,
            process: None,
            queue: Some(queue),
        }))
    }

    /// Returns the number of a file; numbers are assigned in order of first appearance.
    fn file(&mut self, name: String) -> Result<u32, String> {
        let next = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        if let Some(number) = self.files.get(&name) {
            return Ok(*number);
        }
        if self.files.len() >= MOST_FILES {
            return Err(format!("it names more than {MOST_FILES} files"));
        }
        self.files.insert(name, next);
        Ok(next)
    }
}

/// Parses the version line. Returns true for version 3, whose lines start with a time.
fn version(line: &str) -> Result<bool, String> {
    match line.strip_prefix(MARK) {
        Some("2 iolog") => Ok(false),
        Some("3 iolog") => Ok(true),
        _ => Err(format!("it begins with {}; accepted: fio version 2 iolog, or 3", quoted(line))),
    }
}

fn refused(line: &str) -> String {
    format!(
        "{} is not understood; accepted: FILE ACTION [OFFSET LENGTH], after a time in version 3",
        quoted(line)
    )
}
