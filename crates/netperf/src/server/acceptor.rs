//! Who comes in. Nothing here waits for anyone: a visitor has bytes read as they come, has a deadline, and makes room when too many wait.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use super::super::auth::{Answer, Challenge};
use super::super::control::{
    COOKIE, Cookie, MAX_PARAMETERS, State, Trouble, checked_length, framed, understood,
};
use super::super::parameters::Parameters;
use super::error_log::Complaint;

/// The longest that a handshake may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// An iperf3 of its own error numbers: "unable to receive parameters from client".
const RECEIVING_PARAMETERS: u32 = 114;

/// A connection whose purpose is not known yet.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) socket: TcpStream,
    pub(super) address: IpAddr,
    /// In the order of their coming.
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

/// The request that a connection turns out to make.
#[derive(Debug)]
pub(super) enum Wish {
    /// To go on.
    More,
    /// To be a stream of the test with this cookie, if there is one.
    Stream(Cookie),
    /// A test of its own.
    Test(Cookie, Box<Parameters>),
    /// Nothing that is to be had; why, with details.
    Nothing(Complaint, String),
}

impl Visitor {
    pub(super) fn new(socket: TcpStream, address: IpAddr, number: u64, now: Instant) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let deadline = now + PATIENCE;
        Ok(Self { socket, address, number, deadline, stage: Stage::Cookie, buffer: Vec::new() })
    }

    /// True if its time is over.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// Reads what has come. `is_known` tells the cookies of tests that go on.
    pub(super) fn advance(&mut self, token: Option<&str>, is_known: impl Fn(&Cookie) -> bool) -> Wish {
        loop {
            let wanted = match self.wanted() {
                Ok(wanted) => wanted,
                Err(trouble) => return self.refuse(Complaint::Stranger, trouble.to_string()),
            };
            if self.buffer.len() < wanted {
                match self.read(wanted) {
                    Ok(true) => continue,
                    Ok(false) => return Wish::More,
                    Err(_) => return Wish::Nothing(Complaint::Left, String::new()),
                }
            }
            let text = std::mem::take(&mut self.buffer);
            match self.understand(text, token, &is_known) {
                Wish::More => {}
                wish => return wish,
            }
        }
    }

    /// Bytes that make the next message whole, as far as it is known.
    fn wanted(&self) -> Result<usize, Trouble> {
        match (&self.stage, self.buffer.get(..4)) {
            (Stage::Cookie, _) => Ok(COOKIE),
            (_, None) => Ok(4),
            (_, Some(head)) => {
                let head = head.try_into().unwrap_or_default();
                Ok(4 + checked_length(head, MAX_PARAMETERS)?)
            }
        }
    }

    /// Reads towards so many bytes. Whether some came.
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

    /// Takes a whole message.
    fn understand(&mut self, text: Vec<u8>, token: Option<&str>, is_known: impl Fn(&Cookie) -> bool) -> Wish {
        match std::mem::replace(&mut self.stage, Stage::Cookie) {
            Stage::Cookie => {
                let cookie: Cookie = text.try_into().unwrap_or([0; COOKIE]);
                if cookie[COOKIE - 1] != 0 || !cookie[..COOKIE - 1].iter().all(u8::is_ascii_graphic) {
                    return self.refuse(Complaint::Stranger, String::new());
                }
                if is_known(&cookie) {
                    return Wish::Stream(cookie);
                }
                self.stage = Stage::Parameters { cookie };
                self.say(&[State::ParamExchange.byte()])
            }
            Stage::Parameters { cookie } => {
                let text = text[4..].to_vec();
                let parameters: Parameters = match understood(&text) {
                    Ok(parameters) => parameters,
                    Err(trouble) => return self.refuse(Complaint::Stranger, trouble.to_string()),
                };
                if let Err(why) = parameters.check() {
                    return self.refuse(Complaint::Parameters, why);
                }
                match token {
                    None => Wish::Test(cookie, Box::new(parameters)),
                    Some(_) => self.challenge(cookie, text, parameters),
                }
            }
            Stage::Answer { cookie, text: asked, parameters, challenge } => {
                let right = understood::<Answer>(&text[4..]).is_ok_and(|answer| {
                    challenge.is_met(&answer, token.unwrap_or_default(), &cookie, &asked)
                });
                if right { Wish::Test(cookie, parameters) } else { self.deny(Complaint::Token) }
            }
        }
    }

    fn challenge(&mut self, cookie: Cookie, text: Vec<u8>, parameters: Parameters) -> Wish {
        if !parameters.iotax.as_ref().is_some_and(|told| told.auth) {
            return self.deny(Complaint::Token);
        }
        let made = Challenge::new().map_err(Trouble::from).and_then(|challenge| {
            let mut message = vec![State::Challenge.byte()];
            message.extend(framed(&challenge)?);
            Ok((challenge, message))
        });
        match made {
            Ok((challenge, message)) => {
                self.stage = Stage::Answer { cookie, text, parameters: Box::new(parameters), challenge };
                self.say(&message)
            }
            Err(trouble) => Wish::Nothing(Complaint::Left, trouble.to_string()),
        }
    }

    /// Says a few bytes, for which an honest visitor's socket has room.
    fn say(&mut self, bytes: &[u8]) -> Wish {
        match self.socket.write(bytes) {
            Ok(written) if written == bytes.len() => Wish::More,
            Ok(_) | Err(_) => Wish::Nothing(Complaint::Left, String::new()),
        }
    }

    /// Turns a visitor away that may come again.
    pub(super) fn deny(&mut self, complaint: Complaint) -> Wish {
        self.say(&[State::AccessDenied.byte()]);
        Wish::Nothing(complaint, String::new())
    }

    fn refuse(&mut self, complaint: Complaint, why: String) -> Wish {
        let mut message = vec![State::ServerError.byte()];
        message.extend(RECEIVING_PARAMETERS.to_be_bytes());
        message.extend(libc::EINVAL.to_be_bytes());
        self.say(&message);
        Wish::Nothing(complaint, why)
    }
}
