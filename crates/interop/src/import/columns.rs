//! Parses tables with blank cells: a figure belongs to the column whose head ends at the same position.

/// Maximum number of characters that a figure may end to the right of its column head, pushed there by wider figures.
const ASIDE: usize = 3;

/// Splits a line into words, each with its end position in characters.
pub(super) fn words(line: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(begin) = rest.find(|c: char| !c.is_whitespace()) {
        let (blank, after) = rest.split_at(begin);
        let length = after.find(char::is_whitespace).unwrap_or(after.len());
        let (word, next) = after.split_at(length);
        at += blank.chars().count() + word.chars().count();
        found.push((at, word));
        rest = next;
    }
    found
}

/// Returns whether a line may be the rest of a wrapped row: it holds only figures.
pub(super) fn may_be_rest(line: Option<&str>) -> bool {
    let figure = |word: &str| word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '+'));
    line.is_some_and(|line| !line.trim().is_empty() && line.split_whitespace().all(figure))
}

/// Assigns words to columns: in order if there are as many words as columns, else by their end positions. `None` if a word fits no column, for
/// example because the spacing was lost. A figure may end up to `left` characters to the left of its column head.
pub(super) fn in_columns<'a>(
    words: &[(usize, &'a str)],
    ends: &[usize],
    left: usize,
) -> Option<Vec<Option<&'a str>>> {
    let mut row = vec![None; ends.len()];
    if words.len() == ends.len() {
        return Some(words.iter().map(|(_, word)| Some(*word)).collect());
    }
    for (end, word) in words {
        // The column positions ascend, so the nearest is one of the two around the word.
        let after = ends.partition_point(|at| at < end);
        let (column, aside) = (after.saturating_sub(1)..ends.len().min(after + 1))
            .map(|i| (i, ends[i].abs_diff(*end)))
            .min_by_key(|(_, aside)| *aside)?;
        let allowed = if *end < ends[column] { left } else { ASIDE };
        if aside > allowed || row[column].is_some() {
            return None;
        }
        row[column] = Some(*word);
    }
    Some(row)
}
