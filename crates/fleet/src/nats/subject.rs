//! NATS subjects, and the encoding of names in them.

/// Encodes a name as one token of a subject. Bytes other than letters, digits, `-` and `_` become `=` and two hexadecimal digits, so that a
/// name cannot be a wildcard or several tokens.
pub(super) fn token(name: &str) -> String {
    use std::fmt::Write;

    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            token.push(char::from(byte));
        } else {
            let _ = write!(token, "={byte:02x}");
        }
    }
    token
}

/// Decodes a token from [`token`]; `None` if the text is no such token.
pub(super) fn name(token: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'=' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (self::token(&name) == token && !name.is_empty()).then_some(name)
}

/// Creates and parses the subjects with one prefix.
#[derive(Debug, Clone)]
pub(super) struct Subjects {
    prefix: String,
}

impl Subjects {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(super) fn all(&self) -> String {
        format!("{}.all", self.prefix)
    }

    pub(super) fn answer(&self, member: &str) -> String {
        format!("{}.answer.{}", self.prefix, token(member))
    }

    pub(super) fn answers(&self) -> String {
        format!("{}.answer.*", self.prefix)
    }

    pub(super) fn to(&self, member: &str) -> String {
        format!("{}.to.{}", self.prefix, token(member))
    }

    pub(super) fn from(&self, fleet: &str, member: &str) -> String {
        format!("{}.from.{}.{}", self.prefix, token(fleet), token(member))
    }

    pub(super) fn all_from(&self, fleet: &str) -> String {
        format!("{}.from.{}.*", self.prefix, token(fleet))
    }

    pub(super) fn sample(&self, leaf: &str, fleet: &str, member: &str) -> String {
        format!("{}.sample.{}.{}.{}", self.prefix, token(leaf), token(fleet), token(member))
    }

    pub(super) fn samples(&self, leaf: &str) -> String {
        format!("{}.sample.{}.*.*", self.prefix, token(leaf))
    }

    pub(super) fn merged(&self, fleet: &str, leaf: &str) -> String {
        format!("{}.merged.{}.{}", self.prefix, token(fleet), token(leaf))
    }

    pub(super) fn all_merged(&self, fleet: &str) -> String {
        format!("{}.merged.{}.*", self.prefix, token(fleet))
    }

    /// Returns the kind of a subject and the names in it; `None` if the subject does not have this prefix and form.
    pub(super) fn parse(&self, subject: &str) -> Option<(String, Vec<String>)> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix('.')?;
        let mut parts = rest.split('.');
        let kind = parts.next()?.to_owned();
        Some((kind, parts.map(name).collect::<Option<Vec<_>>>()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_name_is_one_part_and_comes_back(given in ".{1,40}", other in ".{1,40}") {
            let subjects = Subjects::new("iotax");
            let subject = subjects.from(&given, &other);
            prop_assert!(!subject.contains(|c: char| c.is_whitespace() || c == '*' || c == '>'), "{subject}");
            prop_assert_eq!(subject.split('.').count(), 4);
            prop_assert_eq!(subjects.parse(&subject), Some(("from".to_owned(), vec![given, other])));
        }

        #[test]
        fn what_is_no_subject_of_these_does_no_harm(given in ".{0,40}") {
            let _ = Subjects::new("iotax").parse(&format!("iotax.{given}"));
        }
    }

    #[test]
    fn a_name_has_one_token_only() {
        assert_eq!(token("host-1.rack_2"), "host-1=2erack_2");
        assert_eq!(name("host-1=2erack_2").as_deref(), Some("host-1.rack_2"));
        // Other spellings of the same name would let one member speak for another.
        assert_eq!(name("host-1=2Erack_2"), None);
        assert_eq!(name("=61"), None);
        assert_eq!(name("=6"), None);
        assert_eq!(name(""), None);
    }
}
