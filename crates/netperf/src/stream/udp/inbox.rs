//! Receives datagrams from the kernel in batches.
#![expect(unsafe_code, reason = "the crates in use have no recvmmsg")]

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use super::super::options::number;
use iotax_load::buffers::{Buffers, Slot};

/// Maximum number of batches, or of single datagrams, per call. The kernel's buffer rarely holds more.
const BATCHES: u32 = 64;
/// Bytes of the longest batch of joined datagrams.
const BATCH: usize = 65_536;
/// Bytes after each batch for the kernel's control messages. They also put the starts of the batches into different cache lines.
const ANCILLARY: usize = 512;
/// Bytes of a control message's header: its length, protocol and type.
const ANCILLARY_HEAD: usize = size_of::<libc::cmsghdr>();

/// The buffers and headers for the datagrams of one call.
#[derive(Debug)]
pub(super) struct Inbox {
    buffers: Buffers,
    slots: Vec<Slot>,
    headers: Vec<libc::mmsghdr>,
    /// The iovecs that the headers point to. Never read; kept so that these pointers stay valid.
    _vectors: Vec<libc::iovec>,
    /// Number of batches that the last call received.
    filled: usize,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Self> {
        let (buffers, slots) = Buffers::new(BATCHES, BATCH + ANCILLARY)?;
        let mut vectors: Vec<libc::iovec> = slots
            .iter()
            .map(|slot| libc::iovec { iov_base: buffers.address(slot).cast(), iov_len: BATCH })
            .collect();
        let vector = vectors.as_mut_ptr();
        let headers = slots
            .iter()
            .map(|slot| {
                // SAFETY: an all-zero header is valid: no address, no buffers, no flags.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = vector.wrapping_add(slot.index());
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = buffers.address(slot).wrapping_add(BATCH).cast();
                header
            })
            .collect();
        Ok(Self { buffers, slots, headers, _vectors: vectors, filled: BATCHES as usize })
    }

    /// Asks the kernel to join a socket's datagrams (UDP_GRO) and to timestamp their arrival. Ignores a refusal.
    pub(super) fn prepare(socket: &UdpSocket) {
        for (level, option) in [(libc::SOL_UDP, libc::UDP_GRO), (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)] {
            let _ = number(socket.as_fd(), level, option, 1);
        }
    }

    /// Waits for a batch, and reads all others that have arrived by then.
    ///
    /// # Errors
    /// A socket error; [`super::passes`] recognizes a timeout.
    pub(super) fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        // Each call overwrites the field with the number of bytes that it wrote.
        for header in &mut self.headers[..self.filled] {
            header.msg_hdr.msg_controllen = ANCILLARY;
        }
        self.filled = 0;
        // SAFETY: each header has one vector and room for control messages, both within the mapping of `buffers`, whose slots
        // nobody else uses during the call; no address is asked for; and there are as many headers as it says.
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

    /// Returns the number of batches that the last call received.
    pub(super) const fn filled(&self) -> usize {
        self.filled
    }

    /// Returns the batch with this index, from 0, of the last call.
    pub(super) fn batch(&mut self, index: usize) -> Batch<'_> {
        let header = &self.headers[index];
        let (length, ancillary) = (header.msg_len as usize, header.msg_hdr.msg_controllen);
        let bytes = &*self.buffers.slice(&mut self.slots[index]);
        let (bytes, ancillary) = (&bytes[..length.min(BATCH)], &bytes[BATCH..][..ancillary.min(ANCILLARY)]);
        let mut batch = Batch { bytes, segment: length.max(1), arrived: None };
        batch.read_ancillary(ancillary);
        batch
    }
}

/// A datagram, or several that the kernel has joined into one buffer.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    /// The bytes of the datagrams, one after the other.
    pub(super) bytes: &'a [u8],
    /// Length in bytes of each datagram; the last may be shorter.
    pub(super) segment: usize,
    /// Arrival time in nanoseconds of the system clock, as the kernel reports it; `None` if unknown.
    pub(super) arrived: Option<u64>,
}

impl Batch<'_> {
    /// Reads the segment length and the arrival time from the control messages, which are word-aligned.
    fn read_ancillary(&mut self, mut ancillary: &[u8]) {
        let int = |bytes: &[u8], at: usize| Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long =
            |bytes: &[u8], at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        while let Some(length) = ancillary.first_chunk().copied().map(usize::from_ne_bytes)
            && let Some(message) = ancillary.get(..length)
            && let (Some(level), Some(kind)) =
                (int(message, ANCILLARY_HEAD - 8), int(message, ANCILLARY_HEAD - 4))
        {
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let segment = int(message, ANCILLARY_HEAD).and_then(|bytes| usize::try_from(bytes).ok());
                    self.segment = segment.unwrap_or(0).max(1);
                }
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                    let time = long(message, ANCILLARY_HEAD).zip(long(message, ANCILLARY_HEAD + 8));
                    self.arrived =
                        time.map(|(seconds, nanos)| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos));
                }
                _ => {}
            }
            ancillary = ancillary.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (ANCILLARY_HEAD + data.len()).to_ne_bytes().to_vec();
        bytes.extend([level.to_ne_bytes(), kind.to_ne_bytes()].concat());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0xff);
        bytes
    }

    fn heard(ancillary: &[u8]) -> (usize, Option<u64>) {
        let mut batch = Batch { bytes: &[], segment: 9, arrived: None };
        batch.read_ancillary(ancillary);
        (batch.segment, batch.arrived)
    }

    #[test]
    fn what_the_kernel_tells_is_heard_in_any_order_and_cut_off_anywhere() {
        let time = [7_u64.to_ne_bytes(), 5_u64.to_ne_bytes()].concat();
        let length = message(libc::SOL_UDP, libc::UDP_GRO, &1_470_i32.to_ne_bytes());
        let time = message(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &time);
        let other = message(libc::SOL_SOCKET, 77, &[1, 2, 3]);
        let all = (1_470, Some(7_000_000_005));
        assert_eq!(heard(&[&length[..], &time].concat()), all);
        assert_eq!(heard(&[&other[..], &time, &other, &length].concat()), all);
        assert_eq!(heard(&[]), (9, None));
        let both = [time, length].concat();
        for end in 0..both.len() - 8 {
            assert!([(9, None), (9, all.1)].contains(&heard(&both[..end])), "{end}");
        }
        assert_eq!(heard(&[0; 64]), (9, None));
    }

    #[test]
    fn the_kernel_tells_when_a_datagram_came() {
        let [local, remote] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
        Inbox::prepare(&remote);
        let mut inbox = Inbox::new().expect("memory");
        let since = || std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos();
        let before = since();
        for text in ["one", "three"] {
            local.send_to(text.as_bytes(), remote.local_addr().expect("bound")).expect("sent");
        }
        inbox.receive(&remote).expect("received");
        assert_eq!(inbox.filled(), 2, "both were there");
        for (index, text) in ["one", "three"].into_iter().enumerate() {
            let batch = inbox.batch(index);
            assert_eq!((batch.bytes, batch.segment), (text.as_bytes(), text.len()));
            let arrived = u128::from(batch.arrived.expect("ancillary"));
            assert!((before..=since()).contains(&arrived), "{before} {arrived}");
        }
    }
}
