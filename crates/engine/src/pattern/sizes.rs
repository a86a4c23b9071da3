//! Chooses the length of the next I/O.

use iotax_load::random::SplitMix64;
use iotax_load::request::IoKind;
use iotax_model::units::Bytes;
use iotax_model::workload::Workload;

use super::hundred::Hundred;

/// Length of an I/O in bytes, and the alignment in bytes of its offset if that is random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) length: u32,
    pub(super) align: u32,
}

/// The lengths of a pattern's I/Os: one for all, or several.
#[derive(Debug, Clone)]
pub(super) enum Sizes {
    One(u32),
    Several(Box<Several>),
}

/// The possible lengths of reads, of writes and of trims.
#[derive(Debug, Clone)]
pub(super) struct Several {
    read: Lengths,
    write: Lengths,
    trim: Lengths,
    random: SplitMix64,
}

/// The possible lengths of one direction; `align` is the shortest, and the others are multiples of it.
#[derive(Debug, Clone)]
struct Lengths {
    align: u32,
    draw: Draw,
}

#[derive(Debug, Clone)]
enum Draw {
    /// `align` times a random factor between 1 and this number.
    Steps(u64),
    Shares(Hundred<u32>),
}

impl Sizes {
    pub(super) fn new(workload: &Workload, random: SplitMix64) -> Self {
        let [read, write, trim] = if let Some(range) = &workload.bsrange {
            [range.read, range.write, range.trim].map(|range| Lengths {
                align: bytes(range.min()),
                draw: Draw::Steps(range.max().0 / range.min().0),
            })
        } else if let Some(split) = &workload.bssplit {
            [&split.read, &split.write, &split.trim].map(|split| {
                let shares = split.shares().map(|(length, percent)| (bytes(length), percent));
                Lengths { align: bytes(split.min()), draw: Draw::Shares(Hundred::new(shares)) }
            })
        } else {
            return Self::One(bytes(workload.bs));
        };
        Self::Several(Box::new(Several { read, write, trim, random }))
    }

    #[inline]
    pub(super) fn next(&mut self, direction: IoKind) -> Size {
        match self {
            Self::One(length) => Size { length: *length, align: *length },
            Self::Several(several) => several.next(direction),
        }
    }
}

impl Several {
    #[inline(never)]
    fn next(&mut self, direction: IoKind) -> Size {
        let lengths = match direction {
            IoKind::Write | IoKind::DurableWrite => &self.write,
            IoKind::Trim => &self.trim,
            _ => &self.read,
        };
        let align = lengths.align;
        let length = match &lengths.draw {
            #[expect(clippy::cast_possible_truncation, reason = "a length is at most 64 MiB")]
            Draw::Steps(steps) => align * (1 + self.random.below(*steps) as u32),
            Draw::Shares(shares) => shares.draw(&mut self.random),
        };
        Size { length, align }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a length is at most 64 MiB")]
fn bytes(length: Bytes) -> u32 {
    length.0 as u32
}
