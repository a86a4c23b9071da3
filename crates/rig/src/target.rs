//! Builds targets and takes them down.
