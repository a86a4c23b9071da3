//! Text as a tool wrote it, out of text as it comes: from files, terminals, mails and web pages.
//!
//! Nothing here changes a figure. A line stays the line of its number, so that what is said of a line is found in the file.

/// The text of a file: UTF-8, or UTF-16 where a byte order mark says so. What is no text becomes a replacement character.
#[must_use]
pub fn decode(bytes: &[u8]) -> String {
    let units = |of: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes[2..].chunks_exact(2).map(|pair| of([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xff, 0xfe, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] => units(u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The text without what its way here added.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for line in text.trim_start_matches('\u{feff}').lines() {
        clean.extend(line.chars().filter_map(plain));
        clean.push('\n');
    }
    clean
}

/// A character as a tool would have written it; absent for one that is not seen.
fn plain(c: char) -> Option<char> {
    Some(match c {
        '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{ad}' | '\r' => return None,
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => ' ',
        '\u{2018}' | '\u{2019}' | '\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{ab}' | '\u{bb}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{b5}' | '\u{3bc}' => 'u',
        other => other,
    })
}
