//! Tests of the network server with misbehaving clients, and of the client with misbehaving servers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use iotax_model::net::{Direction, NetTest, Peer, Traffic};
use iotax_model::units::{BitRate, Bytes, Nanos};
use iotax_netperf::{ClientTest, Progress, Server, ServerEvent, Serving, TestReport};

const LOOPBACK: &str = "127.0.0.1";

/// A server and the problems that it reported.
struct TestServer {
    server: Server,
    problems: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    fn new(most_tests: usize, token: Option<&str>) -> Self {
        let problems = Arc::new(Mutex::new(Vec::new()));
        let complaints = Arc::clone(&problems);
        let serving = Serving {
            bind: LOOPBACK.into(),
            port: 0,
            token: token.map(str::to_owned),
            most_tests,
            one_off: false,
        };
        let tell = move |what| {
            if let ServerEvent::Problem(words) = what {
                complaints.lock().expect("not poisoned").push(words);
            }
        };
        Self { server: Server::listen(serving, Box::new(tell)).expect("listening"), problems }
    }

    fn peer(&self) -> Peer {
        Peer::at(LOOPBACK, self.server.port())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((LOOPBACK, self.server.port())).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        stream
    }

    fn problems(&self) -> Vec<String> {
        self.problems.lock().expect("not poisoned").clone()
    }
}

fn traffic(test: NetTest, direction: Direction) -> Traffic {
    Traffic { direction, bitrate: Some(BitRate(20_000_000)), length: Some(Bytes(1000)), ..Traffic::new(test) }
}

fn test(peer: Peer, traffic: Traffic) -> ClientTest {
    let (time, omit) = (Nanos::from_millis(300), Nanos(0));
    ClientTest { traffic, peer, time, omit, interval: Nanos::from_millis(100) }
}

fn run(test: ClientTest) -> Result<TestReport, String> {
    let prepared = test.prepare().map_err(|error| error.to_string())?;
    prepared.run(&AtomicBool::new(false), &mut |_| {}).map_err(|error| error.to_string())
}

/// A regular test, which must succeed.
fn assert_serves(remote: &TestServer) {
    let report = run(test(remote.peer(), traffic(NetTest::Tcp, Direction::Upload))).expect("a report");
    let received = report.remote.expect("told").streams[0].figures.bytes;
    assert!(received > 100_000, "{received}");
}

#[test]
fn both_ends_count_the_same_whatever_goes_whichever_way() {
    let remote = TestServer::new(1, None);
    for kind in [NetTest::Tcp, NetTest::Udp] {
        for direction in [Direction::Upload, Direction::Download, Direction::Both] {
            let traffic = Traffic { parallel: 2, ..traffic(kind, direction) };
            let test = ClientTest { omit: Nanos::from_millis(200), ..test(remote.peer(), traffic.clone()) };
            let mut counted = 0;
            let prepared = test.prepare().expect("agreed");
            let report = prepared
                .run(&AtomicBool::new(false), &mut |progress| match progress {
                    Progress::Interval(interval) if !interval.omitted => {
                        counted += interval.streams.iter().map(|stream| stream.figures.bytes).sum::<u64>();
                    }
                    _ => {}
                })
                .expect("a report");
            let local: u64 = report.local.streams.iter().map(|stream| stream.figures.bytes).sum();
            assert_eq!(counted, local, "{kind} {direction}: the intervals add up");
            assert_eq!(report.local.streams.len(), traffic.streams() as usize);
            for stream in &report.local.streams {
                let (sender, receiver) = report.ends(stream.id);
                let [sent, received] = [sender, receiver].map(|end| end.expect("known").figures.bytes as f64);
                // 20 Mbit/s for 0.3 s.
                assert!((375_000.0..1_500_000.0).contains(&sent), "{kind} {direction}: sent {sent}");
                assert!((received / sent - 1.0).abs() < 0.3, "{kind} {direction}: {sent} and {received}");
            }
            assert!(report.remote.as_ref().and_then(|remote| remote.cpu).is_some());
        }
    }
    assert_eq!(remote.problems(), [""; 0]);
}

#[test]
fn bytes_end_a_test_in_every_direction() {
    let remote = TestServer::new(1, None);
    for direction in [Direction::Upload, Direction::Download, Direction::Both] {
        let traffic =
            Traffic { bytes: Some(Bytes(400_000)), bitrate: None, ..traffic(NetTest::Tcp, direction) };
        let report = run(ClientTest { time: Nanos(0), ..test(remote.peer(), traffic) }).expect("a report");
        for stream in &report.local.streams {
            let bytes = stream.figures.bytes;
            assert!((400_000..800_000).contains(&bytes), "{direction}: {bytes}");
        }
        assert!(report.local.duration_ns < 5_000_000_000, "{direction}: {}", report.local.duration_ns);
    }
}

/// Returns the bytes of memory in use by this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("there");
    let pages: u64 = statm.split(' ').nth(1).expect("a field").parse().expect("a number");
    pages * 4096
}

#[test]
fn a_thousand_connections_neither_stop_it_nor_fill_its_memory() {
    let remote = TestServer::new(1, None);
    assert_serves(&remote);
    let before = resident();
    let mut kept = Vec::new();
    for number in 0..1000 {
        let mut visitor = remote.connect();
        // Some are silent, some send half a message, some announce more than they send, and some send other data.
        let words: &[u8] = match number % 4 {
            0 => b"",
            1 => b"half a coo",
            2 => b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\0\xff\xff\xff\xff{{{{{{{{",
            _ => b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: nobody\r\n\r\n",
        };
        // It may have been put out already.
        let _ = visitor.write_all(words);
        kept.push(visitor);
    }
    assert_serves(&remote);
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    let problems = remote.problems();
    assert!((1..10).contains(&problems.len()), "each kind is told once: {problems:?}");
    assert!(problems.iter().any(|words| words.contains("does not speak iperf3's protocol")), "{problems:?}");
}

#[test]
fn half_a_handshake_takes_no_test_from_others() {
    let remote = TestServer::new(1, None);
    let mut slow = remote.connect();
    slow.write_all(b"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\0").expect("written");
    let mut state = [0];
    slow.read_exact(&mut state).expect("asked for parameters");
    assert_eq!(state, [9]);
    slow.write_all(b"\0\0\x01\0{\"tcp\":").expect("written");
    let started = Instant::now();
    assert_serves(&remote);
    assert!(started.elapsed() < Duration::from_secs(8), "it did not wait for the slow one");
}

#[test]
fn parameters_that_no_test_has_are_refused_as_iperf3_refuses_them() {
    let remote = TestServer::new(1, None);
    let mut client = remote.connect();
    client.write_all(b"cccccccccccccccccccccccccccccccccccc\0").expect("written");
    let parameters = br#"{"tcp":true,"parallel":1000000,"time":1}"#;
    client.write_all(&u32::try_from(parameters.len()).expect("short").to_be_bytes()).expect("written");
    client.write_all(parameters).expect("written");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("read");
    assert_eq!(answer[..2], [9, 0xfe], "parameters, please; and a server's error");
    assert_eq!(answer.len(), 10);
    assert_serves(&remote);
    let problems = remote.problems();
    assert!(problems[0].contains("parallel = 1000000: accepted: 1 to 128"), "{problems:?}");
}

#[test]
fn a_client_that_leaves_makes_room_for_the_next() {
    let remote = TestServer::new(1, None);
    let stop = AtomicBool::new(false);
    let mut first = remote.connect();
    first.write_all(b"dddddddddddddddddddddddddddddddddddd\0").expect("written");
    let parameters = br#"{"tcp":true,"parallel":1,"time":100}"#;
    first.write_all(&u32::try_from(parameters.len()).expect("short").to_be_bytes()).expect("written");
    first.write_all(parameters).expect("written");
    let mut states = [0; 2];
    first.read_exact(&mut states).expect("read");
    assert_eq!(states, [9, 10], "it is to connect its streams");
    let refusal = run(test(remote.peer(), traffic(NetTest::Tcp, Direction::Upload))).expect_err("busy");
    assert!(refusal.contains("busy with another test"), "{refusal}");
    drop(first);
    let deadline = Instant::now() + Duration::from_secs(10);
    let next = loop {
        let prepared = test(remote.peer(), traffic(NetTest::Tcp, Direction::Download)).prepare();
        match prepared {
            Ok(prepared) => break prepared,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    next.run(&stop, &mut |_| {}).expect("a report");
}

#[test]
fn several_tests_go_on_at_once_where_they_may() {
    let remote = TestServer::new(3, None);
    let tests = [NetTest::Tcp, NetTest::Udp, NetTest::Udp]
        .map(|kind| test(remote.peer(), traffic(kind, Direction::Upload)));
    let reports = std::thread::scope(|scope| {
        let threads = tests.map(|test| scope.spawn(|| run(test).expect("a report")));
        threads.map(|thread| thread.join().expect("no panic"))
    });
    for report in reports {
        assert!(report.remote.expect("told").streams[0].figures.bytes > 100_000);
    }
}

#[test]
fn only_those_who_know_the_token_are_served() {
    let remote = TestServer::new(1, Some("open sesame"));
    let with = |token: Option<&str>| Peer { token: token.map(str::to_owned), ..remote.peer() };
    for token in [None, Some("guess")] {
        let refusal = run(test(with(token), traffic(NetTest::Tcp, Direction::Upload))).expect_err("refused");
        assert!(refusal.contains("token"), "{refusal}");
    }
    run(test(with(Some("open sesame")), traffic(NetTest::Udp, Direction::Download))).expect("a report");
    let problems = remote.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].ends_with("it does not know the token"), "{problems:?}");
    // Nor does one who knows it go on with a server that does not ask.
    let open = TestServer::new(1, None);
    let knowing = Peer { token: Some("open sesame".into()), ..open.peer() };
    let refusal = run(test(knowing, traffic(NetTest::Tcp, Direction::Upload))).expect_err("refused");
    assert!(refusal.contains("does not ask for the token"), "{refusal}");
}

#[test]
fn tests_that_fail_are_told_once_and_each_is_over() {
    let (tell, events) = std::sync::mpsc::channel();
    let serving = Serving { bind: LOOPBACK.into(), port: 0, token: None, most_tests: 1, one_off: false };
    let server = Server::listen(serving, Box::new(move |what| drop(tell.send(what)))).expect("listening");
    let mut problems = Vec::new();
    for letter in *b"gh" {
        let mut client = TcpStream::connect((LOOPBACK, server.port())).expect("connected");
        client
            .write_all(
                &[[letter; 36].as_slice(), b"\0\0\0\0\x1b", br#"{"tcp":true,"parallel":1}  "#].concat(),
            )
            .expect("written");
        let mut states = [0; 2];
        client.read_exact(&mut states).expect("read");
        drop(client);
        loop {
            match events.recv_timeout(Duration::from_secs(20)).expect("told") {
                ServerEvent::Failed(cookie) => break assert_eq!(cookie.as_bytes(), [letter; 36]),
                ServerEvent::Problem(words) => problems.push(words),
                other => panic!("{other:?}"),
            }
        }
        // The next one finds room.
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(server);
    problems.extend(
        events
            .iter()
            .filter_map(|what| if let ServerEvent::Problem(words) = what { Some(words) } else { None }),
    );
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("had a test that failed: it closed"), "{problems:?}");
    assert!(problems[1].ends_with("(1 more times)"), "{problems:?}");
}

#[test]
fn datagrams_from_strangers_change_nothing() {
    let remote = TestServer::new(1, None);
    let stranger = UdpSocket::bind((LOOPBACK, 0)).expect("bound");
    for words in [&b"9876"[..], b"", b"9876and a cookie of a test that is not there", &[0; 1400]] {
        stranger.send_to(words, (LOOPBACK, remote.server.port())).expect("sent");
    }
    run(test(remote.peer(), traffic(NetTest::Udp, Direction::Both))).expect("a report");
    assert_serves(&remote);
}

/// A server that accepts one test with one UDP stream and does not answer the client's calls. Between the start of the test and of the
/// streams it calls a function with the client's address.
fn far_end_without_an_answer(
    listener: &TcpListener,
    datagrams: &UdpSocket,
    meanwhile: impl FnOnce(std::net::SocketAddr),
) {
    let (mut control, _) = listener.accept().expect("accepted");
    let message = |stream: &mut TcpStream| {
        let mut length = [0; 4];
        stream.read_exact(&mut length).expect("a length");
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut text).expect("JSON");
    };
    control.read_exact(&mut [0; 37]).expect("a cookie");
    control.write_all(&[9]).expect("written");
    message(&mut control);
    control.write_all(&[10]).expect("written");
    let (_, client) = datagrams.recv_from(&mut [0; 64]).expect("a call");
    control.write_all(&[1]).expect("written");
    meanwhile(client);
    control.write_all(&[2]).expect("written");
    let mut state = [0];
    control.read_exact(&mut state).expect("a state");
    assert_eq!(state, [4], "the end of the test");
    control.write_all(&[13]).expect("written");
    message(&mut control);
    control.write_all(b"\0\0\0\x02{}\x0e").expect("written");
    control.read_exact(&mut state).expect("a state");
}

#[test]
fn a_test_that_starts_is_the_answer_that_was_lost() {
    let listener = TcpListener::bind((LOOPBACK, 0)).expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let datagrams = UdpSocket::bind((LOOPBACK, port)).expect("bound");
    let remote = std::thread::spawn(move || far_end_without_an_answer(&listener, &datagrams, |_| {}));
    let report =
        run(test(Peer::at(LOOPBACK, port), traffic(NetTest::Udp, Direction::Upload))).expect("a report");
    assert!(report.local.streams[0].figures.bytes > 100_000);
    remote.join().expect("no panic");
}

#[test]
fn what_comes_before_the_server_says_that_it_runs_is_not_lost() {
    let listener = TcpListener::bind((LOOPBACK, 0)).expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let datagrams = UdpSocket::bind((LOOPBACK, port)).expect("bound");
    // More than the kernel buffers for a socket without a reader.
    let count = 400_u64;
    let remote = std::thread::spawn(move || {
        let sender = datagrams.try_clone().expect("cloned");
        far_end_without_an_answer(&listener, &datagrams, move |client| {
            // It has the stream when it has read that the test starts.
            std::thread::sleep(Duration::from_secs(1));
            for number in 1..=count {
                let mut datagram = vec![0; 1000];
                datagram[8..16].copy_from_slice(&number.to_be_bytes());
                sender.send_to(&datagram, client).expect("sent");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    });
    let traffic = traffic(NetTest::Udp, Direction::Download);
    let figures = run(test(Peer::at(LOOPBACK, port), traffic)).expect("a report").local.streams[0].figures;
    assert_eq!((figures.packets, figures.lost), (Some(count), Some(0)));
    remote.join().expect("no panic");
}

#[test]
fn a_far_end_that_is_none_is_named_with_what_it_did() {
    let listener = TcpListener::bind((LOOPBACK, 0)).expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let answers: [(&[u8], &str); 3] =
        [(b"SSH-2.0-OpenSSH\r\n", "0x53"), (b"", "closed the control connection"), (b"\xff", "busy")];
    let words = answers.map(|(_, words)| words);
    let server = std::thread::spawn(move || {
        for (answer, _) in answers {
            let (mut stream, _) = listener.accept().expect("accepted");
            let mut cookie = [0; 37];
            stream.read_exact(&mut cookie).expect("a cookie");
            stream.write_all(answer).expect("written");
        }
    });
    for words in words {
        let refusal =
            run(test(Peer::at(LOOPBACK, port), traffic(NetTest::Tcp, Direction::Upload))).expect_err(words);
        assert!(refusal.contains(words) && refusal.starts_with(&format!("{LOOPBACK}:{port}")), "{refusal}");
    }
    server.join().expect("no panic");
    let nobody =
        run(test(Peer::at(LOOPBACK, port), traffic(NetTest::Tcp, Direction::Upload))).expect_err("nobody");
    assert!(nobody.contains("iotax net serve"), "{nobody}");
}
