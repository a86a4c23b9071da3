//! Wraps and truncates text for a terminal.

/// Wraps text to lines of at most `width` characters. Longer words are not broken. Commands to paste stay on one line: a command after a colon at
/// the end of the text, and text in backticks if it fits on a line.
#[must_use]
pub fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut length = 0;
    for word in words(text, width) {
        let letters = word.chars().count();
        match lines.last_mut() {
            Some(line) if length + 1 + letters <= width => {
                line.push(' ');
                line.push_str(&word);
                length += 1 + letters;
            }
            _ => {
                lines.push(word);
                length = letters;
            }
        }
    }
    lines
}

/// Splits a text into the units between which lines may break: words, a command at the end, and text in backticks that fits on a line.
fn words(text: &str, width: usize) -> Vec<String> {
    if let Some(colon) = text.rfind(": iotax ") {
        let (before, command) = text.split_at(colon + 1);
        return words(before, width).into_iter().chain([command.trim().to_owned()]).collect();
    }
    let all: Vec<&str> = text.split_whitespace().collect();
    let mut words = Vec::new();
    let mut at = 0;
    while at < all.len() {
        let more = all[at + 1..].iter().position(|word| is_open(word)).filter(|_| is_open(all[at]));
        let whole = more.map(|more| all[at..=at + 1 + more].join(" "));
        let whole =
            whole.filter(|whole| whole.chars().count() <= width).unwrap_or_else(|| all[at].to_owned());
        at += whole.split(' ').count();
        words.push(whole);
    }
    words
}

/// Returns whether a word has an odd number of backticks, so that text in backticks begins or ends in this word.
fn is_open(word: &str) -> bool {
    word.matches('`').count() % 2 == 1
}

/// Truncates a text to at most `width` characters; `~` replaces the part that was cut off.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_not_within_commands() {
        assert_eq!(lines("one two three", 7), ["one two", "three"]);
        assert_eq!(lines("extraordinarily so", 4), ["extraordinarily", "so"]);
        assert_eq!(lines("run `iotax resume 1`, then look", 20), ["run", "`iotax resume 1`,", "then look"]);
        assert_eq!(lines("`iotax resume 1 --time 20m`", 12), ["`iotax", "resume 1", "--time 20m`"]);
        assert_eq!(lines("a ` alone", 20), ["a ` alone"]);
        assert_eq!(lines("again with: iotax report 1 --html", 12), ["again with:", "iotax report 1 --html"]);
        assert_eq!(lines("", 20), [""; 0]);
    }

    #[test]
    fn what_is_cut_has_a_mark() {
        assert_eq!((cut("abc", 3).as_str(), cut("abcd", 3).as_str()), ("abc", "ab~"));
    }
}
