//! Chooses whether the next I/O is a read, a write or a trim.

use iotax_load::random::SplitMix64;
use iotax_load::request::IoKind;
use iotax_model::workload::{Rw, Workload};

use super::Permutation;

/// The directions of a pattern's I/Os.
#[derive(Debug, Clone)]
pub(super) enum Mix {
    Only(IoKind),
    /// `reads` of every 100 I/Os are reads, in random order.
    Both {
        reads: u64,
        deck: Permutation,
    },
}

impl Mix {
    pub(super) fn new(workload: &Workload, random: SplitMix64) -> Self {
        match workload.rw {
            Rw::Read | Rw::RandRead => Self::Only(IoKind::Read),
            Rw::Write | Rw::RandWrite => Self::Only(IoKind::Write),
            Rw::Trim | Rw::RandTrim => Self::Only(IoKind::Trim),
            Rw::ReadWrite | Rw::RandRw => {
                Self::Both { reads: workload.rwmixread.into(), deck: Permutation::new(100, random) }
            }
        }
    }

    #[inline]
    pub(super) fn next(&mut self) -> IoKind {
        match self {
            Self::Only(direction) => *direction,
            Self::Both { reads, deck } => {
                if deck.next() < *reads {
                    IoKind::Read
                } else {
                    IoKind::Write
                }
            }
        }
    }
}
