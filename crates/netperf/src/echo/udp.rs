//! Messages as UDP datagrams.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};

use super::message::Message;
use super::transport::{Reply, Transport, unless_blocked};

/// A UDP socket connected to the echo server.
#[derive(Debug)]
pub(super) struct Udp {
    socket: UdpSocket,
    message: Box<[u8]>,
    reply: Box<[u8]>,
}

impl Udp {
    /// Wraps a connected socket for messages of `length` bytes.
    pub(super) fn new(socket: UdpSocket, length: usize) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, message: vec![0; length].into(), reply: vec![0; length].into() })
    }
}

impl Transport for Udp {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn send(&mut self, message: Message) -> io::Result<bool> {
        message.write(&mut self.message);
        Ok(unless_blocked(self.socket.send(&self.message))?.is_some())
    }

    fn receive(&mut self, replies: &mut Vec<Reply>) -> io::Result<bool> {
        let Some(length) = unless_blocked(self.socket.recv(&mut self.reply))? else { return Ok(false) };
        let message = Message::read(&self.reply[..length]).filter(|_| length == self.reply.len());
        replies.extend(message.map(|message| Reply { message, waited: 0 }));
        Ok(true)
    }

    fn ends_with(&self, _error: &io::Error) -> bool {
        // A server or link that is down for a while must not end a measurement: it may be about that.
        false
    }
}
