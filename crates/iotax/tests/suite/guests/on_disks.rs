//! Helpers that run iotax in a guest with its own disks, and check that it leaves nothing.

use iotax_testkit::thorough;
use serde_json::Value;

use crate::lab::assert_valid;
use crate::lab_guest::LabGuest;

/// Writes a plan to /tmp/plan.toml.
pub(super) fn put_plan(lab: &mut LabGuest, toml: &str) {
    let lines: Vec<String> =
        toml.lines().map(|line| format!("'{}'", line.trim().replace('\'', "'\\''"))).collect();
    lab.sh(&format!("printf '%s\\n' {} > /tmp/plan.toml", lines.join(" ")));
}

/// Runs iotax and parses the JSON on its stdout; panics if it fails.
pub(super) fn json(lab: &mut LabGuest, arguments: &str) -> Value {
    let printed =
        lab.sh(&format!("iotax {arguments} --yes --json - 2> /tmp/said || {{ cat /tmp/said; false; }}"));
    let json = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    assert_valid(&json);
    json
}

/// The state of the guest before a run, which must be the same afterwards.
pub(super) struct Before {
    /// Shell command that prints the state.
    command: String,
    state: String,
}

impl Before {
    pub(super) fn of(lab: &mut LabGuest, command: &str) -> Self {
        lab.sh("mkdir -p /tmp/home/.local/state/iotax/undo");
        let command = format!("{{ {command}; }} 2>&1; true");
        Self { state: lab.sh(&command), command }
    }

    pub(super) fn assert_nothing_changed(&self, lab: &mut LabGuest, after: &str) {
        assert_eq!(lab.sh(&self.command), self.state, "{after}");
    }
}

/// The kinds and names of a target's layers, from the bottom up, with `TAG` for the run's tag.
pub(super) fn layers(json: &Value, target: &str) -> Vec<String> {
    let targets = json["targets"].as_array().expect("targets");
    let target = targets.iter().find(|t| t["name"] == target).unwrap_or_else(|| panic!("{target}"));
    let layers = target["layers"].as_array().expect("layers");
    let name = |layer: &Value| {
        let (kind, name) = (layer["kind"].as_str().expect("a kind"), layer["name"].as_str().expect("a name"));
        // A tag is eight digits.
        match name.find("iotax-") {
            Some(tag) => format!("{kind} {}TAG{}", &name[..tag + 6], &name[tag + 14..]),
            None => format!("{kind} {name}"),
        }
    };
    layers.iter().map(name).collect()
}

/// Starts iotax in the background and waits until it prints `moment`; `$run` is the process.
pub(super) fn start_until(lab: &mut LabGuest, arguments: &str, moment: &str) {
    lab.sh(&format!("iotax {arguments} --yes > /tmp/out 2> /tmp/said & run=$!"));
    lab.sh(&format!("for i in $(seq 3000); do grep -q '{moment}' /tmp/said && break; usleep 20000; done; grep -q '{moment}' /tmp/said || {{ cat /tmp/said; false; }}"));
}

/// Kills the background run and its child processes, and runs `iotax clean` until nothing remains to undo.
pub(super) fn kill_and_clean(lab: &mut LabGuest) {
    lab.sh("{ kill -KILL $run; wait $run; } 2> /tmp/killed; kill -CONT $(pidof iotax) 2> /tmp/killed; true");
    lab.sh("for i in $(seq 100); do iotax clean > /tmp/cleaned && ! grep -q 'left alone' /tmp/cleaned && break; usleep 100000; done");
}

/// Runs iotax with a fault at lines of the undo log, and asserts that nothing is left after a clean-up. Given for each kind of fault: the
/// minimum number of lines of a run, and the lines to test unless tests are thorough.
pub(super) fn assert_faults_leave_nothing(
    lab: &mut LabGuest,
    before: &Before,
    run: &str,
    faults: [(&str, usize, &[usize]); 3],
) {
    for (kind, least, few) in faults {
        let expected = if kind == "error" { "4" } else { "137" };
        let all = (1..).take_while(|_| thorough());
        let mut spared = None;
        for line in few.iter().copied().filter(|_| !thorough()).chain(all) {
            let fault = format!("{kind}@{line}");
            let (status, _) =
                lab.try_sh(&format!("( IOTAX_FAULT={fault} iotax {run} --yes > /tmp/said 2>&1 )"));
            // An error that is met while a cell is measured costs the measurement alone.
            let is_right = [expected, "0"].contains(&&*status) || (kind == "error" && status == "3");
            assert!(is_right, "{fault}: {status}: {}", lab.sh("cat /tmp/said"));
            lab.sh("iotax clean > /tmp/cleaned 2>&1 || { cat /tmp/cleaned; false; }");
            before.assert_nothing_changed(lab, &fault);
            // That something is undone need not be written down to be true, and some of it is undone while targets are built.
            if status == "0" && (kind != "error" || line > least) {
                spared = Some(line);
                break;
            }
        }
        eprintln!("{kind}: the first line that is spared is {spared:?}");
        assert!(spared.is_none_or(|line| line > least), "{kind}: {spared:?}: too few for these stacks");
    }
}

/// Removes kernel modules. Retries, because devices hold them for a moment after an unmount.
pub(super) fn unload(lab: &mut LabGuest, modules: &str) {
    let line =
        format!("for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do rmmod {modules} && break; sleep 1; done");
    let (_, printed) = lab.try_sh(&line);
    let left = lab.sh("cat /proc/modules");
    let is_left = |module: &str| left.lines().any(|line| line.split(' ').next() == Some(module));
    assert!(!modules.split(' ').any(is_left), "{printed}\n{left}");
}

/// Asserts that iotax fails with this exit status and these words.
pub(super) fn refused_words(lab: &mut LabGuest, arguments: &str, status: &str, words: &[&str]) {
    let (found, said) = lab.try_sh(&format!("iotax {arguments} --yes 2>&1"));
    assert_eq!(found, status, "{arguments}: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments}: {word:?} not in {said}");
    }
}
