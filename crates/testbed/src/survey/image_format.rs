//! Formats of disk images by their first bytes.

/// The first bytes of image formats.
const MARKS: [(&[u8], &str); 6] = [
    (b"QFI\xfb", "qcow2"),
    (b"KDMV", "vmdk"),
    (b"# Disk DescriptorFile", "vmdk"),
    (b"<<< ", "vdi"),
    (b"vhdxfile", "vhdx"),
    (b"conectix", "vpc"),
];

/// The format by a file's first bytes.
pub(super) fn format_of(start: &[u8]) -> Option<&'static str> {
    MARKS.iter().find(|(mark, _)| start.starts_with(mark)).map(|(_, name)| *name)
}
