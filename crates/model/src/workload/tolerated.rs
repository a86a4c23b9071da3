//! Failed I/Os that are tolerated: they do not count toward `max_errors`.

use std::fmt;
use std::str::FromStr;

use super::text::{TextError, text_form};

/// Failed I/Os of one direction that are tolerated: all, or those with one error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tolerated {
    /// Direction of the I/Os: `read`, `write` or `trim`.
    pub direction: String,
    /// Name or number of the tolerated error, such as `ENOSPC` or `122`; `None` to tolerate every error.
    pub error: Option<String>,
}

impl Tolerated {
    /// Creates an entry that tolerates every error of a direction: `read`, `write` or `trim`.
    #[must_use]
    pub fn all(direction: &str) -> Self {
        Self { direction: direction.to_owned(), error: None }
    }

    /// Creates an entry that tolerates one error of a direction, given by name or number.
    ///
    /// # Errors
    /// The text is neither the name nor the number of an error. The message names the accepted form.
    pub fn one(direction: &str, error: &str) -> Result<Self, String> {
        let is_name =
            error.len() > 1 && error.starts_with('E') && error.bytes().all(|b| b.is_ascii_alphanumeric());
        if is_name || error.parse::<u16>().is_ok_and(|number| number > 0) {
            return Ok(Self { direction: direction.to_owned(), error: Some(error.to_owned()) });
        }
        Err(format!("{error:?} is not an error; accepted: a name or number such as ENOSPC or 28"))
    }
}

/// Failed I/Os that do not count toward `max_errors`. Text form: `read,write:ENOSPC,write:122`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToleratedErrors(pub Vec<Tolerated>);

impl FromStr for ToleratedErrors {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let one = |part: &str| {
            let (direction, error) =
                part.split_once(':').map_or((part, None), |(of, error)| (of, Some(error)));
            if !matches!(direction, "read" | "write" | "trim") {
                return Err(format!("{direction:?} is not a direction"));
            }
            error.map_or_else(|| Ok(Tolerated::all(direction)), |error| Tolerated::one(direction, error))
        };
        text.split(',').map(|part| one(part.trim())).collect::<Result<_, _>>().map(Self).map_err(|reason| {
            TextError::new(
                "a list of errors",
                text,
                reason,
                "directions with errors, such as read,write:ENOSPC",
            )
        })
    }
}

impl fmt::Display for ToleratedErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Tolerated { direction, error }) in self.0.iter().enumerate() {
            write!(f, "{}{direction}", if index > 0 { "," } else { "" })?;
            if let Some(error) = error {
                write!(f, ":{error}")?;
            }
        }
        Ok(())
    }
}

text_form!(ToleratedErrors);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_back_or_are_refused() {
        for text in ["read", "write:ENOSPC", "read:EAGAIN,write:ENOSPC,write:122"] {
            assert_eq!(text.parse::<ToleratedErrors>().expect(text).to_string(), text);
        }
        for (text, reason) in
            [("", "\"\" is not a direction"), ("read:", "\"\" is not an error"), ("read:0", "\"0\"")]
        {
            let error = text.parse::<ToleratedErrors>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains("write:ENOSPC"), "{error}");
        }
    }
}
