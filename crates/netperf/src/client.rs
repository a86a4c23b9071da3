//! The client: has a server agree to a test, connects its streams, and ends it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use iotax_model::net::Peer;

use super::auth::Challenge;
use super::control::{Control, Cookie, MAX_PARAMETERS, MAX_RESULTS, PATIENCE, State, Trouble, new_cookie};
use super::dial;
use super::exchange::Results;
use super::handshake;
use super::parameters::Parameters;
use super::report::End;
use super::stream::{Options, Socket, tcp_info};
use super::streams;
use iotax_engine::EngineError;

/// The longest that a server may take to stop: it may have to wait for a write.
const END_PATIENCE: Duration = Duration::from_secs(30);
/// The times that a datagram that opens a stream is sent again if no answer comes.
const HELLO_AGAIN: Duration = Duration::from_secs(1);
/// The interval at which the client checks meanwhile whether the test has started.
const LOOK: Duration = Duration::from_millis(100);

/// A test that the server agreed to; it waits for the streams.
#[derive(Debug)]
pub(super) struct Session {
    control: Control,
    cookie: Cookie,
    parameters: Parameters,
    peer: Peer,
    address: SocketAddr,
}

impl Session {
    /// Agrees with a server on a test. `parameters` makes the test's from the largest segment that the path carries.
    pub(super) fn open(
        peer: &Peer,
        parameters: impl FnOnce(Option<u32>) -> Parameters,
    ) -> Result<Self, Trouble> {
        let control = Control::new(connect(peer)?)?;
        let address = control.peer()?;
        let cookie = new_cookie()?;
        control.send_bytes(&cookie)?;
        let parameters = parameters(tcp_info(control.socket()).map(|info| info.mss));
        parameters.check().map_err(Trouble::Refused)?;
        control.expect(State::ParamExchange)?;
        let text = serde_json::to_vec(&parameters).map_err(io::Error::from)?;
        control.send_json(&parameters)?;
        match control.state()? {
            State::CreateStreams if peer.token.is_some() => {
                return Err(Trouble::Refused(
                    "does not ask for the token: have it know one too, or ask for none here (--auth)".into(),
                ));
            }
            State::CreateStreams => {}
            State::Challenge => {
                let challenge: Challenge = control.json(MAX_PARAMETERS)?;
                let token = peer.token.as_deref().ok_or(Trouble::Denied)?;
                control.send_json(&challenge.answer(token, &cookie, &text))?;
                control.expect(State::CreateStreams)?;
            }
            other => return Err(Trouble::Unexpected(other)),
        }
        Ok(Self { control, cookie, parameters, peer: peer.clone(), address })
    }

    pub(super) const fn control(&self) -> &Control {
        &self.control
    }

    pub(super) const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The cookie's letters.
    pub(super) fn cookie(&self) -> String {
        String::from_utf8_lossy(&self.cookie[..self.cookie.len() - 1]).into_owned()
    }

    /// Connects the streams, in the order of their numbers, each with whether this end sends, and waits until the server has
    /// started its own.
    pub(super) fn connect(&self) -> Result<Vec<(Socket, bool)>, Trouble> {
        let mut started = false;
        let (sends, receives) = self.parameters.streams();
        let options = streams::options(&self.parameters);
        let each = (0..sends + receives).map(|number| {
            let port = self.peer.cport.map_or(0, |first| {
                // Beyond the last port the kernel picks one.
                u32::from(first).checked_add(number).and_then(|port| u16::try_from(port).ok()).unwrap_or(0)
            });
            let from = dial::local(self.peer.bind.as_deref(), self.address, port)?;
            let socket = if self.parameters.udp {
                let socket;
                (socket, started) = self.open_datagrams(from, &options)?;
                Socket::Udp(socket)
            } else {
                let stream = dial::tcp(from, self.address, &options, PATIENCE)?;
                io::Write::write_all(&mut &stream, &self.cookie)?;
                Socket::Tcp(stream)
            };
            Ok((socket, number < sends))
        });
        let sockets = each.collect::<Result<_, Trouble>>()?;
        if !started {
            self.control.expect(State::TestStart)?;
        }
        self.control.expect(State::TestRunning)?;
        Ok(sockets)
    }

    /// Tells the server of a stream of datagrams, until it answers: there, or, where its answer was lost, by starting the test.
    /// Returns the socket, and whether the server answered by starting the test.
    fn open_datagrams(&self, from: SocketAddr, options: &Options) -> Result<(UdpSocket, bool), Trouble> {
        let socket = dial::udp(from, self.address, options)?;
        socket.set_read_timeout(Some(LOOK))?;
        let deadline = Instant::now() + PATIENCE;
        let mut call_again = Instant::now();
        while Instant::now() < deadline {
            if Instant::now() >= call_again {
                socket.send(&handshake::call(&self.cookie))?;
                call_again = Instant::now() + HELLO_AGAIN;
            }
            let mut answer = [0; 64];
            match socket.recv(&mut answer) {
                Ok(length) if handshake::is_answer(&answer[..length]) => return Ok((socket, false)),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) => return Err(error.into()),
            }
            match self.control.poll(Duration::ZERO)? {
                Some(State::TestStart) => return Ok((socket, true)),
                Some(other) => return Err(Trouble::Unexpected(other)),
                None => {}
            }
        }
        Err(Trouble::Refused(
            "did not answer the datagram that opens a stream: is UDP let through to its port?".into(),
        ))
    }

    /// Says that the test is over. The server stops; what it sent until then still comes. If it is gone, `await_end` says so.
    pub(super) fn end(&self) {
        drop(self.control.send(State::TestEnd));
    }

    /// Waits until the server has stopped.
    pub(super) fn await_end(&self) -> Result<(), Trouble> {
        match self.control.poll(END_PATIENCE)?.ok_or(Trouble::Late)? {
            State::ExchangeResults => Ok(()),
            other => Err(Trouble::Unexpected(other)),
        }
    }

    /// Tells what this end knows, and learns what the other end does.
    pub(super) fn exchange(self, local: &End) -> Result<End, Trouble> {
        let udp = self.parameters.udp;
        self.control.send_json(&Results::of(local, udp))?;
        let results: Results = self.control.json(MAX_RESULTS)?;
        self.control.expect(State::DisplayResults)?;
        self.control.send(State::Done)?;
        Ok(results.read(local, udp, self.parameters.omit().0 > 0))
    }

    /// Breaks a test off.
    pub(super) fn terminate(&self) {
        // A server that is gone needs no word.
        drop(self.control.send(State::ClientTerminate));
    }
}

fn connect(peer: &Peer) -> io::Result<std::net::TcpStream> {
    let mut last = None;
    for address in dial::resolve(&peer.host, peer.port)? {
        let connected = dial::local(peer.bind.as_deref(), address, 0)
            .and_then(|from| dial::tcp(from, address, &Options::default(), PATIENCE));
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("the name has no address")))
}

/// A failure with the peer's name.
pub(super) fn with_name(peer: &Peer, trouble: Trouble) -> EngineError {
    let name = format!("{}:{}", peer.host, peer.port);
    EngineError::Net(match trouble {
        Trouble::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            format!("{name}: {error}; the server: iotax net serve, or iperf3 -s")
        }
        Trouble::Io(error) => format!("{name}: {error}"),
        trouble => format!("{name} {trouble}"),
    })
}
