//! Tests of the agent as a child process, controlled as by a runner.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{self, ByteRange, Event, Job, PROTOCOL, Request};
use iotax_model::workload::{Content, Rw, WorkloadKeys};
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::interrupt::Interrupt;

fn area(path: Option<&str>) -> ByteRange {
    ByteRange {
        path: path.map(str::to_owned),
        offset: Bytes(0),
        size: Bytes(4096),
        shared: false,
        identity: None,
    }
}

const EXE: &str = env!("CARGO_BIN_EXE_iotax");
const LONG: Duration = Duration::from_secs(30);

fn link() -> AgentClient {
    AgentClient::spawn_local(Path::new(EXE), &Interrupt::default()).expect("started")
}

fn agent() -> Child {
    let pipes = Command::new(EXE)
        .arg("agent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    pipes.expect("started")
}

/// Waits until the agent ends by itself.
fn ended(agent: &mut Child) -> ExitStatus {
    let end = Instant::now() + LONG;
    loop {
        if let Some(status) = agent.try_wait().expect("a child") {
            return status;
        }
        assert!(Instant::now() < end, "the agent still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_local_agent_says_who_it_is_and_ends_when_told() {
    let mut link = link();
    let hello = link.hello(LONG).expect("hello");
    assert_eq!((hello.protocol, hello.version.as_str()), (PROTOCOL, env!("CARGO_PKG_VERSION")));
    assert!(!hello.kernel.is_empty());
    assert_eq!(hello.disk, None);
    link.ping().expect("pong");
    link.shutdown(LONG).expect("ended");
}

#[test]
fn what_cannot_be_done_is_told_with_its_reason_and_the_agent_lives() {
    let mut link = link();
    let error = link.fill(&area(None), &Content::default(), 1, LONG, &mut |_| {}).expect_err("no disk here");
    assert!(
        matches!(&error, AgentError::Failed { .. }) && error.to_string().contains("names no path"),
        "{error}"
    );
    let error =
        link.fill(&area(Some("/no/file")), &Content::default(), 1, LONG, &mut |_| {}).expect_err("no file");
    assert!(error.to_string().contains("/no/file"), "{error}");
    link.ping().expect("lives");
}

#[test]
fn an_agent_whose_runner_is_gone_ends_by_itself() {
    let mut agent = agent();
    let mut stdin = agent.stdin.take().expect("a pipe");
    wire::send(&mut stdin, &Request::Ping).expect("sent");
    let answer: Option<Event> = wire::receive(agent.stdout.as_mut().expect("a pipe")).expect("received");
    assert_eq!(answer, Some(Event::Pong));
    drop(stdin);
    assert!(ended(&mut agent).success());
}

#[test]
fn a_load_starts_when_it_is_told_to_and_not_before() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("grown");
    let keys = WorkloadKeys {
        rw: Some(Rw::RandRead),
        direct: Some(false),
        runtime: Some(Nanos::from_millis(100)),
        ramp_time: Some(Nanos(0)),
        ..WorkloadKeys::default()
    };
    let workload = keys.complete(&WorkloadKeys::default());
    let path = Some(file.path().display().to_string());
    let job = Job { path, ..Job::new(workload, Bytes(1 << 20), 1, Nanos::from_millis(50)) };
    let mut link = link();
    link.prepare(&job).expect("ready");
    // Longer than the whole measurement.
    std::thread::sleep(Duration::from_millis(300));
    let sent_at = Instant::now();
    let mut begun = None;
    let mut observe = |event: &Event| {
        if *event == Event::Measuring {
            begun = Some(sent_at.elapsed());
        }
    };
    let outcome = link.go(&job, LONG, None, &mut observe).expect("measured");
    assert!(outcome.tallies.ios() > 0 && begun.is_some());
    assert!(sent_at.elapsed() >= Duration::from_millis(100), "it had begun before");
    // Every agent records its machine's activity; the runner ignores it on the host, which it watches itself.
    assert!(outcome.inside.is_some_and(|machine| machine.cpu.is_some()));
}

#[test]
fn an_agent_that_waits_to_start_ends_with_its_runner() {
    let mut agent = agent();
    let mut stdin = agent.stdin.take().expect("a pipe");
    let workload = WorkloadKeys { direct: Some(false), ..WorkloadKeys::default() };
    let workload = workload.complete(&WorkloadKeys::default());
    let path = Some("/proc/self/exe".into());
    let job = Job { path, ..Job::new(workload, Bytes(1 << 16), 1, Nanos::from_millis(100)) };
    wire::send(&mut stdin, &Request::Run(Box::new(job))).expect("sent");
    let answer: Option<Event> = wire::receive(agent.stdout.as_mut().expect("a pipe")).expect("received");
    assert_eq!(answer, Some(Event::Ready));
    drop(stdin);
    assert!(ended(&mut agent).success());
}

#[test]
fn an_agent_refuses_what_is_no_message() {
    let mut agent = agent();
    agent.stdin.as_mut().expect("a pipe").write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    assert_eq!(ended(&mut agent).code(), Some(2));
    let mut said = String::new();
    agent.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(said.contains("expected a frame"), "{said}");
}

#[test]
fn a_dropped_link_leaves_no_process() {
    // Counts only the children of this thread: other tests start agents too.
    let mut link = link();
    link.ping().expect("pong");
    let children = || {
        std::fs::read_to_string(format!(
            "/proc/self/task/{}/children",
            rustix::thread::gettid().as_raw_nonzero()
        ))
    };
    let Ok(before) = children() else {
        iotax_testkit::skip!("this kernel does not list children (CONFIG_PROC_CHILDREN)");
    };
    assert_eq!(before.split_whitespace().count(), 1, "{before}");
    drop(link);
    assert_eq!(children().expect("listed").trim(), "");
}
