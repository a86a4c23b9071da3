//! Calls of sync_file_range(2) after a number of writes, with fio's syntax.

use std::fmt;
use std::str::FromStr;

use super::text::{TextError, text_form};

/// The flags of sync_file_range(2), and the number of writes between two calls. Text form: `write,wait_after:1`.
///
/// The call starts or awaits the writeback of dirty pages. It flushes neither the device's cache nor metadata, and so makes nothing durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncFileRange {
    /// True to wait first for pages that are already being written back.
    pub wait_before: bool,
    /// True to start the writeback of dirty pages.
    pub write: bool,
    /// True to wait until the pages have been written back.
    pub wait_after: bool,
    /// Number of writes between two calls.
    pub writes: u64,
}

/// Names of the flags, in the order in which the kernel acts on them.
const STEPS: [&str; 3] = ["wait_before", "write", "wait_after"];

impl SyncFileRange {
    const fn steps(self) -> [bool; 3] {
        [self.wait_before, self.write, self.wait_after]
    }
}

impl FromStr for SyncFileRange {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let refuse = |reason: String| {
            let accepted =
                "wait_before, write and wait_after, then the number of writes, such as write,wait_after:1";
            TextError::new("a use of sync_file_range", text, reason, accepted)
        };
        let (words, writes) =
            text.split_once(':').ok_or_else(|| refuse("a number of writes is missing".into()))?;
        let writes = writes.trim().parse().ok().filter(|writes| *writes > 0);
        let writes = writes.ok_or_else(|| refuse("it ends in no number of writes".into()))?;
        let mut steps = [false; 3];
        for word in words.split(',').map(str::trim) {
            let at = STEPS.iter().position(|step| *step == word);
            steps[at.ok_or_else(|| refuse(format!("{word:?} is not a step")))?] = true;
        }
        let [wait_before, write, wait_after] = steps;
        Ok(Self { wait_before, write, wait_after, writes })
    }
}

impl fmt::Display for SyncFileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> =
            STEPS.into_iter().zip(self.steps()).filter_map(|(word, is_set)| is_set.then_some(word)).collect();
        write!(f, "{}:{}", words.join(","), self.writes)
    }
}

text_form!(SyncFileRange);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_and_the_writes_are_read_back_or_refused() {
        for text in ["write:1", "wait_before,write,wait_after:8", "wait_after:2"] {
            assert_eq!(text.parse::<SyncFileRange>().expect(text).to_string(), text);
        }
        for (text, reason) in [
            ("write", "a number of writes is missing"),
            ("write:0", "no number of writes"),
            ("write:x", "no number of writes"),
            ("wirte:1", "\"wirte\" is not a step"),
            (":1", "\"\" is not a step"),
        ] {
            let error = text.parse::<SyncFileRange>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains("write,wait_after:1"), "{error}");
        }
    }
}
