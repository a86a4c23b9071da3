//! The layers beneath a path, read from the system.
