//! Blocks in a sequence that the workload lists.

use iotax_model::workload::BlockSequence;

/// Endless repetition of a listed sequence of block numbers.
#[derive(Debug, Clone)]
pub(in crate::pattern) struct Sequence {
    blocks: Vec<u32>,
    /// Index of the next block in `blocks`.
    at: usize,
    /// Number that is added to every block of the current repetition.
    base: u64,
    /// Increase of `base` after each repetition; 0 to repeat the same blocks.
    step: u64,
    /// Bound of `base`: once `base` reaches this number, it starts at 0 again.
    end: u64,
}

impl Sequence {
    /// Creates the sequence for an area of `count` blocks; all listed blocks must be below `count`.
    pub(super) fn new(count: u64, sequence: &BlockSequence) -> Self {
        let step = if sequence.is_strided { sequence.blocks.len() as u64 } else { 0 };
        let end = (count + 1).saturating_sub(sequence.blocks_needed()).max(1);
        Self { blocks: sequence.blocks.clone(), at: 0, base: 0, step, end }
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        let block = self.base + u64::from(self.blocks[self.at]);
        self.at += 1;
        if self.at == self.blocks.len() {
            self.at = 0;
            self.base += self.step;
            if self.base >= self.end {
                self.base = 0;
            }
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(count: u64, is_strided: bool, blocks: &[u32], draws: usize) -> Vec<u64> {
        let mut sequence = Sequence::new(count, &BlockSequence { blocks: blocks.to_vec(), is_strided });
        (0..draws).map(|_| sequence.next()).collect()
    }

    #[test]
    fn the_blocks_come_in_their_order_again_and_again() {
        assert_eq!(drawn(12, false, &[2, 0, 1], 7), [2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(drawn(12, true, &[2, 0, 1], 6), [2, 0, 1, 5, 3, 4]);
        assert_eq!(drawn(6, true, &[2, 0, 1], 9), [2, 0, 1, 5, 3, 4, 2, 0, 1], "from the start again");
        assert_eq!(drawn(7, true, &[2, 0, 1], 7)[6], 2, "no block beyond the area");
        assert_eq!(drawn(3, true, &[2], 4), [2, 2, 2, 2], "one block has no room to go on");
        assert_eq!(drawn(5, true, &[2], 4), [2, 3, 4, 2]);
    }
}
