//! Archives in cpio's "new ASCII" format (cpio(5), "New ASCII Format"). Each entry is a header of 110 characters with the name and a zero byte,
//! then the content; both are padded to a multiple of 4. Implemented here so that every read and write can be timed.

use std::io;

/// Length of a header in bytes, without the name.
pub(super) const HEADER: usize = 110;
/// Name of the entry that marks the end of an archive.
const TRAILER: &str = "TRAILER!!!";
const MAGIC: &[u8] = b"070701";
/// Block size in bytes: an archive is padded to a multiple of it.
const BLOCK: usize = 512;
/// The file type bits in `mode` that denote a directory.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// The header of an archive entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// File type and permissions, as in stat(2).
    pub(super) mode: u32,
    /// Length of the content in bytes.
    pub(super) size: u32,
    /// Length of the name in bytes, including the zero byte, in a header that was read; [`Self::put`] takes the name itself.
    pub(super) name: usize,
}

impl Header {
    /// Creates the header of a file with `size` bytes of content.
    pub(super) const fn file(size: u32) -> Self {
        Self { mode: FILE | 0o644, size, name: 0 }
    }

    /// Creates the header of a directory.
    pub(super) const fn directory() -> Self {
        Self { mode: DIRECTORY | 0o755, size: 0, name: 0 }
    }

    pub(super) const fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == DIRECTORY
    }

    /// Appends the header and the name of an entry to a buffer; `number` is its inode number in the archive.
    pub(super) fn put(&self, number: u32, name: &str, buffer: &mut Vec<u8>) {
        let links = if self.is_directory() { 2 } else { 1 };
        let length = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let fields = [number, self.mode, 0, 0, links, 0, self.size, 0, 0, 0, 0, length, 0];
        buffer.extend_from_slice(MAGIC);
        for field in fields {
            buffer.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        buffer.extend_from_slice(name.as_bytes());
        buffer.push(0);
        buffer.extend_from_slice(padding(HEADER + name.len() + 1));
    }

    /// Parses a header. Returns an `InvalidData` error if the text is not a header.
    pub(super) fn read(text: &[u8]) -> io::Result<Self> {
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "not the header of an archive's entry");
        let field = |number: usize| {
            let begin = MAGIC.len() + 8 * number;
            let digits = text.get(begin..begin + 8).and_then(|digits| std::str::from_utf8(digits).ok());
            digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or_else(broken)
        };
        if !text.starts_with(MAGIC) {
            return Err(broken());
        }
        Ok(Self { mode: field(1)?, size: field(6)?, name: field(11)? as usize })
    }

    /// Returns the length in bytes of the name and its padding.
    pub(super) fn name_room(&self) -> usize {
        self.name + padding(HEADER + self.name).len()
    }
}

/// Returns the zero bytes that pad `length` to a multiple of 4.
pub(super) fn padding(length: usize) -> &'static [u8] {
    &[0; 3][..length.next_multiple_of(4) - length]
}

/// Appends the trailer and the padding of an archive that has `length` bytes so far.
pub(super) fn finish(length: u64, buffer: &mut Vec<u8>) {
    let begin = buffer.len();
    Header { mode: 0, size: 0, name: 0 }.put(0, TRAILER, buffer);
    let whole = (length + (buffer.len() - begin) as u64) % BLOCK as u64;
    let left = (BLOCK as u64 - whole) % BLOCK as u64;
    buffer.extend((0..left).map(|_| 0));
}

/// Returns whether this is the name of the entry that marks an archive's end.
pub(super) fn is_end(name: &str) -> bool {
    name == TRAILER
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_put_another_reader_understands_and_this_one_too() {
        let mut archive = Vec::new();
        Header::directory().put(1, "dir", &mut archive);
        for (number, (name, content)) in (2..).zip([("dir/a.c", "hello"), ("dir/bcd", ""), ("e", "1234")]) {
            Header::file(u32::try_from(content.len()).expect("short")).put(number, name, &mut archive);
            archive.extend_from_slice(content.as_bytes());
            archive.extend_from_slice(padding(content.len()));
        }
        let length = archive.len() as u64;
        finish(length, &mut archive);
        assert!(archive.len().is_multiple_of(BLOCK));

        let (mut rest, mut found) = (archive.as_slice(), Vec::new());
        loop {
            let mut entry = cpio::NewcReader::new(rest).expect("an entry");
            if entry.entry().is_trailer() {
                break;
            }
            let mut content = String::new();
            entry.read_to_string(&mut content).expect("content");
            found.push((entry.entry().name().to_owned(), entry.entry().mode(), content));
            rest = entry.finish().expect("the next");
        }
        let expected = [
            ("dir", 0o040_755, ""),
            ("dir/a.c", 0o100_644, "hello"),
            ("dir/bcd", 0o100_644, ""),
            ("e", 0o100_644, "1234"),
        ];
        let expected = expected.map(|(name, mode, content)| (name.to_owned(), mode, content.to_owned()));
        assert_eq!(found, expected);
        let header = Header::read(&archive[..HEADER]).expect("a header");
        assert_eq!((header, header.name_room()), (Header { name: 4, ..Header::directory() }, 6));
        let broken = Header::read(&archive[4..HEADER]).expect_err("no header").to_string();
        assert!(broken.contains("not the header"), "{broken}");
    }
}
