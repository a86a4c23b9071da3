//! Tests of fleets with real members on this machine, including members and coordinators that are killed or hang.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use iotax_testkit::require;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::lab::{Lab, start_until, text, with_mounts};
use crate::sshd::{PORT, Sshd};

/// A plan on the null backend with short windows and `rounds` rounds of two cells.
fn plan(lab: &Lab, rounds: u32, runtime: &str) -> String {
    let plan = lab.plan(&format!(
        "repeat = {rounds}\n[defaults]\nsize = \"1m\"\nruntime = \"{runtime}\"\nramp_time = \"0s\"\nioengine = \"null\"\nrate_iops = 900\n\
         [[target]]\nname = \"host\"\nfile = {{ dir = \"WORK\" }}\n\
         [[workload]]\nname = \"reads\"\nrw = \"randread\"\n[[workload]]\nname = \"mixed\"\nrw = \"randrw\"\n"
    ));
    plan.display().to_string()
}

fn fleet_run<'a>(plan: &'a str, hosts: &'a str, mode: &'a str) -> Vec<&'a str> {
    vec!["fleet", "run", plan, "--hosts", hosts, "--mode", mode, "--yes", "--db", "f.db", "--json", "f.json"]
}

fn result(lab: &Lab) -> Value {
    serde_json::from_slice(&fs::read(lab.path("f.json")).expect("written")).expect("JSON")
}

fn assert_valid(document: &Value) {
    let schema = include_str!("../../../report/schema/iotax-fleet-1.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let errors: Vec<String> = validator.iter_errors(document).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
}

/// Returns the fleet's id, from its runs.
fn id(lab: &Lab) -> String {
    let listed = lab.json(&["list", "--db", "f.db", "--json"]);
    let text = listed.to_string();
    let log = fs::read_to_string(lab.path("log")).unwrap_or_default();
    let named = log.split("Fleet ").nth(1).and_then(|rest| rest.split([':', ' ']).next().map(str::to_owned));
    named.unwrap_or_else(|| panic!("no fleet in {log} {text}"))
}

/// Returns pid and name of the lab's member processes.
fn members(lab: &Lab) -> Vec<(i32, String)> {
    let home = lab.path("home").display().to_string();
    let of = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        // Not the shell that cleans up after it.
        if !(words.len() >= 3 && words[1] == b"fleet" && words[2] == b"member") {
            return None;
        }
        let environment = text(&fs::read(entry.path().join("environ")).ok()?);
        let state = environment.split('\0').find_map(|one| one.strip_prefix("XDG_STATE_HOME="))?;
        let name = Path::new(state).file_name()?.to_str()?.to_owned();
        state.starts_with(&home).then_some((pid, name))
    };
    fs::read_dir("/proc").expect("there").flatten().filter_map(of).collect()
}

/// The process groups of a lab's members, each with the shell that cleans up after its member.
fn member_groups(lab: &Lab) -> Vec<i32> {
    let group = |(pid, _): (i32, String)| {
        rustix::process::getpgid(Pid::from_raw(pid)).expect("it runs").as_raw_nonzero().get()
    };
    members(lab).into_iter().map(group).collect()
}

/// Waits until the first run has a measurement.
fn await_measured(lab: &Lab) {
    let end = Instant::now() + Duration::from_mins(1);
    let has_run = || lab.run(&["report", "1", "--db", "f.db", "--json"]).status.success();
    while !has_run() || measurements(lab, 1).is_empty() {
        assert!(Instant::now() < end, "nothing is measured");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process"), signal).expect("signalled");
}

/// Starts a fleet whose stderr goes to `log`, and waits until the log contains `moment`.
fn start(lab: &Lab, arguments: &[&str], moment: &str) -> Child {
    let log = fs::File::create(lab.path("log")).expect("made");
    let child = lab
        .iotax()
        .args(arguments)
        .stderr(log)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let end = Instant::now() + Duration::from_mins(1);
    while !fs::read_to_string(lab.path("log")).expect("there").contains(moment) {
        assert!(Instant::now() < end, "{}", fs::read_to_string(lab.path("log")).expect("there"));
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn measurements(lab: &Lab, run: u32) -> Vec<u64> {
    let document = lab.json(&["report", &run.to_string(), "--db", "f.db", "--json"]);
    document["measurements"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|m| m["order"].as_u64().expect("a number"))
        .collect()
}

#[test]
fn members_that_share_a_storage_begin_together_and_are_summed_up() {
    let lab = Lab::new();
    let plan = plan(&lab, 3, "500ms");
    let output = lab.run(&fleet_run(&plan, "local:4", "shared"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    lab.assert_nothing_left();
    let fleet = result(&lab);
    assert_valid(&fleet);
    for cell in fleet["shared"].as_array().expect("cells") {
        let [group] = &cell["groups"].as_array().expect("groups")[..] else { panic!("{cell}") };
        assert_eq!(
            (group["rounds"].as_u64(), &cell["withheld"]),
            (Some(3), &serde_json::json!([])),
            "{cell}"
        );
        // The rate is for the whole, and 225 of it each member's.
        let iops = group["iops"].as_f64().expect("known");
        assert!((700.0..1100.0).contains(&iops), "{cell}");
        assert_eq!(group["shares"].as_array().expect("shares").len(), 4);
        assert!(group["start_skew"]["longest_ns"].as_u64().expect("known") < 500_000_000, "{cell}");
    }
    let rates: BTreeSet<u64> = (1..=4)
        .map(|run| {
            let run = lab.json(&["report", &run.to_string(), "--db", "f.db", "--json"]);
            run["workloads"][0]["rate_iops"].as_u64().expect("a rate")
        })
        .collect();
    assert_eq!(rates, BTreeSet::from([225]));
    assert!(text(&output.stderr).contains("are on this machine"), "{}", text(&output.stderr));
}

#[test]
fn each_member_has_a_run_of_its_own_and_hosts_stand_side_by_side() {
    let lab = Lab::new();
    let plan = plan(&lab, 2, "200ms");
    let hosts = lab.path("hosts");
    fs::write(&hosts, "local:1 name=alpha\nlocal:2\n").expect("written");
    let output = lab.run(&fleet_run(&plan, &hosts.display().to_string(), "each"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    lab.assert_nothing_left();
    let fleet = result(&lab);
    assert_valid(&fleet);
    let hosts = fleet["hosts"][0]["hosts"].as_array().expect("hosts");
    let names: Vec<&str> = hosts.iter().filter_map(|host| host["member"].as_str()).collect();
    assert_eq!(names, ["alpha", "local-1", "local-2"]);
    assert!(hosts.iter().all(|host| host["rounds"] == 2), "{fleet}");
    for run in 1..=3 {
        assert_eq!(measurements(&lab, run).len(), 4);
    }
}

#[test]
fn a_killed_member_is_cleaned_up_after_and_its_round_is_withheld() {
    let lab = Lab::new();
    let plan = plan(&lab, 4, "700ms");
    let mut fleet = start(&lab, &fleet_run(&plan, "local:3", "shared"), "step 4 goes off");
    let (pid, _) = members(&lab).into_iter().find(|(_, name)| name == "local-2").expect("it is there");
    signal(pid, Signal::KILL);
    let status = fleet.wait().expect("it ends");
    let log = fs::read_to_string(lab.path("log")).expect("there");
    assert_eq!(status.code(), Some(3), "{log}");
    assert!(log.contains("local-2 is lost"), "{log}");
    lab.assert_nothing_left();
    assert!(measurements(&lab, 2).len() >= 2, "what was acknowledged is there");
    assert_eq!((measurements(&lab, 1).len(), measurements(&lab, 3).len()), (8, 8));
    let result = result(&lab);
    let cells = result["shared"].as_array().expect("cells");
    let withheld: usize = cells.iter().map(|cell| cell["withheld"].as_array().expect("a list").len()).sum();
    assert_eq!(withheld, 1, "{result}");
    assert_eq!(result["members"][1]["state"], "failed");
    assert!(
        result["members"][1]["reason"].as_str().is_some_and(|reason| reason.contains("lost")),
        "{result}"
    );
}

#[test]
fn a_fleet_whose_coordinator_was_killed_is_resumed_and_leaves_nothing() {
    let lab = Lab::new();
    let plan = plan(&lab, 4, "500ms");
    let mut fleet = start(&lab, &fleet_run(&plan, "local:3", "shared"), "step 4 goes off");
    fleet.kill().expect("killed");
    fleet.wait().expect("it ends");
    let before: Vec<Vec<u64>> = (1..=3).map(|run| measurements(&lab, run)).collect();
    assert!(before.iter().all(|steps| steps.len() >= 2), "{before:?}");
    let id = id(&lab);
    let resumed = lab.run(&["fleet", "resume", &id, "--yes", "--db", "f.db", "--json", "f.json"]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    lab.assert_nothing_left();
    let all: BTreeSet<u64> = (1..=3).flat_map(|run| measurements(&lab, run)).collect();
    assert_eq!(all, (1..=8).collect());
    for (run, before) in (1..).zip(before) {
        let after = measurements(&lab, run);
        assert!(before.iter().all(|step| after.contains(step)), "run {run}: {before:?} {after:?}");
    }
    assert_valid(&result(&lab));
}

#[test]
fn a_fleet_whose_machine_crashed_is_resumed_and_leaves_nothing() {
    let lab = Lab::new();
    let plan = plan(&lab, 3, "500ms");
    let mut fleet = start(&lab, &fleet_run(&plan, "local:2", "each"), "Fleet ");
    let id = id(&lab);
    await_measured(&lab);
    let second = lab.run(&["fleet", "resume", &id, "--yes", "--db", "f.db"]);
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(4), "{said}");
    assert!(said.contains(&format!("another coordinator leads fleet {id}")), "{said}");
    // Only the members' undo logs are left to undo their changes.
    let groups = member_groups(&lab);
    assert_eq!(groups.len(), 2);
    fleet.kill().expect("killed");
    for group in groups {
        kill_process_group(Pid::from_raw(group).expect("a process"), Signal::KILL).expect("signalled");
    }
    fleet.wait().expect("it ends");
    assert!(fs::read_dir(lab.work()).expect("there").count() > 0, "there is something to undo");
    let resumed = lab.run(&["fleet", "resume", &id, "--yes", "--db", "f.db"]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    lab.assert_nothing_left();
    for run in 1..=2 {
        assert_eq!(measurements(&lab, run).into_iter().collect::<BTreeSet<_>>(), (1..=6).collect());
    }
}

#[test]
fn a_member_that_hangs_is_given_up_and_the_rest_goes_on() {
    let lab = Lab::new();
    let plan = plan(&lab, 3, "500ms");
    let mut fleet = start(&lab, &fleet_run(&plan, "local:3", "shared"), "step 2 goes off");
    let (pid, _) = members(&lab).into_iter().find(|(_, name)| name == "local-3").expect("it is there");
    signal(pid, Signal::STOP);
    let status = fleet.wait().expect("it ends");
    let log = fs::read_to_string(lab.path("log")).expect("there");
    assert_eq!(status.code(), Some(3), "{log}");
    assert!(log.contains("local-3 is lost: it gave no sign of life"), "{log}");
    // Killed with its child processes, and undone by the coordinator.
    lab.assert_nothing_left();
    assert_eq!(measurements(&lab, 1).len(), 6);
}

#[test]
fn a_fleet_is_shown_drained_and_cancelled_from_outside() {
    for (word, said) in [("drain", "after the measurement"), ("cancel", "the fleet stops")] {
        let lab = Lab::new();
        let plan = plan(&lab, 40, "500ms");
        let mut fleet = start(&lab, &fleet_run(&plan, "local:2", "shared"), "step 2 goes off");
        let id = id(&lab);
        let status = lab.run(&["fleet", "status", &id]);
        let status = text(&status.stdout);
        assert!(status.contains("local-1") && status.contains("clock"), "{status}");
        let printed = lab.run(&["fleet", word, &id]);
        assert!(
            printed.status.success() && text(&printed.stdout).contains(said),
            "{}",
            text(&printed.stderr)
        );
        assert_eq!(fleet.wait().expect("it ends").code(), Some(130), "{word}");
        lab.assert_nothing_left();
        let gone = lab.run(&["fleet", "status", &id]);
        assert_eq!(gone.status.code(), Some(2));
        assert!(text(&gone.stderr).contains(&format!("iotax fleet resume {id}")), "{}", text(&gone.stderr));
    }
}

#[test]
fn a_coordinator_that_is_interrupted_twice_at_once_still_waits_for_its_members() {
    let lab = Lab::new();
    let plan = plan(&lab, 40, "500ms");
    let mut fleet = start(&lab, &fleet_run(&plan, "local:2", "shared"), "step 2 goes off");
    let pid = Pid::from_child(&fleet);
    for _ in 0..2 {
        kill_process(pid, Signal::INT).expect("it runs");
        // Two signals that wait together are one.
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(fleet.wait().expect("it ends").code(), Some(130));
    lab.assert_nothing_left();
    let listed = lab.json(&["list", "--db", "f.db", "--json"]);
    let states: Vec<&Value> = listed.as_array().expect("a list").iter().map(|run| &run["state"]).collect();
    assert_eq!(states, ["interrupted", "interrupted"]);
    let log = fs::read_to_string(lab.path("log")).expect("there");
    assert_eq!(log.matches("Stopping all members").count(), 1, "{log}");
}

#[test]
fn a_coordinator_that_hangs_is_ended_by_a_second_interrupt() {
    let lab = Lab::new();
    let plan = plan(&lab, 40, "500ms");
    let mut fleet = start(&lab, &fleet_run(&plan, "local:1", "shared"), "step 2 goes off");
    // Its member is told to stop but never does.
    let (member, _) = members(&lab).pop().expect("it is there");
    signal(member, Signal::STOP);
    let pid = Pid::from_child(&fleet);
    kill_process(pid, Signal::INT).expect("it runs");
    let end = Instant::now() + Duration::from_secs(10);
    while fleet.try_wait().expect("known").is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(500));
        let _ = kill_process(pid, Signal::INT);
    }
    assert_eq!(fleet.wait().expect("it ends").code(), Some(130));
    let log = fs::read_to_string(lab.path("log")).expect("there");
    assert!(log.contains("Stopping all members") && !log.contains("is lost"), "{log}");
    // The kernel continues a stopped process group whose parent has ended. The member undoes its changes, and `clean` those of the
    // coordinator.
    let end = Instant::now() + Duration::from_mins(1);
    while text(&lab.run(&["clean"]).stdout) != "nothing was left behind\n" {
        assert!(Instant::now() < end, "something is left");
        std::thread::sleep(Duration::from_millis(50));
    }
    lab.assert_nothing_left();
}

#[test]
fn what_one_member_cannot_do_begins_nothing_anywhere() {
    let lab = Lab::new();
    let hosts = lab.path("hosts");
    let there = lab.work().display().to_string();
    fs::write(&hosts, format!("local:1 name=a dir={there}\nlocal:1 name=b dir=/nowhere/at/all\n"))
        .expect("written");
    let plan = lab.plan(
        "repeat = 1\n[[target]]\nname = \"host\"\nfile = { dir = \"${dir}\" }\n[[workload]]\nsize = \"1m\"\nruntime = \"1s\"\nrw = \"read\"\n",
    );
    let hosts = hosts.display().to_string();
    let output = lab.run(&fleet_run(&plan.display().to_string(), &hosts, "each"));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("nothing was started") && said.contains("b: ") && said.contains("/nowhere/at/all"),
        "{said}"
    );
    lab.assert_nothing_left();
    let runs = lab.json(&["list", "--db", "f.db", "--json"]);
    assert_eq!(runs, serde_json::json!([]), "no run was made");
}

/// Returns the arguments of a fleet with members `a` and `b` on this machine, with these values for the plan.
fn two_with(lab: &Lab, target: &str, size: &str, values: [&str; 2]) -> Vec<String> {
    let hosts = lab.path("hosts");
    fs::write(&hosts, format!("local:1 name=a at={}\nlocal:1 name=b at={}\n", values[0], values[1]))
        .expect("written");
    let plan = lab.plan(&format!(
        "repeat = 1\n[defaults]\ndirect = false\n[[target]]\nname = \"host\"\n{target}\n\
         [[workload]]\nsize = \"{size}\"\nruntime = \"200ms\"\nramp_time = \"0s\"\nrw = \"read\"\n"
    ));
    let (plan, hosts) = (plan.display().to_string(), hosts.display().to_string());
    fleet_run(&plan, &hosts, "each").into_iter().map(str::to_owned).collect()
}

/// Asserts that nothing was started. Returns stderr.
fn refused_together(lab: &Lab, output: &Output) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("nothing was started"), "{said}");
    lab.assert_nothing_left();
    assert_eq!(lab.json(&["list", "--db", "f.db", "--json"]), serde_json::json!([]), "no run was made");
    said
}

#[test]
fn members_that_would_make_one_file_under_two_names_begin_nothing() {
    let lab = Lab::new();
    let (work, link) = (lab.work(), lab.path("link"));
    std::os::unix::fs::symlink(&work, &link).expect("made");
    let (plain, linked) = (work.join("x").display().to_string(), link.join("./x").display().to_string());
    let arguments = two_with(&lab, "path = \"${at}\"", "1m", [&plain, &linked]);
    let output = lab.iotax().args(&arguments).output().expect("it starts");
    let said = refused_together(&lab, &output);
    assert!(said.contains(&format!("{plain}: a and b would both make it")), "{said}");
}

#[test]
fn members_on_one_filesystem_need_room_together() {
    require!(root);
    require!(program "unshare", "mount");
    let lab = Lab::new();
    let small = lab.path("small");
    fs::create_dir(&small).expect("made");
    let there = small.display().to_string();
    // Of 300 MiB a tenth stays free, so one of two has room.
    for (size, has_room) in [("100m", true), ("170m", false)] {
        let arguments = two_with(&lab, "file = { dir = \"${at}\" }", size, [&there, &there]);
        let mount = "mount -t tmpfs -o size=300m none \"$0\"";
        let mut inside = with_mounts(lab.iotax().args(&arguments), mount, &small);
        let output = inside.output().expect("unshare starts");
        if has_room {
            assert!(output.status.success(), "{}", text(&output.stderr));
            fs::remove_file(lab.path("f.db")).expect("there");
        } else {
            let said = refused_together(&lab, &output);
            assert!(said.contains(&format!("a, b together: {there}: ")), "{said}");
            assert!(said.contains("always stay free"), "{said}");
        }
    }
}

#[test]
fn plans_that_a_fleet_cannot_carry_out_are_refused_with_the_reason() {
    let lab = Lab::new();
    let refused = |toml: &str, mode: &str| {
        let plan: PathBuf = lab.plan(toml);
        let output = lab.run(&fleet_run(&plan.display().to_string(), "local:2", mode));
        assert_eq!(output.status.code(), Some(2), "{toml}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    let target = "[[target]]\nname = \"a\"\n";
    let work = "[[workload]]\nsize = \"1m\"\n";
    let both = refused(&format!("{target}path = \"WORK/x\"\n{work}rw = \"write\"\n"), "shared");
    assert!(both.contains("local-1 and local-2 would both write") && both.contains("${member}"), "{both}");
    let relative = refused(&format!("{target}path = \"x\"\n{work}rw = \"read\"\n"), "each");
    assert!(relative.contains("absolute paths"), "{relative}");
    let far = refused(&format!("{target}path = \"ssh://box/x\"\n{work}rw = \"read\"\n"), "each");
    assert!(far.contains("ssh://box/x") && far.contains("--hosts"), "{far}");
    let follows = refused(
        &format!(
            "until_decided = {{}}\n{target}path = \"WORK/x\"\n[[target]]\nname = \"b\"\npath = \"WORK/y\"\n{work}rw = \"read\"\n"
        ),
        "shared",
    );
    assert!(follows.contains("until_decided") && follows.contains("repeat"), "{follows}");
    let unknown = refused(&format!("{target}path = \"WORK/${{disk}}\"\n{work}rw = \"read\"\n"), "each");
    assert!(unknown.contains("${disk}") && unknown.contains("local-1"), "{unknown}");
}

#[test]
fn a_fleet_over_ssh_leaves_nothing_on_the_other_machine() {
    let Some(sshd) = Sshd::start("") else { return };
    let plan = plan(&sshd.lab, 2, "300ms");
    let hosts = sshd.lab.path("hosts");
    let address = format!("ssh://root@127.0.0.1:{PORT}");
    fs::write(&hosts, format!("{address} name=one\n{address} name=two\n")).expect("written");
    let output = sshd.run(&fleet_run(&plan, &hosts.display().to_string(), "shared"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let fleet = result(&sshd.lab);
    assert_eq!(fleet["shared"][0]["groups"][0]["rounds"], 2, "{fleet}");
    sshd.assert_nothing_left();
}

#[test]
fn a_member_whose_coordinator_is_gone_before_it_began_ends() {
    let lab = Lab::new();
    let mut child =
        start_until(lab.iotax().args(["fleet", "member"]).stdin(std::process::Stdio::piped()), "");
    // Its coordinator is gone before it began.
    drop(child.stdin.take());
    assert_ne!(child.wait().expect("it ends").code(), Some(0));
    lab.assert_nothing_left();
}
