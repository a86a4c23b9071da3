//! Messages as ICMP echo requests, which the server's kernel answers.
//!
//! Uses a ping socket (icmp(7)) if the sysctl net.ipv4.ping_group_range permits it, else a raw socket (raw(7)), which requires CAP_NET_RAW.
//! The kernel timestamps each reply on arrival if it can, so that the time that the process waits for a CPU is not part of the round trip.
#![expect(
    unsafe_code,
    reason = "the crates in use have neither filters of ICMP nor the kernel's time stamps"
)]

use std::ffi::c_void;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, SendFlags, SocketFlags, SocketType, ipproto};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::message::Message;
use super::transport::{Reply, Transport, unless_blocked};

/// Bytes of an echo header: type, code, checksum, identifier and sequence number (RFC 792, RFC 4443).
const HEADER: usize = 8;
/// Length of the longest IPv4 header in bytes.
const IP_HEADER: usize = 60;
/// ICMP type of an IPv4 echo reply.
const REPLY_4: u8 = 0;
/// ICMP type of an IPv4 echo request.
const REQUEST_4: u8 = 8;
/// ICMP type of an IPv6 echo request.
const REQUEST_6: u8 = 128;
/// ICMP type of an IPv6 echo reply.
const REPLY_6: u8 = 129;
/// The socket option ICMP_FILTER of linux/icmp.h: a bitmap of types that a raw socket does not receive. The crates in use do not define it.
const ICMP_FILTER: i32 = 1;
const SOL_RAW: i32 = 255;
/// The socket option `ICMPV6_FILTER` of linux/icmpv6.h: a bitmap of the 256 ICMPv6 types that a raw socket does not receive.
const ICMPV6_FILTER: i32 = 1;
/// Bytes of a control message that carries a timestamp: 16 of header, 16 of time.
const CONTROL: usize = 16 + 16;

/// An ICMP socket for echo requests to one host.
#[derive(Debug)]
pub(super) struct Icmp {
    socket: OwnedFd,
    request: Box<[u8]>,
    reply: Box<[u8]>,
    is_raw: bool,
    is_v4: bool,
    has_stamps: bool,
}

impl Icmp {
    /// Opens a socket for echo requests to `host` with `length` bytes of data each. `bind` is the local address; `None` lets the kernel
    /// choose.
    ///
    /// # Errors
    /// The system does not permit this process to open such a socket (the text names the remedy), or the socket cannot be bound to the
    /// local address or connected to the host.
    pub(super) fn new(host: IpAddr, bind: Option<IpAddr>, length: usize) -> io::Result<Self> {
        let is_v4 = host.is_ipv4();
        let (socket, is_raw) = open(is_v4)?;
        if is_raw {
            pass_only_replies(&socket, is_v4)?;
        }
        if let Some(bind) = bind {
            rustix::net::bind(&socket, &SocketAddr::new(bind, 0))?;
        }
        rustix::net::connect(&socket, &SocketAddr::new(host, 0))?;
        let has_stamps =
            option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32.to_ne_bytes()).is_ok();
        Ok(Self {
            socket,
            request: vec![0; HEADER + length].into(),
            reply: vec![0; IP_HEADER + HEADER + length].into(),
            is_raw,
            is_v4,
            has_stamps,
        })
    }

    /// Returns "a raw socket" or "a ping socket", whichever the kernel permitted.
    pub(super) const fn kind(&self) -> &'static str {
        if self.is_raw { "a raw socket" } else { "a ping socket" }
    }

    /// Returns the received packet of `length` bytes without its IP header, which only a raw IPv4 socket includes. `None` if the packet is
    /// shorter than its IP header.
    fn echo(&self, length: usize) -> Option<&[u8]> {
        let bytes = self.reply.get(..length)?;
        // Only a raw IPv4 socket includes the IP header, which gives its length in 32-bit words.
        let skip = if self.is_raw && self.is_v4 { usize::from(bytes.first()? & 15) * 4 } else { 0 };
        bytes.get(skip..)
    }
}

impl Transport for Icmp {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn send(&mut self, message: Message) -> io::Result<bool> {
        let kind = if self.is_v4 { REQUEST_4 } else { REQUEST_6 };
        // On a ping socket the kernel replaces the identifier. Replies are matched by the full cookie and number in the payload.
        let (identifier, sequence) = (low_16(message.cookie), low_16(message.number));
        self.request[..HEADER].fill(0);
        self.request[0] = kind;
        self.request[4..6].copy_from_slice(&identifier.to_be_bytes());
        self.request[6..HEADER].copy_from_slice(&sequence.to_be_bytes());
        message.write(&mut self.request[HEADER..]);
        if self.is_raw && self.is_v4 {
            let sum = checksum(&self.request);
            self.request[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        let sent = rustix::net::send(&self.socket, &self.request, SendFlags::DONTWAIT);
        Ok(unless_blocked(sent.map_err(io::Error::from))?.is_some())
    }

    fn receive(&mut self, replies: &mut Vec<Reply>) -> io::Result<bool> {
        let got = read(self.socket.as_fd(), &mut self.reply);
        let Some((length, stamp)) = unless_blocked(got)? else { return Ok(false) };
        let waited = stamp.filter(|_| self.has_stamps).map_or(0, since);
        let is_reply = if self.is_v4 { REPLY_4 } else { REPLY_6 };
        let message = self
            .echo(length)
            .filter(|echo| echo.len() == self.request.len() && echo[0] == is_reply)
            .and_then(|echo| Message::read(&echo[HEADER..]));
        replies.extend(message.map(|message| Reply { message, waited }));
        Ok(true)
    }

    fn ends_with(&self, _error: &io::Error) -> bool {
        // Links that are down and errors from routers must not end a measurement: it may be about them.
        false
    }
}

#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
const fn low_16(number: u64) -> u16 {
    number as u16
}

/// Opens an ICMP socket: a ping socket if permitted, else a raw one. Returns the socket, and true if it is raw.
fn open(is_v4: bool) -> io::Result<(OwnedFd, bool)> {
    let (family, protocol): (AddressFamily, Protocol) =
        if is_v4 { (AddressFamily::INET, ipproto::ICMP) } else { (AddressFamily::INET6, ipproto::ICMPV6) };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = |kind| rustix::net::socket_with(family, kind, flags, Some(protocol));
    let ping = match open(SocketType::DGRAM) {
        Ok(socket) => return Ok((socket, false)),
        Err(error) => error,
    };
    let raw = open(SocketType::RAW);
    raw.map(|socket| (socket, true)).map_err(|raw| {
        io::Error::new(
            io::Error::from(raw).kind(),
            format!(
                "the kernel lets this process have neither a ping socket ({ping}) nor a raw one ({raw}); let the group have the \
                 former, sysctl net.ipv4.ping_group_range=\"0 2147483647\", or the program the latter, setcap cap_net_raw+ep \
                 iotax, or use UDP with iotax net serve on the other end"
            ),
        )
    })
}

/// Makes a raw socket receive only echo replies; otherwise it would receive all ICMP packets of the host.
fn pass_only_replies(socket: &OwnedFd, is_v4: bool) -> io::Result<()> {
    if is_v4 {
        let blocked: u32 = !(1 << REPLY_4);
        return option(socket, SOL_RAW, ICMP_FILTER, &blocked.to_ne_bytes());
    }
    let mut blocked = [u32::MAX; 8];
    blocked[usize::from(REPLY_6 / 32)] &= !(1 << (REPLY_6 % 32));
    let bytes: Vec<u8> = blocked.iter().flat_map(|word| word.to_ne_bytes()).collect();
    option(socket, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &bytes)
}

fn option(socket: &OwnedFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: pointer and length describe `value`, which the kernel only reads.
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast::<c_void>(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads one packet. Returns its length and, if known, its arrival time on the system clock.
fn read(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Option<Timespec>)> {
    // An array of u64, so that the kernel's structures in it are aligned.
    let mut control = [0_u64; CONTROL / 8];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero bytes are a valid msghdr: no address, no parts, no control messages.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = CONTROL as _;
    // SAFETY: the header's pointers and lengths describe buffers that this function owns during the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    Ok((length, stamp(&control)))
}

/// Returns the arrival time in a control message; `None` for a message of another kind. The message consists of its length, level and type, then
/// seconds and nanoseconds, in the machine's byte order.
fn stamp(control: &[u64; CONTROL / 8]) -> Option<Timespec> {
    let kind = control[1].to_ne_bytes();
    let (level, name) = kind.split_at(4);
    let is_stamp = control[0] == CONTROL as u64
        && level == libc::SOL_SOCKET.to_ne_bytes()
        && name == libc::SCM_TIMESTAMPNS.to_ne_bytes();
    is_stamp.then_some(Timespec { tv_sec: control[2].cast_signed(), tv_nsec: control[3].cast_signed() })
}

/// Returns the nanoseconds since `then` on the system clock. 0 if the result is negative or at least 1 s, which means that the clock was set.
fn since(then: Timespec) -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let nanos = (now.tv_sec - then.tv_sec) * 1_000_000_000 + (now.tv_nsec - then.tv_nsec);
    u64::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000).unwrap_or(0)
}

/// Computes the Internet checksum (RFC 1071) of bytes in which the checksum field is 0.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum: u64 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !low_16(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        // The example of RFC 1071, section 3: the sum is ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]), !0xDDF2);
        // With the checksum in place, the sum is 0. An odd last byte is padded with a zero.
        let mut packet = [8, 0, 0, 0, 1, 2, 3, 4, 5];
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(checksum(&packet), 0);
    }
}
