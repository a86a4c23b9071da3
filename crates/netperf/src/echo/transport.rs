//! Transports that carry messages to the server and back.

use std::io;
use std::net::UdpSocket;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt::{set_socket_recv_buffer_size, socket_recv_buffer_size};

use super::message::Message;

/// A message that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) message: Message,
    /// Nanoseconds between its arrival in the kernel and the read; 0 where that is part of the round trip.
    pub(super) waited: u64,
}

/// A socket that never blocks.
pub(super) trait Transport: Send {
    /// The descriptor to wait on.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Sends one message. Returns false if the buffer is full, in which case nothing was sent.
    fn send(&mut self, message: Message) -> io::Result<bool>;

    /// Reads the socket once. Returns false if there was nothing. Invalid data is skipped.
    fn receive(&mut self, replies: &mut Vec<Reply>) -> io::Result<bool>;

    /// True if part of a message is still unsent for lack of buffer space.
    fn is_held_up(&self) -> bool {
        false
    }

    /// True if the socket cannot be used after this error.
    fn ends_with(&self, error: &io::Error) -> bool;
}

/// Turns the error of a call that would block, or was interrupted, into `None`.
pub(super) fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Size of the receive buffer for datagrams, if permitted: the kernel's default overflows with some 280 small ones, which would look like
/// packet loss.
const DEEP: usize = 4 << 20;

/// Enlarges a socket's receive buffer as far as permitted.
pub(super) fn deepen(socket: &UdpSocket) {
    if socket_recv_buffer_size(socket).is_ok_and(|bytes| bytes < DEEP) {
        // With less it works too.
        let _ = set_socket_recv_buffer_size(socket, DEEP);
    }
}
