//! Prepares and sends datagrams in batches.

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsFd;

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use super::super::counters::SendMethod;
use super::super::options::number;
use super::super::pace::Pace;
use super::super::{Memory, Settings, payload};
use super::{CLOSE_NS, header_bytes, stamp, write_header};
use iotax_load::clock;

/// Maximum number of datagrams in a batch that the kernel splits (UDP_MAX_SEGMENTS; newer kernels permit twice as many).
const MOST_SEGMENTS: usize = 64;
/// Maximum bytes of a batch, which must fit into an IP packet with its headers.
const MOST_BYTES: usize = 65_000;

/// Datagrams of equal length, one after the other in memory. The payload stays the same; the headers are rewritten for each use.
#[derive(Debug)]
pub(super) struct Outbox {
    datagrams: Memory,
    room: usize,
    length: usize,
    wide: bool,
    method: SendMethod,
    /// Number of the last datagram that was sent or given up.
    number: u64,
    /// Number of queued datagrams, which follow those already sent.
    waiting: usize,
    done: usize,
}

impl Outbox {
    pub(super) fn new(socket: &UdpSocket, settings: &Settings) -> io::Result<Self> {
        let length = settings.length.max(header_bytes(settings.udp64));
        let room = (MOST_BYTES / length).clamp(1, MOST_SEGMENTS);
        let mut outbox = Self {
            datagrams: payload(length * room)?,
            room,
            length,
            wide: settings.udp64,
            method: SendMethod::Many,
            number: 0,
            waiting: 0,
            done: 0,
        };
        let gap = settings.bitrate.map_or(0, |bitrate| Pace::gap_ns(bitrate, length));
        if room > 1 && gap < CLOSE_NS && segment(socket, length).is_ok() {
            outbox.method = SendMethod::Segmented;
        }
        Ok(outbox)
    }

    /// Returns the length of a datagram in bytes.
    pub(super) const fn length(&self) -> usize {
        self.length
    }

    /// Returns the maximum number of datagrams per call.
    pub(super) const fn room(&self) -> u64 {
        self.room as u64
    }

    /// Returns the method that passes datagrams to the kernel.
    pub(super) const fn method(&self) -> SendMethod {
        self.method
    }

    /// Queues `count` datagrams, or as many as fit.
    pub(super) fn fill(&mut self, count: u64) {
        (self.waiting, self.done) = (usize::try_from(count.min(self.room())).unwrap_or_default(), 0);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Sends the queued datagrams with the current time as their send time. Returns the number of bytes and of datagrams that the kernel accepted.
    ///
    /// # Errors
    /// A socket error. Nothing was sent then; the next call tries the same datagrams again, possibly by another method.
    pub(super) fn send(&mut self, socket: &UdpSocket) -> io::Result<(u64, u64)> {
        let stamp = stamp(clock::now());
        let waiting = &mut self.datagrams.bytes()[self.done * self.length..][..self.waiting * self.length];
        for (datagram, number) in waiting.chunks_exact_mut(self.length).zip(self.number + 1..) {
            write_header(datagram, stamp, number, self.wide);
        }
        let sent = match self.method {
            SendMethod::Segmented => socket.send(waiting).map(|bytes| bytes / self.length),
            SendMethod::Many => send_many(socket, waiting, self.length),
        };
        match sent {
            Ok(sent) => {
                self.take(sent);
                Ok(((sent * self.length) as u64, sent as u64))
            }
            // The datagram exceeds the path MTU, or the device cannot segment.
            Err(error) if self.method == SendMethod::Segmented && cannot_cut(&error) => {
                segment(socket, 0)?;
                self.method = SendMethod::Many;
                Err(io::ErrorKind::Interrupted.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Gives up the queued datagrams: they count as sent, and the receiver will see them as lost. Returns the number of bytes and of datagrams.
    pub(super) fn lose(&mut self) -> (u64, u64) {
        let lost = self.waiting;
        self.take(lost);
        ((lost * self.length) as u64, lost as u64)
    }

    const fn take(&mut self, count: usize) {
        self.number += count as u64;
        self.waiting -= count;
        self.done += count;
    }
}

/// Makes the kernel split a socket's data into datagrams of `length` bytes; 0 turns this off.
fn segment(socket: &UdpSocket, length: usize) -> io::Result<()> {
    number(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, length as u64)
}

fn cannot_cut(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP))
}

/// Sends datagrams of `length` bytes with one call (sendmmsg). Returns the number sent.
fn send_many(socket: &UdpSocket, datagrams: &[u8], length: usize) -> io::Result<usize> {
    let slices: Vec<[IoSlice<'_>; 1]> =
        datagrams.chunks_exact(length).map(|one| [IoSlice::new(one)]).collect();
    let mut nothing: Vec<SendAncillaryBuffer<'_, '_, '_>> =
        slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let mut messages: Vec<MMsgHdr<'_>> =
        slices.iter().zip(&mut nothing).map(|(slice, nothing)| MMsgHdr::new(slice, nothing)).collect();
    Ok(sendmmsg(socket, &mut messages, SendFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::super::super::sequence::Sequence;
    use super::super::read_header;
    use super::*;

    /// Sends `count` datagrams by this method. Returns the lengths and numbers of those that arrive.
    fn sent(method: SendMethod, count: u64) -> Vec<(usize, u64)> {
        let [local, remote] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
        local.connect(remote.local_addr().expect("bound")).expect("connected");
        let settings = Settings {
            length: 100,
            bitrate: None,
            zerocopy: false,
            skip_copy: false,
            udp64: true,
            amount: None,
        };
        let mut outbox = Outbox::new(&local, &settings).expect("memory");
        if method == SendMethod::Many {
            segment(&local, 0).expect("reset");
            outbox.method = method;
        }
        outbox.fill(count);
        while !outbox.is_empty() {
            outbox.send(&local).expect("sent");
        }
        outbox.fill(1);
        assert_eq!(outbox.lose(), (100, 1));
        outbox.fill(1);
        assert_eq!(outbox.send(&local).expect("sent"), (100, 1));
        let mut datagram = [0; 200];
        let mut next = || {
            let length = remote.recv(&mut datagram).expect("all of it");
            let (_, number) = read_header(&datagram[..length], true, &Sequence::new()).expect("a header");
            (length, number)
        };
        (0..=count).map(|_| next()).collect()
    }

    #[test]
    fn datagrams_are_the_same_whatever_way_they_go() {
        let expected: Vec<_> = (1..=20).chain([22]).map(|number| (100, number)).collect();
        assert_eq!(sent(SendMethod::Many, 20), expected);
        assert_eq!(sent(SendMethod::Segmented, 20), expected);
    }
}
