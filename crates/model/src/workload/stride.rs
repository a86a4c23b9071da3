//! The distance between the starts of sequential I/Os.

use std::fmt;
use std::str::FromStr;

use super::text::{TextError, text_form};
use crate::units::Bytes;

/// Bytes from the start of one sequential I/O to the start of the next, a multiple of 512. Text form: `64k`; `-4k` goes backwards, and `0` accesses
/// the same offset again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride(pub i64);

impl FromStr for Stride {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let trimmed = text.trim();
        let (sign, size) = trimmed.strip_prefix('-').map_or((1, trimmed), |size| (-1, size));
        let read = match size.parse::<Bytes>() {
            Ok(bytes) if bytes.0.is_multiple_of(512) => {
                i64::try_from(bytes.0).map(|bytes| Self(sign * bytes)).map_err(|_| "it is too long".into())
            }
            Ok(bytes) => Err(format!("{} is not a multiple of 512", bytes.0)),
            Err(_) => Err(format!("{size:?} is not a size")),
        };
        let accepted = "a size such as 64k, -4k (backwards) or 0 (the same place again), a multiple of 512";
        read.map_err(|reason| TextError::new("a stride", text, reason, accepted))
    }
}

impl fmt::Display for Stride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.0 < 0 { "-" } else { "" }, Bytes(self.0.unsigned_abs()))
    }
}

text_form!(Stride);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strides_go_both_ways() {
        for (text, bytes) in [("64k", 65536), ("-4k", -4096), ("0", 0), ("-0", 0), (" -1m ", -(1 << 20))] {
            assert_eq!(text.parse(), Ok(Stride(bytes)), "{text}");
        }
        for (text, reason) in [
            ("", "\"\" is not a size"),
            ("--4k", "\"-4k\" is not a size"),
            ("100", "100 is not a multiple of 512"),
        ] {
            let error = text.parse::<Stride>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains("such as 64k"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn strides_read_back(sectors in -(1_i64 << 40)..1 << 40) {
            let stride = Stride(sectors * 512);
            prop_assert_eq!(stride.to_string().parse(), Ok(stride));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "-?[0-9.]{0,20}[kmgtpKiB]{0,3}|.{0,12}") {
            if let Ok(stride) = text.parse::<Stride>() {
                prop_assert_eq!(stride.to_string().parse(), Ok(stride));
            }
        }
    }
}
