//! The client's connection to a server: agrees on a test, connects the streams, and ends the test.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use iotax_model::net::Peer;

use super::auth::Challenge;
use super::control::{
    Control, Cookie, MAX_PARAMETERS, MAX_RESULTS, NetError, PATIENCE, State, letters, new_cookie,
};
use super::dial;
use super::exchange::Results;
use super::handshake;
use super::parameters::Parameters;
use super::report::End;
use super::stream::{Options, Socket, tcp_info};
use super::streams;
use iotax_load::error::EngineError;

/// Maximum time to wait for a server to stop. It may have to finish a blocked write first.
const END_PATIENCE: Duration = Duration::from_secs(30);
/// Time after which an unanswered opening datagram of a UDP stream is sent again.
const HELLO_AGAIN: Duration = Duration::from_secs(1);
/// Interval at which the client checks whether the server has started the test.
const POLL: Duration = Duration::from_millis(100);

/// A test that the server agreed to, before its streams are connected.
#[derive(Debug)]
pub(super) struct ClientSession {
    control: Control,
    cookie: Cookie,
    parameters: Parameters,
    peer: Peer,
    address: SocketAddr,
}

impl ClientSession {
    /// Agrees on a test with a server. `parameters` is called with the path's maximum segment size in bytes, if known, and returns the
    /// parameters to request.
    pub(super) fn open(
        peer: &Peer,
        parameters: impl FnOnce(Option<u32>) -> Parameters,
    ) -> Result<Self, NetError> {
        let control = Control::new(connect(peer)?)?;
        let address = control.peer()?;
        let cookie = new_cookie()?;
        control.send_bytes(&cookie)?;
        let parameters = parameters(tcp_info(control.socket()).map(|info| info.mss));
        parameters.check().map_err(NetError::Refused)?;
        control.expect(State::ParamExchange)?;
        let text = serde_json::to_vec(&parameters).map_err(io::Error::from)?;
        control.send_json(&parameters)?;
        match control.state()? {
            State::CreateStreams if peer.token.is_some() => {
                return Err(NetError::Refused(
                    "does not ask for the token: have it know one too, or ask for none here (--auth)".into(),
                ));
            }
            State::CreateStreams => {}
            State::Challenge => {
                let challenge: Challenge = control.json(MAX_PARAMETERS)?;
                let token = peer.token.as_deref().ok_or(NetError::Denied)?;
                control.send_json(&challenge.answer(token, &cookie, &text))?;
                control.expect(State::CreateStreams)?;
            }
            other => return Err(NetError::Unexpected(other)),
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

    pub(super) fn cookie(&self) -> String {
        letters(&self.cookie)
    }

    /// Connects the streams. Returns them in the order of their numbers, each with true if this end sends on it; and true if the server has
    /// already started the test.
    pub(super) fn connect(&self) -> Result<(Vec<(Socket, bool)>, bool), NetError> {
        let mut started = false;
        let (sends, receives) = self.parameters.streams();
        let options = streams::options(&self.parameters);
        let each = (0..sends + receives).map(|number| {
            let port = self.peer.cport.map_or(0, |first| {
                // Above port 65535 the kernel picks one.
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
        let sockets = each.collect::<Result<_, NetError>>()?;
        Ok((sockets, started))
    }

    /// Waits until the server reports that its streams run. Pass true as `started` if the server has already reported the start of the
    /// test.
    pub(super) fn await_running(&self, started: bool) -> Result<(), NetError> {
        if !started {
            self.control.expect(State::TestStart)?;
        }
        self.control.expect(State::TestRunning)
    }

    /// Opens a UDP stream: sends the opening datagram once a second until the server answers, or until it starts the test because its
    /// answer was lost; fails after 10 s. Returns the socket, and true if the server has started the test.
    fn open_datagrams(&self, from: SocketAddr, options: &Options) -> Result<(UdpSocket, bool), NetError> {
        let socket = dial::udp(from, self.address, options)?;
        socket.set_read_timeout(Some(POLL))?;
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
                Some(other) => return Err(NetError::Unexpected(other)),
                None => {}
            }
        }
        Err(NetError::Refused(
            "did not answer the datagram that opens a stream: is UDP let through to its port?".into(),
        ))
    }

    /// Asks the server to end the test. Data in flight still arrives. Errors are ignored: if the server is gone, [`Self::await_end`] fails.
    pub(super) fn end(&self) {
        drop(self.control.send(State::TestEnd));
    }

    /// Waits up to 30 s until the server has stopped.
    pub(super) fn await_end(&self) -> Result<(), NetError> {
        match self.control.poll(END_PATIENCE)?.ok_or(NetError::Late)? {
            State::ExchangeResults => Ok(()),
            other => Err(NetError::Unexpected(other)),
        }
    }

    /// Sends this end's results to the server and returns the server's.
    pub(super) fn exchange(self, local: &End) -> Result<End, NetError> {
        let udp = self.parameters.udp;
        self.control.send_json(&Results::of(local, udp))?;
        let results: Results = self.control.json(MAX_RESULTS)?;
        self.control.expect(State::DisplayResults)?;
        self.control.send(State::Done)?;
        Ok(results.read(local, udp, self.parameters.omit().0 > 0))
    }

    /// Asks the server to abort the test; errors are ignored.
    pub(super) fn terminate(&self) {
        // A failure to send means that the server is gone already.
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

/// Adds the peer's name and port to an error, and for a refused connection the command that starts a server.
pub(super) fn with_name(peer: &Peer, error: NetError) -> EngineError {
    let name = format!("{}:{}", peer.host, peer.port);
    EngineError::Net(match error {
        NetError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            format!("{name}: {error}; the server: iotax net serve, or iperf3 -s")
        }
        NetError::Io(error) => format!("{name}: {error}"),
        error => format!("{name} {error}"),
    })
}
