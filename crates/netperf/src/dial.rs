//! Connects sockets with a deadline, and with options that must be set before connecting.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, SocketFlags, SocketType, ipproto, sockopt};

use super::stream::Options;

/// Resolves a host name to addresses, in the system's order of preference.
pub(super) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    // As in a URL, an IPv6 address may be in brackets.
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found: Vec<SocketAddr> = (bare, port).to_socket_addrs()?.collect();
    if found.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(found) }
}

/// Returns the local address to bind to: `bind` if set, else any address, in the address family of `to`. Fails if `bind` has no address of
/// that family.
pub(super) fn local(bind: Option<&str>, to: SocketAddr, port: u16) -> io::Result<SocketAddr> {
    let any = match to {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let Some(bind) = bind else { return Ok(SocketAddr::new(any, port)) };
    let mut found = resolve(bind, port)?.into_iter();
    found.find(|address| address.is_ipv4() == to.is_ipv4()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("bind = {bind:?}: it is of another family than {}", to.ip()),
        )
    })
}

/// Connects to `to` over TCP from the local address `from`. Fails with a timeout after `patience`.
pub(super) fn tcp(
    from: SocketAddr,
    to: SocketAddr,
    options: &Options,
    patience: Duration,
) -> io::Result<TcpStream> {
    let socket = socket(to, SocketType::STREAM, SocketFlags::NONBLOCK)?;
    options.set(&socket, true)?;
    if from.port() != 0 || !from.ip().is_unspecified() {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, &from)?;
    }
    match net::connect(&socket, &to) {
        Ok(()) => {}
        Err(rustix::io::Errno::INPROGRESS) => await_connection(&socket, patience)?,
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn await_connection(socket: &OwnedFd, patience: Duration) -> io::Result<()> {
    let wait = Timespec::try_from(patience).map_err(io::Error::other)?;
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&wait)))?;
    if ready == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    sockopt::socket_error(socket)?.map_err(io::Error::from)
}

/// Creates a UDP socket that is bound to `from` and connected to `to`. If `from` names a port, other sockets can share it, as the server's
/// streams do. A port that the kernel picks is exclusive.
pub(super) fn udp(from: SocketAddr, to: SocketAddr, options: &Options) -> io::Result<UdpSocket> {
    let socket = socket(to, SocketType::DGRAM, SocketFlags::empty())?;
    options.set(&socket, false)?;
    if from.port() != 0 {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    if let SocketAddr::V6(from) = from {
        sockopt::set_ipv6_v6only(&socket, !from.ip().is_unspecified())?;
    }
    net::bind(&socket, &from)?;
    net::connect(&socket, &to)?;
    Ok(UdpSocket::from(socket))
}

fn socket(to: SocketAddr, kind: SocketType, flags: SocketFlags) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { net::AddressFamily::INET } else { net::AddressFamily::INET6 };
    let protocol = if kind == SocketType::STREAM { ipproto::TCP } else { ipproto::UDP };
    Ok(net::socket_with(family, kind, flags | SocketFlags::CLOEXEC, Some(protocol))?)
}

/// Binds a non-blocking TCP listener and a non-blocking UDP socket to the same address and port.
pub(super) fn listen(bind: &str, port: u16) -> io::Result<(std::net::TcpListener, UdpSocket)> {
    let addresses = resolve(bind, port)?;
    let listener = std::net::TcpListener::bind(&addresses[..])?;
    let address = listener.local_addr()?;
    let datagrams = socket(address, SocketType::DGRAM, SocketFlags::NONBLOCK)?;
    sockopt::set_socket_reuseaddr(&datagrams, true)?;
    net::bind(&datagrams, &address)?;
    listener.set_nonblocking(true)?;
    Ok((listener, UdpSocket::from(datagrams)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_the_kernel_picks_is_shared_with_nobody() {
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        let shared = |from: SocketAddr| {
            let socket = udp(from, to, &Options::default()).expect("connected");
            let shared = sockopt::socket_reuseaddr(&socket).expect("known");
            (shared, socket.local_addr().expect("bound"))
        };
        let (picked, address) = shared(SocketAddr::from(([127, 0, 0, 1], 0)));
        let (asked, _) = shared(address);
        assert_eq!((picked, asked), (false, true));
    }
}
