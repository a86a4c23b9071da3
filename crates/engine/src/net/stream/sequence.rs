//! What the numbers and times of datagrams tell: which were lost, late, or came twice, and how unevenly they came.

/// How many numbers below the highest are remembered one by one, a power of two. What comes later than that cannot be told from
/// what came before.
const REMEMBERED: u64 = 1 << 16;

/// Follows the datagrams of one stream. They are numbered from 1.
#[derive(Debug)]
pub(super) struct Sequence {
    highest: u64,
    received: u64,
    out_of_order: u64,
    duplicates: u64,
    /// A bit for each of the numbers up to the highest, by the number's rest.
    seen: Box<[u64]>,
    /// The last datagram's time on its way, plus an unknown constant: two clocks.
    transit: Option<i64>,
    jitter: f64,
}

impl Sequence {
    pub(super) fn new() -> Self {
        Self {
            highest: 0,
            received: 0,
            out_of_order: 0,
            duplicates: 0,
            seen: vec![0; usize::try_from(REMEMBERED / 64).unwrap_or_default()].into(),
            transit: None,
            jitter: 0.0,
        }
    }

    /// The whole number of a datagram that carries only its lowest 32 bits: the one that is nearest to the highest.
    #[inline]
    pub(super) const fn extended(&self, low: u32) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "the lowest bits are meant"
        )]
        let ahead = low.wrapping_sub(self.highest as u32) as i32;
        self.highest.saturating_add_signed(ahead as i64)
    }

    /// A datagram arrived. How many numbers it passed over.
    #[inline]
    pub(super) fn arrived(&mut self, number: u64) -> u64 {
        if number == self.highest.wrapping_add(1) {
            self.highest = number;
            self.received += 1;
            self.mark(number);
            return 0;
        }
        self.out_of_line(number)
    }

    #[cold]
    fn out_of_line(&mut self, number: u64) -> u64 {
        if number > self.highest {
            let passed = number - self.highest - 1;
            for missing in (self.highest + 1)..=(self.highest + passed.min(REMEMBERED)) {
                self.forget(missing);
            }
            self.highest = number;
            self.received += 1;
            self.mark(number);
            return passed;
        }
        if number == 0 || (self.highest - number < REMEMBERED && self.is_marked(number)) {
            self.duplicates += 1;
        } else {
            self.out_of_order += 1;
            self.received += 1;
            self.mark(number);
        }
        0
    }

    /// The time from a datagram's sending to its arrival, of any two clocks. RFC 3550, section 6.4.1.
    #[inline]
    pub(super) fn took(&mut self, transit: i64) {
        let before = self.transit.replace(transit).unwrap_or(transit);
        self.jitter += (transit.abs_diff(before) as f64 - self.jitter) / 16.0;
    }

    const fn place(number: u64) -> (usize, u64) {
        let rest = number % REMEMBERED;
        ((rest / 64) as usize, 1 << (rest % 64))
    }

    #[inline]
    fn mark(&mut self, number: u64) {
        let (word, bit) = Self::place(number);
        self.seen[word] |= bit;
    }

    fn forget(&mut self, number: u64) {
        let (word, bit) = Self::place(number);
        self.seen[word] &= !bit;
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.seen[word] & bit != 0
    }

    pub(super) const fn highest(&self) -> u64 {
        self.highest
    }

    /// Datagrams that arrived, each once.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Datagrams below the highest that did not arrive.
    pub(super) const fn lost(&self) -> u64 {
        self.highest.saturating_sub(self.received)
    }

    pub(super) const fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    pub(super) const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of times")]
    pub(super) const fn jitter_ns(&self) -> u64 {
        self.jitter as u64
    }
}
