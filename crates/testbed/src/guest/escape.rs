//! Escaping for QEMU's options.

/// Doubles commas, which would end a value in QEMU's option syntax.
pub(super) fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}
