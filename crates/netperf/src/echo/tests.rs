//! Tests of both ends over loopback.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use iotax_model::net::{Direction, NetTest, Peer, Traffic};
use iotax_model::record::{Outcome, Probes, Sample, Tally};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::WorkloadKeys;

use super::server::{self, Waiting};
use super::tcp::Tcp;
use super::transport::Transport;
use super::udp::Udp;
use super::{Prepared, length, measure};
use crate::server::{Server, Serving};
use iotax_load::clock;
use iotax_load::control::Control;
use iotax_load::error::EngineError;
use iotax_load::watch;
use iotax_load::window::Window;

fn job(traffic: &Traffic, runtime_ms: u64) -> Job {
    stretched_job(traffic, runtime_ms, 1)
}

/// A job with window, warm-up and intervals multiplied by a factor.
fn stretched_job(traffic: &Traffic, runtime_ms: u64, times: u64) -> Job {
    let keys = WorkloadKeys {
        net: Some(traffic.clone()),
        runtime: Some(Nanos::from_millis(runtime_ms * times)),
        ramp_time: Some(Nanos::from_millis(50 * times)),
        blackout: traffic.rate.map(|_| Nanos::from_millis(100)),
        ..WorkloadKeys::default()
    };
    Job::new(keys.complete(&WorkloadKeys::default()), Bytes(0), 1, Nanos::from_millis(100 * times))
}

/// A server on its own thread, and its stop flag.
struct TestServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    fn start(work: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = Some(thread::spawn({
            let stop = Arc::clone(&stop);
            move || work(&stop)
        }));
        Self { stop, thread }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.expect("once").expect("the server did not panic");
        }
    }
}

/// Two UDP sockets connected with each other.
fn udp_pair() -> (UdpSocket, UdpSocket) {
    let bound = || UdpSocket::bind("127.0.0.1:0").expect("bound");
    let (local, remote) = (bound(), bound());
    local.connect(remote.local_addr().expect("address")).expect("connected");
    remote.connect(local.local_addr().expect("address")).expect("connected");
    (local, remote)
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let local = TcpStream::connect(listener.local_addr().expect("address")).expect("connected");
    (local, listener.accept().expect("accepted").0)
}

/// Measures on a transport. Returns the outcome and its samples.
fn run(traffic: &Traffic, runtime_ms: u64, transport: impl Transport + 'static) -> (Outcome, Vec<Sample>) {
    run_job(&job(traffic, runtime_ms), traffic, transport)
}

fn run_job(job: &Job, traffic: &Traffic, transport: impl Transport + 'static) -> (Outcome, Vec<Sample>) {
    let prepared = Prepared::new(job, traffic, transport).expect("set up");
    let (mut samples, mut measuring) = (Vec::new(), 0);
    let outcome = prepared.go(&watch::NEVER, Window::new(job, clock::now()), &mut |event| match event {
        Event::Sample(sample) => samples.push(*sample),
        Event::Measuring => measuring += 1,
        other => panic!("{other:?}"),
    });
    assert_eq!(measuring, 1);
    (outcome.expect("measured"), samples)
}

fn read(outcome: &Outcome) -> &Tally {
    outcome.tallies.read.as_ref().expect("round trips")
}

fn probes(outcome: &Outcome) -> Probes {
    outcome.carried.as_ref().and_then(|carried| carried.probes).expect("probes")
}

/// Asserts that samples add up to the totals, and that every reply has a round trip.
fn assert_sound(outcome: &Outcome, samples: &[Sample], length: u64) {
    let mut all = Tally::default();
    samples.iter().filter_map(|sample| sample.tallies.read.as_ref()).for_each(|tally| all.merge(tally));
    let total = read(outcome);
    assert_eq!(&all, total);
    assert_eq!((total.latency.count(), total.bytes), (total.ios, total.ios * length));
    assert_eq!(total.ios, probes(outcome).received);
    // The histogram's own standard deviation is coarse, because its buckets are 0.4% wide.
    let exact = outcome.carried.as_ref().and_then(|carried| carried.mdev_ns).expect("some came back") as f64;
    let (coarse, mean) = (total.latency.stddev().expect("some"), total.latency.mean().expect("some"));
    assert!((exact - coarse).abs() < 0.02 * coarse + 0.01 * mean, "{exact} and {coarse}");
}

/// Counts values above a bound.
fn above(tally: &iotax_model::histogram::Histogram, nanos: u64) -> u64 {
    tally.bars().filter(|bar| bar.0 > nanos).map(|bar| bar.2).sum()
}

fn datagram_answerer(socket: UdpSocket, length: usize) -> TestServer {
    TestServer::start(move |stop| {
        server::datagrams(&socket, length, Waiting::Asleep, stop).expect("set up");
    })
}

#[test]
fn every_datagram_of_a_closed_loop_comes_back_and_is_timed() {
    for busy_poll in [None, Some(Nanos(50_000))] {
        let traffic = Traffic { busy_poll, ..Traffic::new(NetTest::UdpRtt) };
        let length = length(&traffic);
        let measured = |times: u64| {
            let (local, remote) = udp_pair();
            let _remote = datagram_answerer(remote, length);
            let job = stretched_job(&traffic, 300, times);
            run_job(&job, &traffic, Udp::new(local, length).expect("set up"))
        };
        // Where others keep the CPUs busy, both ends wait 10 ms and more for one: a round trip takes as long, and there are few in 300 ms.
        let are_enough = |outcome: &Outcome| probes(outcome).sent > 100 && outcome.ramp_ios > 10;
        let (times, (outcome, samples)) = [1, 4, 16, 64]
            .into_iter()
            .map(|times| (times, measured(times)))
            .find(|(times, (outcome, _))| *times == 64 || are_enough(outcome))
            .expect("the last");
        assert_sound(&outcome, &samples, 64);
        let Probes { sent, received, duplicates, out_of_order } = probes(&outcome);
        assert!(sent > 100 && received == sent, "{sent} sent, {received} received");
        assert_eq!((duplicates, out_of_order, samples.len()), (0, 0, 3));
        let tally = read(&outcome);
        assert_eq!((&tally.response, outcome.pacing), (&None, None), "a closed loop");
        assert!(outcome.ramp_ios > 10 && outcome.errors.is_empty(), "{outcome:?}");
        // Messages go one at a time, so their round trips add up to at most the window, and the last one may end after it.
        let (all, longest) = (tally.latency.sum(), tally.latency.max().expect("some"));
        assert!(all <= 300_000_000 * times + longest, "{all} ns in all, {longest} ns the longest");
        let busy = outcome.cpu.total_ns() as f64 / outcome.duration_ns as f64;
        assert!(busy_poll.is_none() || busy > 0.2, "spinning took {busy} of a CPU");
    }
}

#[test]
fn messages_of_tcp_come_back_whole_whatever_their_length() {
    for (bytes, rate) in [(64, None), (60_000, None), (17, Some(20_000)), (30_000, Some(500))] {
        let traffic = Traffic { length: Some(Bytes(bytes)), rate, ..Traffic::new(NetTest::TcpRtt) };
        let (local, remote) = tcp_pair();
        let messages = length(&traffic);
        let remote = TestServer::start(move |stop| {
            server::messages(&remote, messages, Waiting::Asleep, stop).expect("not broken");
        });
        let (outcome, samples) = run(&traffic, 300, Tcp::new(local, messages).expect("set up"));
        drop(remote);
        assert_sound(&outcome, &samples, bytes);
        let Probes { sent, received, duplicates, out_of_order } = probes(&outcome);
        assert!(sent > 50 && received == sent, "{bytes}: {sent} sent, {received} received");
        assert_eq!((duplicates, out_of_order), (0, 0));
        let due = rate.map(|rate| rate * 3 / 10);
        assert_eq!(outcome.pacing.map(|pacing| pacing.due), due);
        assert_eq!(due.unwrap_or(sent), sent, "all that was due went out");
    }
}

#[test]
fn a_stall_of_the_far_end_delays_all_that_was_due_and_response_times_tell() {
    const STALL: Duration = Duration::from_millis(300);
    for is_tcp in [false, true] {
        let test = if is_tcp { NetTest::TcpRtt } else { NetTest::UdpRtt };
        // The socket buffer holds the messages that arrive during the stall.
        let traffic = Traffic { rate: Some(500), ..Traffic::new(test) };
        let stall = |number: u32| {
            if number == 250 {
                thread::sleep(STALL);
            }
        };
        let (outcome, samples) = if is_tcp {
            let (local, mut remote) = tcp_pair();
            let _far = TestServer::start(move |_| {
                use std::io::{Read, Write};
                let mut message = [0; 64];
                for number in 0.. {
                    if remote.read_exact(&mut message).is_err() {
                        break;
                    }
                    stall(number);
                    remote.write_all(&message).expect("answered");
                }
            });
            run(&traffic, 1500, Tcp::new(local, 64).expect("set up"))
        } else {
            let (local, remote) = udp_pair();
            remote.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
            let _far = TestServer::start(move |stop| {
                let (mut message, mut number) = ([0; 64], 0);
                while !stop.load(Ordering::Relaxed) {
                    if remote.recv(&mut message).is_ok() {
                        stall(number);
                        remote.send(&message).expect("answered");
                        number += 1;
                    }
                }
            });
            run(&traffic, 1500, Udp::new(local, 64).expect("set up"))
        };
        assert_sound(&outcome, &samples, 64);
        let counts = probes(&outcome);
        assert_eq!((counts.sent, counts.received, counts.out_of_order), (750, 750, 0), "{test}");
        let tally = read(&outcome);
        let response = tally.response.as_ref().expect("an open loop");
        // 150 messages were due during the stall; half of them waited for more than half of it.
        let waited = above(response, 150_000_000);
        assert!((70..120).contains(&waited), "{test}: {waited}");
        assert!(response.max() >= Some(290_000_000));
        // Sending never waited for the server: all messages were in flight, so the service times show the stall too.
        assert!(above(&tally.latency, 150_000_000).abs_diff(waited) < 20, "{test}");
        // The 250th was due at 500 ms, 50 of which are warm-up.
        let [gap] = &outcome.blackouts.as_ref().expect("recorded")[..] else { panic!("{outcome:?}") };
        assert!((430_000_000..500_000_000).contains(&gap.at_ns) && gap.ended, "{test}: {gap:?}");
        assert!((295_000_000..400_000_000).contains(&gap.duration_ns), "{test}: {gap:?}");
    }
}

#[test]
fn what_is_lost_duplicated_or_passed_is_counted() {
    let traffic = Traffic { rate: Some(1000), ..Traffic::new(NetTest::UdpRtt) };
    let (local, remote) = udp_pair();
    remote.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
    let remote = TestServer::start(move |stop| {
        let mut message = [0; 64];
        let mut held: Option<[u8; 64]> = None;
        while !stop.load(Ordering::Relaxed) {
            if remote.recv(&mut message).is_err() {
                continue;
            }
            let number = u64::from_be_bytes(message[8..16].try_into().expect("eight bytes"));
            match number % 10 {
                // One message in ten is lost, one in ten is duplicated, one in ten arrives after its successor.
                3 => continue,
                5 => drop(remote.send(&message)),
                7 => {
                    held = Some(message);
                    continue;
                }
                _ => {}
            }
            remote.send(&message).expect("answered");
            if let Some(held) = held.take() {
                remote.send(&held).expect("answered");
            }
            // Messages with another cookie do not count.
            remote.send(&[0; 64]).expect("sent");
            remote.send(&[0; 3]).expect("sent");
        }
    });
    let job = job(&traffic, 1000);
    let prepared = Prepared::new(&job, &traffic, Udp::new(local, 64).expect("set up")).expect("set up");
    let begun = Instant::now();
    let outcome = prepared.go(&watch::NEVER, Window::new(&job, clock::now()), &mut |_| {}).expect("measured");
    drop(remote);
    let Probes { sent, received, duplicates, out_of_order } = probes(&outcome);
    assert_eq!((sent, received, duplicates, out_of_order), (1000, 900, 100, 100));
    assert!(begun.elapsed() < Duration::from_secs(4), "lost ones were waited for {:?}", begun.elapsed());
}

#[test]
fn nobody_at_the_far_end_is_a_result_and_no_flood() {
    let traffic = Traffic::new(NetTest::UdpRtt);
    let (local, remote) = udp_pair();
    drop(remote);
    let (outcome, _) = run(&traffic, 300, Udp::new(local, 64).expect("set up"));
    let counts = probes(&outcome);
    assert!((1..40).contains(&counts.sent) && counts.received == 0, "{counts:?}");
    assert!(outcome.errors.iter().all(|error| error.error == "ECONNREFUSED"), "{:?}", outcome.errors);
    assert!(!outcome.errors.is_empty());
}

#[test]
fn a_connection_that_ends_ends_the_measurement() {
    let traffic = Traffic::new(NetTest::TcpRtt);
    let (local, remote) = tcp_pair();
    let job = job(&traffic, 300);
    let prepared = Prepared::new(&job, &traffic, Tcp::new(local, 64).expect("set up")).expect("set up");
    drop(remote);
    let error =
        prepared.go(&watch::NEVER, Window::new(&job, clock::now()), &mut |_| {}).expect_err("it broke");
    assert!(error.to_string().contains("the connection broke after"), "{error}");
}

/// Measures round trips with a server. Returns the outcome and the events.
fn with_server(
    server: &Server,
    traffic: &Traffic,
    runtime_ms: u64,
) -> Result<(Outcome, Vec<Event>), EngineError> {
    let mut events = Vec::new();
    let peer = Peer::at("127.0.0.1", server.port());
    let job = job(traffic, runtime_ms);
    let outcome = measure(&Control::new(), &job, traffic, &peer, &mut |event| events.push(event))?;
    Ok((outcome, events))
}

#[test]
fn a_server_answers_those_who_agree_with_it() {
    let server = Server::start("127.0.0.1", 0, None).expect("listens");
    for (test, rate, busy_poll) in [
        (NetTest::UdpRtt, Some(500), None),
        (NetTest::TcpRtt, None, None),
        (NetTest::UdpRtt, None, Some(Nanos(50_000))),
    ] {
        let traffic = Traffic { rate, busy_poll, ..Traffic::new(test) };
        let (outcome, events) = with_server(&server, &traffic, 300).expect("measured");
        let samples: Vec<Sample> = events
            .iter()
            .filter_map(|event| match event {
                Event::Sample(sample) => Some((**sample).clone()),
                _ => None,
            })
            .collect();
        assert_sound(&outcome, &samples, 64);
        let counts = probes(&outcome);
        // Two spinning ends share the CPUs, so few round trips may happen.
        assert!(counts.sent >= 10 && counts.received == counts.sent, "{test}: {counts:?}");
        assert_eq!((events.first(), events.get(1)), (Some(&Event::Ready), Some(&Event::Measuring)));
        assert_eq!((events.last(), samples.len()), (Some(&Event::Over), 3));
        let carried = outcome.carried.as_ref().expect("a network's");
        assert!(carried.server_cpu.is_some_and(|cpu| cpu.total_ns() > 0), "{carried:?}");
        assert_eq!(busy_poll.is_some(), outcome.notes.iter().any(|note| note.contains("SO_BUSY_POLL")));
    }
}

#[test]
fn a_load_goes_beside_round_trips() {
    // A server with a limit of one test still answers round trips at the same time.
    let serving = Serving { bind: "127.0.0.1".into(), port: 0, token: None, most_tests: 1, one_off: false };
    let server = Server::listen(serving, Box::new(|_| {})).expect("listens");
    for (direction, ups) in
        [(Direction::Download, &[false][..]), (Direction::Upload, &[true]), (Direction::Both, &[true, false])]
    {
        let traffic = Traffic { loaded: true, direction, rate: Some(200), ..Traffic::new(NetTest::UdpRtt) };
        let (outcome, _) = with_server(&server, &traffic, 500).expect("measured");
        let carried = outcome.carried.as_ref().expect("a network's");
        assert_eq!(carried.flows.iter().map(|flow| flow.upload).collect::<Vec<_>>(), ups);
        for flow in &carried.flows {
            // Loopback moves hundreds of times as much.
            assert!(flow.received_bytes > Some(5_000_000), "{direction}: {flow:?}");
        }
        assert_eq!(probes(&outcome).sent, 100);
        assert!(probes(&outcome).received > 50, "{:?}", probes(&outcome));
        assert!(carried.congestion.is_some() && carried.mss.is_some());
    }
}

#[test]
fn nobody_who_answers_is_an_error_with_a_remedy() {
    let server = Server::start("127.0.0.1", 0, None).expect("listens");
    let port = server.port();
    drop(server);
    let traffic = Traffic::new(NetTest::UdpRtt);
    let error =
        measure(&Control::new(), &job(&traffic, 100), &traffic, &Peer::at("127.0.0.1", port), &mut |_| {});
    let words = error.expect_err("nobody listens").to_string();
    assert!(words.contains(&format!("127.0.0.1:{port}")) && words.contains("iotax net serve"), "{words}");
}

#[test]
fn the_kernel_answers_echo_requests() {
    for (host, length) in [("127.0.0.1", None), ("::1", None), ("127.0.0.1", Some(Bytes(1400)))] {
        let traffic = Traffic { length, rate: Some(500), ..Traffic::new(NetTest::IcmpRtt) };
        let job = job(&traffic, 400);
        let outcome = match measure(&Control::new(), &job, &traffic, &Peer::at(host, 0), &mut |_| {}) {
            Ok(outcome) => outcome,
            Err(EngineError::Net(words)) => {
                assert!(words.contains("ping_group_range") || host == "::1", "{words}");
                iotax_testkit::skipped::<()>(format_args!("{host}: {words}"));
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let counts = probes(&outcome);
        assert_eq!((counts.sent, counts.received, counts.duplicates), (200, 200, 0), "{host}");
        let tally = read(&outcome);
        assert_eq!(tally.bytes, 200 * length.map_or(64, |bytes| bytes.0));
        let response = tally.response.as_ref().expect("an open loop");
        assert!(tally.latency.min() > Some(0) && response.sum() >= tally.latency.sum());
    }
}
