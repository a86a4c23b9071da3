//! Socket options of a stream. The client sets them before it connects, because TCP negotiates the window scale and the segment size then.
#![expect(unsafe_code, reason = "the crates in use have neither TCP_MAXSEG nor SO_BUSY_POLL")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use iotax_model::units::Nanos;
use rustix::net::sockopt;

use super::Socket;

/// Options for a socket; `None` and false leave the choice to the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Size of the send and of the receive buffer in bytes. The kernel doubles it for its overhead, and limits it.
    pub(crate) window: Option<usize>,
    /// Maximum TCP segment size in bytes.
    pub(crate) mss: Option<u32>,
    /// Name of TCP's congestion control.
    pub(crate) congestion: Option<String>,
    /// True to send small writes immediately (TCP_NODELAY).
    pub(crate) no_delay: bool,
    /// Time for which the kernel polls the network device before it sleeps (SO_BUSY_POLL); set in whole microseconds.
    pub(crate) busy_poll: Option<Nanos>,
}

impl Options {
    /// Sets the options on a TCP or UDP socket. Options that only TCP has are left out for UDP.
    ///
    /// # Errors
    /// The kernel refuses an option; the error names it and its value. A refusal of busy polling for lack of permission or support is
    /// ignored.
    pub(crate) fn set(&self, socket: impl AsFd, is_tcp: bool) -> io::Result<()> {
        let socket = socket.as_fd();
        if let Some(window) = self.window {
            sockopt::set_socket_send_buffer_size(socket, window).map_err(named("window", window))?;
            sockopt::set_socket_recv_buffer_size(socket, window).map_err(named("window", window))?;
        }
        if let Some(busy_poll) = self.busy_poll {
            let micros = busy_poll.0.div_ceil(1_000);
            match number(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, micros) {
                // Busy polling takes CAP_NET_ADMIN and a kernel that supports it; `busy_polls` returns whether it works.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOPROTOOPT)) => {}
                set => set.map_err(named("busy_poll", busy_poll))?,
            }
        }
        if !is_tcp {
            return Ok(());
        }
        if let Some(mss) = self.mss {
            number(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, mss.into()).map_err(named("mss", mss))?;
        }
        if let Some(congestion) = &self.congestion {
            sockopt::set_tcp_congestion(socket, congestion).map_err(named("congestion", congestion))?;
        }
        if self.no_delay {
            sockopt::set_tcp_nodelay(socket, true)?;
        }
        Ok(())
    }
}

/// Returns whether busy polling is enabled for a socket.
pub(crate) fn busy_polls(socket: &Socket) -> bool {
    let descriptor = match socket {
        Socket::Tcp(socket) => socket.as_raw_fd(),
        Socket::Udp(socket) => socket.as_raw_fd(),
    };
    let (mut micros, mut length) = (0_i32, 4 as libc::socklen_t);
    // SAFETY: the pointers are to an int and to its length, which the kernel writes.
    let answer = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            (&raw mut micros).cast(),
            &raw mut length,
        )
    };
    answer == 0 && micros > 0
}

/// Adds the name and value of the option to an error.
fn named<E: Into<io::Error>>(key: &str, value: impl std::fmt::Display) -> impl FnOnce(E) -> io::Error {
    let what = format!("{key} = {value}");
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{what}: {error}"))
    }
}

/// Sets a numeric socket option.
pub(super) fn number(socket: BorrowedFd<'_>, level: i32, option: i32, value: u64) -> io::Result<()> {
    let value = i32::try_from(value).map_err(|_| io::ErrorKind::InvalidInput)?;
    let length = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    // SAFETY: the pointer is to an int of the length given, which the kernel only reads.
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
