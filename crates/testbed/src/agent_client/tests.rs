//! Failures, simulated by a fake agent.

use super::*;
use iotax_model::workload::{Content, Workload, WorkloadKeys};
use std::os::unix::net::UnixStream;
use std::thread;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);

/// Returns a client that is connected to a fake agent: `behave` runs on the other end of the socket until it returns.
fn agent(behave: impl FnOnce(&mut UnixStream) + Send + 'static) -> (AgentClient, Interrupt) {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    thread::spawn(move || behave(&mut theirs));
    let interrupt = Interrupt::default();
    let exit_diagnostics = Box::new(|| "its console".to_owned());
    (AgentClient::over(ours, "the guest", exit_diagnostics, &interrupt).expect("a client"), interrupt)
}

/// Returns an agent that answers each request with these events.
fn answering(answers: Vec<Vec<Event>>) -> AgentClient {
    let behave = |stream: &mut UnixStream| {
        for events in answers {
            wire::receive::<Request>(stream).expect("a request");
            events.iter().for_each(|event| wire::send(stream, event).expect("sent"));
        }
        hang(stream);
    };
    agent(behave).0
}

/// Blocks until the client closes the connection.
fn hang(stream: &mut UnixStream) {
    while let Ok(1..) = stream.read(&mut [0; 64]) {}
}

fn hello(protocol: u16) -> Event {
    Event::Hello(AgentHello {
        protocol,
        version: "0.9".into(),
        kernel: "6.1".into(),
        clocksource: None,
        disk: None,
        filesystem: None,
        timeouts: Vec::new(),
    })
}

fn job(runtime: Duration) -> Job {
    let keys = WorkloadKeys::default();
    let mut workload: Workload = keys.complete(&keys);
    workload.runtime = iotax_model::Nanos(u64::try_from(runtime.as_nanos()).expect("short"));
    workload.ramp_time = iotax_model::Nanos(0);
    Job::new(workload, Bytes(4096), 1, iotax_model::Nanos::from_secs(1))
}

fn outcome() -> Outcome {
    let (cpu, errors, notes) = Default::default();
    Outcome { duration_ns: 5, cpu, errors, notes, ..Outcome::default() }
}

#[test]
fn requests_get_their_answers_in_order() {
    let mut client = answering(vec![
        vec![hello(PROTOCOL)],
        vec![Event::Pong],
        vec![Event::Progress { done: Bytes(1), total: Bytes(2) }, Event::Filled],
        vec![Event::CachesDropped(CacheDrop::Nothing)],
        vec![Event::Ready],
        vec![Event::Measuring, Event::Over],
        vec![Event::Done(Box::new(outcome()))],
        vec![Event::Floor { ns_per_io: 17 }],
    ]);
    assert_eq!(client.hello(LONG).expect("hello").version, "0.9");
    client.ping().expect("pong");
    let mut progress = Vec::new();
    let area = ByteRange { path: None, offset: Bytes(0), size: Bytes(2), shared: false, identity: None };
    client.fill(&area, &Content::default(), 1, LONG, &mut |done| progress.push(done)).expect("filled");
    assert_eq!(progress, [Bytes(1)]);
    assert_eq!(client.drop_caches(&[], false).expect("dropped"), CacheDrop::Nothing);
    let mut seen = Vec::new();
    let measured = client.run(&job(SHORT), LONG, &mut |event| seen.push(event.clone())).expect("measured");
    assert_eq!((measured, seen), (outcome(), vec![Event::Measuring, Event::Over]));
    assert_eq!(client.floor().expect("floor"), 17);
}

#[test]
fn a_failure_is_told_and_the_conversation_goes_on() {
    let mut client =
        answering(vec![vec![Event::Failed { message: "/dev/vdb: EIO".into() }], vec![Event::Pong]]);
    let error = client.drop_caches(&[], false).expect_err("failed");
    assert_eq!(error.to_string(), "the guest: /dev/vdb: EIO");
    client.ping().expect("goes on");
}

#[test]
fn another_version_is_refused_with_both_numbers() {
    let mut client = answering(vec![vec![hello(PROTOCOL + 1)], vec![Event::Pong]]);
    let error = client.hello(LONG).expect_err("refused").to_string();
    assert!(error.contains("0.9") && error.contains(&format!("protocol {}", PROTOCOL + 1)), "{error}");
    assert!(matches!(client.ping(), Err(AgentError::Over { .. })));
}

#[test]
fn garbage_and_wrong_answers_end_the_conversation() {
    let (mut client, _) = agent(|stream| {
        stream.write_all(b"Segmentation fault\n").expect("sent");
        hang(stream);
    });
    let error = client.ping().expect_err("garbage");
    assert!(
        matches!(&error, AgentError::Protocol { .. }) && error.to_string().contains("the guest"),
        "{error}"
    );
    assert!(matches!(client.ping(), Err(AgentError::Over { .. })));

    let mut client = answering(vec![vec![Event::Filled], vec![Event::Pong]]);
    let error = client.ping().expect_err("wrong").to_string();
    assert_eq!(error, "the guest answered ping with Filled");
    assert!(matches!(client.ping(), Err(AgentError::Over { .. })));
}

#[test]
fn a_hang_ends_at_the_deadline_with_diagnostics() {
    let (mut client, _) = agent(|stream| {
        wire::receive::<Request>(stream).expect("a request");
        wire::send(stream, &Event::Ready).expect("sent");
        hang(stream);
    });
    let began = Instant::now();
    let error = client.run(&job(SHORT), SHORT, &mut |_| {}).expect_err("late");
    assert!(began.elapsed() >= SHORT * 2);
    assert_eq!(error.to_string(), "the guest did not answer run within 0.4 s: its console");
    // A late answer must not be taken for that of the next request.
    assert!(matches!(client.ping(), Err(AgentError::Over { .. })));
    assert!(matches!(client.shutdown(SHORT), Err(AgentError::Deadline { .. })));
}

#[test]
fn an_end_in_the_middle_is_told_at_once() {
    let (mut client, _) = agent(|stream| {
        for event in [Event::Ready, Event::Measuring] {
            wire::receive::<Request>(stream).expect("a request");
            wire::send(stream, &event).expect("sent");
        }
    });
    let error = client.run(&job(LONG), LONG, &mut |_| {}).expect_err("gone").to_string();
    assert_eq!(error, "the guest exited during run: its console");
}

#[test]
fn an_interrupt_ends_a_wait_and_still_allows_a_shutdown() {
    let (mut client, interrupt) = agent(|stream| {
        while let Ok(Some(request)) = wire::receive::<Request>(stream) {
            if request == Request::Shutdown {
                return;
            }
        }
    });
    let waiter = thread::spawn(move || (client.ping(), client.shutdown(LONG)));
    thread::sleep(Duration::from_millis(20));
    interrupt.store(true, Ordering::Relaxed);
    let (asked, ended) = waiter.join().expect("no panic");
    assert!(matches!(asked, Err(AgentError::Interrupted)));
    ended.expect("shut down");
}

#[test]
fn a_local_agent_that_dies_is_quoted() {
    // `sleep agent` prints an error to stderr and exits.
    let mut client =
        AgentClient::spawn_local(Path::new("/bin/sleep"), &Interrupt::default()).expect("started");
    let error = client.hello(LONG).expect_err("no agent").to_string();
    assert!(error.contains("exit status: 1") && error.contains("agent"), "{error}");
    let error = AgentClient::spawn_local(Path::new("/no/exe"), &Interrupt::default()).err().expect("absent");
    assert!(error.to_string().contains("/no/exe"));
}
