//! Page-aligned memory for I/O, handed out in slots.
#![expect(unsafe_code, reason = "memory that the kernel reads and writes behind the compiler's back")]

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use iotax_model::workload::Memory;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Exclusive right to use one buffer. It cannot be copied: queueing an I/O consumes it and the completion returns it, so a buffer in use by
/// the kernel is never touched.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// Returns the slot's number, from 0, as an index.
    #[inline]
    pub const fn index(&self) -> usize {
        self.0 as usize
    }

    /// Returns the slot's number, from 0, as passed to the kernel and returned with the completion.
    #[inline]
    pub const fn number(&self) -> u32 {
        self.0
    }

    /// Recreates the slot of a completed I/O.
    ///
    /// # Safety
    /// Queueing the I/O consumed the slot of this number, and this is the only call for that completion.
    #[inline]
    pub const unsafe fn returned(number: u32) -> Self {
        Self(number)
    }
}

/// Size of a huge page in bytes. If transparent huge pages are requested, memory of at least this size starts at a multiple of it.
const HUGE: usize = 2 << 20;

/// Buffers of equal length in one mapping that starts zeroed; each slot has one buffer.
#[derive(Debug)]
pub struct Buffers {
    memory: NonNull<u8>,
    slot_bytes: usize,
    /// Address and length in bytes of the whole mapping; the length is 0 once [`Self::leak`] has given up the right to unmap it.
    mapping: (NonNull<u8>, usize),
}

impl Buffers {
    /// Allocates `count` buffers of `slot_bytes`, a multiple of 512, and their slots. With 2 MiB or more in total, asks for transparent
    /// huge pages.
    pub fn new(count: u32, slot_bytes: usize) -> io::Result<(Self, Vec<Slot>)> {
        Self::within(Memory::Thp, count, slot_bytes)
    }

    /// Allocates like [`Self::new`], from the given kind of memory. Fails if the memory cannot be mapped, such as reserved huge pages of
    /// which too few are left.
    pub fn within(memory: Memory, count: u32, slot_bytes: usize) -> io::Result<(Self, Vec<Slot>)> {
        let bytes = slot_bytes.checked_mul(count as usize).ok_or(io::ErrorKind::OutOfMemory)?;
        let slots = (0..count).map(Slot).collect();
        let (begin, memory, mapped) = match memory {
            Memory::Thp if bytes >= HUGE => advised(bytes)?,
            Memory::Thp | Memory::Malloc | Memory::Mmap => whole(bytes, MapFlags::PRIVATE)?,
            Memory::Shm | Memory::MmapShared => whole(bytes, MapFlags::SHARED)?,
            Memory::MmapHuge => whole(bytes.next_multiple_of(HUGE), MapFlags::PRIVATE | RESERVED)?,
            Memory::ShmHuge => whole(bytes.next_multiple_of(HUGE), MapFlags::SHARED | RESERVED)?,
        };
        Ok((Self { memory, slot_bytes, mapping: (begin, mapped) }, slots))
    }

    /// Allocates like [`Self::new`], in a memory file (memfd). Also returns the file, so that another process can map
    /// the same buffers.
    pub fn shared(count: u32, slot_bytes: usize) -> io::Result<(Self, Vec<Slot>, OwnedFd)> {
        let bytes = slot_bytes.checked_mul(count as usize).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = memfd_create("buffers", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes as u64)?;
        // SAFETY: a fresh mapping of a file that nobody else has, at an address of the kernel's choice, affects no other memory.
        let begin = unsafe {
            mmap(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        }?;
        let begin = NonNull::new(begin.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let slots = (0..count).map(Slot).collect();
        Ok((Self { memory: begin, slot_bytes, mapping: (begin, bytes) }, slots, file))
    }

    /// Returns the address and the length in bytes of the mapping.
    pub fn mapped(&self) -> (usize, usize) {
        (self.mapping.0.as_ptr().expose_provenance(), self.mapping.1)
    }

    /// Returns the address of a slot's buffer, which has `slot_bytes` bytes.
    #[inline]
    pub fn address(&self, slot: &Slot) -> *mut u8 {
        // SAFETY: slots are numbered below the count, so the offset stays within the mapping.
        unsafe { self.memory.as_ptr().add(slot.index() * self.slot_bytes) }
    }

    /// Returns the buffer of a slot.
    #[inline]
    pub fn slice(&mut self, slot: &mut Slot) -> &mut [u8] {
        // SAFETY: the memory is mapped and initialized; the slot, held exclusively, shows that no I/O uses it, and
        // the borrow of self that no other slice is alive.
        unsafe { std::slice::from_raw_parts_mut(self.address(slot), self.slot_bytes) }
    }

    /// Returns the size of one buffer in bytes.
    #[inline]
    pub const fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Keeps the memory mapped when this is dropped, because the kernel may still write to it.
    pub const fn leak(&mut self) {
        self.mapping.1 = 0;
    }
}

/// A mapping: its address, the address of its usable part, and its length in bytes.
type Mapping = (NonNull<u8>, NonNull<u8>, usize);

/// Flags for 2 MiB pages from the system's pool of reserved huge pages.
const RESERVED: MapFlags = MapFlags::HUGETLB.union(MapFlags::HUGE_2MB);

/// Maps `bytes` of zeroed memory with these flags.
fn whole(bytes: usize, flags: MapFlags) -> io::Result<Mapping> {
    // SAFETY: a fresh anonymous mapping, at an address of the kernel's choice, affects no other memory.
    let begin = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    let begin = NonNull::new(begin.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok((begin, begin, bytes))
}

/// Maps memory aligned to a huge page and asks for transparent huge pages; works without them too.
fn advised(bytes: usize) -> io::Result<Mapping> {
    let (begin, _, mapped) = whole(bytes.saturating_add(HUGE), MapFlags::PRIVATE)?;
    let misaligned = begin.addr().get() % HUGE;
    // SAFETY: the offset is less than the huge page by which the mapping is longer than the buffers.
    let memory = unsafe { begin.add((HUGE - misaligned) % HUGE) };
    // SAFETY: the buffers' part of the mapping; its content stays as it is.
    let _ = unsafe { madvise(memory.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    Ok((begin, memory, mapped))
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let (begin, bytes) = self.mapping;
        if bytes > 0 {
            // SAFETY: this mapping was made by new with this length, and no slice or I/O outlives self.
            let unmapped = unsafe { munmap(begin.as_ptr().cast(), bytes) };
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
    fn long_buffers_begin_at_a_huge_page_and_end_within_the_mapping() {
        for (count, slot_bytes) in [(2, HUGE), (3, 1 << 20), (1, HUGE + 512)] {
            let (mut buffers, mut slots) = Buffers::new(count, slot_bytes).expect("mapped");
            assert!(buffers.address(&slots[0]).addr().is_multiple_of(HUGE));
            for slot in &mut slots {
                let bytes = buffers.slice(slot);
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.fill(7);
            }
        }
    }

    /// Returns the value of `key` for this mapping, from /proc/self/smaps.
    fn smaps_value(buffers: &Buffers, key: &str) -> Option<String> {
        let all = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let begin = format!("{:x}-", buffers.mapping.0.addr());
        let own = all.lines().skip_while(|line| !line.starts_with(&begin));
        Some(own.skip(1).find_map(|line| line.strip_prefix(key))?.trim().to_owned())
    }

    #[test]
    fn only_thp_asks_for_huge_pages() {
        for memory in [Memory::Thp, Memory::Malloc, Memory::Mmap, Memory::Shm, Memory::MmapShared] {
            let (mut buffers, mut slots) = Buffers::within(memory, 4, 1 << 20).expect("mapped");
            slots.iter_mut().for_each(|slot| buffers.slice(slot).fill(7));
            // hg: advised to use huge pages, see proc(5); mappings of neighbours with the same flags are shown as one.
            if let Some(flags) = smaps_value(&buffers, "VmFlags:") {
                let is_advised = flags.split(' ').any(|flag| flag == "hg");
                assert!(is_advised || memory != Memory::Thp, "{memory}: {flags}");
                assert!(!is_advised || memory == Memory::Thp, "{memory}: {flags}");
            }
        }
    }

    #[test]
    fn reserved_huge_pages_are_had_or_missed() {
        for memory in [Memory::MmapHuge, Memory::ShmHuge] {
            match Buffers::within(memory, 3, 512 << 10) {
                Ok((mut buffers, mut slots)) => slots.iter_mut().for_each(|slot| buffers.slice(slot).fill(7)),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{memory}: {error}"),
            }
        }
    }

    #[test]
    fn more_than_can_be_addressed_is_an_error() {
        assert!(Buffers::new(u32::MAX, 1 << 40).is_err());
    }
}
