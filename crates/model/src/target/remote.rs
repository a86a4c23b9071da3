//! Paths on other machines: `ssh://user@host:port/path`.

use std::path::{Path, PathBuf};

/// A path on another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// A host or alias of the user's ssh configuration, with the user if one is given.
    pub destination: String,
    /// `None` for the port of the user's ssh configuration.
    pub port: Option<u16>,
    /// Absolute path on that machine.
    pub path: PathBuf,
}

const SCHEME: &str = "ssh://";

impl Remote {
    /// Returns whether a path has the form of one on another machine.
    #[must_use]
    pub fn is_meant(path: &Path) -> bool {
        path.to_string_lossy().starts_with(SCHEME)
    }

    /// Parses `ssh://[user@]host[:port]/path`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            |reason: &str| Err(format!("{text:?}: {reason}; accepted: ssh://[user@]host[:port]/path"));
        let Some(rest) = text.strip_prefix(SCHEME) else { return wrong("not ssh://") };
        let Some((authority, path)) = rest.split_once('/') else { return wrong("no path") };
        if path.is_empty() {
            return wrong("no path");
        }
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        // An IPv6 address is in brackets.
        let (host, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, "")) => (address, None),
            Some((address, rest)) => (address, rest.strip_prefix(':')),
            None => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
        };
        let Ok(port) = port.map(str::parse).transpose() else {
            return wrong("the port is no number up to 65535");
        };
        // ssh would take a destination that starts with a dash as an option.
        if host.is_empty() || user == Some("") || authority.starts_with('-') || host.starts_with('-') {
            return wrong("no host");
        }
        let destination = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
        Ok(Self { destination, port, path: Path::new("/").join(path) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_form_is_read_and_others_are_refused() {
        let remote = |destination: &str, port, path: &str| {
            Ok(Remote { destination: destination.into(), port, path: path.into() })
        };
        assert_eq!(Remote::parse("ssh://host/a/b"), remote("host", None, "/a/b"));
        assert_eq!(Remote::parse("ssh://me@host:2222/dev/sdb"), remote("me@host", Some(2222), "/dev/sdb"));
        assert_eq!(Remote::parse("ssh://me@[fe80::1]:22/x"), remote("me@fe80::1", Some(22), "/x"));
        for bad in [
            "ssh://host",
            "ssh://host/",
            "ssh:///x",
            "ssh://@h/x",
            "ssh://-oProxyCommand=x/y",
            "ssh://h:99999/x",
            "/x",
        ] {
            assert!(Remote::parse(bad).expect_err(bad).contains("ssh://[user@]host"), "{bad}");
        }
    }
}
