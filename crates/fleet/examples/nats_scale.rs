//! Measures a coordinator with many members over a real nats-server: `nats_scale MEMBERS SECONDS LEAVES [PROCESSES]`.
//!
//! Members speak the real protocol over a connection each, but make no I/O: each sends a sample per second, with a histogram of 20,000
//! latencies, and a measurement at the end. They run in separate processes of this program (default: one).

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use iotax_fleet::link::{Hub, To};
use iotax_fleet::message::{Assignment, Claims, FromMember, Merged, PROTOCOL, RunPart, ToMember};
use iotax_fleet::nats::{Address, Agent, AgentName, Leaf, MemberEvent, NatsHub};
use iotax_fleet::{Coordinator, CoordinatorAction, MemberState, News, monotonic_ns};
use iotax_model::record::{Environment, FleetMode, Measurement, Outcome, Tallies, Tally};
use iotax_model::{Histogram, Plan, RunState};
use iotax_testkit::nats::NatsServer;

const VERSION: &str = "scale";
const PLAN: &str = "[[target]]\nname = 'null'\ndevice = '/dev/null'\n[[workload]]\nrw = 'randread'\n";

/// Start of sampling, with the CPU seconds of each process and the bytes so far.
type Begun = (Instant, Vec<f64>, [(u64, u64); 2]);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["members", url, first, count, seconds] => {
            members(url, number(first), number(count), number(seconds));
        }
        ["leaf", url, name] => leaf(url, name),
        [members, seconds, leaves] => study(number(members), number(seconds), number(leaves), 1),
        [members, seconds, leaves, processes] => {
            study(number(members), number(seconds), number(leaves), number(processes));
        }
        _ => eprintln!("usage: nats_scale MEMBERS SECONDS LEAVES [PROCESSES]"),
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

/// Latencies around 100 us with a long tail.
fn latencies() -> Histogram {
    let mut latency = Histogram::new();
    (0..20_000_u64).for_each(|i| latency.add(60_000 + i * i * i / 800_000 + (i * 7919) % 40_000));
    latency
}

fn members(url: &str, first: u64, count: u64, seconds: u64) {
    let address: Address = url.parse().expect("a URL");
    let threads: Vec<_> = (first..first + count)
        .map(|index| {
            let address = address.clone();
            let builder = std::thread::Builder::new().stack_size(256 << 10);
            builder.spawn(move || member(&address, index, seconds)).expect("a thread")
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a member"));
}

fn member(address: &Address, index: u64, seconds: u64) {
    let who = AgentName { name: format!("m{index:05}"), group: None, version: VERSION.into() };
    let mut agent = Agent::enlist(address, &who).expect("a server");
    while agent.wait(Duration::from_hours(1)).expect("a server").is_none() {}
    let environment = Box::new(Environment::default());
    agent
        .send(&FromMember::Hello { protocol: PROTOCOL, version: VERSION.into(), environment })
        .expect("sent");
    let mut begun: Option<Instant> = None;
    let mut reported = 0;
    loop {
        let due = begun.map(|begun| begun + Duration::from_secs(u64::from(reported) + 1));
        let patience =
            due.map_or(Duration::from_mins(1), |due| due.saturating_duration_since(Instant::now()));
        match agent.next(patience) {
            Ok(Some(MemberEvent::Coordinator(ToMember::Assign(_)))) => {
                agent.send(&FromMember::Checked { claims: Claims::default(), refusal: None }).expect("sent");
            }
            Ok(Some(MemberEvent::Coordinator(ToMember::Begin))) => {
                // Members whose seconds end together would say that much of the server, and not of a fleet.
                begun = Some(Instant::now() + Duration::from_millis(index * 7919 % 1000));
            }
            Ok(Some(MemberEvent::Coordinator(ToMember::Ping { number }))) => {
                let now = monotonic_ns();
                let pong = FromMember::Pong {
                    number,
                    received_member_ns: now,
                    sent_member_ns: now,
                    chrony_error_ns: None,
                };
                agent.send(&pong).expect("sent");
            }
            Ok(Some(MemberEvent::Coordinator(ToMember::Acknowledge { .. }))) => {
                agent.send(&FromMember::Over { state: RunState::Complete, reason: None }).expect("sent");
            }
            Ok(_) => {}
            Err(_) => return,
        }
        if due.is_some_and(|due| due <= Instant::now()) {
            let latency = latencies();
            if u64::from(reported) < seconds {
                let sample = Merged {
                    step: 1,
                    interval: reported,
                    members: 1,
                    ios: 20_000,
                    bytes: 20_000 * 4096,
                    latency,
                };
                let _ = agent.send(&FromMember::Sample(sample));
            } else {
                let read = Tally { ios: latency.count(), bytes: 0, latency, response: None };
                let tallies = Tallies { read: Some(read), ..Tallies::default() };
                let outcome = Outcome { tallies, ..Outcome::default() };
                let part = RunPart::Measurement(Measurement { outcome, ..Measurement::default() });
                let _ = agent.send(&FromMember::Kept { number: 1, part: Box::new(part) });
                begun = None;
            }
            reported += 1;
        }
    }
}

fn leaf(url: &str, name: &str) {
    let mut leaf = Leaf::connect(&url.parse().expect("a URL"), name, VERSION).expect("a server");
    while leaf.serve(Duration::from_secs(5)).is_ok() {}
}

/// CPU seconds of a process, and its memory in MiB.
fn usage(pid: u32) -> (f64, f64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(f64::NAN);
    // Clock ticks of 10 ms, pages of 4 KiB.
    ((field(11) + field(12)) / 100.0, field(21) / 256.0)
}

struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn study(count: u64, seconds: u64, leaves: u64, processes: u64) {
    let server = NatsServer::start();
    let program = std::env::current_exe().expect("this program");
    let mut children = Children(Vec::new());
    for leaf in 0..leaves {
        let child = Command::new(&program).args(["leaf", &server.url(), &format!("leaf-{leaf}")]).spawn();
        children.0.push(child.expect("a leaf"));
    }
    let share = count.div_ceil(processes);
    for first in (0..count).step_by(usize::try_from(share).expect("small")) {
        let part = share.min(count - first);
        let words = [first, part, seconds].map(|number| number.to_string());
        let child = Command::new(&program).args(["members", &server.url()]).args(words).spawn();
        children.0.push(child.expect("members"));
    }
    let pids: Vec<u32> = children.0.iter().map(Child::id).collect();
    let asked = Instant::now();
    let address = format!("{}?expect={count}&wait=5m", server.url()).parse().expect("a URL");
    let patience = Duration::from_mins(2);
    let mut hub = NatsHub::open_with(&address, "scale", VERSION, None, patience).expect("all members");
    println!(
        "{count} members work for the coordinator after {:.1} s; {leaves} leaves",
        asked.elapsed().as_secs_f64()
    );

    let plan = Plan::from_toml(PLAN).expect("a plan");
    let assignment = Assignment {
        fleet: "scale".into(),
        mode: FleetMode::Each,
        plan,
        seed: 1,
        done: Vec::new(),
        overwrite: Vec::new(),
        overwrite_signature: false,
    };
    let assignments = hub.members().into_iter().map(|name| (name, assignment.clone()));
    let mut coordinator = Coordinator::new(FleetMode::Each, VERSION, patience, assignments);
    let (mut kept, mut samples, mut sampled) = (0_u64, 0_u64, 0_u64);
    let mut begun: Option<Begun> = None;
    let all = [&[std::process::id(), server.pid().expect("it runs")], pids.as_slice()].concat();
    let cpu = || all.iter().map(|pid| usage(*pid).0).collect::<Vec<_>>();
    let until = Instant::now() + Duration::from_secs(seconds) + Duration::from_mins(5);
    let mut is_measured = false;
    while !coordinator.is_over() && Instant::now() < until {
        let mut actions = Vec::new();
        let mut patience = Duration::from_millis(100);
        let turn = Instant::now();
        while turn.elapsed() < Duration::from_millis(100)
            && let Some(incoming) = hub.receive(patience).expect("a server")
        {
            if let iotax_fleet::link::Incoming::Message { message: FromMember::Sample(merged), .. } =
                &incoming
            {
                samples += 1;
                sampled += u64::from(merged.members);
            }
            actions.extend(coordinator.take(incoming, monotonic_ns()));
            patience = Duration::ZERO;
        }
        actions.extend(coordinator.tick(monotonic_ns()));
        while !actions.is_empty() {
            for action in std::mem::take(&mut actions) {
                match action {
                    CoordinatorAction::Send { member, message } => {
                        hub.send(To::One(&member), &message).expect("a server");
                    }
                    CoordinatorAction::Keep { member, number, .. } => {
                        kept += 1;
                        actions.extend(coordinator.stored(&member, number));
                    }
                    CoordinatorAction::Close { member } => hub.close(&member),
                    CoordinatorAction::Tell(News::Answered) => {
                        println!("all have answered after {:.1} s", asked.elapsed().as_secs_f64());
                        begun = Some((Instant::now(), cpu(), [hub.sent(), hub.received()]));
                        actions.extend(coordinator.begin());
                    }
                    CoordinatorAction::Tell(News::Lost { member, reason }) => {
                        println!("{member} is lost: {reason}");
                    }
                    CoordinatorAction::Tell(_) => {}
                }
            }
        }
        if let Some((since, before, traffic)) = &begun
            && !is_measured
            && since.elapsed() >= Duration::from_secs(seconds)
        {
            is_measured = true;
            let elapsed = since.elapsed().as_secs_f64();
            let per = |total: f64| total / elapsed / count as f64;
            let now = cpu();
            let spent: Vec<f64> = now.iter().zip(before).map(|(now, before)| now - before).collect();
            let [(sent, sent_bytes), (received, received_bytes)] = traffic;
            let (sent_now, received_now) = (hub.sent(), hub.received());
            println!("over {elapsed:.1} s, for each member and second:");
            println!(
                "  coordinator  {:8.1} us of CPU, {:.0} MiB in all",
                per(spent[0]) * 1e6,
                usage(std::process::id()).1
            );
            println!(
                "  nats-server  {:8.1} us of CPU, {:.0} MiB in all",
                per(spent[1]) * 1e6,
                usage(all[1]).1
            );
            let leaves = usize::try_from(leaves).expect("small");
            println!("  leaves       {:8.1} us of CPU", per(spent[2..2 + leaves].iter().sum::<f64>()) * 1e6);
            println!("  members      {:8.1} us of CPU", per(spent[2 + leaves..].iter().sum::<f64>()) * 1e6);
            println!(
                "  sent         {:8.2} messages, {:8.1} bytes",
                per((sent_now.0 - sent) as f64),
                per((sent_now.1 - sent_bytes) as f64)
            );
            println!(
                "  received     {:8.2} messages, {:8.1} bytes",
                per((received_now.0 - received) as f64),
                per((received_now.1 - received_bytes) as f64)
            );
            println!(
                "  samples      {:8.2} messages for {:.2} members",
                per(samples as f64),
                per(sampled as f64)
            );
        }
    }
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for (_, status) in coordinator.members() {
        let end = match status.state {
            MemberState::Over { state, .. } => state.to_string(),
            MemberState::Lost { .. } => "lost".into(),
            _ => "at work".into(),
        };
        *ends.entry(end).or_default() += 1;
    }
    println!("{kept} measurements kept; members: {ends:?}; {:?}", hub.losses());
    println!("after {:.1} s in all", asked.elapsed().as_secs_f64());
}
