//! Formats errors with their causes.

/// Returns an error and its causes, separated by colons. Omits a cause that is empty or that the message before it already ends with.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |joined, cause| match joined.as_str() {
        "" => cause,
        message if message == cause || message.ends_with(&format!(": {cause}")) || cause.is_empty() => joined,
        message => format!("{message}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::with_causes;

    #[test]
    fn a_cause_is_told_once() {
        let cause = || io::Error::other("no space");
        let with = |text: &'static str| with_causes(&anyhow::Error::from(cause()).context(text));
        assert_eq!(with("a.raw: no space"), "a.raw: no space");
        assert_eq!(with("a.raw cannot be written"), "a.raw cannot be written: no space");
        assert_eq!(with("a.raw: no space, really: no space"), "a.raw: no space, really: no space");
        assert_eq!(with("no disk with no space"), "no disk with no space: no space");
        assert_eq!(with_causes(&cause().into()), "no space");
        assert_eq!(with_causes(&anyhow::Error::from(io::Error::other("")).context("a.raw")), "a.raw");
    }
}
