//! Unpacks a guest kernel on the host, because an emulated CPU needs half a second for it at each boot.
//!
//! A bzImage holds the kernel as a compressed ELF file (Linux, Documentation/arch/x86/boot.rst, `payload_offset`). QEMU boots such an ELF
//! file directly if a note gives its entry point (`XEN_ELFNOTE_PHYS32_ENTRY`, in kernels with CONFIG_PVH).

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum size of an unpacked kernel in bytes.
const MOST: u64 = 512 << 20;
/// Unpacked size in bytes of a block in LZ4's legacy format; the last block may be shorter.
const LZ4_BLOCK: usize = 8 << 20;
/// Start of the ELF note that gives the entry point, for an address of 32 and of 64 bits: lengths of name and address, type, name.
const NOTES: [&[u8]; 2] = [b"\x04\0\0\0\x04\0\0\0\x12\0\0\0Xen\0", b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0"];

/// Unpacks a kernel image and writes the ELF file to `path`. Returns `None` if the image itself must be booted, see [`unpack`].
pub fn write(image: &Path, path: PathBuf) -> io::Result<Option<PathBuf>> {
    let Some(kernel) = unpack(&fs::read(image)?) else { return Ok(None) };
    fs::write(&path, kernel)?;
    Ok(Some(path))
}

/// Extracts the ELF file from a bzImage. `None` if the image is no bzImage, its compression is unknown, or QEMU cannot boot the ELF file
/// directly; the image itself can still be booted.
#[must_use]
pub fn unpack(image: &[u8]) -> Option<Vec<u8>> {
    let kernel = decompress(payload(image)?)?;
    can_be_entered(&kernel)?.then_some(kernel)
}

/// Returns whether a 64-bit ELF file has a note with an entry point; `None` if it is no such file or is damaged.
fn can_be_entered(elf: &[u8]) -> Option<bool> {
    let number_at = |at: usize| usize::try_from(u64::from_le_bytes(*elf.get(at..)?.first_chunk()?)).ok();
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(*elf.get(at..)?.first_chunk()?)));
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number_at(0x20)?, half(0x36)?, half(0x38)?);
    let notes = |number: usize| {
        let header = table.checked_add(number * size)?;
        let (begin, length) = (number_at(header.checked_add(8)?)?, number_at(header.checked_add(32)?)?);
        let is_notes = elf.get(header..)?.starts_with(&4_u32.to_le_bytes());
        elf.get(begin..begin.checked_add(length)?).filter(|_| is_notes)
    };
    let has_entry =
        |notes: &[u8]| NOTES.iter().any(|note| notes.windows(note.len()).any(|found| found == *note));
    Some((0..count).filter_map(notes).any(has_entry))
}

/// Returns the compressed kernel in a bzImage, without the four bytes at its end that hold the unpacked size; `None` for other files, and
/// for a boot protocol before 2.08.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let version = u16::from_le_bytes(image.get(0x206..0x208)?.try_into().ok()?);
    if image.get(0x202..0x206)? != b"HdrS" || version < 0x208 {
        return None;
    }
    let setup = match image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let begin = ((setup + 1) * 512).checked_add(word(0x248)?)?;
    image.get(begin..begin.checked_add(word(0x24c)?)?.checked_sub(4)?)
}

fn decompress(payload: &[u8]) -> Option<Vec<u8>> {
    match payload {
        [0x02, 0x21, 0x4c, 0x18, blocks @ ..] => lz4_legacy(blocks),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => limited(zstd::stream::read::Decoder::new(payload).ok()?),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => limited(liblzma::read::XzDecoder::new(payload)),
        _ => None,
    }
}

fn limited(decoder: impl Read) -> Option<Vec<u8>> {
    let mut kernel = Vec::new();
    let read = decoder.take(MOST).read_to_end(&mut kernel).ok()?;
    ((read as u64) < MOST).then_some(kernel)
}

/// Decompresses LZ4's legacy format: blocks, each preceded by its compressed length. `None` if it is malformed or too large.
fn lz4_legacy(mut blocks: &[u8]) -> Option<Vec<u8>> {
    let mut kernel = Vec::new();
    while let Some((length, rest)) = blocks.split_first_chunk::<4>() {
        let (block, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        kernel.extend(lz4_flex::block::decompress(block, LZ4_BLOCK).ok()?);
        if kernel.len() as u64 > MOST {
            return None;
        }
        blocks = rest;
    }
    Some(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Returns a bzImage with this payload.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024 + 16];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        let length = u32::try_from(payload.len() + 4).expect("small");
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        [&image, payload, &[0; 4], &[0xff; 100]].concat()
    }

    /// Returns an ELF file with a segment of notes that holds this note, followed by much data.
    fn kernel(note: &[u8]) -> Vec<u8> {
        let mut elf = vec![0; 64 + 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[0x20], elf[0x36], elf[0x38]) = (64, 56, 1);
        (elf[64], elf[64 + 8], elf[64 + 32]) = (4, 120, 40);
        let body: Vec<u8> = (0..200_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        [elf.as_slice(), &[0; 20], note, &body].concat()
    }

    fn packed(kernel: &[u8]) -> [Vec<u8>; 3] {
        let mut lz4 = vec![0x02, 0x21, 0x4c, 0x18];
        for part in kernel.chunks(LZ4_BLOCK / 16) {
            let block = lz4_flex::block::compress(part);
            lz4.extend(u32::try_from(block.len()).expect("small").to_le_bytes());
            lz4.extend(block);
        }
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
        xz.write_all(kernel).expect("compressed");
        let xz = xz.finish().expect("compressed");
        [lz4, xz, zstd::stream::encode_all(kernel, 3).expect("compressed")]
    }

    #[test]
    fn a_kernel_comes_out_of_its_image() {
        for kernel in NOTES.map(kernel) {
            for payload in packed(&kernel) {
                assert!(unpack(&image(&payload)).as_ref() == Some(&kernel));
            }
        }
    }

    #[test]
    fn what_cannot_be_booted_so_is_left_as_it_is() {
        let known = kernel(NOTES[1]);
        let no_elf = [b"MZ".as_slice(), &known[2..]].concat();
        let note_elsewhere = [&kernel(&[0; 20]), NOTES[1]].concat();
        for kernel in [no_elf, note_elsewhere, known[..100].to_vec()] {
            for payload in packed(&kernel) {
                assert_eq!(unpack(&image(&payload)), None);
            }
        }
        let [lz4, xz, zst] = packed(&known);
        for payload in [&lz4[..lz4.len() - 1], &xz[..xz.len() / 2], &zst[..zst.len() / 2], b"\x1f\x8b", b""] {
            assert_eq!(unpack(&image(payload)), None);
        }
        let whole = image(&lz4);
        for length in [0, 0x206, 0x240, 600, 1040, whole.len() / 2] {
            assert_eq!(unpack(&whole[..length]), None);
        }
        let mut old = whole.clone();
        old[0x206] = 0x07;
        assert_eq!(unpack(&old), None);
    }
}
