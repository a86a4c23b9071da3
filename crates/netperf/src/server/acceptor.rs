//! Reads the handshakes of new connections without blocking. Each connection has a deadline, and the oldest is dropped if too many are pending.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use super::super::auth::{Answer, Challenge};
use super::super::control::{
    COOKIE, Cookie, MAX_PARAMETERS, NetError, State, checked_length, framed, understood,
};
use super::super::parameters::Parameters;
use super::error_log::FailureKind;

/// Maximum time for a connection to complete its handshake.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// iperf3's error number for "unable to receive parameters from client".
const RECEIVING_PARAMETERS: u32 = 114;

/// A new connection, before its request is complete.
#[derive(Debug)]
pub(super) struct PendingConnection {
    pub(super) socket: TcpStream,
    pub(super) address: IpAddr,
    /// Number of the connection, counted in the order of arrival.
    pub(super) number: u64,
    deadline: Instant,
    stage: Stage,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Stage {
    Cookie,
    Parameters { cookie: Cookie },
    Answer { cookie: Cookie, text: Vec<u8>, parameters: Box<Parameters>, challenge: Challenge },
}

/// The state or result of reading a connection's request.
#[derive(Debug)]
pub(super) enum ClientRequest {
    /// The request is not complete yet.
    Incomplete,
    /// Request to join the test with this cookie as a stream.
    Stream(Cookie),
    /// Request to start a test with this cookie and these parameters.
    Test(Cookie, Box<Parameters>),
    /// Refusal or end of the connection, with the kind of reason and the details.
    Rejected(FailureKind, String),
}

impl PendingConnection {
    pub(super) fn new(socket: TcpStream, address: IpAddr, number: u64, now: Instant) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let deadline = now + PATIENCE;
        Ok(Self { socket, address, number, deadline, stage: Stage::Cookie, buffer: Vec::new() })
    }

    /// Returns whether the connection's deadline has passed.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// Reads the bytes that have arrived and handles a complete message. `is_known` returns true for the cookies of running tests.
    pub(super) fn advance(
        &mut self,
        token: Option<&str>,
        is_known: impl Fn(&Cookie) -> bool,
    ) -> ClientRequest {
        loop {
            let wanted = match self.wanted() {
                Ok(wanted) => wanted,
                Err(error) => return self.refuse(FailureKind::WrongProtocol, error.to_string()),
            };
            if self.buffer.len() < wanted {
                match self.read(wanted) {
                    Ok(true) => continue,
                    Ok(false) => return ClientRequest::Incomplete,
                    Err(_) => return ClientRequest::Rejected(FailureKind::Disconnected, String::new()),
                }
            }
            let text = std::mem::take(&mut self.buffer);
            match self.handle(text, token, &is_known) {
                ClientRequest::Incomplete => {}
                request => return request,
            }
        }
    }

    /// Returns the length in bytes of the next message: the cookie's, or that of JSON with its length prefix; 4 until the prefix has
    /// arrived.
    fn wanted(&self) -> Result<usize, NetError> {
        match (&self.stage, self.buffer.get(..4)) {
            (Stage::Cookie, _) => Ok(COOKIE),
            (_, None) => Ok(4),
            (_, Some(head)) => {
                let head = head.try_into().unwrap_or_default();
                Ok(4 + checked_length(head, MAX_PARAMETERS)?)
            }
        }
    }

    /// Reads once, at most until the buffer holds `wanted` bytes. Returns true if bytes arrived.
    fn read(&mut self, wanted: usize) -> io::Result<bool> {
        let mut part = [0; 4096];
        let most = part.len().min(wanted - self.buffer.len());
        match self.socket.read(&mut part[..most]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.buffer.extend_from_slice(&part[..read]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Handles a complete message, according to the handshake's progress.
    fn handle(
        &mut self,
        text: Vec<u8>,
        token: Option<&str>,
        is_known: impl Fn(&Cookie) -> bool,
    ) -> ClientRequest {
        match std::mem::replace(&mut self.stage, Stage::Cookie) {
            Stage::Cookie => {
                let cookie: Cookie = text.try_into().unwrap_or([0; COOKIE]);
                if cookie[COOKIE - 1] != 0 || !cookie[..COOKIE - 1].iter().all(u8::is_ascii_graphic) {
                    return self.refuse(FailureKind::WrongProtocol, String::new());
                }
                if is_known(&cookie) {
                    return ClientRequest::Stream(cookie);
                }
                self.stage = Stage::Parameters { cookie };
                self.send(&[State::ParamExchange.byte()])
            }
            Stage::Parameters { cookie } => {
                let text = text[4..].to_vec();
                let parameters: Parameters = match understood(&text) {
                    Ok(parameters) => parameters,
                    Err(error) => return self.refuse(FailureKind::WrongProtocol, error.to_string()),
                };
                if let Err(why) = parameters.check() {
                    return self.refuse(FailureKind::Parameters, why);
                }
                match token {
                    None => ClientRequest::Test(cookie, Box::new(parameters)),
                    Some(_) => self.challenge(cookie, text, parameters),
                }
            }
            Stage::Answer { cookie, text: asked, parameters, challenge } => {
                let right = understood::<Answer>(&text[4..]).is_ok_and(|answer| {
                    challenge.is_met(&answer, token.unwrap_or_default(), &cookie, &asked)
                });
                if right { ClientRequest::Test(cookie, parameters) } else { self.deny(FailureKind::Token) }
            }
        }
    }

    fn challenge(&mut self, cookie: Cookie, text: Vec<u8>, parameters: Parameters) -> ClientRequest {
        if !parameters.iotax.as_ref().is_some_and(|extension| extension.auth) {
            return self.deny(FailureKind::Token);
        }
        let made = Challenge::new().map_err(NetError::from).and_then(|challenge| {
            let mut message = vec![State::Challenge.byte()];
            message.extend(framed(&challenge)?);
            Ok((challenge, message))
        });
        match made {
            Ok((challenge, message)) => {
                self.stage = Stage::Answer { cookie, text, parameters: Box::new(parameters), challenge };
                self.send(&message)
            }
            Err(error) => ClientRequest::Rejected(FailureKind::Disconnected, error.to_string()),
        }
    }

    /// Sends a few bytes without blocking. They always fit into the socket buffer unless the peer does not read.
    fn send(&mut self, bytes: &[u8]) -> ClientRequest {
        match self.socket.write(bytes) {
            Ok(written) if written == bytes.len() => ClientRequest::Incomplete,
            Ok(_) | Err(_) => ClientRequest::Rejected(FailureKind::Disconnected, String::new()),
        }
    }

    /// Refuses the test of a connection as iperf3 does when it is busy; the client may try again.
    pub(super) fn deny(&mut self, kind: FailureKind) -> ClientRequest {
        self.send(&[State::AccessDenied.byte()]);
        ClientRequest::Rejected(kind, String::new())
    }

    fn refuse(&mut self, kind: FailureKind, why: String) -> ClientRequest {
        let mut message = vec![State::ServerError.byte()];
        message.extend(RECEIVING_PARAMETERS.to_be_bytes());
        message.extend(libc::EINVAL.to_be_bytes());
        self.send(&message);
        ClientRequest::Rejected(kind, why)
    }
}
