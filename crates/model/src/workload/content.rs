//! The content of written data: compressibility, duplicates, patterns and verification stamps.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::text::text_form;
use super::{DEFAULT_SIZE, Workload, WorkloadError};
use crate::units::Bytes;
use crate::words::words;

/// Maximum length of a buffer pattern in bytes, as in fio.
const LONGEST: usize = 512;

/// Properties of written data: compressibility, duplicates and verification stamps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// Percentage of each chunk that is compressible filler, at the chunk's end; the rest is incompressible.
    pub filler_percentage: u8,
    /// Length in bytes of a chunk, which is the unit of compressibility; a multiple of 512.
    pub chunk: Bytes,
    /// Pattern that the filler repeats; `None` for zeros.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub filler: Option<BufferPattern>,
    /// Percentage of writes that repeat the content of an earlier write.
    pub dedupe_percentage: u8,
    /// Fixed set of contents for duplicates; `None` if a duplicate may repeat any earlier write.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub working_set: Option<WorkingSet>,
    /// Kind of verification stamp in each sector.
    pub verify: Verify,
}

/// A fixed set of contents that duplicates are chosen from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkingSet {
    /// Number of different contents, at least 1.
    pub contents: u64,
    /// True if all jobs choose from the same set.
    pub is_shared: bool,
}

words! {
    /// The content that a duplicate repeats, under fio's names.
    DedupeMode, "dedupe_mode" {
        /// The content of any earlier write of the job.
        Repeat = "repeat",
        /// A content from a fixed set.
        WorkingSet = "working_set",
    }
}

/// The default content: incompressible, without duplicates, filler or stamps.
impl Default for Content {
    fn default() -> Self {
        Self {
            filler_percentage: 0,
            chunk: Bytes(512),
            filler: None,
            dedupe_percentage: 0,
            working_set: None,
            verify: Verify::None,
        }
    }
}

impl Workload {
    /// Returns the content that the workload writes, according to its keys.
    #[must_use]
    pub fn content(&self) -> Content {
        // As in fio, a pattern without a percentage fills everything.
        let is_constant =
            self.zero_buffers || (self.buffer_pattern.is_some() && self.buffer_compress_percentage == 0);
        Content {
            filler_percentage: if is_constant { 100 } else { self.buffer_compress_percentage },
            chunk: self.buffer_compress_chunk,
            filler: self.buffer_pattern.clone(),
            dedupe_percentage: self.dedupe_percentage,
            working_set: self.working_set(),
            verify: self.verify,
        }
    }

    /// Returns the fixed set of contents for duplicates: as in fio, a percentage of the number of blocks in the area, 5% by default. `None`
    /// unless the workload writes duplicates from a fixed set.
    fn working_set(&self) -> Option<WorkingSet> {
        if self.dedupe_mode != DedupeMode::WorkingSet || self.dedupe_percentage == 0 {
            return None;
        }
        let blocks = self.size.unwrap_or(DEFAULT_SIZE).0 / self.min_bs().0.max(1);
        let percent = u64::from(self.dedupe_working_set_percentage.unwrap_or(5));
        let contents = (blocks / 100 * percent + blocks % 100 * percent / 100).max(1);
        Some(WorkingSet { contents, is_shared: self.dedupe_global })
    }

    /// Rejects keys about content that contradict each other or are out of range.
    pub(super) fn check_content(&self) -> Result<(), WorkloadError> {
        let refuse = |key, value: &dyn fmt::Display, accepted: &str| Err(self.refusal(key, value, accepted));
        let chunk = self.buffer_compress_chunk;
        if chunk.0 == 0 || chunk.0 > 1 << 20 || !chunk.0.is_multiple_of(512) {
            return refuse("buffer_compress_chunk", &chunk, "accepted: a multiple of 512 up to 1m");
        }
        if let (true, Some(pattern)) = (self.zero_buffers, &self.buffer_pattern) {
            return refuse("buffer_pattern", pattern, "zero_buffers is given too; use one of them");
        }
        if self.zero_buffers && self.buffer_compress_percentage > 0 {
            let accepted = "zero_buffers leaves nothing that cannot be compressed; use one of them";
            return refuse("buffer_compress_percentage", &self.buffer_compress_percentage, accepted);
        }
        if self.dedupe_percentage > 0 && self.content().filler_percentage == 100 {
            let accepted = "every write is the same already; leave it out, or have a share of it random";
            return refuse("dedupe_percentage", &self.dedupe_percentage, accepted);
        }
        self.check_verify()
    }

    fn check_verify(&self) -> Result<(), WorkloadError> {
        let refuse = |key, value: &dyn fmt::Display, accepted: &str| Err(self.refusal(key, value, accepted));
        let verifies = self.verify != Verify::None;
        if verifies && self.dedupe_percentage > 0 {
            let accepted = "the stamps of verify make every block unique; use one of them";
            return refuse("dedupe_percentage", &self.dedupe_percentage, accepted);
        }
        if let (true, Some(align)) = (verifies, self.blockalign) {
            return refuse("blockalign", &align, "verified blocks must not overlap; leave it out");
        }
        if verifies && !self.ioengine.moves_data() {
            let accepted = format!("ioengine = {} stores nothing that could be checked", self.ioengine);
            return refuse("verify", &self.verify, &accepted);
        }
        if verifies && self.rw.trims() {
            return refuse("verify", &self.verify, &format!("rw = {} neither reads nor writes", self.rw));
        }
        match &self.write_journal {
            Some(path) if !verifies => {
                let accepted = "written blocks must be recognizable; add verify = xxh3 or crc32c";
                refuse("write_journal", path, accepted)
            }
            Some(path) if !self.rw.writes() => {
                refuse("write_journal", path, &format!("rw = {} writes nothing", self.rw))
            }
            _ => Ok(()),
        }
    }
}

words! {
    /// The checksum in the stamps that make written blocks verifiable.
    Verify, "verify" {
        /// No stamps.
        None = "none",
        /// CRC-32C (Castagnoli).
        Crc32c = "crc32c",
        /// XXH3, 64 bits.
        Xxh3 = "xxh3",
    }
}

/// A repeated pattern of 1 to 512 bytes. Text form as in fio: `"abc"` in quotes, `0xdeadbeef` (bytes in written order), or a decimal number
/// of 32 bits (its bytes from the lowest to the highest that is not zero).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferPattern(Vec<u8>);

/// A text that cannot be parsed as a buffer pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a pattern; accepted: a text in double quotes such as \"abc\", bytes in hex such as 0xdeadbeef (of either up \
     to {LONGEST} bytes), or a decimal number from -2147483648 to 2147483647"
)]
pub struct PatternError(String);

impl BufferPattern {
    /// Returns the bytes of the pattern.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for BufferPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let quoted = || text.strip_prefix('"')?.strip_suffix('"').filter(|inner| !inner.contains('"'));
        let bytes = if let Some(inner) = quoted() {
            Some(inner.as_bytes().to_vec())
        } else if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            hex(digits)
        } else {
            text.parse().ok().map(decimal)
        };
        bytes
            .filter(|bytes| (1..=LONGEST).contains(&bytes.len()))
            .map(Self)
            .ok_or_else(|| PatternError(text.to_owned()))
    }
}

/// Parses hex digits, two per byte. With an odd number of digits, the first digit alone is the first byte. `None` if a character is no hex
/// digit.
fn hex(digits: &str) -> Option<Vec<u8>> {
    let values: Option<Vec<u8>> =
        digits.chars().map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok())).collect();
    Some(values?.rchunks(2).rev().map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

fn decimal(number: i32) -> Vec<u8> {
    let bytes = number.to_le_bytes();
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    bytes[..length].to_vec()
}

/// Prints as text in quotes if the pattern is printable, otherwise as hex.
impl fmt::Display for BufferPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(|c| c.is_control() || c == '"') => write!(f, "\"{text}\""),
            _ => {
                f.write_str("0x")?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

text_form!(BufferPattern);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadKeys;
    use proptest::prelude::*;

    #[test]
    fn patterns_read_as_fio_reads_them() {
        for (text, bytes) in [
            ("\"abcd\"", &b"abcd"[..]),
            ("\"0x12\"", b"0x12"),
            ("0xdeadBEEF", b"\xde\xad\xbe\xef"),
            ("0Xabc", b"\x0a\xbc"),
            ("0x00", b"\0"),
            ("-1024", b"\x00\xfc\xff\xff"),
            ("66", b"\x42"),
            ("256", b"\0\x01"),
            ("0", b"\0"),
        ] {
            assert_eq!(text.parse::<BufferPattern>().expect(text).bytes(), bytes, "{text}");
        }
        let long = format!("0x{}", "00".repeat(513));
        for text in [
            "",
            "abc",
            "\"",
            "\"\"",
            "\"a\"b\"",
            "\"abc",
            "'file'",
            "%o",
            "0x",
            "0xgg",
            "4294967296",
            "1.5",
            &long,
        ] {
            let error = text.parse::<BufferPattern>().expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("0xdeadbeef"), "{error}");
        }
    }

    fn workload(keys: &[(&str, &str)]) -> Workload {
        let mut own = WorkloadKeys::default();
        keys.iter().for_each(|(key, text)| own.set(key, text).expect(text));
        own.complete(&WorkloadKeys::default())
    }

    #[test]
    fn keys_say_what_is_written() {
        let plain = Content::default();
        let abc = Some("\"abc\"".parse().expect("a pattern"));
        for (keys, content) in [
            (&[][..], plain.clone()),
            (&[("zero_buffers", "1")], Content { filler_percentage: 100, ..plain.clone() }),
            (
                &[("buffer_pattern", "\"abc\"")],
                Content { filler_percentage: 100, filler: abc.clone(), ..plain.clone() },
            ),
            (
                &[("buffer_pattern", "\"abc\""), ("buffer_compress_percentage", "30")],
                Content { filler_percentage: 30, filler: abc, ..plain.clone() },
            ),
            (
                &[("dedupe_percentage", "20"), ("buffer_compress_chunk", "4k")],
                Content { dedupe_percentage: 20, chunk: Bytes(4096), ..plain },
            ),
        ] {
            let workload = workload(keys);
            assert_eq!((workload.check(), workload.content()), (Ok(()), content), "{keys:?}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (keys, refusal) in [
            (
                &[("buffer_compress_percentage", "101")][..],
                "buffer_compress_percentage = 101: accepted: 0 to 100",
            ),
            (&[("dedupe_percentage", "200")], "dedupe_percentage = 200: accepted"),
            (&[("buffer_compress_chunk", "100")], "buffer_compress_chunk = 100: accepted: a multiple of 512"),
            (&[("buffer_compress_chunk", "2m")], "buffer_compress_chunk = 2m: accepted"),
            (&[("zero_buffers", "1"), ("buffer_pattern", "0x1")], "zero_buffers is given too"),
            (&[("zero_buffers", "1"), ("buffer_compress_percentage", "5")], "buffer_compress_percentage = 5"),
            (&[("zero_buffers", "1"), ("dedupe_percentage", "5")], "every write is the same already"),
            (&[("verify", "crc32c"), ("dedupe_percentage", "5")], "make every block unique"),
            (
                &[("verify", "xxh3"), ("rw", "randtrim")],
                "verify = xxh3: rw = randtrim neither reads nor writes",
            ),
            (&[("verify", "xxh3"), ("ioengine", "null")], "verify = xxh3: ioengine = null stores nothing"),
            (
                &[("rw", "write"), ("write_journal", "j")],
                "write_journal = j: written blocks must be recognizable",
            ),
            (
                &[("verify", "xxh3"), ("write_journal", "j")],
                "write_journal = j: rw = randread writes nothing",
            ),
        ] {
            let error = workload(keys).check().expect_err(refusal).to_string();
            assert!(error.contains(refusal), "{error}");
        }
    }

    proptest! {
        #[test]
        fn text_forms_read_back(bytes in prop::collection::vec(any::<u8>(), 1..=LONGEST)) {
            let pattern = BufferPattern(bytes);
            prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }

        #[test]
        fn texts_read_back(text in "[ -~]{1,20}") {
            let pattern = BufferPattern(text.into_bytes());
            prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
    }
}
