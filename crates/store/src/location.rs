//! The location of a store.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// A SQLite file, or a PostgreSQL database shared by a team. Displaying a location leaves out the password.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// Path of a SQLite file.
    File(PathBuf),
    /// URL of a database in libpq's form: `postgres://user@host/database`.
    Postgres(String),
}

impl Location {
    /// Returns the path of the file; `None` for a database.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Postgres(_) => None,
        }
    }

    /// Returns the location as a user writes it, with the password. Pass it only in a process's environment, never on a command line or in
    /// a message.
    #[must_use]
    pub fn with_password(&self) -> OsString {
        match self {
            Self::File(path) => path.as_os_str().to_owned(),
            Self::Postgres(url) => url.into(),
        }
    }
}

impl From<&str> for Location {
    fn from(text: &str) -> Self {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Self::Postgres(text.to_owned())
        } else {
            Self::File(text.into())
        }
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Self {
        path.to_str().map_or_else(|| Self::File(path.to_owned()), Self::from)
    }
}

impl From<&PathBuf> for Location {
    fn from(path: &PathBuf) -> Self {
        path.as_path().into()
    }
}

impl From<&Self> for Location {
    fn from(location: &Self) -> Self {
        location.clone()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

/// Formats the location like [`fmt::Display`], so that debug output does not contain the password either.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

/// Returns the URL without its password, which may be before the host or among the parameters.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let (rest, parameters) = rest.split_once('?').map_or((rest, None), |(rest, all)| (rest, Some(all)));
    // A password may have an unescaped @ or /; the host begins after the last @.
    let rest = match rest.rsplit_once('@') {
        Some((user, host)) => format!("{}@{host}", user.split(':').next().unwrap_or_default()),
        None => rest.to_owned(),
    };
    let kept: Vec<&str> = parameters
        .into_iter()
        .flat_map(|all| all.split('&'))
        .filter(|one| !one.split('=').next().is_some_and(|key| key.to_lowercase().contains("pass")))
        .collect();
    let kept = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    format!("{scheme}://{rest}{kept}")
}
