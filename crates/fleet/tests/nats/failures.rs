//! Tests with killed servers, coordinators and members.

use std::time::Duration;

use iotax_fleet::link::{Hub, Incoming, LinkError};
use iotax_fleet::nats::{Agent, AgentName, NatsHub};
use iotax_testkit::nats::NatsServer;
use iotax_testkit::require;

use super::double::{Double, begin, hub, numbers, parts, receive};

#[test]
fn a_server_that_is_killed_in_the_middle_loses_nothing() {
    require!(program "nats-server");
    let mut server = NatsServer::start();
    let names = ["one", "two", "three"];
    let doubles: Vec<Double> = names.iter().map(|name| Double::start(&server.url(), name, 3000)).collect();
    let mut hub = hub(&format!("{}?expect=3&wait=30s", server.url()), "f1");
    begin(&mut hub);
    let mut all = receive(&mut hub, |all| parts(all) >= 100);
    server.kill();
    // Some messages in flight are still in this process.
    for _ in 0..3 {
        all.extend(hub.receive(Duration::from_millis(100)).unwrap());
    }
    server.run();
    let before = parts(&all);
    assert!(before < 9000, "everything had arrived before the server was killed");
    all.extend(receive(&mut hub, |new| before + parts(new) == 9000));
    for name in names {
        assert_eq!(numbers(&all, name), (1..=3000).collect::<Vec<_>>(), "{name}");
    }
    drop(doubles);
}

#[test]
fn a_coordinator_that_dies_is_followed_by_another_and_refused_if_it_comes_back() {
    require!(program "nats-server");
    let server = NatsServer::start();
    let double = Double::start(&server.url(), "one", 5);
    let url = format!("{}?expect=1&wait=30s", server.url());
    let mut first = hub(&url, "f1");
    begin(&mut first);
    receive(&mut first, |all| parts(all) == 5);
    // It is silent, like a killed or stopped one.
    let mut second = hub(&url, "f1");
    assert!(second.epoch() > first.epoch());
    begin(&mut second);
    let all = receive(&mut second, |all| parts(all) == 5);
    assert_eq!(numbers(&all, "one"), [1, 2, 3, 4, 5]);
    let until = std::time::Instant::now() + super::double::LONG;
    let refusal = loop {
        match first.receive(Duration::from_millis(50)) {
            Ok(_) => assert!(std::time::Instant::now() < until, "the first coordinator is not refused"),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(&refusal, LinkError::Closed(reason) if reason.contains("another coordinator has taken over fleet f1")),
        "{refusal}"
    );
    assert!(first.send(iotax_fleet::link::To::All, &iotax_fleet::message::ToMember::Cancel).is_err());
    // What a refused coordinator does at its end is nothing to the members.
    drop(first);
    begin(&mut second);
    receive(&mut second, |all| parts(all) == 5);
    drop(second);
    let ends = double.end();
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(ends[0].contains("another coordinator"), "{ends:?}");
}

#[test]
fn silence_ends_the_work_at_both_ends() {
    require!(program "nats-server");
    let mut server = NatsServer::start();
    let double = Double::start(&server.url(), "one", 0);
    let address = format!("{}?expect=1&wait=30s", server.url()).parse().unwrap();
    let mut hub = NatsHub::open_with(&address, "f1", "1.0", None, Duration::from_secs(2)).unwrap();
    server.kill();
    let all = receive(&mut hub, |all| !all.is_empty());
    assert!(
        matches!(&all[0], Incoming::Lost { reason, .. } if reason.contains("nothing was heard of it for 2 s")),
        "{all:?}"
    );
    let until = std::time::Instant::now() + super::double::LONG;
    server.run();
    // Free again: the next fleet gets it.
    drop(hub);
    let next = NatsHub::open_with(
        &format!("{}?expect=1&wait=30s", server.url()).parse().unwrap(),
        "f2",
        "1.0",
        None,
        Duration::from_secs(20),
    );
    assert_eq!(next.unwrap().members(), ["one"]);
    assert!(std::time::Instant::now() < until);
    assert!(double.end()[0].contains("nothing was heard of the coordinator for 2 s"));
}

#[test]
fn an_agent_that_is_started_anew_is_lost_at_once() {
    require!(program "nats-server");
    let server = NatsServer::start();
    let first = Double::start(&server.url(), "one", 0);
    let mut hub = hub(&format!("{}?expect=1&wait=30s", server.url()), "f1");
    let _second = Double::start(&server.url(), "one", 0);
    let all = receive(&mut hub, |all| !all.is_empty());
    assert!(matches!(&all[0], Incoming::Lost { reason, .. } if reason.contains("restarted")), "{all:?}");
    drop(first);
}

/// The stdout of a process; it blocks until the test ends the process.
struct Output(std::sync::mpsc::Receiver<()>);

impl std::io::Read for Output {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        let _ = self.0.recv();
        Ok(0)
    }
}

#[test]
fn the_end_of_an_earlier_process_is_not_that_of_the_next() {
    require!(program "nats-server");
    let server = NatsServer::start();
    let address = server.url().parse().unwrap();
    let who = AgentName { name: "one".into(), group: None, version: "1.0".into() };
    let mut agent = Agent::enlist(&address, &who).unwrap();
    let url = format!("{}?expect=1&wait=30s", server.url());
    let (mut running, mut reasons) = (Vec::new(), Vec::new());
    for fleet in ["f1", "f2"] {
        let opened = std::thread::spawn({
            let url = url.clone();
            move || hub(&url, fleet)
        });
        assert!(agent.wait(super::double::LONG).unwrap().is_some());
        let mut hub = Some(opened.join().unwrap());
        let (end, has_ended) = std::sync::mpsc::channel();
        running.push(end);
        let mut looks = 0;
        reasons.push(agent.carry(Output(has_ended), std::io::sink(), Duration::from_millis(50), |_| {
            looks += 1;
            // The coordinator has no more to do after a while.
            if looks == 5 {
                hub.take();
            }
        }));
        agent.free("done");
        // The thread that reads from the process is late to see that it has ended.
        drop(running.pop());
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(reasons.iter().all(|reason| reason.contains("the coordinator has ended")), "{reasons:?}");
}
