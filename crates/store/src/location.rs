//! Where a store is.

use std::fmt;
use std::path::{Path, PathBuf};

/// A file, or a database that a team shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A SQLite file.
    File(PathBuf),
    /// `postgres://user@host/database`, as libpq's URLs are.
    Postgres(String),
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

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Postgres(url) => f.write_str(url),
        }
    }
}
