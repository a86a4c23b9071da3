//! Enums whose values are words on the command line, in plan files and in JSON.

/// A word that is not among the accepted ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} is not a known {what}; accepted: {accepted}{}", nearest.as_ref().map(|n| format!(" (did you mean {n:?}?)")).unwrap_or_default())]
pub struct WordError {
    what: &'static str,
    input: String,
    accepted: String,
    nearest: Option<String>,
}

impl WordError {
    /// Creates an error that quotes the input, lists the accepted words and suggests the closest one.
    #[must_use]
    pub fn new(what: &'static str, input: &str, accepted: &[&str]) -> Self {
        Self {
            what,
            input: input.to_owned(),
            accepted: accepted.join(", "),
            nearest: nearest(input, accepted.iter().copied()).map(str::to_owned),
        }
    }
}

/// Maximum length in bytes of an input for which a similar word is suggested.
const LONGEST_INPUT: usize = 100;

/// Returns the accepted word that is most similar to `input`; `None` if no word is similar enough to be suggested.
pub fn nearest<'a>(input: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer inputs are not typing errors, and the comparison takes time proportional to the product of both lengths.
    let input = (input.len() <= LONGEST_INPUT).then(|| input.to_lowercase())?;
    words
        .into_iter()
        .map(|word| (strsim::jaro_winkler(&input, word), word))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

/// Declares an enum whose variants are words on the command line and in plan files. A word may have aliases.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $word:literal $(| $alias:literal)*),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// The words of all variants, without aliases.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// Returns the word for this value, not an alias.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::WordError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text { $($word $(| $alias)* => Ok(Self::$variant),)+ _ => Err($crate::words::WordError::new($what, text, Self::WORDS)) }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($word $(, $alias)*),+] })
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use words;
