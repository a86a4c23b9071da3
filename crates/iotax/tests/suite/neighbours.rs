//! Tests against other users of a remote machine: files that they plant are never executed, and command lines reveal nothing useful to
//! them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::lab::text;
use crate::ssh::{await_end, start_plan};
use crate::sshd::Sshd;

/// Directories shared by all users, visible only on the remote side.
const SHARED: &str = "mount -t tmpfs -o mode=1777 none /var/tmp && mount -t tmpfs -o mode=1777 none /dev/shm && chmod 1777 LAB/tmp";

/// Returns the agent's tag and the path of its directory, from the undo log.
fn on_record(sshd: &Sshd) -> (String, PathBuf) {
    let undo = sshd.lab.path("home/.local/state/iotax/undo");
    let mut files = fs::read_dir(undo).expect("there").flatten().map(|entry| entry.path());
    let undo_log =
        files.find(|path| path.extension().is_some_and(|ending| ending == "jsonl")).expect("an undo log");
    let lines = fs::read_to_string(undo_log).expect("text");
    let mut agents = lines.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let agent = line.get("record")?.get("effect")?.get("agent")?;
        let agent_dir =
            agent.get("directory").map_or("/none", |agent_dir| agent_dir["path"].as_str().expect("text"));
        Some((agent["tag"].as_str().expect("a tag").to_owned(), PathBuf::from(agent_dir)))
    });
    agents.next_back().expect("an agent")
}

/// Kills a run on both sides. Returns its agent's tag and directory.
fn abandon(sshd: &Sshd) -> (String, PathBuf) {
    let mut child = start_plan(sshd);
    // Stopped first, so that it does not see them end and undo its work.
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    sshd.kill_sessions();
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(sshd.lab.work().join("there").exists(), "who removed it?");
    on_record(sshd)
}

/// Creates a directory like an agent's, owned by nobody, with a program that leaves a file when executed.
fn plant(sshd: &Sshd, directory: &Path) {
    let (directory, mark) = (directory.display(), executed(sshd));
    sshd.sh(&format!(
        "mkdir -m 700 {directory} && mkdir -p {directory}/state/iotax/undo && cd {directory} && \
         printf '#!/bin/sh\\ntouch {}\\n' >iotax && chmod 755 iotax && chown -R 65534:65534 .",
        mark.display()
    ));
}

fn executed(sshd: &Sshd) -> PathBuf {
    sshd.lab.path("executed")
}

/// Asserts that it was not undone, and why.
fn assert_left(sshd: &Sshd, clean: &Output, why: &str) {
    let said = text(&clean.stdout);
    assert!(!executed(sshd).exists(), "a planted program was executed: {said}");
    assert_eq!(clean.status.code(), Some(4), "{said}");
    assert!(said.contains("not undone: agent iotax-") && said.contains(why), "{why:?} is not in: {said}");
}

#[test]
fn a_program_that_somebody_else_planted_is_not_executed() {
    let Some(sshd) = Sshd::start(SHARED) else { return };
    for both in [true, false] {
        let (tag, agent_dir) = if both { abandon(&sshd) } else { end_alone(&sshd) };
        clean_among_plants(&sshd, &tag, &agent_dir);
    }
}

/// Kills a run on this side only; the remote agent then removes its files itself.
fn end_alone(sshd: &Sshd) -> (String, PathBuf) {
    let mut child = start_plan(sshd);
    child.kill().expect("killed");
    child.wait().expect("ended");
    await_end(|| fs::read_dir(sshd.lab.path("cache")).expect("there").next().is_none());
    on_record(sshd)
}

fn clean_among_plants(sshd: &Sshd, tag: &str, agent_dir: &Path) {
    let name = agent_dir.file_name().expect("a name").to_str().expect("UTF-8");
    let bases = [sshd.lab.path("tmp"), "/var/tmp".into(), "/dev/shm".into(), sshd.lab.path("cache")];
    let own = sshd.lab.path("own");
    plant(sshd, &own);
    let mut planted = Vec::new();
    for (number, base) in bases.iter().enumerate() {
        for path in [name, tag].map(|name| base.join(name)).into_iter().filter(|path| path != agent_dir) {
            if number % 2 == 0 {
                plant(sshd, &path);
            } else {
                sshd.sh(&format!("ln -s {} {}", own.display(), path.display()));
            }
            planted.push(path.display().to_string());
        }
    }
    let clean = sshd.run(&["clean"]);
    assert!(!executed(sshd).exists(), "a planted program was executed: {}", text(&clean.stdout));
    assert!(clean.status.success(), "{}", text(&clean.stdout));
    assert!(text(&clean.stdout).contains("undone: agent iotax-"), "{}", text(&clean.stdout));
    // Files that others put there stay.
    sshd.sh(&format!("ls -d {0} && rm -r {0}", planted.join(" ")));
    fs::remove_dir_all(own).expect("there");
    sshd.assert_nothing_left();
}

#[test]
fn what_stands_in_the_agents_place_is_left_alone_and_stays_on_record() {
    let Some(sshd) = Sshd::start(SHARED) else { return };
    let (_, agent_dir) = abandon(&sshd);
    let aside = sshd.lab.path("aside");
    let shown = agent_dir.display();
    fs::rename(&agent_dir, &aside).expect("renamed");
    plant(&sshd, &agent_dir);
    assert_left(&sshd, &sshd.run(&["clean"]), "not the directory that was made there");
    sshd.sh(&format!("chown -R 0:0 {shown}"));
    assert_left(&sshd, &sshd.run(&["clean"]), "not the directory that was made there");
    fs::remove_dir_all(&agent_dir).expect("removed");
    std::os::unix::fs::symlink(&aside, &agent_dir).expect("linked");
    assert_left(&sshd, &sshd.run(&["clean"]), "not the directory that was made there");
    fs::remove_file(&agent_dir).expect("removed");
    fs::rename(&aside, &agent_dir).expect("renamed");
    sshd.sh(&format!("chmod 777 {shown}"));
    assert_left(&sshd, &sshd.run(&["clean"]), "others may write to it");
    sshd.sh(&format!("chmod 700 {shown} && cd {shown} && mv iotax ours"));
    sshd.sh(&format!("printf '#!/bin/sh\\ntouch {}\\n' >{shown}/iotax", executed(&sshd).display()));
    sshd.sh(&format!("chmod 700 {shown}/iotax"));
    assert_left(&sshd, &sshd.run(&["clean"]), "is not executed");
    // As it was it can be cleaned: nothing was forgotten.
    sshd.sh(&format!("cd {shown} && mv ours iotax"));
    let clean = sshd.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stdout));
    sshd.assert_nothing_left();
}

#[test]
fn neither_tag_nor_place_stand_in_a_command_line() {
    let Some(sshd) = Sshd::start(SHARED) else { return };
    let (seen, stop) = (CommandLines::watch(), sshd.lab.path("home/.local/state/iotax/undo"));
    let (tag, agent_dir) = abandon(&sshd);
    let clean = sshd.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stdout));
    assert_eq!(fs::read_dir(stop).expect("there").count(), 0);
    let name = agent_dir.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
    let seen = seen.end();
    assert!(seen.contains("./iotax agent"), "the agent was not seen");
    // Only rmdir(1) may name the directory: it is then empty and off the record.
    let telling: Vec<&String> = seen
        .iter()
        .filter(|line| line.contains(&tag) || line.contains(&name))
        .filter(|line| !line.starts_with("rmdir "))
        .collect();
    assert_eq!(telling, Vec::<&String>::new());
}

/// Collects the command lines of all processes during a test.
struct CommandLines {
    stop: Arc<AtomicBool>,
    watching: thread::JoinHandle<BTreeSet<String>>,
}

impl CommandLines {
    fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let watching = thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !ended.load(Ordering::Relaxed) {
                for process in fs::read_dir("/proc").expect("there").flatten() {
                    let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
                    seen.insert(text(&line).replace('\0', " ").trim().to_owned());
                }
            }
            seen
        });
        Self { stop, watching }
    }

    fn end(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.watching.join().expect("it does not panic")
    }
}

#[test]
fn killed_before_its_place_is_on_record_it_leaves_none() {
    let Some(sshd) = Sshd::start(SHARED) else { return };
    let target = sshd.url("work/new");
    // The second line is the place's. Before it nothing but an empty directory is there, and after it no program yet.
    for fault in ["kill@1", "kill-after@1", "kill@2", "kill-after@2", "kill@3", "kill-after@3"] {
        let arguments = ["bench", &target, "--size", "8m", "--runtime", "300ms"];
        let killed = sshd.iotax().args(arguments).env("IOTAX_FAULT", fault).output().expect("iotax starts");
        assert_eq!(killed.status.code(), None, "{fault}: {}", text(&killed.stderr));
        let clean = sshd.run(&["clean"]);
        assert!(clean.status.success(), "{fault}: {}", text(&clean.stdout));
        await_end(|| fs::read_dir(sshd.lab.path("cache")).expect("there").next().is_none());
        sshd.assert_nothing_left();
    }
}
