//! Tests of names that change while iotax runs: only the device that was checked is written.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iotax_testkit::thorough;

use crate::disk::{Disk, run};
use crate::lab::{Lab, text};

/// A link to a device that may be overwritten, and a second device with a filesystem, which may not.
struct Turned {
    lab: Lab,
    link: PathBuf,
    ours: Disk,
    theirs: Disk,
    before: Vec<u8>,
}

impl Turned {
    fn new() -> Option<Self> {
        let (ours, theirs) = (Disk::new(16 << 20)?, Disk::new(16 << 20)?);
        run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), theirs.node.as_path()]);
        let (lab, before) = (Lab::new(), theirs.content());
        let link = lab.path("by-id");
        symlink(&ours.node, &link).expect("linked");
        Some(Self { lab, link, ours, theirs, before })
    }

    fn turn(&self, node: &Path) {
        turn(&self.link, node);
    }

    /// Runs a plan that overwrites the link's target.
    fn bench(&self, path: &str) -> Output {
        let link = self.link.to_str().expect("UTF-8");
        let words = ["bench", link, "--overwrite", link, "--rw", "randwrite", "--size", "4m"];
        let short = ["--runtime", "100ms", "--ramp-time", "0s"];
        self.lab.iotax().args(words).args(short).env("PATH", path).output().expect("iotax starts")
    }

    /// Returns whether the permitted device was overwritten except for its ends, which are blank again, and wipes it. Asserts that the
    /// other device is unchanged.
    fn written(&self, output: &Output, case: &str) -> bool {
        assert!(self.theirs.content() == self.before, "{case}: overwritten: {}", text(&output.stderr));
        let written = self.ours.content().iter().any(|byte| *byte != 0);
        run("blkdiscard", &["--zeroout".as_ref(), self.ours.node.as_path()]);
        written
    }
}

/// Replaces the link atomically, as udev does.
fn turn(link: &Path, node: &Path) {
    let new = link.with_extension("new");
    symlink(node, &new).expect("linked");
    fs::rename(&new, link).expect("renamed");
}

fn path() -> String {
    std::env::var("PATH").expect("a PATH")
}

/// A PATH with a wipefs(8) that runs these shell lines before or after the real one; `$count` is the number of the call.
fn with_wipefs(lab: &Lab, before: &str, after: &str) -> String {
    let dir = lab.path("bin");
    fs::create_dir_all(&dir).expect("made");
    let (count, real) = (lab.path("count"), run("sh", &["-c".as_ref(), "command -v wipefs".as_ref()]));
    fs::write(&count, "0").expect("written");
    let script = format!(
        "#!/bin/sh\ncount=$(($(cat {0}) + 1)); echo $count > {0}\n{before}\n{1} \"$@\"; status=$?\n{after}\nexit $status\n",
        count.display(),
        text(&real).trim()
    );
    fs::write(dir.join("wipefs"), script).expect("written");
    fs::set_permissions(dir.join("wipefs"), fs::Permissions::from_mode(0o755)).expect("made executable");
    format!("{}:{}", dir.display(), path())
}

#[test]
fn a_link_that_is_turned_at_any_check_leads_to_no_other_device() {
    let Some(turned) = Turned::new() else { return };
    let mut written = 0;
    for call in 1..=3 {
        for (case, after) in [("before", false), ("after", true)] {
            turned.turn(&turned.ours.node);
            let (link, node) = (turned.link.display(), turned.theirs.name());
            let line = format!("[ $count = {call} ] && ln -s {node} {link}.new && mv -T {link}.new {link}");
            let (before, after) = if after { ("", line.as_str()) } else { (line.as_str(), "") };
            let output = turned.bench(&with_wipefs(&turned.lab, before, after));
            let case = format!("{case} call {call}");
            written += u32::from(turned.written(&output, &case));
        }
    }
    assert!(written > 0, "the device that was named is the one that is written");
    turned.lab.assert_nothing_left();
}

#[test]
fn a_link_that_is_turned_at_random_leads_to_no_other_device() {
    let Some(turned) = Turned::new() else { return };
    let mut written = 0;
    let share = if thorough() { 1 } else { 3 };
    for (slow, rounds) in [(false, 24 / share), (true, 12 / share)] {
        let path = if slow { with_wipefs(&turned.lab, "sleep 0.05", "sleep 0.05") } else { path() };
        for round in 0..rounds {
            turned.turn(&turned.ours.node);
            let over = AtomicBool::new(false);
            let output = std::thread::scope(|scope| {
                scope.spawn(|| {
                    // Steps of no common measure, so that every moment of the start is met.
                    let mut step = 1 + round;
                    while !over.load(Ordering::Relaxed) {
                        for node in [&turned.theirs.node, &turned.ours.node] {
                            step = step * 7 % 31 + 1;
                            std::thread::sleep(Duration::from_millis(step));
                            turned.turn(node);
                        }
                    }
                });
                let output = turned.bench(&path);
                over.store(true, Ordering::Relaxed);
                output
            });
            written += u32::from(turned.written(&output, &format!("round {round}, slow {slow}")));
        }
    }
    assert!(written > 0, "the device that was named is written now and then");
    turned.lab.assert_nothing_left();
}

#[test]
fn a_directory_that_is_turned_leads_to_no_file_of_the_users() {
    let lab = Lab::new();
    lab.plan(
        "repeat = 40\n[[workload]]\nrw = 'randwrite'\nsize = '1m'\nruntime = '100ms'\nramp_time = '0s'\n\
         [[target]]\nname = 't'\nfile = { dir = 'WORK' }",
    );
    let mut child = lab
        .iotax()
        .args(["run", "plan.toml", "--yes"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("iotax starts");
    let folder = loop {
        let made = fs::read_dir(lab.work()).expect("there").flatten().map(|entry| entry.path()).next();
        if let Some(folder) = made.filter(|folder| {
            fs::read(folder.join("t.raw")).is_ok_and(|content| content.iter().any(|byte| *byte != 0))
        }) {
            break folder;
        }
        assert!(child.try_wait().expect("looked at").is_none(), "it ended before it made its file");
        std::thread::sleep(Duration::from_millis(5));
    };
    // The user's file, under the very name that iotax writes.
    let (mine, moved) = (lab.path("mine"), lab.path("moved"));
    fs::create_dir(&mine).expect("made");
    fs::write(mine.join("t.raw"), vec![b'm'; 1 << 20]).expect("written");
    fs::rename(&folder, &moved).expect("moved");
    symlink(&mine, &folder).expect("linked");
    child.wait().expect("it ended");
    let _ = fs::remove_file(&folder);
    let content = fs::read(mine.join("t.raw"));
    assert!(content.is_ok_and(|content| content.iter().all(|byte| *byte == b'm')), "overwritten or removed");
}
