//! Test databases: rows whose content is derived from their number are committed one by one, and checked after a power cut.

pub(crate) mod postgresql;
pub(crate) mod sqlite;

use std::io::{self, BufRead, Write};

use iotax_model::crash::LostBlocks;

/// Line that a client prints before its first commit.
pub(crate) const BEGINS: &str = "begins";
/// Bytes of a row's content.
const CONTENT: usize = 100;

/// The result of a database's check after a power cut.
#[derive(Debug)]
pub(crate) struct DatabaseCheck {
    /// Number of errors that the database's own check found.
    pub(crate) errors: u64,
    /// The comparison of the rows with those whose commit was acknowledged.
    pub(crate) rows: RowCheck,
}

/// Comparison of a database's rows with the acknowledged ones.
#[derive(Debug)]
pub(crate) struct RowCheck {
    acknowledged: u64,
    /// The number that the next row must have, if no row is missing.
    next: u64,
    pub(crate) lost: LostBlocks,
    /// The number of the first acknowledged row that is missing or wrong; `None` if all are intact.
    pub(crate) first_lost: Option<u64>,
}

impl RowCheck {
    /// Starts a check that expects the rows from 1 to `acknowledged`.
    fn new(acknowledged: u64) -> Self {
        let lost = LostBlocks { checked: acknowledged, ..LostBlocks::default() };
        Self { acknowledged, next: 1, lost, first_lost: None }
    }

    /// Checks the next row. Rows must be added by ascending number.
    fn add(&mut self, number: u64, bytes: &[u8]) {
        self.miss(number);
        if bytes != content(number) {
            self.lost.damaged += 1;
            self.first_lost = self.first_lost.or(Some(number));
        }
        self.next = number + 1;
    }

    /// Counts the acknowledged rows missing at the end, and returns the result.
    fn finish(mut self) -> Self {
        self.miss(self.acknowledged + 1);
        self
    }

    /// Counts the rows that are missing before `number` as lost.
    fn miss(&mut self, number: u64) {
        if number > self.next {
            self.lost.stale += number - self.next;
            self.first_lost = self.first_lost.or(Some(self.next));
        }
    }
}

/// Returns the content of a row: its number, repeated.
fn content(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(CONTENT).collect()
}

/// Commits rows from 1 on until killed, and prints each number once its commit is acknowledged.
fn commit_rows(
    said: &mut impl Write,
    mut commit: impl FnMut(u64, Vec<u8>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    writeln!(said, "{BEGINS}")?;
    said.flush()?;
    for number in 1_u64.. {
        commit(number, content(number))?;
        // In one write, so that no part of a number is left by a kill.
        said.write_all(format!("{number}\n").as_bytes())?;
        said.flush()?;
    }
    Ok(())
}

/// Reads a client's output to its end. Returns the number of the last acknowledged row; 0 if there is none.
pub(crate) fn acknowledged(said: &mut impl BufRead) -> io::Result<u64> {
    let (mut last, mut line) = (0, String::new());
    while said.read_line(&mut line)? > 0 {
        if let Some(number) = line.strip_suffix('\n').and_then(|number| number.parse().ok()) {
            last = number;
        }
        line.clear();
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_cut_off_is_not_acknowledged() {
        let last = |text: &str| acknowledged(&mut text.as_bytes()).expect("read");
        assert_eq!([last(""), last("1\n2\n"), last("8\n9\n10")], [0, 2, 9]);
    }
}
