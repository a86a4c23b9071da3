//! Streams over UDP. Each datagram begins with the time of its sending, seconds and microseconds, and its number, in 32 or 64
//! bits, all big-endian, as iperf3's do.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pace::Pace;
use super::sequence::Sequence;
use super::{Counters, PATIENCE, Settings, passes};
use crate::clock;

/// Bytes of the longest header.
const HEADER: usize = 16;

/// See [`super::send`].
pub(super) fn send(
    socket: &UdpSocket,
    settings: &Settings,
    counters: &Counters,
    stop: &AtomicBool,
) -> io::Result<()> {
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut datagram = vec![0x69_u8; settings.length.max(HEADER)];
    let mut pace = settings.bitrate.map(|bitrate| Pace::new(bitrate, settings.length, clock::now()));
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        if let Some(pace) = &mut pace
            && pace.take(clock::now(), 1) == 0
        {
            pace.rest(PATIENCE);
            continue;
        }
        if let Some(amount) = &settings.amount
            && amount.take(1, settings.length) == 0
        {
            break;
        }
        number += 1;
        write_header(&mut datagram, clock::now(), number, settings.udp64);
        match socket.send(&datagram) {
            Ok(sent) => counters.sent(sent as u64, 1),
            Err(error) if passes(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// See [`super::receive`].
pub(super) fn receive(
    socket: &UdpSocket,
    settings: &Settings,
    counters: &Counters,
    stop: &AtomicBool,
) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut datagram = vec![0_u8; settings.length.max(HEADER)];
    let mut sequence = Sequence::new();
    while !stop.load(Ordering::Relaxed) {
        let length = match socket.recv(&mut datagram) {
            Ok(length) => length,
            Err(error) if passes(&error) => continue,
            Err(error) => return Err(error),
        };
        let now = clock::now();
        let Some((sent, number)) = read_header(&datagram[..length], settings.udp64, &sequence) else {
            continue;
        };
        let passed = sequence.arrived(number);
        sequence.took(now.cast_signed().wrapping_sub(sent.cast_signed()));
        counters.arrived_after(length as u64, now, passed.saturating_mul(length as u64));
        counters.follow(&sequence);
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "the header has 32 bits")]
fn write_header(datagram: &mut [u8], now: u64, number: u64, wide: bool) {
    datagram[..4].copy_from_slice(&((now / 1_000_000_000) as u32).to_be_bytes());
    datagram[4..8].copy_from_slice(&((now % 1_000_000_000 / 1_000) as u32).to_be_bytes());
    if wide {
        datagram[8..16].copy_from_slice(&number.to_be_bytes());
    } else {
        datagram[8..12].copy_from_slice(&(number as u32).to_be_bytes());
    }
}

/// When a datagram was sent, in nanoseconds of its sender's clock, and its number; `None` if it is too short to be of a stream.
fn read_header(datagram: &[u8], wide: bool, sequence: &Sequence) -> Option<(u64, u64)> {
    let word = |at: usize| Some(u32::from_be_bytes(datagram.get(at..at + 4)?.try_into().ok()?));
    let sent = u64::from(word(0)?) * 1_000_000_000 + u64::from(word(4)?) * 1_000;
    let number = if wide {
        u64::from_be_bytes(datagram.get(8..16)?.try_into().ok()?)
    } else {
        sequence.extended(word(8)?)
    };
    Some((sent, number))
}
