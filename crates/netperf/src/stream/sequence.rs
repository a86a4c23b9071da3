//! Counts lost, late and duplicate datagrams and the jitter, from the datagrams' numbers and times.

/// Number of recent sequence numbers that are remembered individually. A duplicate of an older datagram is not recognized; it counts as out of
/// order, as all duplicates do in iperf3.
const REMEMBERED: u64 = 1 << 16;

/// The sequence numbers of one stream's datagrams, from 1.
#[derive(Debug)]
pub(super) struct Sequence {
    highest: u64,
    received: u64,
    out_of_order: u64,
    duplicates: u64,
    /// Bitmap of the sequence numbers that have arrived, indexed by the number modulo [`REMEMBERED`].
    bits: Box<[u64]>,
    /// Transit time of the last datagram in nanoseconds, which includes the unknown offset between the two ends' clocks; `None` before the
    /// first.
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
            bits: vec![0; usize::try_from(REMEMBERED / 64).unwrap_or_default()].into(),
            transit: None,
            jitter: 0.0,
        }
    }

    /// Extends the lowest 32 bits of a sequence number to the number nearest to the highest one so far.
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

    /// Records the arrival of a datagram. Returns how many sequence numbers were skipped before it.
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
            if passed < REMEMBERED {
                (self.highest + 1..number).for_each(|missing| self.forget(missing));
            } else {
                self.bits.fill(0);
            }
            self.highest = number;
            self.received += 1;
            self.mark(number);
            return passed;
        }
        let remembered = self.highest - number < REMEMBERED;
        if number == 0 || (remembered && self.is_marked(number)) {
            self.duplicates += 1;
            return 0;
        }
        self.out_of_order += 1;
        self.received += 1;
        if remembered {
            self.mark(number);
        }
        0
    }

    /// Updates the jitter (RFC 3550, section 6.4.1) with a datagram's transit time in nanoseconds. The two ends' clocks need not agree.
    #[inline]
    pub(super) fn took(&mut self, transit: i64) {
        let before = self.transit.replace(transit).unwrap_or(transit);
        self.jitter += (transit.abs_diff(before) as f64 - self.jitter) / 16.0;
    }

    const fn bit_of(number: u64) -> (usize, u64) {
        let rest = number % REMEMBERED;
        ((rest / 64) as usize, 1 << (rest % 64))
    }

    #[inline]
    fn mark(&mut self, number: u64) {
        let (word, bit) = Self::bit_of(number);
        self.bits[word] |= bit;
    }

    fn forget(&mut self, number: u64) {
        let (word, bit) = Self::bit_of(number);
        self.bits[word] &= !bit;
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = Self::bit_of(number);
        self.bits[word] & bit != 0
    }

    /// Returns the number of datagrams that arrived, without duplicates.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of datagrams below the highest sequence number that have not arrived.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Reference model of the code under test, which keeps all sequence numbers.
    #[derive(Debug, Default)]
    struct Model {
        seen: BTreeSet<u64>,
        forgotten: u64,
        out_of_order: u64,
        duplicates: u64,
    }

    impl Model {
        fn highest(&self) -> u64 {
            self.seen.last().copied().unwrap_or_default()
        }

        fn arrived(&mut self, number: u64) {
            let highest = self.highest();
            if highest >= number + REMEMBERED {
                self.forgotten += 1;
                self.out_of_order += 1;
            } else if !self.seen.insert(number) {
                self.duplicates += 1;
            } else if number < highest {
                self.out_of_order += 1;
            }
        }
    }

    /// Loss and reordering as iperf3 counts them: it takes a duplicate for a late datagram.
    fn iperf3(numbers: &[u64]) -> (u64, u64) {
        let (mut highest, mut lost, mut out_of_order) = (0, 0_u64, 0);
        for &number in numbers {
            if number > highest {
                lost += number - 1 - highest;
                highest = number;
            } else {
                out_of_order += 1;
                lost = lost.saturating_sub(1);
            }
        }
        (lost, out_of_order)
    }

    fn followed(numbers: &[u64]) -> Sequence {
        let mut sequence = Sequence::new();
        for &number in numbers {
            sequence.arrived(number);
        }
        sequence
    }

    /// Sequences of numbers with losses, duplicates, late arrivals, and occasional bursts of losses.
    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        let fate = (0..100_u32, 0..3 * REMEMBERED, 0..50_u64);
        proptest::collection::vec(fate, 0..400).prop_map(|fates| {
            let (mut number, mut arrivals) = (0, Vec::new());
            for (time, (fate, far, near)) in (0_u64..).zip(fates) {
                number += if fate == 0 { far } else { 1 };
                match fate {
                    0..80 => arrivals.push((time, number)),
                    80..85 => {}
                    85..95 => arrivals.push((time + near, number)),
                    _ => arrivals.extend([(time, number), (time + near, number)]),
                }
            }
            arrivals.sort_by_key(|(time, _)| *time);
            arrivals.into_iter().map(|(_, number)| number).filter(|number| *number > 0).collect()
        })
    }

    proptest! {
        #[test]
        fn what_arrived_is_counted_as_if_all_were_remembered(numbers in numbers()) {
            let sequence = followed(&numbers);
            let mut model = Model::default();
            numbers.iter().for_each(|number| model.arrived(*number));
            let received = model.seen.len() as u64 + model.forgotten;
            prop_assert_eq!(sequence.highest, model.highest());
            prop_assert_eq!(sequence.received(), received);
            prop_assert_eq!(sequence.lost(), model.highest().saturating_sub(received));
            prop_assert_eq!(sequence.duplicates(), model.duplicates);
            prop_assert_eq!(sequence.out_of_order(), model.out_of_order);
        }

        #[test]
        fn without_duplicates_loss_and_order_are_iperf3s(mut numbers in numbers()) {
            let mut seen = BTreeSet::new();
            numbers.retain(|number| seen.insert(*number));
            let sequence = followed(&numbers);
            prop_assert_eq!((sequence.lost(), sequence.out_of_order()), iperf3(&numbers));
        }

        #[test]
        fn thirty_two_bits_tell_the_whole_number(highest in 1..u64::from(u32::MAX) * 3, off in -1000..1000_i64) {
            let number = highest.saturating_add_signed(off).max(1);
            let sequence = followed(&[highest]);
            #[expect(clippy::cast_possible_truncation, reason = "the lowest bits are meant")]
            let low = number as u32;
            prop_assert_eq!(sequence.extended(low), number);
        }

        #[test]
        fn no_numbers_make_it_fail(numbers in proptest::collection::vec(any::<u64>(), 0..50)) {
            let sequence = followed(&numbers);
            prop_assert!(sequence.received() + sequence.duplicates() == numbers.len() as u64);
        }
    }

    #[test]
    fn numbers_that_are_passed_over_are_told() {
        let mut sequence = Sequence::new();
        let passed = [1, 2, 5, 3, 3, 6, 6 + 2 * REMEMBERED].map(|number| sequence.arrived(number));
        assert_eq!(passed, [0, 0, 2, 0, 0, 0, 2 * REMEMBERED - 1]);
        assert_eq!((sequence.out_of_order(), sequence.duplicates()), (1, 1));
    }

    #[test]
    fn jitter_is_that_of_rfc_3550() {
        let mut sequence = Sequence::new();
        (0..100).for_each(|_| sequence.took(-7_000_000));
        assert_eq!(sequence.jitter_ns(), 0, "the same time for all, of clocks that differ");
        // Alternately 1 ms longer and shorter: J = D (1 - (15/16)^n).
        for n in 1..=64_i32 {
            sequence.took(-7_000_000 + i64::from(n % 2) * 1_000_000);
            let expected = 1e6 * (1.0 - (15.0_f64 / 16.0).powi(n));
            assert!((sequence.jitter_ns() as f64 - expected).abs() < 2.0, "{n}: {}", sequence.jitter_ns());
        }
    }
}
