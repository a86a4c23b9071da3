//! Headers of disk images that were written to a device as they are: wipefs(8) does not know them.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Where a format has its mark, in bytes.
#[derive(Debug, Clone, Copy)]
enum Place {
    Start(u64),
    /// So many bytes before the end.
    End(u64),
}

use Place::{End, Start};

/// From the formats' specifications, and QEMU's block drivers where there is none.
const MARKS: [(&str, Place, &[u8]); 16] = [
    // The same mark for qcow and qcow2; versions follow it.
    ("qcow2", Start(0), b"QFI\xfb"),
    ("QED", Start(0), b"QED\0"),
    ("VMDK", Start(0), b"KDMV"),
    ("VMDK", Start(0), b"COWD"),
    ("VMDK", Start(0), b"# Disk DescriptorFile"),
    ("VMDK", Start(0), b"\xbe\xba\xfe\xca\0\0\0\0"),
    ("VHDX", Start(0), b"vhdxfile"),
    // A fixed one has its only mark at the end; the oldest end with 511 bytes.
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

/// The formats whose marks an open device or file has, and where in bytes. Only reads.
pub(super) fn read(mut device: &File) -> io::Result<Vec<(&'static str, u64)>> {
    let length = device.seek(SeekFrom::End(0))?;
    let mut found = Vec::new();
    for (name, place, mark) in MARKS {
        let offset = match place {
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
