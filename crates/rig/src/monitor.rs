//! Watches the host while something is measured.
