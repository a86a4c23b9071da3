//! Tests of fleets of real agents at a real NATS server: killed agents, new coordinators, cancelled fleets.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iotax_testkit::nats::NatsServer;
use iotax_testkit::postgres::{PROGRAM, PostgresServer};
use iotax_testkit::require;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::{Lab, text};

/// The longest wait for anything: many tests share the machine.
const LONG: Duration = Duration::from_mins(2);

struct AgentProcess(Child);

impl AgentProcess {
    fn start(lab: &Lab, server: &NatsServer, name: &str) -> Self {
        Self::start_with(lab, server, name, &[])
    }

    fn start_with(lab: &Lab, server: &NatsServer, name: &str, more: &[&str]) -> Self {
        let log = fs::File::create(lab.path(&format!("{name}.log"))).expect("made");
        let mut agent = lab.iotax();
        agent.args(["agent", "--nats", &server.url(), "--name", name]).args(more);
        Self(agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it starts"))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Tells it to end and waits for its exit.
    fn end(mut self) -> bool {
        kill_process(self.pid(), Signal::TERM).expect("it runs");
        let end = Instant::now() + LONG;
        while self.0.try_wait().expect("known").is_none() {
            assert!(Instant::now() < end, "the agent does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.0.wait().expect("known").success()
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A plan on the null backend with `rounds` rounds of two cells.
fn plan(lab: &Lab, rounds: u32) -> String {
    plan_of(lab, rounds, "300ms")
}

fn plan_of(lab: &Lab, rounds: u32, runtime: &str) -> String {
    let plan = lab.plan(&format!(
        "repeat = {rounds}\n[defaults]\nsize = \"1m\"\nruntime = \"{runtime}\"\nramp_time = \"0s\"\nioengine = \"null\"\nrate_iops = 900\n\
         [[target]]\nname = \"host\"\nfile = {{ dir = \"WORK\" }}\n\
         [[workload]]\nname = \"reads\"\nrw = \"randread\"\n[[workload]]\nname = \"mixed\"\nrw = \"randrw\"\n"
    ));
    plan.display().to_string()
}

fn run<'a>(plan: &'a str, hosts: &'a str, mode: &'a str) -> Vec<&'a str> {
    run_into("f.db", plan, hosts, mode)
}

fn run_into<'a>(db: &'a str, plan: &'a str, hosts: &'a str, mode: &'a str) -> Vec<&'a str> {
    vec!["fleet", "run", plan, "--hosts", hosts, "--mode", mode, "--yes", "--db", db]
}

/// Returns the stored measurements of a run by step number; empty if the run does not exist.
fn outcomes(lab: &Lab, db: &str, run: u32) -> Vec<(u64, Value)> {
    let output = lab.run(&["report", &run.to_string(), "--db", db, "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let all = document["measurements"].as_array().cloned().unwrap_or_default();
    all.into_iter().map(|one| (one["order"].as_u64().expect("a number"), as_measured(one))).collect()
}

/// Removes from a measurement what later rounds may still change: its mark as an outlier.
fn as_measured(mut one: Value) -> Value {
    let measurement = one.as_object_mut().expect("a measurement");
    measurement.remove("grade");
    if let Some(Value::Array(warnings)) = measurement.get_mut("warnings") {
        warnings.retain(|warning| warning != "outlier");
    }
    one
}

/// Waits until each of two runs has this many outcomes.
fn await_outcomes(lab: &Lab, db: &str, count: usize) {
    let until = Instant::now() + LONG;
    while (1..=2).any(|run| outcomes(lab, db, run).len() < count) {
        assert!(Instant::now() < until, "nothing is measured");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Asserts that a run still has these outcomes, unchanged and without duplicates.
fn assert_kept(lab: &Lab, db: &str, run: u32, before: &[(u64, Value)]) {
    let after = outcomes(lab, db, run);
    for (step, outcome) in before {
        let same: Vec<&Value> =
            after.iter().filter(|(number, _)| number == step).map(|(_, now)| now).collect();
        assert_eq!(same, [outcome], "run {run}, step {step}");
    }
}

/// Asserts that a run has every step exactly once.
fn assert_complete(lab: &Lab, db: &str, run: u32, steps: u64) {
    let there: Vec<u64> = outcomes(lab, db, run).into_iter().map(|(step, _)| step).collect();
    assert_eq!(there.len() as u64, steps, "run {run}: {there:?}");
    assert_eq!(BTreeSet::from_iter(there), (1..=steps).collect(), "run {run}");
}

fn await_nothing_left(lab: &Lab) {
    let end = Instant::now() + LONG;
    while fs::read_dir(lab.work()).expect("there").count() > 0 {
        assert!(Instant::now() < end, "files of members are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn await_text(path: &Path, wanted: &str) {
    let end = Instant::now() + LONG;
    while !fs::read_to_string(path).unwrap_or_default().contains(wanted) {
        assert!(Instant::now() < end, "no {wanted:?} in {}", fs::read_to_string(path).unwrap_or_default());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a coordinator whose stderr goes to `log`, and waits until the log contains `moment`.
fn lead(lab: &Lab, arguments: &[&str], moment: &str) -> Child {
    let log = fs::File::create(lab.path("log")).expect("made");
    let child = lab.iotax().args(arguments).stderr(log).stdout(Stdio::null()).spawn().expect("it starts");
    await_text(&lab.path("log"), moment);
    child
}

/// Returns the id of the fleet.
fn fleet(lab: &Lab) -> String {
    let log = fs::read_to_string(lab.path("log")).expect("there");
    log.split("Fleet ").nth(1).and_then(|rest| rest.split([':', ' ']).next()).expect("named").to_owned()
}

#[test]
fn agents_that_are_enlisted_carry_a_plan_out_and_go_home() {
    require!(program "nats-server");
    let (lab, server) = (Lab::new(), NatsServer::start());
    let agents = ["a", "b"].map(|name| AgentProcess::start(&lab, &server, name));
    let (plan, hosts) = (plan(&lab, 2), format!("{}?expect=2&wait=2m", server.url()));
    for mode in ["shared", "each"] {
        let output = lab.run(&run(&plan, &hosts, mode));
        assert!(output.status.success(), "{mode}: {}", text(&output.stderr));
    }
    (1..=4).for_each(|run| assert_complete(&lab, "f.db", run, 4));
    let status = lab.run(&["fleet", "status", &server.url()]);
    let lines = text(&status.stdout);
    assert!(
        lines.lines().count() == 2 && lines.lines().all(|line| line.contains("  free  iotax ")),
        "{lines}"
    );
    for agent in agents {
        assert!(agent.end());
    }
    await_nothing_left(&lab);
    let few = lab.run(&run(&plan, &format!("{}?wait=1s", server.url()), "each"));
    let printed = text(&few.stderr);
    assert!(!few.status.success() && printed.contains("0 of 1 agents are there and free"), "{printed}");
}

#[test]
fn a_fleet_is_seen_and_cancelled_at_the_server() {
    require!(program "nats-server");
    let (lab, server) = (Lab::new(), NatsServer::start());
    let _agents = ["a", "b", "idle"].map(|name| AgentProcess::start(&lab, &server, name));
    let _leaf = AgentProcess::start_with(&lab, &server, "leaf-1", &["--leaf"]);
    // Long enough for members to tell of I/Os every second.
    let (plan, hosts) = (plan_of(&lab, 200, "5s"), format!("{}?expect=2&wait=2m", server.url()));
    let mut leading = lead(&lab, &run(&plan, &hosts, "each"), "Fleet ");
    let fleet = fleet(&lab);
    let end = Instant::now() + LONG;
    loop {
        let status = text(&lab.run(&["fleet", "status", &server.url()]).stdout);
        let of = |name: &str| status.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        let works = |name| of(name).is_some_and(|line| line.contains(&format!("works for fleet {fleet}")));
        if works("a ") && works("b ") && of("leaf-1 ").is_some_and(|line| line.contains("merges samples")) {
            break;
        }
        assert!(Instant::now() < end, "{status}");
    }
    // By the leaf, of both: each has 900 a second, and less between its measurements.
    loop {
        let status = text(&lab.run(&["fleet", "status", &fleet]).stdout);
        let rate = status.lines().find_map(|line| line.strip_suffix(" IOPS together in the last 5 s"));
        let thousands = rate.and_then(|rate| rate.strip_suffix('k')?.parse::<f64>().ok());
        if thousands.is_some_and(|rate| (1.0..3.0).contains(&rate)) {
            break;
        }
        assert!(Instant::now() < end, "{status}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let other = lab.run(&["fleet", "cancel", &format!("{}?fleet=elsewhere", server.url())]);
    let said = text(&other.stderr);
    assert_eq!((other.status.code(), text(&other.stdout)), (Some(2), String::new()), "{said}");
    assert!(said.contains("no agent that answers works for fleet \"elsewhere\""), "{said}");
    assert!(leading.try_wait().expect("known").is_none(), "the fleet goes on");

    let cancelled = lab.run(&["fleet", "cancel", &format!("{}?fleet={fleet}", server.url())]);
    assert!(cancelled.status.success(), "{}", text(&cancelled.stderr));
    assert_eq!(text(&cancelled.stdout), format!("the members of fleet {fleet} stop: a, b\n"));
    assert_eq!(leading.wait().expect("it ends").code(), Some(130));
    await_nothing_left(&lab);
}

#[test]
fn a_killed_coordinator_is_followed_and_every_step_is_there_once() {
    require!(program "nats-server");
    let (lab, server) = (Lab::new(), NatsServer::start());
    let _agents = ["a", "b"].map(|name| AgentProcess::start(&lab, &server, name));
    let (plan, hosts) = (plan(&lab, 6), format!("{}?expect=2&wait=2m", server.url()));
    let mut first = lead(&lab, &run(&plan, &hosts, "each"), "Fleet ");
    await_outcomes(&lab, "f.db", 2);
    first.kill().expect("it runs");
    first.wait().expect("it ended");
    // What was acknowledged was in the store before.
    let before = [1, 2].map(|run| outcomes(&lab, "f.db", run));
    assert!(before.iter().all(|there| (2..12).contains(&there.len())), "{before:?}");
    let output = lab.run(&["fleet", "resume", &fleet(&lab), "--yes", "--db", "f.db"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (run, before) in (1..).zip(&before) {
        assert_complete(&lab, "f.db", run, 12);
        assert_kept(&lab, "f.db", run, before);
    }
    await_nothing_left(&lab);
}

#[test]
fn a_coordinator_on_another_machine_takes_over_through_postgresql() {
    require!(root);
    require!(program "nats-server", "unshare");
    require!(file PROGRAM);
    let (lab, server, store) = (Lab::new(), NatsServer::start(), PostgresServer::start());
    let _agents = ["a", "b"].map(|name| AgentProcess::start(&lab, &server, name));
    let db = store.database();
    let init = lab.run(&["store", "init", &db]);
    assert!(init.status.success(), "{}", text(&init.stderr));
    let (plan, hosts) = (plan(&lab, 6), format!("{}?expect=2&wait=2m", server.url()));
    let mut first = lead(&lab, &run_into(&db, &plan, &hosts, "each"), "Fleet ");
    await_outcomes(&lab, &db, 2);
    // The coordinator's machine is lost; another one has only a copy of the store.
    first.kill().expect("it runs");
    first.wait().expect("it ended");
    let before = [1, 2].map(|run| outcomes(&lab, &db, run));
    assert!(before.iter().all(|there| (2..12).contains(&there.len())), "{before:?}");
    let other = Lab::new();
    let resume = other.iotax();
    let mut elsewhere = Command::new("unshare");
    elsewhere
        .args(["-u", "sh", "-c", "echo elsewhere >/proc/sys/kernel/hostname && exec \"$@\"", "sh"])
        .arg(resume.get_program());
    elsewhere.args(["fleet", "resume", &fleet(&lab), "--yes", "--db", &db]);
    elsewhere.current_dir(other.path("")).env("HOME", other.path("home")).env("TMPDIR", other.scratch());
    elsewhere.env_remove("XDG_STATE_HOME").env_remove("XDG_DATA_HOME");
    let output = elsewhere.output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (run, before) in (1..).zip(&before) {
        assert_complete(&lab, &db, run, 12);
        assert_kept(&lab, &db, run, before);
    }
    await_nothing_left(&lab);
    other.assert_nothing_left();
    // What the first one left on its machine is nothing but its log.
    assert!(lab.run(&["clean"]).status.success());
}

#[test]
fn a_killed_server_is_waited_for_and_a_killed_agent_is_not() {
    require!(program "nats-server");
    let (lab, mut server) = (Lab::new(), NatsServer::start());
    let [one, _other] = ["a", "b"].map(|name| AgentProcess::start(&lab, &server, name));
    let (plan, hosts) = (plan(&lab, 6), format!("{}?expect=2&wait=2m", server.url()));
    let mut leading = lead(&lab, &run(&plan, &hosts, "each"), "Fleet ");
    std::thread::sleep(Duration::from_secs(1));
    server.kill();
    std::thread::sleep(Duration::from_secs(1));
    server.run();
    assert!(leading.wait().expect("it ends").success(), "{}", fs::read_to_string(lab.path("log")).unwrap());
    (1..=2).for_each(|run| assert_complete(&lab, "f.db", run, 12));

    let mut leading = lead(&lab, &run(&plan, &hosts, "each"), "Fleet ");
    kill_process(one.pid(), Signal::KILL).expect("it runs");
    drop(one);
    let _again = AgentProcess::start(&lab, &server, "a");
    assert!(!leading.wait().expect("it ends").success());
    await_text(&lab.path("log"), "a is lost: its agent has been restarted");
    assert_complete(&lab, "f.db", 4, 12);
    await_nothing_left(&lab);
}
