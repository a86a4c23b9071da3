//! Detects headers of disk images written directly to a device, which wipefs(8) does not recognise.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// The position of a format's magic number.
#[derive(Debug, Clone, Copy)]
enum MagicOffset {
    Start(u64),
    /// Byte offset of the magic number, counted back from the end of the device.
    End(u64),
}

use MagicOffset::{End, Start};

/// Image formats with the offset and bytes of their magic numbers, from the formats' specifications or QEMU's block drivers.
const MARKS: [(&str, MagicOffset, &[u8]); 16] = [
    // qcow and qcow2 share the magic number; the version follows it.
    ("qcow2", Start(0), b"QFI\xfb"),
    ("QED", Start(0), b"QED\0"),
    ("VMDK", Start(0), b"KDMV"),
    ("VMDK", Start(0), b"COWD"),
    ("VMDK", Start(0), b"# Disk DescriptorFile"),
    ("VMDK", Start(0), b"\xbe\xba\xfe\xca\0\0\0\0"),
    ("VHDX", Start(0), b"vhdxfile"),
    // A fixed VHD has its magic number only at the end; the footer of the oldest ones has 511 bytes.
    ("VHD", Start(0), b"conectix"),
    ("VHD", End(512), b"conectix"),
    ("VHD", End(511), b"conectix"),
    ("VDI", Start(0x40), b"\x7f\x10\xda\xbe"),
    ("Parallels", Start(0), b"WithoutFreeSpace"),
    ("Parallels", Start(0), b"WithouFreSpacExt"),
    ("DMG", End(512), b"koly"),
    ("Bochs", Start(0), b"Bochs Virtual HD Image"),
    ("cloop", Start(0), b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop"),
];

/// Returns the image formats whose magic numbers a device or file contains, with the byte offset of each.
pub(super) fn read(mut device: &File) -> io::Result<Vec<(&'static str, u64)>> {
    let length = device.seek(SeekFrom::End(0))?;
    let mut found = Vec::new();
    for (name, at, mark) in MARKS {
        let offset = match at {
            Start(offset) => offset,
            End(distance) => length.saturating_sub(distance),
        };
        let mut there = vec![0; mark.len()];
        match device.read_exact_at(&mut there, offset) {
            Ok(()) if there == mark => found.push((name, offset)),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
    }
    Ok(found)
}
