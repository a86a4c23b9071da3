//! The control connection of iperf3's protocol (esnet/iperf, `iperf_api.c`): states of one byte, and JSON preceded by its length.
//!
//! A received message has one deadline as a whole, so that a peer that sends a byte now and then cannot stall this end. For sending, each
//! write call has a timeout. Lengths are checked before use.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of the cookie with which every TCP connection of a test begins: 36 letters and digits, and a zero byte.
pub(super) const COOKIE: usize = 37;
/// Maximum length of the parameters' JSON in bytes.
pub(super) const MAX_PARAMETERS: u32 = 64 << 10;
/// Maximum length of the results' JSON in bytes; the results of 256 streams take about 100 KiB.
pub(super) const MAX_RESULTS: u32 = 2 << 20;
/// Maximum time to wait for a message of the peer unless a caller sets another, to connect, and for one write call to block.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Idle time after which the kernel sends TCP keep-alive probes on the control connection.
const KEPT_ALIVE: Duration = Duration::from_secs(30);

/// The random identifier that every TCP connection of a test sends first.
pub(super) type Cookie = [u8; COOKIE];

/// A state of the test, sent as one byte on the control connection. The numbers are iperf3's, except for [`State::Challenge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub(super) enum State {
    TestStart = 1,
    TestRunning = 2,
    TestEnd = 4,
    ParamExchange = 9,
    CreateStreams = 10,
    ServerTerminate = 11,
    ClientTerminate = 12,
    ExchangeResults = 13,
    DisplayResults = 14,
    Done = 16,
    AccessDenied = -1,
    ServerError = -2,
    /// Request of an iotax server for proof that the client knows the token.
    Challenge = 73,
}

impl State {
    const ALL: [Self; 13] = [
        Self::TestStart,
        Self::TestRunning,
        Self::TestEnd,
        Self::ParamExchange,
        Self::CreateStreams,
        Self::ServerTerminate,
        Self::ClientTerminate,
        Self::ExchangeResults,
        Self::DisplayResults,
        Self::Done,
        Self::AccessDenied,
        Self::ServerError,
        Self::Challenge,
    ];

    /// Returns the byte that encodes the state on the wire.
    pub(super) const fn byte(self) -> u8 {
        (self as i8).cast_unsigned()
    }

    fn of(byte: u8) -> Result<Self, NetError> {
        Self::ALL.into_iter().find(|state| state.byte() == byte).ok_or(NetError::NoState(byte))
    }
}

/// The reason why a test with a peer failed; the texts, except that of [`Self::Io`], continue a sentence that begins with the peer's name.
#[derive(Debug, thiserror::Error)]
pub(super) enum NetError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("closed the control connection")]
    Closed,
    #[error("did not answer within {} s", PATIENCE.as_secs())]
    Late,
    #[error("sent {0:#04x}, which is no state of iperf3's protocol")]
    NoState(u8),
    #[error("is in state {0:?}, which does not belong here")]
    Unexpected(State),
    #[error("announced {length} bytes of JSON; accepted: up to {limit}")]
    TooLong { length: u32, limit: u32 },
    #[error("sent JSON that is not understood ({error}): {excerpt}")]
    Json { error: String, excerpt: String },
    #[error("refuses: it is busy with another test, or wants to know its token (--auth)")]
    Denied,
    #[error("ended the test")]
    Terminated,
    #[error("reports an error of its own, number {number} of iperf3's ({system})")]
    Server { number: i32, system: String },
    #[error("{0}")]
    Refused(String),
}

/// This end of a control connection.
#[derive(Debug)]
pub(super) struct Control {
    socket: TcpStream,
}

impl Control {
    /// Wraps a connected socket and enables TCP keep-alive.
    pub(super) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEPT_ALIVE)?;
        sockopt::set_tcp_keepintvl(&socket, PATIENCE)?;
        sockopt::set_tcp_keepcnt(&socket, 3)?;
        Ok(Self { socket })
    }

    /// Returns the address of the other end.
    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends bytes as they are, without a length in front.
    pub(super) fn send_bytes(&self, bytes: &[u8]) -> Result<(), NetError> {
        (&self.socket).write_all(bytes).map_err(NetError::from)
    }

    pub(super) fn send(&self, state: State) -> Result<(), NetError> {
        self.send_bytes(&[state.byte()])
    }

    pub(super) fn send_json<T: Serialize>(&self, message: &T) -> Result<(), NetError> {
        self.send_bytes(&framed(message)?)
    }

    /// Waits up to `patience` for the peer's next state; `None` if none arrives in that time. Fails if the connection ends, or if the byte
    /// is no state or reports a failure of the peer.
    pub(super) fn poll(&self, patience: Duration) -> Result<Option<State>, NetError> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&wait)) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                // A signal ends neither the wait nor the test.
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        let mut byte = [0];
        self.fill(&mut byte, Instant::now() + PATIENCE)?;
        self.check(State::of(byte[0])?).map(Some)
    }

    pub(super) fn state(&self) -> Result<State, NetError> {
        self.poll(PATIENCE)?.ok_or(NetError::Late)
    }

    /// Waits up to 10 s for the peer's next state; fails if none or another than the expected one arrives.
    pub(super) fn expect(&self, expected: State) -> Result<(), NetError> {
        match self.state()? {
            state if state == expected => Ok(()),
            other => Err(NetError::Unexpected(other)),
        }
    }

    /// Returns an error if the state reports a failure of the peer, else the state.
    fn check(&self, state: State) -> Result<State, NetError> {
        match state {
            State::AccessDenied => Err(NetError::Denied),
            State::ServerTerminate | State::ClientTerminate => Err(NetError::Terminated),
            State::ServerError => {
                let mut numbers = [0; 8];
                self.fill(&mut numbers, Instant::now() + PATIENCE)?;
                let [number, system] = [&numbers[..4], &numbers[4..]]
                    .map(|bytes| bytes.try_into().map_or(0, i32::from_be_bytes));
                let system = io::Error::from_raw_os_error(system).to_string();
                Err(NetError::Server { number, system })
            }
            state => Ok(state),
        }
    }

    /// Receives a JSON message of at most `limit` bytes.
    pub(super) fn json<T: DeserializeOwned>(&self, limit: u32) -> Result<T, NetError> {
        let deadline = Instant::now() + PATIENCE;
        let mut length = [0; 4];
        self.fill(&mut length, deadline)?;
        let length = checked_length(length, limit)?;
        // Memory grows with the bytes that arrive, not with the announced length.
        let mut text = Vec::new();
        while text.len() < length {
            let mut part = [0; 4096];
            let most = part.len().min(length - text.len());
            self.fill(&mut part[..most], deadline)?;
            text.extend_from_slice(&part[..most]);
        }
        understood(&text)
    }

    fn fill(&self, bytes: &mut [u8], deadline: Instant) -> Result<(), NetError> {
        let mut filled = 0;
        while filled < bytes.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NetError::Late);
            }
            self.socket.set_read_timeout(Some(left))?;
            match (&self.socket).read(&mut bytes[filled..]) {
                Ok(0) => return Err(NetError::Closed),
                Ok(read) => filled += read,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Encodes a message as JSON, with its length in front.
pub(super) fn framed<T: Serialize>(message: &T) -> Result<Vec<u8>, NetError> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).map_err(io::Error::from)?;
    let length = u32::try_from(frame.len() - 4).map_err(io::Error::other)?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// Returns the announced length in bytes; an error if it is 0 or above `limit`.
pub(super) fn checked_length(bytes: [u8; 4], limit: u32) -> Result<usize, NetError> {
    let length = u32::from_be_bytes(bytes);
    if length == 0 || length > limit {
        return Err(NetError::TooLong { length, limit });
    }
    usize::try_from(length).map_err(|error| io::Error::other(error).into())
}

/// Parses a JSON message; an error quotes its beginning.
pub(super) fn understood<T: DeserializeOwned>(text: &[u8]) -> Result<T, NetError> {
    serde_json::from_slice(text).map_err(|error| NetError::Json {
        error: printable(&error.to_string()),
        excerpt: printable(&String::from_utf8_lossy(text)),
    })
}

/// Returns the first 120 characters of a peer's text, escaped so that they cannot control a terminal.
fn printable(text: &str) -> String {
    text.chars().take(120).flat_map(char::escape_debug).collect()
}

/// Returns the cookie as text, without its zero byte.
pub(super) fn letters(cookie: &Cookie) -> String {
    String::from_utf8_lossy(&cookie[..COOKIE - 1]).into_owned()
}

/// Creates a random cookie.
pub(super) fn new_cookie() -> io::Result<Cookie> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut cookie = [0; COOKIE];
    random(&mut cookie[..COOKIE - 1])?;
    cookie[..COOKIE - 1].iter_mut().for_each(|byte| *byte = LETTERS[usize::from(*byte % 32)]);
    Ok(cookie)
}

/// Fills a buffer with cryptographically secure random bytes.
pub(super) fn random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Control, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
        let remote = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        (Control::new(listener.accept().expect("accepted").0).expect("set up"), remote)
    }

    #[test]
    fn messages_and_states_pass() {
        let (local, remote) = pair();
        let remote = Control::new(remote).expect("set up");
        assert_eq!(local.poll(Duration::ZERO).expect("polled"), None);
        remote.send(State::CreateStreams).expect("sent");
        remote.send_json(&vec![1, 2, 3]).expect("sent");
        local.expect(State::CreateStreams).expect("the state");
        assert_eq!(local.json::<Vec<u32>>(100).expect("the message"), [1, 2, 3]);
        drop(remote);
        assert!(matches!(local.state(), Err(NetError::Closed)));
    }

    #[test]
    fn what_is_not_the_protocol_is_refused_in_words() {
        for (bytes, words) in [
            (&b"\x63"[..], "0x63"),
            (b"\xff", "busy"),
            (b"\x0b", "ended the test"),
            (b"\xfe\0\0\0\x72\0\0\0\x16", "number 114"),
        ] {
            let (local, mut remote) = pair();
            remote.write_all(bytes).expect("written");
            let error = local.state().expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
        for (bytes, words) in [
            (&b"\xff\xff\xff\xff"[..], "4294967295 bytes"),
            (b"\0\0\0\0", "0 bytes"),
            (b"\0\0\0\x02{{", "not understood"),
            (b"\0\0\0\x02\x1b[", "\\u{1b}["),
        ] {
            let (local, mut remote) = pair();
            remote.write_all(bytes).expect("written");
            let error = local.json::<u32>(1000).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn cookies_are_letters_and_differ() {
        let [one, other] = [new_cookie().expect("random"), new_cookie().expect("random")];
        assert_ne!(one, other);
        assert!(one[..36].iter().all(u8::is_ascii_alphanumeric) && one[36] == 0);
    }
}
