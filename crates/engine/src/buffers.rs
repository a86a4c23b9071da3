//! Page-aligned memory for I/O, handed out in slots.
#![expect(unsafe_code, reason = "memory that the kernel reads and writes behind the compiler's back")]

use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The right to use one buffer. It cannot be copied: whoever queues an I/O gives it away, and has it back with the
/// completion, so nobody touches a buffer that the kernel is using.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    /// Its number, from 0.
    #[inline]
    pub(crate) const fn index(&self) -> usize {
        self.0 as usize
    }

    /// The number as the kernel carries it through an I/O.
    #[inline]
    pub(crate) const fn number(&self) -> u32 {
        self.0
    }

    /// The slot of an I/O that the kernel is done with.
    ///
    /// # Safety
    /// The slot of this number was given away and this is the one time that it comes back.
    #[inline]
    pub(crate) const unsafe fn returned(number: u32) -> Self {
        Self(number)
    }
}

/// Buffers of equal length, one for each slot, in one mapping that begins zeroed.
#[derive(Debug)]
pub(crate) struct Buffers {
    memory: NonNull<u8>,
    slot_bytes: usize,
    bytes: usize,
}

impl Buffers {
    /// `count` buffers of `slot_bytes`, a multiple of 512, and their slots.
    pub(crate) fn new(count: u32, slot_bytes: usize) -> io::Result<(Self, Vec<Slot>)> {
        let bytes = slot_bytes.checked_mul(count as usize).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a fresh private mapping at an address of the kernel's choice affects no other memory.
        let memory = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok((Self { memory, slot_bytes, bytes }, (0..count).map(Slot).collect()))
    }

    /// Where a slot's buffer begins; it is `slot_bytes` long.
    #[inline]
    pub(crate) fn address(&self, slot: &Slot) -> *mut u8 {
        // SAFETY: slots are numbered below the count, so the offset stays within the mapping.
        unsafe { self.memory.as_ptr().add(slot.index() * self.slot_bytes) }
    }

    /// A slot's buffer.
    #[inline]
    pub(crate) fn slice(&mut self, slot: &mut Slot) -> &mut [u8] {
        // SAFETY: the memory is mapped and initialized; the slot, held exclusively, shows that no I/O uses it, and
        // the borrow of self that no other slice is alive.
        unsafe { std::slice::from_raw_parts_mut(self.address(slot), self.slot_bytes) }
    }

    /// Bytes of one buffer.
    pub(crate) const fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Keeps the memory mapped for good: for the case that the kernel may still write to it.
    pub(crate) const fn leak(&mut self) {
        self.bytes = 0;
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: this mapping was made by new with this length, and no slice or I/O outlives self.
            let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
            debug_assert_eq!(unmapped, Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_apart_and_writable() {
        let (mut buffers, mut slots) = Buffers::new(3, 4096).expect("mapped");
        for slot in &mut slots {
            assert!(buffers.address(slot).addr().is_multiple_of(4096));
            let number = u8::try_from(slot.number()).expect("small");
            buffers.slice(slot).fill(number + 1);
        }
        for (n, slot) in (1..).zip(&mut slots) {
            assert!(buffers.slice(slot).iter().all(|byte| *byte == n));
        }
    }

    #[test]
    fn more_than_can_be_addressed_is_an_error() {
        assert!(Buffers::new(u32::MAX, 1 << 40).is_err());
    }
}
