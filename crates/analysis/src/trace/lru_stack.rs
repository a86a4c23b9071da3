//! Computes reuse distances: the number of distinct blocks between two accesses to a block.

use std::collections::HashMap;

/// Number of time slots before the first renumbering.
const SLOTS: usize = 1024;

/// Blocks in the order of their last access. A Fenwick tree over time slots counts blocks in O(log n), where Olken uses a search tree
/// ("Efficient methods for calculating the success function of fixed space replacement policies", 1981).
#[derive(Debug)]
pub(super) struct LruStack {
    last: HashMap<u64, usize>,
    /// Node `i` counts the blocks whose last access lies in the `i & -i` slots that end with slot `i - 1`.
    nodes: Vec<u32>,
    next: usize,
}

impl Default for LruStack {
    fn default() -> Self {
        Self { last: HashMap::new(), nodes: vec![0; SLOTS + 1], next: 0 }
    }
}

impl LruStack {
    /// Accesses a block. Returns the number of other blocks accessed since its last access; `None` for the first access.
    pub(super) fn touch(&mut self, block: u64) -> Option<usize> {
        if self.next + 1 == self.nodes.len() {
            self.renumber();
        }
        let previous = self.last.insert(block, self.next);
        let between = previous.map(|slot| {
            let between = self.last.len() - self.up_to(slot);
            self.change(slot, -1);
            between
        });
        self.change(self.next, 1);
        self.next += 1;
        between
    }

    /// Removes a block, so that its next access counts as the first.
    pub(super) fn remove(&mut self, block: u64) {
        if let Some(slot) = self.last.remove(&block) {
            self.change(slot, -1);
        }
    }

    /// Returns the number of blocks whose last access is in this slot or an earlier one.
    fn up_to(&self, slot: usize) -> usize {
        let (mut node, mut sum) = (slot + 1, 0);
        while node > 0 {
            sum += self.nodes[node] as usize;
            node &= node - 1;
        }
        sum
    }

    fn change(&mut self, slot: usize, by: i32) {
        let mut node = slot + 1;
        while node < self.nodes.len() {
            self.nodes[node] = self.nodes[node].wrapping_add_signed(by);
            node += node & node.wrapping_neg();
        }
    }

    /// Closes the gaps between used slots, so that there are never many more slots than blocks.
    fn renumber(&mut self) {
        let mut order: Vec<(&u64, &mut usize)> = self.last.iter_mut().collect();
        order.sort_unstable_by_key(|(_, slot)| **slot);
        for (index, (_, slot)) in order.iter_mut().enumerate() {
            **slot = index;
        }
        self.next = self.last.len();
        self.nodes.clear();
        self.nodes.resize(SLOTS.max(self.next * 4) + 1, 0);
        for slot in 0..self.next {
            self.change(slot, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_a_list_in_the_order_of_touches() {
        let (mut stack, mut list) = (LruStack::default(), Vec::new());
        let mut state = 1_u64;
        // Enough steps for many renumberings, with blocks removed in between.
        for step in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (state >> 33) % 300;
            let index = list.iter().rposition(|listed| *listed == block);
            let expected = index.map(|index| list.len() - 1 - index);
            index.map(|index| list.remove(index));
            if step % 7 == 0 {
                stack.remove(block);
            } else {
                assert_eq!(stack.touch(block), expected, "step {step}");
                list.push(block);
            }
        }
    }
}
