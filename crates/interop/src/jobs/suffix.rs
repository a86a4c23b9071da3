//! Size suffixes as fio defines them.

/// Returns the factor of a size suffix; `None` for an unknown one. As in fio, `k` is `kb_base`; `kib` is 1024 if `kb_base` is 1000, and 1000
/// if it is 1024.
pub(super) fn suffix(letters: &str, kb_base: u64) -> Option<u64> {
    let lower = letters.to_ascii_lowercase();
    if matches!(lower.as_str(), "" | "b") {
        return Some(1);
    }
    let power = "kmgtp".find(lower.chars().next()?)?;
    let base = match &lower[1..] {
        "" | "b" | "i" => kb_base,
        "ib" if kb_base == 1000 => 1024,
        "ib" => 1000,
        _ => return None,
    };
    Some((0..=power).fold(1, |unit, _| unit * base))
}
