//! The echo server, which sends every message back.

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::super::parameters::Parameters;
use super::super::stream::Socket;
use super::message::LEAST;
use super::transport::{deepen, unless_blocked};
use iotax_model::threads;

/// Interval at which a sleeping thread checks for a stop.
const POLL: Duration = Duration::from_millis(100);
/// Bytes of the read buffer, if no message is longer.
const AT_ONCE: usize = 64 << 10;

/// The way in which a thread waits for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Sleeps in the kernel.
    Asleep,
    /// Polls the socket, which keeps one CPU busy.
    Spinning,
}

/// The threads that answer messages, one per socket. Dropping this stops them.
#[derive(Debug)]
pub(crate) struct EchoServer {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl EchoServer {
    /// Starts a thread for each of `sockets`, which are connected to the client. The parameters determine protocol, message length and
    /// waiting.
    pub(crate) fn start(sockets: Vec<Socket>, parameters: &Parameters) -> io::Result<Self> {
        let mut echo_server = Self { stop: Arc::default(), threads: Vec::with_capacity(sockets.len()) };
        let length = usize::try_from(parameters.length()).map_err(io::Error::other)?;
        let busy_poll = parameters.iotax.as_ref().and_then(|extension| extension.busy_poll_ns);
        let waiting = if busy_poll.is_some() { Waiting::Spinning } else { Waiting::Asleep };
        for socket in sockets {
            if let (Socket::Udp(socket), None) = (&socket, parameters.window) {
                deepen(socket);
            }
            let stop = Arc::clone(&echo_server.stop);
            let work = move || match &socket {
                Socket::Tcp(stream) => messages(stream, length, waiting, &stop),
                Socket::Udp(socket) => datagrams(socket, length, waiting, &stop),
            };
            echo_server.threads.push(threads::spawn("answers", work)?);
        }
        Ok(echo_server)
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The client notices a broken connection; a panic is printed on stderr.
            drop(thread.join());
        }
    }
}

/// Sends every datagram back to the connected peer, cut to `length` bytes if it is longer, until `stop` is set. Ignores datagrams that are
/// too short to be a message.
///
/// # Errors
/// The socket cannot be set up. A datagram that cannot be read or answered is lost, which is not an error.
pub(super) fn datagrams(
    socket: &UdpSocket,
    length: usize,
    waiting: Waiting,
    stop: &AtomicBool,
) -> io::Result<()> {
    socket.set_nonblocking(waiting == Waiting::Spinning)?;
    socket.set_read_timeout(Some(POLL))?;
    let mut message = vec![0; length];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv(&mut message) {
            Ok(length @ LEAST..) => drop(socket.send(&message[..length])),
            Ok(_) => {}
            // The socket reports an ICMP error from the peer once.
            Err(_) => std::hint::spin_loop(),
        }
    }
    Ok(())
}

/// Sends every message of `length` bytes back when it has arrived completely, until the connection ends or `stop` is set.
///
/// # Errors
/// The socket cannot be set up, or the connection broke.
pub(super) fn messages(
    mut stream: &TcpStream,
    length: usize,
    waiting: Waiting,
    stop: &AtomicBool,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(POLL))?;
    stream.set_write_timeout(Some(POLL))?;
    if waiting == Waiting::Spinning {
        stream.set_nonblocking(true)?;
    }
    let mut bytes = vec![0; AT_ONCE.max(length)];
    let mut filled = 0;
    while !stop.load(Ordering::Relaxed) {
        match unless_blocked(stream.read(&mut bytes[filled..]))? {
            Some(0) => return Ok(()),
            Some(read) => filled += read,
            None => continue,
        }
        let whole = filled - filled % length;
        let mut sent = 0;
        while sent < whole && !stop.load(Ordering::Relaxed) {
            sent += unless_blocked(stream.write(&bytes[sent..whole]))?.unwrap_or(0);
        }
        bytes.copy_within(whole..filled, 0);
        filled -= whole;
    }
    Ok(())
}
