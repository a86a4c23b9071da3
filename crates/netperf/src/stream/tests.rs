//! Streams over loopback, end to end.

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Amount, Counters, Settings, Snapshot, Socket, tcp_info, transfer};
use iotax_load::clock;
use iotax_load::random::{Purpose, SplitMix64};

fn settings(length: usize) -> Settings {
    Settings { length, bitrate: None, zerocopy: false, skip_copy: false, udp64: false, amount: None }
}

/// Both ends of a TCP connection.
fn tcp() -> (Socket, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let local = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
    (Socket::Tcp(local), Socket::Tcp(listener.accept().expect("accepted").0))
}

/// Two UDP sockets connected to each other.
fn udp() -> (Socket, Socket) {
    let [local, remote] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
    local.connect(remote.local_addr().expect("bound")).expect("connected");
    remote.connect(local.local_addr().expect("bound")).expect("connected");
    (Socket::Udp(local), Socket::Udp(remote))
}

/// Sends for `time` or until the amount is sent. Returns the counts of both ends. The receiver ends when it has everything, or after a
/// second without data.
fn run(sockets: &(Socket, Socket), settings: &Settings, time: Duration) -> (Snapshot, Snapshot) {
    let (sent, received) = (Counters::default(), Counters::default());
    let (stop, end) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| transfer(true, &sockets.0, settings, &sent, &stop));
        let receiver = scope.spawn(|| transfer(false, &sockets.1, settings, &received, &end));
        let begin = Instant::now();
        while begin.elapsed() < time && !sender.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        sender.join().expect("no panic").expect("sent");
        let (mut last, mut since) = (received.snapshot(), Instant::now());
        while last.bytes < sent.snapshot().bytes && since.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(5));
            if received.snapshot() != last {
                (last, since) = (received.snapshot(), Instant::now());
            }
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
    assert_eq!(amount.take(1, 1), 0, "used up");
    assert_eq!(sent.bytes, 3_000_000_u64.next_multiple_of(8_192), "whole blocks");
    assert_eq!(received.bytes, sent.bytes);
    let Socket::Tcp(local) = &sockets.0 else { unreachable!("of TCP") };
    let info = tcp_info(local).expect("known");
    assert_eq!(info.bytes_acked, Some(sent.bytes + 1), "{info:?}");
    assert!(info.mss > 500 && info.rtt_ns > 0 && info.snd_cwnd >= u64::from(info.mss), "{info:?}");
}

#[test]
fn what_is_sent_without_a_copy_arrives() {
    let amount = Some(Arc::new(Amount::blocks(50)));
    let settings = Settings { amount, zerocopy: true, ..settings(100_000) };
    let (sent, received) = run(&tcp(), &settings, Duration::from_secs(10));
    assert_eq!((sent.bytes, received.bytes), (5_000_000, 5_000_000));
}

#[test]
fn what_is_dropped_without_a_copy_is_counted_to_the_byte() {
    let amount = Some(Arc::new(Amount::blocks(50)));
    let settings = Settings { amount, skip_copy: true, ..settings(100_000) };
    let (sent, received) = run(&tcp(), &settings, Duration::from_secs(10));
    assert_eq!((sent.bytes, received.bytes), (5_000_000, 5_000_000));
}

#[test]
fn datagrams_keep_to_their_bitrate_and_are_all_counted() {
    for udp64 in [false, true] {
        let settings = Settings { bitrate: Some(8_000_000), udp64, ..settings(1_000) };
        let (sent, received) = run(&udp(), &settings, Duration::from_millis(500));
        // 1000 a second; a machine at its limits sends fewer.
        assert!((100..=600).contains(&sent.packets), "{sent:?}");
        assert_eq!(received.packets + received.lost, sent.packets, "{received:?}");
        assert_eq!(received.duplicates, 0, "{received:?}");
        assert_eq!(received.bytes, received.packets * 1_000, "{received:?}");
    }
}

#[test]
fn datagrams_that_go_together_are_counted_one_by_one() {
    for (length, count) in [(64, 500), (1_470, 100), (30_000, 3), (60_000, 2)] {
        let amount = Some(Arc::new(Amount::blocks(count)));
        let settings = Settings { amount, ..settings(length) };
        let (sent, received) = run(&udp(), &settings, Duration::from_secs(10));
        assert_eq!((sent.packets, sent.bytes), (count, count * length as u64));
        assert!(received.packets > 0 && received.packets + received.lost <= count, "{length}: {received:?}");
        assert_eq!((received.out_of_order, received.duplicates), (0, 0), "{length}: {received:?}");
        assert_eq!(received.bytes, received.packets * length as u64, "{length}: {received:?}");
    }
}

#[test]
fn a_receiver_goes_on_whatever_it_is_sent() {
    for udp64 in [false, true] {
        let (Socket::Udp(local), remote) = udp() else { unreachable!("of UDP") };
        let settings = Settings { udp64, ..settings(64) };
        let (counters, stop) = (Counters::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| transfer(false, &remote, &settings, &counters, &stop));
            let mut random = SplitMix64::new(7, Purpose::Payload, 0);
            for _ in 0..500 {
                let bytes: Vec<u8> =
                    std::iter::repeat_with(|| random.next().to_le_bytes()).take(9).flatten().collect();
                let length = usize::try_from(random.below(72)).expect("small");
                local.send(&bytes[..length]).expect("sent");
            }
            local.send(&[0xff; 64]).expect("sent");
            let begin = Instant::now();
            while counters.snapshot().packets == 0 && begin.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
            receiver.join().expect("no panic").expect("received");
        });
        let seen = counters.snapshot();
        assert!(seen.packets > 0 && seen.packets + seen.duplicates <= 501, "{seen:?}");
    }
}

#[test]
fn a_receiver_tells_when_it_got_nothing() {
    let (local, remote) = tcp();
    let Socket::Tcp(mut local) = local else { unreachable!("of TCP") };
    let (counters, stop) = (Counters::default(), AtomicBool::new(false));
    clock::calibrate();
    let (before, after) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| transfer(false, &remote, &settings(1_000), &counters, &stop));
        let before = clock::now();
        counters.begin(before);
        local.write_all(&[1; 100]).expect("sent");
        std::thread::sleep(Duration::from_millis(250));
        local.write_all(&[2; 100]).expect("sent");
        drop(local);
        receiver.join().expect("no panic").expect("received");
        (before, clock::now())
    });
    let longest = counters.gaps(after)[0];
    // A busy machine may wake the receiver late for the first bytes.
    assert!(longest.duration() >= 150_000_000 && longest.duration() <= after - before, "{longest:?}");
    assert_eq!((counters.snapshot().bytes, longest.lost_bytes), (200, 0));
}

#[test]
fn a_number_of_blocks_is_shared_by_streams() {
    let amount = Amount::blocks(5);
    assert_eq!([amount.take(3, 9), amount.take(3, 9), amount.take(3, 9)], [3, 2, 0]);
    let amount = Amount::bytes(25);
    assert_eq!([amount.take(2, 10), amount.take(2, 10), amount.take(2, 10)], [2, 1, 0]);
}
