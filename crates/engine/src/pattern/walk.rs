//! Sequential offsets within an area.

/// Sequential I/O from offset `first` to `end`, again and again. An I/O that would exceed `end` starts at `first` instead. With a negative
/// stride, an I/O that would begin before `first` is placed to end at `end` instead.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) next: u64,
    /// Distance in bytes between the starts of consecutive I/Os; `None` if each starts where the last one ended.
    stride: Option<i64>,
}

impl Walk {
    /// Creates the sequence of offsets. The area must hold the longest I/O.
    pub(super) fn new(first: u64, end: u64, stride: Option<i64>) -> Self {
        // A backward walk begins at the end, so its first I/O starts over there.
        let next = if stride.is_some_and(i64::is_negative) { end } else { first };
        Self { first, end, next, stride }
    }

    #[inline]
    pub(super) fn next(&mut self, length: u32) -> u64 {
        let length = u64::from(length);
        match self.stride {
            None => {
                let offset = if self.next + length > self.end { self.first } else { self.next };
                self.next = offset + length;
                offset
            }
            Some(stride) => self.stride(length, stride),
        }
    }

    #[inline(never)]
    fn stride(&mut self, length: u64, stride: i64) -> u64 {
        let is_inside = self.next >= self.first && self.next.saturating_add(length) <= self.end;
        let offset = match is_inside {
            true => self.next,
            false if stride < 0 => self.end - length,
            false => self.first,
        };
        // A result below 0 wraps to a number beyond any end.
        self.next = offset.wrapping_add_signed(stride);
        offset
    }
}
