//! Tests of several targets and a network in one window of `iotax watch`.

use std::path::Path;

use iotax_testkit::require;
use serde_json::Value;

use crate::disk::run;
use crate::lab::{Lab, assert_valid, text};
use crate::watch::Mounted;
use crate::watch_lab::{MS, STALL, gaps_of_writes, number};

/// A host at the other end of a cable: a network namespace.
struct FarHost {
    name: String,
    address: String,
}

impl FarHost {
    fn new() -> Option<Self> {
        require!(root);
        require!(program "ip");
        // Unique, and at most 15 characters.
        let id = std::process::id();
        let name = format!("iotx{id}");
        let peer = format!("{name}f");
        // Networks of four addresses from the block for benchmarks.
        let at = |host: u32| format!("198.18.{}.{}", id / 64 % 256, id % 64 * 4 + host);
        let far = Self { name, address: at(2) };
        let ip = |words: &str| run("ip", &words.split(' ').map(Path::new).collect::<Vec<_>>());
        let name = &far.name;
        ip(&format!("netns add {name}"));
        ip(&format!("link add {name} type veth peer name {peer} netns {name}"));
        ip(&format!("addr add {}/30 dev {name}", at(1)));
        ip(&format!("link set {name} up"));
        ip(&format!("-n {name} addr add {}/30 dev {peer}", far.address));
        ip(&format!("-n {name} link set {peer} up"));
        Some(far)
    }
}

impl Drop for FarHost {
    fn drop(&mut self) {
        run("ip", &["netns", "del", &self.name].map(Path::new));
    }
}

/// Returns the lines about a target.
fn of<'a>(json: &'a Value, target: &str) -> &'a Value {
    let all = json["watch"].as_array().expect("a watch");
    all.iter().find(|one| one["target"] == target).unwrap_or_else(|| panic!("{target}: {json}"))
}

/// Returns the start of a target's window in milliseconds since 1970.
fn began(json: &Value, target: &str) -> u64 {
    number(&of(json, target)["started_at_ms"])
}

#[test]
fn an_event_meets_each_target_of_one_window_at_the_same_time() {
    let (Some(one), Some(two), Some(far)) = (Mounted::new(), Mounted::new(), FarHost::new()) else { return };
    let lab = Lab::new();
    let plan = lab.path("plan.toml");
    let (name, address) = (&far.name, &far.address);
    let content = format!(
        "repeat = 1\n[[target]]\nname = 'one'\nfile = {{ dir = '{}' }}\n[[target]]\nname = 'two'\nfile = {{ dir = '{}' }}\n\
         [[target]]\nname = 'far'\nnetwork = {{ via = 'server', peer = '{address}' }}\n\
         [[workload]]\nname = 'load'\nrw = 'randrw'\nsize = '16m'\nrate_iops = 400\niodepth = 2048\nruntime = '9s'\nramp_time = '0s'\n\
         verify = 'xxh3'\nblackout = '100ms'\n\
         [[workload]]\nname = 'ping'\nnet = {{ test = 'icmp-rtt', rate = 100 }}\nruntime = '9s'\nramp_time = '0s'\nblackout = '100ms'\n\
         [watch]\ntogether = true\nrequire = ['gap < 5s', 'lost = 0']\n\
         [[watch.events]]\nname = 'freeze'\nat = '2s'\ncommand = 'fsfreeze -f {at}; sleep 1.2; fsfreeze -u {at}'\n\
         [[watch.events]]\nname = 'pull'\nat = '5s'\ncommand = 'ip -n {name} link set {name}f down; sleep 1; ip -n {name} link set {name}f up'\n",
        one.at(),
        two.at(),
        at = one.at(),
    );
    std::fs::write(&plan, content).expect("a plan");
    let output = lab.run(&["run", plan.to_str().expect("text"), "--yes", "--json", "-"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&json);

    // The same command, at the same time by every window.
    let event = |target: &str, number_of: usize| {
        let event = &of(&json, target)["events"][number_of];
        began(&json, target) * MS + number(&event["at_ns"])
    };
    for number_of in [0, 1] {
        for target in ["two", "far"] {
            let apart = event("one", number_of).abs_diff(event(target, number_of));
            assert!(apart <= 2 * MS, "{apart} ns, {target}: {json}");
        }
    }
    // Each has the gap of what happened to it, and no other.
    let inside = |gap: (u64, u64), event: &Value, least: u64| {
        let (begin, took) = (number(&event["at_ns"]), number(&event["duration_ns"]));
        gap.1 >= least && gap.0 + 50 * MS >= begin && gap.0 + gap.1 <= begin + took + STALL * MS
    };
    let frozen = of(&json, "one");
    let longest = gaps_of_writes(frozen).into_iter().max_by_key(|gap| gap.1).expect("a gap");
    assert!(inside(longest, &frozen["events"][0], 1150 * MS), "{frozen}");
    let other = of(&json, "two");
    assert!(gaps_of_writes(other).iter().all(|gap| gap.1 < STALL * MS), "{other}");
    let pulled = of(&json, "far");
    let gaps = pulled["gaps"].as_array().expect("gaps");
    assert!(gaps.iter().all(|gap| gap["of"] == "round_trips"), "{pulled}");
    let longest = gaps.iter().map(|gap| (number(&gap["at_ns"]), number(&gap["duration_ns"])));
    let longest = longest.max_by_key(|gap| gap.1).expect("a gap");
    assert!(inside(longest, &pulled["events"][1], 900 * MS), "{pulled}");
    // A hundred a second: some are lost, others wait for the other end's address to be found again.
    assert!(number(&pulled["late"]) <= longest.1 / (10 * MS) + 2, "{pulled}");
    let judged = |episode: &Value| -> Vec<String> {
        let all = episode["requirements"].as_array().expect("requirements");
        all.iter().map(|one| one["requirement"].as_str().expect("a text").to_owned()).collect()
    };
    assert_eq!(judged(frozen), ["gap < 5s", "lost = 0"]);
    assert_eq!(judged(pulled), ["gap < 5s"], "a network holds nothing that could be lost");

    let printed = text(&lab.run(&["report", "1"]).stdout);
    for words in ["on each of one, two", "100/s to far", "at the same time", "passed in 3 windows"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert!(!printed.contains("not decided") && !printed.contains("other load"), "{printed}");
    lab.assert_nothing_left();
}

#[test]
fn what_cannot_be_watched_together_is_refused_with_the_reason() {
    let lab = Lab::new();
    let work = lab.work();
    let dir = work.to_str().expect("text");
    let file = lab.path("data");
    std::fs::write(&file, vec![7; 1 << 20]).expect("a file");
    let link = lab.path("link");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let [file, link] = [&file, &link].map(|path| path.to_str().expect("text"));
    for (words, code, why) in [
        (vec![dir], 2, "together: accepted: two targets or more"),
        (vec![file, link, "--rw", "randread", "--runtime", "1"], 4, "are the same storage"),
        (vec![dir, file, "--event", "stop"], 2, "accepted: one guest"),
        (vec![dir, "--ping", "a b"], 2, "a b"),
    ] {
        let output = lab.run(&[&["watch", "--together", "--yes"], &words[..]].concat());
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.contains(why)), (Some(code), true), "{words:?}: {said}");
    }
    lab.assert_nothing_left();
}
