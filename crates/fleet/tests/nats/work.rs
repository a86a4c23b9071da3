//! Tests of fleets without faults.

use std::time::Duration;

use iotax_fleet::link::{Hub, Incoming, To};
use iotax_fleet::message::{FromMember, ToMember};
use iotax_fleet::nats::{Leaf, NatsError, NatsHub, NatsOperator, Situation};
use iotax_testkit::nats::NatsServer;
use iotax_testkit::require;

use super::double::{Double, begin, hub, numbers, parts, receive};

#[test]
fn everything_said_arrives_once_and_in_order() {
    require!(program "nats-server");
    let server = NatsServer::start();
    // A name with all that means something in a subject.
    let names = ["a.b *>", "plain", "ünï"];
    let doubles: Vec<Double> = names.iter().map(|name| Double::start(&server.url(), name, 200)).collect();
    let mut hub = hub(&format!("{}?expect=3&wait=30s", server.url()), "f1");
    assert_eq!(hub.members(), names.map(String::from));
    hub.send(To::One("plain"), &ToMember::Ping { number: 7 }).unwrap();
    let answer = receive(&mut hub, |all| !all.is_empty());
    assert!(
        matches!(&answer[0], Incoming::Message { member, message: FromMember::Pong { number: 7, .. }, .. } if member == "plain"),
        "{answer:?}"
    );
    begin(&mut hub);
    let all = receive(&mut hub, |all| parts(all) == 600);
    for name in names {
        assert_eq!(numbers(&all, name), (1..=200).collect::<Vec<_>>(), "{name}");
    }
    assert_eq!(hub.losses(), iotax_fleet::nats::Losses::default());
    hub.close("plain");
    drop(hub);
    for double in doubles {
        let ends = double.end();
        assert_eq!(ends.len(), 1, "{ends:?}");
        assert!(ends[0].contains("the coordinator has ended its work"), "{ends:?}");
    }
}

#[test]
fn an_agent_works_for_one_fleet_after_the_other_and_then_drains() {
    require!(program "nats-server");
    let server = NatsServer::start();
    let red = Double::start(&format!("{}?group=red", server.url()), "one", 3);
    let _blue = Double::start(&format!("{}?group=blue", server.url()), "two", 3);
    for fleet in ["f1", "f2"] {
        let mut hub = hub(&format!("{}?group=red&expect=1&wait=30s", server.url()), fleet);
        assert_eq!(hub.members(), ["one"]);
        begin(&mut hub);
        receive(&mut hub, |all| parts(all) == 3);
        let busy = format!("{}?group=red&wait=1s", server.url());
        let refusal = NatsHub::open(&busy.parse().unwrap(), "other", "1.0", None).unwrap_err().to_string();
        assert!(
            refusal.contains("0 of 1 agents of group \"red\"")
                && refusal.contains(&format!("one works for fleet {fleet}")),
            "{refusal}"
        );
        let mut operator = NatsOperator::connect(&server.url().parse().unwrap()).unwrap();
        let there = operator.roll_call(Duration::from_secs(1)).unwrap();
        assert_eq!(there.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert!(
            matches!(&there[0].situation, Situation::Working { fleet: f, .. } if f == fleet),
            "{there:?}"
        );
        assert_eq!(there[1].situation, Situation::Free);
    }
    NatsOperator::connect(&server.url().parse().unwrap()).unwrap().drain(Some("red"), None);
    assert_eq!(red.join().len(), 2);
}

#[test]
fn an_operator_cancels_a_fleet() {
    require!(program "nats-server");
    let server = NatsServer::start();
    let _one = Double::start(&server.url(), "one", 0);
    let mut hub = hub(&format!("{}?expect=1&wait=30s", server.url()), "f1");
    NatsOperator::connect(&server.url().parse().unwrap()).unwrap().cancel("f1");
    let all = receive(&mut hub, |all| !all.is_empty());
    assert!(matches!(&all[0], Incoming::Message { message: FromMember::Over { .. }, .. }), "{all:?}");
}

#[test]
fn samples_of_many_members_come_as_one_from_a_leaf() {
    require!(program "nats-server");
    let server = NatsServer::start();
    let address = server.url().parse().unwrap();
    let mut leaf = Leaf::connect(&address, "leaf-1", "1.0").unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_over = std::sync::Arc::clone(&stop);
    let leaf = std::thread::spawn(move || {
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            leaf.serve(Duration::from_millis(100)).unwrap();
        }
        leaf.counts()
    });
    let doubles: Vec<Double> = (0..8).map(|i| Double::start(&server.url(), &format!("m{i}"), 1)).collect();
    let mut hub = hub(&format!("{}?expect=8&wait=30s", server.url()), "f1");
    assert_eq!(hub.leaves(), ["leaf-1"]);
    begin(&mut hub);
    let mut members = 0;
    let all = receive(&mut hub, |all| {
        let counted = all.iter().filter_map(|one| match one {
            Incoming::Message { message: FromMember::Sample(merged), .. } => Some(merged.members),
            _ => None,
        });
        members = counted.sum();
        members == 8 && parts(all) == 8
    });
    let samples = all.iter().filter(|one| {
        matches!(one, Incoming::Message { member, message: FromMember::Sample(_), .. } if member == "leaf-1")
    });
    let messages = samples.count();
    assert!((1..=8).contains(&messages), "{messages}");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let counts = leaf.join().unwrap();
    assert_eq!((counts.samples, counts.passed), (8, messages as u64));
    assert!(counts.passed <= counts.late + 1, "{counts:?}");
    drop(doubles);
}

#[test]
fn too_few_agents_are_an_error_that_says_what_to_do() {
    require!(program "nats-server");
    let server = NatsServer::start();
    let _one = Double::start(&server.url(), "one", 0);
    let address = format!("{}?expect=2&wait=1s", server.url()).parse().unwrap();
    let error = NatsHub::open(&address, "f1", "1.0", None).unwrap_err();
    assert!(matches!(error, NatsError::Missing { found: 1, expected: 2, .. }), "{error}");
    assert!(error.to_string().contains("iotax agent --nats URL"), "{error}");
    let others = NatsHub::open(&address, "f1", "0.9", None).unwrap_err().to_string();
    assert!(others.contains("one is iotax 1.0 (") && others.contains("this is 0.9 ("), "{others}");
    let _twin = Double::start(&server.url(), "one", 0);
    let refusal = NatsHub::open(&address, "f1", "1.0", None).unwrap_err().to_string();
    assert!(refusal.contains("2 agents call themselves one"), "{refusal}");
}
