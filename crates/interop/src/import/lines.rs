//! Splits a text into lines, and drops overlong ones.

/// Maximum length in bytes of a line that any tool prints.
const LONGEST: usize = 8 << 10;

/// Returns the lines of a text; lines longer than [`LONGEST`] are returned as empty.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> + Clone {
    text.lines().map(short)
}

fn short(line: &str) -> &str {
    if line.len() > LONGEST { "" } else { line }
}

/// The lines of a text like [`lines`], with random access. Takes four bytes per line.
#[derive(Debug)]
pub(super) struct Lines<'t> {
    text: &'t str,
    /// Byte position of each line's start.
    begins: Vec<u32>,
}

impl<'t> Lines<'t> {
    /// Indexes the lines of a text; those beyond 4 GiB are left out.
    pub(super) fn of(text: &'t str) -> Self {
        let after = text.match_indices('\n').map(|(end, _)| end + 1).filter(|begin| *begin < text.len());
        let first = (!text.is_empty()).then_some(0);
        Self {
            text,
            begins: first.into_iter().chain(after).map_while(|begin| u32::try_from(begin).ok()).collect(),
        }
    }

    /// Returns the line with this index, from 0; `None` past the end.
    pub(super) fn get(&self, number: usize) -> Option<&'t str> {
        let begin = *self.begins.get(number)? as usize;
        let end = self.begins.get(number + 1).map_or(self.text.len(), |next| *next as usize);
        self.text[begin..end].lines().next().map(short)
    }

    /// Returns the number, from 1, of the line that contains a byte of the text.
    pub(super) fn number_at(&self, byte: usize) -> usize {
        self.begins.partition_point(|begin| *begin as usize <= byte)
    }

    /// Returns the lines from this index on.
    pub(super) fn from(&self, number: usize) -> impl Iterator<Item = &'t str> + Clone {
        (number..self.begins.len()).filter_map(|number| self.get(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_text_and_long_ones_empty() {
        let long = "x".repeat(LONGEST + 1);
        for text in ["", "\n", "a", "a\n", "a\n\nb\r\nc", &format!("a\n{long}\nb")] {
            let all: Vec<&str> = lines(text).collect();
            assert_eq!(Lines::of(text).from(0).collect::<Vec<_>>(), all, "{text}");
            let known: Vec<&str> = text.lines().filter(|line| line.len() <= LONGEST).collect();
            assert_eq!(
                all.iter().filter(|line| !line.is_empty() || !text.contains(&long)).count(),
                known.len()
            );
            assert_eq!(Lines::of(text).get(all.len()), None);
            assert!(
                (0..text.len())
                    .all(|at| Lines::of(text).number_at(at) == text[..at].matches('\n').count() + 1)
            );
        }
    }
}
