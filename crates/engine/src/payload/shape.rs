//! The bytes of a content: which are random and which are filler.

use iotax_load::random::{SplitMix64, nth};
use iotax_model::workload::Content;

/// Bytes of the random block that every content is made from. It fits into the CPU's L1 cache.
const BASE: usize = 16 << 10;
/// Length in bytes of a sector, the smallest unit of deduplication of any layer.
const SECTOR: usize = 512;

/// The layout of a content in chunks: each chunk is random bytes followed by filler.
///
/// Short chunks, such as a sector, give every unit of compression or deduplication the requested share of filler, however long the unit is.
#[derive(Debug)]
pub(super) struct Shape {
    base: Vec<u64>,
    chunk: usize,
    /// Number of random bytes at the start of each chunk.
    random: usize,
    /// The filler pattern, repeated so that a sector can start at any position in it; empty for zeros.
    filler: Vec<u8>,
    period: usize,
}

impl Shape {
    pub(super) fn new(content: &Content, mut random: SplitMix64) -> Self {
        let chunk = usize::try_from(content.chunk.0).unwrap_or(usize::MAX);
        let filler = content.filler.as_ref().map_or(&[][..], |filler| filler.bytes());
        Self {
            base: (0..BASE / 8).map(|_| random.next()).collect(),
            chunk,
            random: chunk * usize::from(100 - content.filler_percentage) / 100,
            filler: filler
                .iter()
                .copied()
                .cycle()
                .take((filler.len() + SECTOR) * filler.len().min(1))
                .collect(),
            period: filler.len(),
        }
    }

    /// Returns whether all contents are equal, because they have no random bytes.
    pub(super) const fn is_constant(&self) -> bool {
        self.random == 0
    }

    /// Fills `buffer`, a multiple of 512 bytes, with the content for `key`.
    #[inline]
    pub(super) fn put(&self, key: u64, buffer: &mut [u8]) {
        for (number, piece) in (0..).zip(buffer.chunks_mut(BASE)) {
            let key = if number == 0 { key } else { nth(key, number) };
            if self.random == self.chunk {
                mask(key, &self.base, piece);
            } else {
                self.put_sectors(key, number, piece);
            }
        }
    }

    /// Fills one piece of a buffer, sector by sector; `number` is the piece's index in the buffer.
    fn put_sectors(&self, key: u64, number: u64, piece: &mut [u8]) {
        let start = usize::try_from(number).unwrap_or(usize::MAX) * BASE;
        let (sectors, _) = piece.as_chunks_mut::<SECTOR>();
        for ((position, sector), base) in
            (start..).step_by(SECTOR).zip(sectors).zip(self.base.chunks(SECTOR / 8))
        {
            let (random, filler) = sector.split_at_mut(self.random_at(position));
            mask(key, base, random);
            if self.period == 0 {
                filler.fill(0);
            } else {
                let phase = (position + random.len()) % self.period;
                filler.copy_from_slice(&self.filler[phase..phase + filler.len()]);
            }
        }
    }

    /// Returns the number of random bytes at the start of the sector at byte `position` of a buffer.
    #[inline]
    fn random_at(&self, position: usize) -> usize {
        self.random.saturating_sub(position % self.chunk).min(SECTOR)
    }

    /// Overwrites the first random bytes of every sector with a number derived from the key, so that the sector differs from all others and
    /// from its earlier content.
    #[inline]
    pub(super) fn stamp(&self, key: u64, buffer: &mut [u8]) {
        let (sectors, _) = buffer.as_chunks_mut::<SECTOR>();
        if self.random == self.chunk {
            for (number, sector) in (0..).zip(sectors) {
                sector[..8].copy_from_slice(&nth(key, number).to_ne_bytes());
            }
        } else if !self.is_constant() {
            for (number, (position, sector)) in (0..).zip((0..).step_by(SECTOR).zip(sectors)) {
                let length = self.random_at(position).min(8);
                sector[..length].copy_from_slice(&nth(key, number).to_ne_bytes()[..length]);
            }
        }
    }
}

/// Fills `bytes` with the random block XORed with the key.
#[inline]
fn mask(key: u64, base: &[u64], bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for (word, base) in words.iter_mut().zip(base) {
        *word = (base ^ key).to_ne_bytes();
    }
    if let Some(base) = base.get(words.len()) {
        rest.copy_from_slice(&(base ^ key).to_ne_bytes()[..rest.len()]);
    }
}
