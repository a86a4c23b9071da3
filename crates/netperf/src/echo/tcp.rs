//! Messages over a TCP connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use super::message::Message;
use super::transport::{Reply, Transport, unless_blocked};

/// Bytes of the read buffer, if no message is longer.
const AT_ONCE: usize = 64 << 10;

/// A TCP connection to the echo server.
#[derive(Debug)]
pub(super) struct Tcp {
    stream: TcpStream,
    message: Box<[u8]>,
    /// Bytes of the current message that are sent; the message's length if it is sent completely.
    gone: usize,
    replies: Box<[u8]>,
    /// Bytes at the start of `replies` that belong to a message not received completely.
    filled: usize,
}

impl Tcp {
    /// Wraps a connected socket for messages of `length` bytes.
    pub(super) fn new(stream: TcpStream, length: usize) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            message: vec![0; length].into(),
            gone: length,
            replies: vec![0; AT_ONCE.max(length)].into(),
            filled: 0,
        })
    }

    /// Sends as much of the current message as the socket buffer takes.
    fn push(&mut self) -> io::Result<()> {
        while self.is_held_up() {
            match unless_blocked(self.stream.write(&self.message[self.gone..]))? {
                Some(written) => self.gone += written,
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

impl Transport for Tcp {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn send(&mut self, message: Message) -> io::Result<bool> {
        self.push()?;
        if self.is_held_up() {
            return Ok(false);
        }
        message.write(&mut self.message);
        self.gone = 0;
        self.push()?;
        if self.gone == 0 {
            self.gone = self.message.len();
            return Ok(false);
        }
        Ok(true)
    }

    fn receive(&mut self, replies: &mut Vec<Reply>) -> io::Result<bool> {
        self.push()?;
        let Some(length) = unless_blocked(self.stream.read(&mut self.replies[self.filled..]))? else {
            return Ok(false);
        };
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        self.filled += length;
        let each = self.message.len();
        let whole = self.filled - self.filled % each;
        replies.extend(
            self.replies[..whole]
                .chunks_exact(each)
                .filter_map(|reply| Some(Reply { message: Message::read(reply)?, waited: 0 })),
        );
        self.replies.copy_within(whole..self.filled, 0);
        self.filled -= whole;
        Ok(true)
    }

    fn is_held_up(&self) -> bool {
        self.gone < self.message.len()
    }

    fn ends_with(&self, _error: &io::Error) -> bool {
        true
    }
}
