//! A simulated flash drive, whose write amplification is known: the translation layer of an SSD as the literature models it.
//!
//! Logical pages are mapped to physical pages one by one. A block is erased as a whole; before that, its valid pages are moved to the open
//! block, which takes the host's writes too. The block with the fewest valid pages is erased first (greedy).

/// A drive of logical pages on more physical ones. Content is not kept, only what each write costs.
#[derive(Debug)]
pub struct Flash {
    /// Pages of a block.
    block_pages: usize,
    /// The physical page of each logical one; `None` if it was never written, or trimmed since.
    mapped: Vec<Option<usize>>,
    /// The logical page that each physical one holds; `None` if it is erased or its content is out of date.
    held: Vec<Option<usize>>,
    /// Valid pages of each block.
    valid: Vec<usize>,
    /// Erased blocks.
    erased: Vec<usize>,
    /// The block that is being written, and its next page.
    open: (usize, usize),
    written: u64,
    programmed: u64,
}

impl Flash {
    /// Creates an erased drive of `pages` logical pages, with as many blocks of `block_pages` as hold them and `spare` more.
    ///
    /// # Panics
    /// There are fewer than two spare blocks: one is being written, and one is kept erased for moving valid pages.
    #[must_use]
    pub fn new(pages: usize, block_pages: usize, spare: usize) -> Self {
        assert!(spare >= 2, "{spare} spare blocks: expected 2 or more");
        let blocks = pages.div_ceil(block_pages) + spare;
        Self {
            block_pages,
            mapped: vec![None; pages],
            held: vec![None; blocks * block_pages],
            valid: vec![0; blocks],
            erased: (1..blocks).collect(),
            open: (0, 0),
            written: 0,
            programmed: 0,
        }
    }

    /// Writes a logical page. Returns the number of pages programmed for it, those moved included.
    pub fn write(&mut self, page: usize) -> u64 {
        let before = self.programmed;
        self.trim(page);
        if self.open.1 == self.block_pages {
            self.open_next();
        }
        self.program(page);
        self.written += 1;
        self.programmed - before
    }

    /// Gives a logical page up, so that it is not moved any more.
    pub fn trim(&mut self, page: usize) {
        if let Some(at) = self.mapped[page].take() {
            self.held[at] = None;
            self.valid[at / self.block_pages] -= 1;
        }
    }

    /// Pages that the host wrote so far, and all pages programmed for them.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64) {
        (self.written, self.programmed)
    }

    /// Physical pages that are not kept erased, for each logical page: alpha in the literature.
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.held.len() - self.block_pages) as f64 / self.mapped.len() as f64
    }

    /// Opens an erased block. If it was the last, moves the valid pages of another block there and erases that.
    fn open_next(&mut self) {
        self.open = (self.erased.pop().expect("one is kept"), 0);
        if !self.erased.is_empty() {
            return;
        }
        let full = (0..self.valid.len()).filter(|block| *block != self.open.0);
        let victim = full.min_by_key(|block| self.valid[*block]).expect("there are others");
        let pages = victim * self.block_pages..(victim + 1) * self.block_pages;
        for page in pages.filter_map(|at| self.held[at]).collect::<Vec<_>>() {
            self.trim(page);
            self.program(page);
        }
        self.erased.push(victim);
        assert!(self.open.1 < self.block_pages, "spare blocks leave room in the emptiest");
    }

    fn program(&mut self, page: usize) {
        let (block, next) = self.open;
        let at = block * self.block_pages + next;
        self.mapped[page] = Some(at);
        self.held[at] = Some(page);
        self.valid[block] += 1;
        self.open.1 += 1;
        self.programmed += 1;
    }
}

/// The write amplification of greedy collection in the steady state of uniformly random writes, in the limit of many large blocks:
/// `alpha / (alpha + W(-alpha e^-alpha))` with Lambert's W, where alpha is the number of physical pages for each logical one. (Luojie Xiang and
/// Brian M. Kurkoski, An improved analytic expression for write amplification in NAND flash, ICNC 2012; Peter Desnoyers, Analytic modeling
/// of SSD write performance, SYSTOR 2012.)
#[must_use]
pub fn greedy_amplification(alpha: f64) -> f64 {
    // The iteration converges for W in (-1, 0).
    let lambert = (0..10_000).fold(0.0, |w: f64, _| -alpha * (-alpha - w).exp());
    alpha / (alpha + lambert)
}

/// Uniformly random pages, the same each time.
pub fn random_pages(pages: usize) -> impl Iterator<Item = usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % pages as u64).expect("small")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that the host wrote, and all that were programmed for them.
    fn written(flash: &mut Flash, pages: impl Iterator<Item = usize>) -> (u64, u64) {
        let (written, programmed) = flash.counts();
        for page in pages {
            flash.write(page);
        }
        let now = flash.counts();
        (now.0 - written, now.1 - programmed)
    }

    #[test]
    fn random_writes_cost_what_the_literature_says() {
        let pages = 400 * 256;
        for spare in [30, 52, 102] {
            let mut flash = Flash::new(pages, 256, spare);
            let mut random = random_pages(pages);
            written(&mut flash, random.by_ref().take(6 * pages));
            let (host, all) = written(&mut flash, random.take(4 * pages));
            let (steady, stated) = (all as f64 / host as f64, greedy_amplification(flash.spread()));
            assert!((0.95..1.0).contains(&(steady / stated)), "{spare}: {steady}, by the formula {stated}");
        }
    }

    #[test]
    fn sequential_writes_and_those_of_a_new_drive_move_nothing() {
        let mut flash = Flash::new(4096, 64, 8);
        for _ in 0..5 {
            assert_eq!(written(&mut flash, 0..4096), (4096, 4096));
        }
        let (host, all) = written(&mut flash, random_pages(4096).take(20_000));
        assert!(all > 2 * host, "{all} for {host}");
        (0..4096).for_each(|page| flash.trim(page));
        assert_eq!(written(&mut flash, 0..4096), (4096, 4096));
        // Random writes of a new drive move nothing, until the spare blocks are used up.
        let mut flash = Flash::new(4096, 64, 8);
        assert_eq!(written(&mut flash, 0..4096), (4096, 4096));
        assert_eq!(written(&mut flash, random_pages(4096).take(6 * 64)), (6 * 64, 6 * 64));
        let (host, all) = written(&mut flash, random_pages(4096).take(20 * 64));
        assert!(all > 2 * host, "{all} for {host}");
    }
}
