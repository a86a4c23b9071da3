//! Values in QEMU's options.

/// QEMU's option parser takes a comma for the end of a value unless it is doubled.
pub(super) fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}
