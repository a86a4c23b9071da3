//! Streams over UDP. As in iperf3, each datagram begins with its send time in seconds and microseconds, and its number in 32 or 64 bits, all
//! big-endian.
//!
//! If supported, the kernel takes many datagrams as one buffer, which it splits as late as possible (UDP_SEGMENT), and joins datagrams that
//! arrive close together (UDP_GRO). Each datagram keeps its number and is counted individually. But the datagrams of a batch share their
//! send and arrival times, and if this machine drops a batch, all its datagrams are lost. A stream with a target bit rate is therefore sent
//! in batches only if it cannot reach the rate otherwise.
//!
//! Arrival times are the kernel's if available, so that a receiver's wait for a CPU does not count as jitter.

mod inbox;
mod outbox;

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use inbox::Inbox;
use outbox::Outbox;

use super::super::handshake;
use super::counters::SendMethod;
use super::pace::Pace;
use super::sequence::Sequence;
use super::{Counters, PATIENCE, Settings, passes};
use iotax_load::clock;
use iotax_model::threads;

/// Length in bytes of the header with a 64-bit number.
const HEADER: usize = 16;
/// Nanoseconds between datagrams below which the kernel splits a buffer into datagrams (UDP_SEGMENT), if it can. Otherwise sendmmsg sends
/// them.
const CLOSE_NS: u64 = 5_000;
/// Pause of a sender if the kernel has no route to the peer or no buffer space.
const REST: std::time::Duration = std::time::Duration::from_millis(1);

/// Sends datagrams until `stop` is set or the amount in `settings` is used up.
pub(super) fn send(
    socket: &UdpSocket,
    settings: &Settings,
    counters: &Counters,
    stop: &AtomicBool,
) -> io::Result<()> {
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut outbox = Outbox::new(socket, settings)?;
    let mut pace = settings.bitrate.map(|bitrate| Pace::new(bitrate, outbox.length(), clock::now()));
    while !stop.load(Ordering::Relaxed) {
        let mut count = outbox.room();
        if let Some(pace) = &mut pace {
            count = pace.take(clock::now(), count);
            if count == 0 {
                pace.rest(PATIENCE);
                continue;
            }
        }
        if let Some(amount) = &settings.amount {
            count = amount.take(count, outbox.length());
            if count == 0 {
                break;
            }
        }
        outbox.fill(count);
        while !outbox.is_empty() && !stop.load(Ordering::Relaxed) {
            match outbox.send(socket) {
                Ok((bytes, datagrams)) => counters.sent(bytes, datagrams),
                Err(error) if passes(&error) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => threads::sleep(REST),
                Err(error) if is_away(&error) => {
                    let (bytes, datagrams) = outbox.lose();
                    counters.sent(bytes, datagrams);
                    threads::sleep(REST);
                }
                Err(error) => return Err(error),
            }
        }
        counters.went(outbox.method());
    }
    Ok(())
}

/// Returns whether an error means that the peer is temporarily unreachable.
fn is_away(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETDOWN | libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EHOSTDOWN | libc::EADDRNOTAVAIL)
    )
}

/// Returns whether an error means that the peer's port was closed when an earlier datagram arrived there.
fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Receives datagrams until `stop` is set.
pub(super) fn receive(
    socket: &UdpSocket,
    settings: &Settings,
    counters: &Counters,
    stop: &AtomicBool,
) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    Inbox::prepare(socket);
    counters.expect_blocks(settings);
    let mut inbox = Inbox::new()?;
    let (mut sequence, mut method) = (Sequence::new(), SendMethod::Many);
    while !stop.load(Ordering::Relaxed) {
        match inbox.receive(socket) {
            Ok(()) => {}
            Err(error) if passes(&error) || is_away(&error) || is_refused(&error) => continue,
            Err(error) => return Err(error),
        }
        let now = clock::now();
        for index in 0..inbox.filled() {
            let batch = inbox.batch(index);
            if batch.segment < batch.bytes.len() {
                method = SendMethod::Segmented;
            }
            let arrived = batch.arrived.unwrap_or(now);
            let (mut bytes, mut lost) = (0, 0_u64);
            for datagram in batch.bytes.chunks(batch.segment) {
                let Some((sent, number)) = read_header(datagram, settings.udp64, &sequence) else { continue };
                bytes += datagram.len() as u64;
                lost = lost.saturating_add(sequence.arrived(number));
                sequence.took(arrived.cast_signed().wrapping_sub(sent.cast_signed()));
            }
            if bytes > 0 {
                counters.arrived(bytes, now, lost.saturating_mul(batch.segment as u64));
            }
        }
        counters.follow(&sequence);
        counters.went(method);
    }
    Ok(())
}

/// Returns the length in bytes of a header with a 64-bit number (`wide`) or a 32-bit one.
const fn header_bytes(wide: bool) -> usize {
    if wide { HEADER } else { HEADER - 4 }
}

/// Writes the header at the start of a datagram.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the header has 32 bits")]
fn write_header(datagram: &mut [u8], stamp: [u8; 8], number: u64, wide: bool) {
    let number =
        if wide { number.to_be_bytes() } else { u64::from(number as u32).rotate_left(32).to_be_bytes() };
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&stamp);
    header[8..].copy_from_slice(&number);
    datagram[..header_bytes(wide)].copy_from_slice(&header[..header_bytes(wide)]);
}

/// Encodes the send time, `now` nanoseconds of the engine's clock, as seconds and microseconds.
#[expect(clippy::cast_possible_truncation, reason = "the header has 32 bits")]
fn stamp(now: u64) -> [u8; 8] {
    let (seconds, micros) = ((now / 1_000_000_000) as u32, (now % 1_000_000_000 / 1_000) as u32);
    (u64::from(seconds) << 32 | u64::from(micros)).to_be_bytes()
}

/// Reads the send time, in nanoseconds of the sender's clock, and the sequence number. `None` if the datagram is too short, or if it is a
/// repeated opening datagram.
#[inline]
fn read_header(datagram: &[u8], wide: bool, sequence: &Sequence) -> Option<(u64, u64)> {
    if datagram.len() == handshake::LENGTH && handshake::read_call(datagram).is_some() {
        return None;
    }
    let header = datagram.get(..header_bytes(wide))?;
    let word = |at: usize| header.get(at..at + 4).map(|word| word.try_into().map(u32::from_be_bytes))?.ok();
    let sent = u64::from(word(0)?) * 1_000_000_000 + u64::from(word(4)?) * 1_000;
    let low = word(8)?;
    let number = if wide { u64::from(low) << 32 | u64::from(word(12)?) } else { sequence.extended(low) };
    Some((sent, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let now = 12_345_678_901_234;
        for (wide, number) in [(false, 7), (true, 7), (true, 1 << 40)] {
            let mut datagram = [0xff; 20];
            write_header(&mut datagram, stamp(now), number, wide);
            assert_eq!(read_header(&datagram, wide, &Sequence::new()), Some((now / 1_000 * 1_000, number)));
            assert_eq!(datagram[if wide { 16 } else { 12 }..], [0xff; 8][if wide { 4 } else { 0 }..]);
        }
        // Seconds, microseconds and the number, as iperf3 has them.
        let mut datagram = [0; 12];
        write_header(&mut datagram, stamp(3_000_005_000), 0x0102_0304, false);
        assert_eq!(datagram, [0, 0, 0, 3, 0, 0, 0, 5, 1, 2, 3, 4]);
        assert_eq!(read_header(&datagram[..11], false, &Sequence::new()), None, "too short");
        let call = handshake::call(&[b'a'; super::super::super::control::COOKIE]);
        assert_eq!(read_header(&call, true, &Sequence::new()), None, "it opens a stream");
    }
}
