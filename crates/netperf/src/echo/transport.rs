//! The interface of the transports that carry messages to the server and back.

use std::io;
use std::net::UdpSocket;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt::{set_socket_recv_buffer_size, socket_recv_buffer_size};

use super::message::Message;

/// A message that the server sent back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) message: Message,
    /// Nanoseconds from the reply's arrival in the kernel to the read, to be subtracted from the round trip; 0 if unknown.
    pub(super) waited: u64,
}

/// A non-blocking socket that carries messages to the server and back.
pub(super) trait Transport: Send {
    /// Returns the file descriptor to wait on.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Sends one message. Returns false if nothing of it was sent, because the buffer is full or the call was interrupted.
    fn send(&mut self, message: Message) -> io::Result<bool>;

    /// Reads the socket once and adds the messages received to `replies`. Returns false if there was nothing to read. Data that is not a
    /// message is skipped.
    fn receive(&mut self, replies: &mut Vec<Reply>) -> io::Result<bool>;

    /// Returns whether part of a message waits for space in the socket buffer.
    fn is_held_up(&self) -> bool {
        false
    }

    /// Returns whether the socket cannot be used any more after this error.
    fn ends_with(&self, error: &io::Error) -> bool;
}

/// Returns `None` instead of the error if a call would block or was interrupted.
pub(super) fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Requested size in bytes of the receive buffer for datagrams. The kernel's default overflows with some 280 small datagrams, which would look
/// like packet loss.
const DEEP: usize = 4 << 20;

/// Enlarges a socket's receive buffer to 4 MiB, or as far as permitted.
pub(super) fn deepen(socket: &UdpSocket) {
    if socket_recv_buffer_size(socket).is_ok_and(|bytes| bytes < DEEP) {
        // A smaller buffer works too.
        let _ = set_socket_recv_buffer_size(socket, DEEP);
    }
}
