//! Escapes values for QEMU's option syntax.

/// Doubles each comma, because a single comma ends a value in QEMU's option syntax.
pub(super) fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}
