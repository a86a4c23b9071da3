//! Streams over loopback, end to end.

use std::net::TcpListener;
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Amount, Counters, Settings, Snapshot, Socket, receive, send, tcp_info};

fn settings(length: usize) -> Settings {
    Settings { length, bitrate: None, zerocopy: false, udp64: false, amount: None }
}

/// Both ends of a TCP connection.
fn tcp() -> (Socket, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
    (Socket::Tcp(near), Socket::Tcp(listener.accept().expect("accepted").0))
}

/// Two UDP sockets that speak to each other only.
fn udp() -> (Socket, Socket) {
    let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
    near.connect(far.local_addr().expect("bound")).expect("connected");
    far.connect(near.local_addr().expect("bound")).expect("connected");
    (Socket::Udp(near), Socket::Udp(far))
}

/// Sends until `time` is over or the amount is used up, and what both ends counted. The receiver ends a little later.
fn run(sockets: &(Socket, Socket), settings: &Settings, time: Duration) -> (Snapshot, Snapshot) {
    let (sent, received) = (Counters::default(), Counters::default());
    let (stop, end) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&sockets.0, settings, &sent, &stop));
        let receiver = scope.spawn(|| receive(&sockets.1, settings, &received, &end));
        let begin = Instant::now();
        while begin.elapsed() < time && !sender.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        sender.join().expect("no panic").expect("sent");
        let (mut last, mut now) = (Snapshot::default(), received.snapshot());
        while last != now {
            std::thread::sleep(Duration::from_millis(100));
            (last, now) = (now, received.snapshot());
        }
        end.store(true, Ordering::Relaxed);
        receiver.join().expect("no panic").expect("received");
    });
    (sent.snapshot(), received.snapshot())
}

#[test]
fn all_of_an_amount_arrives_over_tcp_and_no_more_is_sent() {
    let amount = Arc::new(Amount::bytes(3_000_000));
    let settings = Settings { amount: Some(Arc::clone(&amount)), ..settings(8_192) };
    let sockets = tcp();
    let (sent, received) = run(&sockets, &settings, Duration::from_secs(10));
    assert!(amount.is_used_up());
    assert_eq!(sent.bytes, 3_000_000_u64.next_multiple_of(8_192), "whole blocks");
    assert_eq!(received.bytes, sent.bytes);
    let Socket::Tcp(near) = &sockets.0 else { unreachable!("of TCP") };
    let info = tcp_info(near).expect("known");
    assert_eq!(info.bytes_acked, Some(sent.bytes + 1), "{info:?}");
    assert!(info.mss > 500 && info.rtt_ns > 0 && info.snd_cwnd >= u64::from(info.mss), "{info:?}");
}

#[test]
fn datagrams_keep_to_their_bitrate_and_are_all_counted() {
    for udp64 in [false, true] {
        let settings = Settings { bitrate: Some(8_000_000), udp64, ..settings(1_000) };
        let (sent, received) = run(&udp(), &settings, Duration::from_millis(500));
        // 1000 a second; a machine at its limits sends fewer.
        assert!((100..=600).contains(&sent.packets), "{sent:?}");
        assert_eq!(received.packets + received.lost, sent.packets, "{received:?}");
        assert_eq!((received.highest, received.duplicates), (sent.packets, 0), "{received:?}");
        assert_eq!(received.bytes, received.packets * 1_000, "{received:?}");
    }
}

#[test]
fn a_number_of_blocks_is_shared_by_streams() {
    let amount = Amount::blocks(5);
    assert_eq!([amount.take(3, 9), amount.take(3, 9), amount.take(3, 9)], [3, 2, 0]);
    let amount = Amount::bytes(25);
    assert_eq!([amount.take(2, 10), amount.take(2, 10), amount.take(2, 10)], [2, 1, 0]);
}
