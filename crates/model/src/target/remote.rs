//! Paths on other machines and in containers: `ssh://user@host:port/path`, `docker://container/path`.

use std::path::{Path, PathBuf};

use super::Machine;

/// An absolute path on another machine or in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The machine or container.
    pub machine: Machine,
    /// Absolute path on that machine or in that container; `/` for a libvirt domain, whose disk gets its path when it is attached.
    pub path: PathBuf,
}

impl Remote {
    /// Returns whether a path has the scheme of another machine or a container, valid or not.
    #[must_use]
    pub fn is_meant(path: &Path) -> bool {
        Machine::is_meant(path)
    }

    /// Parses the URL of a machine or container that ends in a path, or that of a libvirt domain.
    ///
    /// # Errors
    /// The URL is not valid, or lacks its path. The message quotes the URL and names the accepted form.
    pub fn parse(text: &str) -> Result<Self, String> {
        match Machine::split(text)? {
            (machine, Some(path)) => Ok(Self { machine, path }),
            (machine @ Machine::Domain { .. }, None) => Ok(Self { machine, path: "/".into() }),
            (machine, None) => Err(format!("{text:?}: no path; accepted: {}", machine.form())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_needs_a_path() {
        let machine = Machine::Ssh { destination: "host".into(), port: None };
        assert_eq!(Remote::parse("ssh://host/a/b"), Ok(Remote { machine, path: "/a/b".into() }));
        let machine = Machine::Domain { name: "web1".into(), disk: None };
        assert_eq!(Remote::parse("libvirt://web1"), Ok(Remote { machine, path: "/".into() }));
        for (bad, form) in [
            ("ssh://host", "ssh://[user@]host[:port]/path"),
            ("ssh://host/", "ssh://[user@]host[:port]/path"),
            ("docker://web", "docker://[user@]container/path"),
            ("kubectl://default/web-0/", "kubectl://namespace/pod[:container]/path"),
        ] {
            assert_eq!(Remote::parse(bad), Err(format!("{bad:?}: no path; accepted: {form}")));
        }
    }
}
