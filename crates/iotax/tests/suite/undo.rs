//! Tests of faults at lines of the undo log, for every kind of target that works without device-mapper: after `iotax clean` nothing is
//! left, and the user's files are unchanged.

use iotax_testkit::{require, thorough};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use crate::disk::{Disk, run, uses_of};
use crate::lab::{Lab, text};

const SIGKILL: i32 = 9;

/// A lab with a directory with a file of the user, a device of the user, and a device that may be overwritten.
struct LoggedRun {
    lab: Lab,
    mine: Disk,
    before: Vec<u8>,
    device: Disk,
}

const NOTE: &str = "the user's";

impl LoggedRun {
    /// Creates a lab with a plan of one target; DEVICE and DIR stand for the device and directory to use.
    fn new(target: &str, device_bytes: u64) -> Option<Self> {
        require!(program "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "losetup", "wipefs");
        let (mine, device) = (Disk::new(16 << 20)?, Disk::new(device_bytes)?);
        run("mkfs.ext4", &["-q".as_ref(), mine.node.as_path()]);
        let before = mine.content();
        let lab = Lab::new();
        let dir = lab.path("dir");
        fs::create_dir(&dir).expect("a directory");
        fs::write(dir.join("note"), NOTE).expect("written");
        let target = target.replace("DEVICE", device.name()).replace("DIR", dir.to_str().expect("UTF-8"));
        lab.plan(&format!(
            "repeat = 1\n[defaults]\nsize = '4m'\nruntime = '100ms'\nramp_time = '0s'\n\
             [[workload]]\nrw = 'randrw'\nbs = '64k'\n[[target]]\nname = 't'\n{target}"
        ));
        Some(Self { lab, mine, before, device })
    }

    /// Runs the plan with a fault at a line of the undo log.
    fn run(&self, fault: &str) -> Output {
        let mut command = self.lab.iotax();
        command.args(["run", "plan.toml", "--yes"]).env("IOTAX_FAULT", fault);
        if fs::read_to_string(self.lab.path("plan.toml")).expect("a plan").contains(self.device.name()) {
            command.args(["--overwrite", self.device.name()]);
        }
        command.output().expect("iotax starts")
    }

    fn clean(&self, after: &str) {
        let clean = self.lab.run(&["clean"]);
        assert!(clean.status.success(), "{after}: {}", text(&clean.stdout));
    }

    fn assert_nothing_left(&self, after: &str) {
        self.lab.assert_nothing_left();
        let dir = self.lab.path("dir");
        let left: Vec<_> =
            fs::read_dir(&dir).expect("there").map(|e| e.expect("readable").file_name()).collect();
        assert_eq!(left, ["note"], "{after}");
        assert_eq!(fs::read_to_string(dir.join("note")).expect("there"), NOTE, "{after}");
        assert_eq!(uses_of(&self.lab.path("")), Vec::<String>::new(), "{after}");
        assert_eq!(uses_of(self.lab.scratch()), Vec::<String>::new(), "{after}");
        assert_eq!(self.device.signatures(), "", "{after}");
    }

    /// Kills the run at lines of its undo log. Asserts that a fault beyond the last line has no effect.
    fn kill_at_lines(&self, kind: &str, lines: u32) {
        for line in sample(lines) {
            let fault = format!("{kind}@{line}");
            let output = self.run(&fault);
            assert_eq!(output.status.signal(), Some(SIGKILL), "{fault}: {}", text(&output.stderr));
            self.clean(&fault);
            self.assert_nothing_left(&fault);
        }
        let beyond = format!("{kind}@{}", lines + 1);
        let output = self.run(&beyond);
        assert!(output.status.success(), "{beyond}: {}", text(&output.stderr));
        self.assert_nothing_left(&beyond);
    }

    /// Simulates a full disk at lines of the undo log: the run undoes its steps without `iotax clean`.
    fn fail_at_lines(&self, lines: u32) {
        let mut spared = 0;
        for line in sample(lines) {
            let fault = format!("error@{line}");
            let output = self.run(&fault);
            let said = text(&output.stderr);
            match output.status.code() {
                // A line about an undone step is not essential.
                Some(0) => spared += 1,
                code => {
                    assert_eq!(code, Some(4), "{fault}: {said}");
                    assert!(said.contains("undo log") && said.contains("No space left"), "{fault}: {said}");
                }
            }
            self.assert_nothing_left(&fault);
        }
        assert!(spared > 0 && (!thorough() || spared == lines / 2), "{spared} of {lines}");
    }

    fn finish(self) {
        assert!(self.mine.content() == self.before, "the user's device is as it was");
    }
}

/// Returns all lines of an undo log, or every fourth in quick tests; unit tests of the undo log cover each line.
fn sample(lines: u32) -> impl Iterator<Item = u32> {
    (1..=lines).rev().step_by(if thorough() { 1 } else { 4 })
}

/// Tests all faults on one kind of target; half of the undo log's `lines` record steps, half their undoing.
fn all_faults(target: &str, lines: u32) {
    let Some(logged) = LoggedRun::new(target, 64 << 20) else { return };
    logged.kill_at_lines("kill", lines);
    logged.kill_at_lines("kill-after", lines);
    logged.fail_at_lines(lines);
    logged.finish();
}

#[test]
fn a_new_file() {
    all_faults("path = 'DIR/new.dat'", 4);
}

#[test]
fn a_loop_device_over_a_file_in_a_directory() {
    all_faults("file = { dir = 'DIR' }\nloop = {}", 10);
}

#[test]
fn an_overlay_in_a_directory() {
    all_faults("overlay = { dir = 'DIR' }\nfile = {}", 18);
}

#[test]
fn a_volatile_directory() {
    require!(program "fusermount3");
    all_faults("volatile = { dir = 'DIR' }\nfile = {}", 22);
}

#[test]
fn a_loop_device_over_a_file_in_ext4_on_a_device() {
    all_faults("device = 'DEVICE'\nfilesystem = { type = 'ext4' }\nfile = {}\nloop = {}", 16);
}

#[test]
fn a_file_in_xfs_and_in_btrfs_on_a_device() {
    for (keys, bytes) in [("type = 'xfs'", 300 << 20), ("type = 'btrfs', nodatacow = true", 120 << 20)] {
        let target = format!("device = 'DEVICE'\nfilesystem = {{ {keys} }}\nfile = {{}}");
        let Some(logged) = LoggedRun::new(&target, bytes) else { return };
        logged.kill_at_lines("kill-after", 14);
        logged.finish();
    }
}

#[test]
fn a_device_as_it_is_is_blank_again() {
    let Some(logged) = LoggedRun::new("device = 'DEVICE'", 32 << 20) else { return };
    logged.kill_at_lines("kill", 2);
    logged.finish();
}

#[test]
fn cleaning_up_can_be_killed_too() {
    let Some(logged) =
        LoggedRun::new("device = 'DEVICE'\nfilesystem = { type = 'ext4' }\nfile = {}\nloop = {}", 64 << 20)
    else {
        return;
    };
    for line in 1..=7 {
        // Everything has been created, and the first undone step is about to be recorded.
        assert_eq!(logged.run("kill-after@8").status.signal(), Some(SIGKILL));
        let fault = format!("kill@{line}");
        let clean =
            logged.lab.iotax().arg("clean").env("IOTAX_FAULT", &fault).output().expect("iotax starts");
        assert_eq!(clean.status.signal(), (line < 7).then_some(SIGKILL), "{fault}: {}", text(&clean.stdout));
        logged.clean(&fault);
        logged.assert_nothing_left(&fault);
    }
    logged.finish();
}

#[test]
fn a_fault_that_is_not_understood_is_refused() {
    let lab = Lab::new();
    let target = lab.work().join("new.dat");
    let output =
        lab.iotax().arg("bench").arg(&target).env("IOTAX_FAULT", "explode@3").output().expect("iotax starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("IOTAX_FAULT=\"explode@3\"") && said.contains("kill-after@N"), "{said}");
    lab.assert_nothing_left();
}
