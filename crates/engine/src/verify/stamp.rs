//! The stamp in the first 44 bytes of every 512-byte sector of a verified write:
//!
//! | byte | what |
//! |---|---|
//! | 0 | checksum of the rest of the sector |
//! | 8 | magic, which names the checksum |
//! | 12 | bytes of the write |
//! | 16 | number of the measurement |
//! | 24 | generation: number of the write within the measurement, from 1; 0 for a fill |
//! | 32 | byte offset of the sector on the target |
//! | 40 | bytes of the write that lie before the sector |
//!
//! All numbers are little-endian. Each sector has a stamp, not only each block: storage guarantees no more than whole sectors, so each sector
//! of a write can be old, misplaced or damaged independently of the others.

use iotax_load::random::{Purpose, SplitMix64};
use iotax_load::request::Io;
use iotax_model::workload::Verify;

/// Bytes of a sector, the unit that storage writes completely or not at all.
pub(crate) const SECTOR: usize = 512;
pub(crate) type Sector = [u8; SECTOR];

const CRC32C: u32 = u32::from_le_bytes(*b"iotC");
const XXH3: u32 = u32::from_le_bytes(*b"iotX");

/// Identity of a write: the measurement, and the write's number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Number of the measurement that wrote the sector, different for each.
    pub(crate) run: u64,
    /// Number of the write within the measurement, from 1; 0 for a fill.
    pub(crate) generation: u64,
}

impl Mark {
    /// Returns the mark of a fill with this seed. A fill counts as older than every write of a measurement.
    pub(crate) const fn of_fill(seed: u64) -> Self {
        Self { run: SplitMix64::new(seed, Purpose::Fill, 1).next(), generation: 0 }
    }
}

/// A stamp whose checksum is correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) mark: Mark,
    /// Offset on the target, in bytes, for which the sector was written.
    pub(crate) offset: u64,
    /// Offset on the target, in bytes, at which the whole write began.
    pub(crate) start: u64,
    /// Length of the write in bytes.
    pub(crate) length: u32,
}

/// The content of a sector, as far as its stamp shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A stamp with a correct checksum; its offset may differ from the sector's.
    Whole(Stamp),
    /// A stamp whose checksum does not match the sector, or the remains of a stamp: the magic is wrong, but the offset is that of the
    /// sector.
    Damaged,
    /// Only zeros, as in a hole or after a trim.
    Zeros,
    /// No stamp: iotax has not written this sector.
    Foreign,
}

/// Puts a stamp into every sector of a write's buffer.
#[inline]
pub(crate) fn write_stamps(buffer: &mut [u8], io: &Io, mark: Mark, verify: Verify) {
    let magic = if verify == Verify::Crc32c { CRC32C } else { XXH3 };
    let (sectors, _) = buffer.as_chunks_mut::<SECTOR>();
    for (io_offset, sector) in (0_u32..).step_by(SECTOR).zip(sectors) {
        put(sector, 8, magic.to_le_bytes());
        put(sector, 12, io.length.to_le_bytes());
        put(sector, 16, mark.run.to_le_bytes());
        put(sector, 24, mark.generation.to_le_bytes());
        put(sector, 32, (io.offset + u64::from(io_offset)).to_le_bytes());
        put(sector, 40, io_offset.to_le_bytes());
        put(sector, 0, checksum(magic, &sector[8..]).to_le_bytes());
    }
}

/// Determines the content of the sector that was read from byte `offset`.
#[inline]
pub(crate) fn read(sector: &Sector, offset: u64) -> Found {
    let magic = u32::from_le_bytes(get(sector, 8));
    let stamped_offset = u64::from_le_bytes(get(sector, 32));
    if magic != CRC32C && magic != XXH3 {
        return match sector {
            sector if *sector == [0; SECTOR] => Found::Zeros,
            // At offset 0 this comparison proves nothing, because foreign data often has a zero there.
            _ if offset > 0 && stamped_offset == offset => Found::Damaged,
            _ => Found::Foreign,
        };
    }
    if u64::from_le_bytes(get(sector, 0)) != checksum(magic, &sector[8..]) {
        return Found::Damaged;
    }
    let io_offset = u32::from_le_bytes(get(sector, 40));
    Found::Whole(Stamp {
        mark: Mark {
            run: u64::from_le_bytes(get(sector, 16)),
            generation: u64::from_le_bytes(get(sector, 24)),
        },
        offset: stamped_offset,
        start: stamped_offset.wrapping_sub(io_offset.into()),
        length: u32::from_le_bytes(get(sector, 12)),
    })
}

#[inline]
fn checksum(magic: u32, bytes: &[u8]) -> u64 {
    if magic == CRC32C { crc32c::crc32c(bytes).into() } else { xxhash_rust::xxh3::xxh3_64(bytes) }
}

#[inline]
fn put<const N: usize>(sector: &mut Sector, at: usize, bytes: [u8; N]) {
    sector[at..at + N].copy_from_slice(&bytes);
}

#[inline]
fn get<const N: usize>(sector: &Sector, at: usize) -> [u8; N] {
    std::array::from_fn(|n| sector[at + n])
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_load::request::IoKind;

    #[test]
    fn a_stamp_is_read_back_and_any_flipped_bit_is_seen() {
        for verify in [Verify::Crc32c, Verify::Xxh3] {
            let io = Io { direction: IoKind::Write, offset: 8192, length: 1024 };
            let mark = Mark { run: u64::MAX - 5, generation: 77 };
            let mut buffer = [0xA5; 1024];
            write_stamps(&mut buffer, &io, mark, verify);
            let (sectors, _) = buffer.as_chunks::<SECTOR>();
            for (io_offset, sector) in [0, 512].into_iter().zip(sectors) {
                let stamp = Stamp { mark, offset: 8192 + io_offset, start: 8192, length: 1024 };
                assert_eq!(read(sector, 8192 + io_offset), Found::Whole(stamp));
                // Read from another offset, the stamp still shows the offset that it was written for.
                assert_eq!(read(sector, 0), Found::Whole(stamp));
            }
            for bit in 0..SECTOR * 8 {
                let mut sector = sectors[0];
                sector[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read(&sector, 8192), Found::Damaged, "bit {bit}");
            }
        }
        assert_eq!(read(&[0; SECTOR], 4096), Found::Zeros);
        assert_eq!(read(&[7; SECTOR], 4096), Found::Foreign);
    }
}
