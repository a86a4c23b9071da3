//! Datagrams as the kernel hands them over.
#![expect(unsafe_code, reason = "the crates in use have no recvmmsg")]

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::ptr;

use crate::buffers::{Buffers, Slot};

/// How many batches, or single datagrams, are taken at once. The kernel's buffer rarely has room for more.
const BATCHES: u32 = 64;
/// Bytes of the longest batch.
const BATCH: usize = 65_536;
/// Bytes after it for what the kernel tells of it. They also keep the beginnings of batches out of each other's cache lines.
const TOLD: usize = 512;
/// Bytes before what is told: how many there are, and in two words the protocol and the kind.
const TOLD_HEAD: usize = size_of::<libc::cmsghdr>();

/// Room for what one call brings.
#[derive(Debug)]
pub(super) struct Inbox {
    buffers: Buffers,
    slots: Vec<Slot>,
    headers: Vec<libc::mmsghdr>,
    /// What the headers point to.
    _vectors: Vec<libc::iovec>,
    /// How many of them the last call filled.
    filled: usize,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Self> {
        let (buffers, slots) = Buffers::new(BATCHES, BATCH + TOLD)?;
        let mut vectors: Vec<libc::iovec> = slots
            .iter()
            .map(|slot| libc::iovec { iov_base: buffers.address(slot).cast(), iov_len: BATCH })
            .collect();
        let vector = vectors.as_mut_ptr();
        let headers = slots
            .iter()
            .map(|slot| {
                // SAFETY: all-zero bytes are a header of no address, no buffer and no flag.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = vector.wrapping_add(slot.index());
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = buffers.address(slot).wrapping_add(BATCH).cast();
                header
            })
            .collect();
        Ok(Self { buffers, slots, headers, _vectors: vectors, filled: BATCHES as usize })
    }

    /// Waits for a batch and takes with it what else is there.
    ///
    /// # Errors
    /// What the socket says, of which [`super::passes`] knows when nothing came in time.
    pub(super) fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        // Each call leaves there how much it wrote.
        for header in &mut self.headers[..self.filled] {
            header.msg_hdr.msg_controllen = TOLD;
        }
        self.filled = 0;
        // SAFETY: each header has one vector and a place for what is said, both within the mapping of `buffers`, whose slots
        // nobody else uses during the call; no name is asked for; and there are as many headers as it says.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCHES,
                libc::MSG_WAITFORONE,
                ptr::null_mut(),
            )
        };
        self.filled = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok(())
    }

    /// How many batches the last call brought.
    pub(super) const fn filled(&self) -> usize {
        self.filled
    }

    /// One of them: its bytes, and the length of each datagram in it but the last, which may be shorter.
    pub(super) fn batch(&mut self, index: usize) -> (&[u8], usize) {
        let header = &self.headers[index];
        let (length, told) = (header.msg_len as usize, header.msg_hdr.msg_controllen);
        let bytes = &*self.buffers.slice(&mut self.slots[index]);
        let (batch, told) = (&bytes[..length.min(BATCH)], &bytes[BATCH..][..told.min(TOLD)]);
        (batch, segment(told).unwrap_or(length).max(1))
    }
}

/// The length of one datagram of a batch, if the kernel tells one. It tells nothing else here.
fn segment(told: &[u8]) -> Option<usize> {
    let word = |at: usize| Some(i32::from_ne_bytes(told.get(at..at + 4)?.try_into().ok()?));
    let kind = (word(TOLD_HEAD - 8)?, word(TOLD_HEAD - 4)?);
    (kind == (libc::SOL_UDP, libc::UDP_GRO)).then(|| usize::try_from(word(TOLD_HEAD)?).ok())?
}
