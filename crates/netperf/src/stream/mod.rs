//! The streams of iperf3's protocol: sending and receiving over a connected socket, and the counts.
//!
//! [`transfer`] runs on a thread for each stream and direction. Its counts are in [`Counters`], which another thread reads for reports. While
//! bytes move, it does not allocate, lock or share memory with another stream.

mod counters;
mod info;
mod options;
mod pace;
mod sequence;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use iotax_load::buffers::{Buffers, Slot};
use iotax_load::random::{Purpose, SplitMix64};

pub(crate) use counters::{Counters, GapSpan, Snapshot};
pub use info::TcpInfo;
pub(crate) use info::tcp_info;
pub(crate) use options::{Options, busy_polls};

/// Buffer lengths are rounded up to a multiple of this many bytes.
const SECTOR: usize = 512;

/// Maximum time that a call may block before the stream checks for a stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// The connected socket of a stream.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// The settings of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Length in bytes of one write, or of a datagram including its header.
    pub(crate) length: usize,
    /// Target bit rate of this stream in bits per second, which includes the headers in the payload; `None` for no limit.
    pub(crate) bitrate: Option<u64>,
    /// True to send TCP data from a memory file without copying it (sendfile).
    pub(crate) zerocopy: bool,
    /// True to drop received TCP data without copying it from the kernel.
    pub(crate) skip_copy: bool,
    /// True to number datagrams with 64 bits, as with iperf3's --udp-counters-64bit.
    pub(crate) udp64: bool,
    /// Number of bytes or blocks that all streams of a direction send together; `None` for no limit.
    pub(crate) amount: Option<Arc<Amount>>,
}

/// The bytes or blocks that the streams of a direction have left to send together (iperf3's --bytes and --blockcount).
#[derive(Debug)]
pub(crate) struct Amount {
    left: AtomicU64,
    in_blocks: bool,
}

impl Amount {
    /// Creates an amount of this many bytes.
    pub(crate) const fn bytes(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes), in_blocks: false }
    }

    /// Creates an amount of this many writes or datagrams.
    pub(crate) const fn blocks(blocks: u64) -> Self {
        Self { left: AtomicU64::new(blocks), in_blocks: true }
    }

    /// Takes up to `blocks` writes of `length` bytes from the amount. Returns their number. The last write may exceed the remaining bytes, as
    /// in iperf3.
    fn take(&self, blocks: u64, length: usize) -> u64 {
        let unit = if self.in_blocks { 1 } else { length.max(1) as u64 };
        let left = |left: u64| left.saturating_sub(blocks.saturating_mul(unit));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(left(now)));
        before.unwrap_or_default().div_ceil(unit).min(blocks)
    }
}

/// Sends until `stop` is set or the amount is used up; or receives until `stop` is set or the TCP connection ends. Data that has arrived but
/// was not read does not count.
///
/// # Errors
/// A permanent socket error. While a link is down, datagrams are lost, but the stream goes on.
pub(crate) fn transfer(
    sends: bool,
    socket: &Socket,
    settings: &Settings,
    counters: &Counters,
    stop: &AtomicBool,
) -> io::Result<()> {
    match (socket, sends) {
        (Socket::Tcp(socket), true) => tcp::send(socket, settings, counters, stop),
        (Socket::Tcp(socket), false) => tcp::receive(socket, settings, counters, stop),
        (Socket::Udp(socket), true) => udp::send(socket, settings, counters, stop),
        (Socket::Udp(socket), false) => udp::receive(socket, settings, counters, stop),
    }
}

/// A buffer that the kernel copies from or to. It is page-aligned, as iperf3's is; a plain allocation would start 16 bytes after a page
/// boundary.
#[derive(Debug)]
struct Memory {
    buffers: Buffers,
    slot: Slot,
    length: usize,
}

impl Memory {
    /// Allocates a zeroed buffer of `length` bytes.
    fn new(length: usize) -> io::Result<Self> {
        let (buffers, slots) = Buffers::new(1, length.max(1).next_multiple_of(SECTOR))?;
        let slot = slots.into_iter().next().ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { buffers, slot, length })
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffers.slice(&mut self.slot)[..self.length]
    }
}

/// Creates a buffer of incompressible bytes, which are the same each time.
fn payload(length: usize) -> io::Result<Memory> {
    let mut memory = Memory::new(length)?;
    let mut random = SplitMix64::new(0, Purpose::Payload, 0);
    for word in memory.bytes().chunks_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]);
    }
    Ok(memory)
}

/// Returns whether a failed call only needs to be repeated.
fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
