//! Detects formats of disk images by their first bytes.

/// First bytes of image files, and the format that they identify.
const MARKS: [(&[u8], &str); 6] = [
    (b"QFI\xfb", "qcow2"),
    (b"KDMV", "vmdk"),
    (b"# Disk DescriptorFile", "vmdk"),
    (b"<<< ", "vdi"),
    (b"vhdxfile", "vhdx"),
    (b"conectix", "vpc"),
];

/// Returns the image format that a file's first bytes identify; `None` for others, such as raw images.
pub(super) fn format_of(start: &[u8]) -> Option<&'static str> {
    MARKS.iter().find(|(mark, _)| start.starts_with(mark)).map(|(_, name)| *name)
}
