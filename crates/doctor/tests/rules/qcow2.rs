//! Headers of qcow2 images as lines of a tree.

/// The line for `PATH key=value ...`, with the keys `version`, `bits` (of a cluster's size), `size`, `crypt`, `snapshots`, `features`, `base`
/// and `format` (of the base).
pub(crate) fn line(described: &str) -> String {
    let (path, fields) = described.split_once(' ').unwrap_or((described, ""));
    let field = |name: &str| {
        fields.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    let number = |name: &str, default: u64| {
        field(name).map_or(default, |number| number.parse::<u64>().expect("a number"))
    };
    let short = |number: u64| u32::try_from(number).expect("32 bits").to_be_bytes().to_vec();
    let long = |number: u64| number.to_be_bytes().to_vec();
    let (base, format) = (field("base").unwrap_or_default(), field("format").unwrap_or_default());
    // The name of the base follows the extensions, which begin at byte 104.
    let mut extensions = Vec::new();
    if !format.is_empty() {
        extensions.extend([0xe2, 0x79, 0x2a, 0xca]);
        extensions.extend(short(format.len() as u64));
        extensions.extend(format.as_bytes());
        extensions.resize(extensions.len().next_multiple_of(8), 0);
    }
    extensions.extend([0; 8]);
    let name_at = if base.is_empty() { 0 } else { 104 + extensions.len() as u64 };
    let header = [
        b"QFI\xfb".to_vec(),
        short(number("version", 3)),
        long(name_at),
        short(base.len() as u64),
        short(number("bits", 16)),
        long(number("size", 10 << 30)),
        short(number("crypt", 0)),
        vec![0; 4 + 8 + 8 + 4],
        short(number("snapshots", 0)),
        vec![0; 8],
        long(number("features", 0)),
        vec![0; 16],
        short(4),
        short(104),
        extensions,
        base.into_bytes(),
    ];
    let escaped: String =
        header.concat().iter().map(|byte| format!("\\x{byte:02x}")).collect::<Vec<_>>().concat();
    format!("{path} = {escaped}")
}
