//! The streams of iperf3: sending and receiving over a connected socket, and the counts of both ends.
//!
//! [`transfer`] works on the calling thread, one for each stream and direction. Its counts are in [`Counters`], which a reporter
//! reads meanwhile. It neither allocates, locks nor shares memory with another stream while bytes move.

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

use iotax_engine::buffers::{Buffers, Slot};
use iotax_engine::random::{Purpose, SplitMix64};

pub(crate) use counters::{Counters, GapSpan, Snapshot};
pub use info::TcpInfo;
pub(crate) use info::tcp_info;
pub(crate) use options::{Options, busy_polls};

/// Sector size in bytes; buffers are multiples of it.
const SECTOR: usize = 512;

/// The longest that a call may block before the stream checks for a stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// A stream's socket, connected.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// Settings of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Bytes of one write, or of a datagram with its header.
    pub(crate) length: usize,
    /// Bits per second of this stream's payload and its own headers; `None` for no limit.
    pub(crate) bitrate: Option<u64>,
    /// True to send pages without copying, as far as the kernel can.
    pub(crate) zerocopy: bool,
    /// True to drop data that arrives over TCP without copying it.
    pub(crate) skip_copy: bool,
    /// Datagrams are numbered with 64 bits, as by iperf3's --udp-counters-64bit.
    pub(crate) udp64: bool,
    /// The amount that all streams of a direction may send together.
    pub(crate) amount: Option<Arc<Amount>>,
}

/// The amount that several streams may send together: iperf3's --bytes or --blockcount.
#[derive(Debug)]
pub(crate) struct Amount {
    left: AtomicU64,
    in_blocks: bool,
}

impl Amount {
    /// Limits the amount to this number of bytes.
    pub(crate) const fn bytes(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes), in_blocks: false }
    }

    /// Limits the amount to this number of writes or datagrams.
    pub(crate) const fn blocks(blocks: u64) -> Self {
        Self { left: AtomicU64::new(blocks), in_blocks: true }
    }

    /// Takes up to `blocks` writes of `length` bytes from the amount. Returns their number; the last one may exceed the bytes, as in
    /// iperf3.
    fn take(&self, blocks: u64, length: usize) -> u64 {
        let unit = if self.in_blocks { 1 } else { length.max(1) as u64 };
        let left = |left: u64| left.saturating_sub(blocks.saturating_mul(unit));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(left(now)));
        before.unwrap_or_default().div_ceil(unit).min(blocks)
    }
}

/// Sends until `stop` or until the amount is used up, or receives until `stop` or, with TCP, until the stream's end. Data that
/// has arrived and was not read by then is not counted.
///
/// # Errors
/// A permanent socket error. A link that is down loses datagrams but does not end the stream.
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

/// Memory that the kernel copies from and to. It is page-aligned, as iperf3's is; a plain allocation would begin 16 bytes after a page.
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

/// Incompressible bytes, always the same.
fn payload(length: usize) -> io::Result<Memory> {
    let mut memory = Memory::new(length)?;
    let mut random = SplitMix64::new(0, Purpose::Payload, 0);
    for word in memory.bytes().chunks_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]);
    }
    Ok(memory)
}

/// Returns whether a failed call only has to be retried.
fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
