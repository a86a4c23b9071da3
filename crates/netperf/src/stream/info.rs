//! The kernel's metrics of a TCP connection (socket option TCP_INFO).
#![expect(unsafe_code, reason = "the crates in use have no TCP_INFO with the newer kernels' counts")]

use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Number of bytes of the kernel's structure (linux/tcp.h) that are read.
const ROOM: usize = 232;

/// The state number of a closed connection, TCP_CLOSE of net/tcp_states.h.
const CLOSED: u8 = 7;

/// The metrics of TCP_INFO that are reported. Times are in nanoseconds. A count that the running kernel does not have is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Maximum segment size for sending, in bytes.
    pub mss: u32,
    /// Path MTU in bytes.
    pub pmtu: u32,
    /// Smoothed round-trip time in nanoseconds.
    pub rtt_ns: u64,
    /// Mean deviation of the round-trip time in nanoseconds.
    pub rttvar_ns: u64,
    /// Congestion window in bytes.
    pub snd_cwnd: u64,
    /// Number of segments retransmitted since the connection began.
    pub retransmits: u64,
    /// Smallest observed round-trip time in nanoseconds; `None` on older kernels.
    pub min_rtt_ns: Option<u64>,
    /// Received segments with data since the connection began, modulo 2^32; `None` on older kernels.
    pub data_segs_in: Option<u32>,
    /// Sent segments with data since the connection began, including retransmits, modulo 2^32; `None` on older kernels.
    pub data_segs_out: Option<u32>,
    /// Bytes that the peer has acknowledged; `None` on older kernels.
    pub bytes_acked: Option<u64>,
    /// True if bytes wait to be sent or to be acknowledged; always false on a closed connection.
    pub waiting: bool,
    /// The peer's receive window in bytes; `None` on older kernels.
    pub snd_wnd: Option<u32>,
}

/// Reads TCP_INFO of a connection; `None` if the kernel does not report it.
pub(crate) fn tcp_info(socket: &TcpStream) -> Option<TcpInfo> {
    let mut bytes = [0_u8; ROOM];
    let mut length = libc::socklen_t::try_from(ROOM).ok()?;
    // SAFETY: the kernel writes at most `length` bytes to `bytes`, which has that many, and stores the number written in `length`.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (answer == 0).then(|| parse(bytes.get(..length as usize)))?
}

/// Parses the kernel's structure; newer kernels only append fields. `None` if it is missing or too short.
fn parse(bytes: Option<&[u8]>) -> Option<TcpInfo> {
    let bytes = bytes?;
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let micros = |at: usize| word(at).map(|micros| u64::from(micros) * 1_000);
    let mss = word(16)?;
    Some(TcpInfo {
        mss,
        pmtu: word(60)?,
        rtt_ns: micros(68)?,
        rttvar_ns: micros(72)?,
        snd_cwnd: u64::from(word(80)?) * u64::from(mss),
        retransmits: word(100)?.into(),
        min_rtt_ns: micros(148),
        data_segs_in: word(152),
        data_segs_out: word(156),
        bytes_acked: long(120),
        // Segments in flight and unsent bytes. On a broken connection both may stay above 0 forever.
        waiting: bytes.first() != Some(&CLOSED)
            && [24, 144].into_iter().any(|at| word(at).is_some_and(|count| count > 0)),
        snd_wnd: word(228),
    })
}
