//! Fuzzes an iperf3 control connection: client and server must answer any peer or give up in time.
#![no_main]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use iotax_model::net::{NetTest, Peer, Traffic};
use iotax_model::units::Nanos;
use iotax_netperf::{ClientTest, Server};
use libfuzzer_sys::fuzz_target;

/// Maximum time to keep the connection of a peer that has sent everything.
const PATIENCE: Duration = Duration::from_secs(5);

static SERVERS: LazyLock<[Server; 2]> = LazyLock::new(|| {
    [None, Some("token")].map(|token| Server::start("127.0.0.1", 0, token).expect("listening"))
});
static HOSTILE: LazyLock<TcpListener> =
    LazyLock::new(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listening"));

// The first byte selects the end to test, the rest is the data to send.
fuzz_target!(|bytes: &[u8]| {
    let Some((whom, words)) = bytes.split_first() else { return };
    match whom % 8 {
        // As a client, with a cookie that is one.
        0..3 => to_server(&SERVERS[0], true, words),
        3 => to_server(&SERVERS[0], false, words),
        4 => to_server(&SERVERS[1], true, words),
        // As a server.
        _ => to_client(words),
    }
});

fn to_server(server: &Server, with_cookie: bool, words: &[u8]) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let mut socket = TcpStream::connect(address).expect("connected");
    let mut said = if with_cookie { [vec![b'a'; 36], vec![0]].concat() } else { Vec::new() };
    said.extend(words);
    // A server that has heard enough hangs up.
    let _ = socket.write_all(&said);
    let _ = socket.shutdown(Shutdown::Write);
    until_closed(&socket);
}

fn to_client(words: &[u8]) {
    let port = HOSTILE.local_addr().expect("bound").port();
    let words = words.to_vec();
    let far = std::thread::spawn(move || {
        let (mut socket, _) = HOSTILE.accept().expect("accepted");
        let _ = socket.write_all(&words);
        let _ = socket.shutdown(Shutdown::Write);
        // The unread streams are dropped with the listener's queue.
        until_closed(&socket);
    });
    let test = ClientTest {
        traffic: Traffic::new(NetTest::Tcp),
        peer: Peer::at("127.0.0.1", port),
        time: Nanos(1_000_000),
        omit: Nanos(0),
        interval: Nanos(100_000_000),
    };
    if let Ok(prepared) = test.prepare() {
        let _ = prepared.run(&AtomicBool::new(false), &mut |_| {});
    }
    far.join().expect("the server");
    HOSTILE.set_nonblocking(true).expect("set");
    while HOSTILE.accept().is_ok() {}
    HOSTILE.set_nonblocking(false).expect("set");
}

/// Reads to the end of the stream, which must come in time.
fn until_closed(mut socket: &TcpStream) {
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut part = [0; 4096];
    loop {
        match socket.read(&mut part) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            // The alarm that libFuzzer uses to find hangs.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => panic!("the other end holds on: {error}"),
        }
    }
}
