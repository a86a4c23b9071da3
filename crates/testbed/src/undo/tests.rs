use std::io::Read;

use super::*;
use crate::kernel_file::KernelFile;

fn directories() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let temp = tempfile::tempdir().expect("temp dir");
    let (state, work) = (temp.path().join("state"), temp.path().join("work"));
    fs::create_dir(&work).expect("work dir");
    (temp, state, work)
}

#[test]
fn all_effects_are_undone_last_first_and_the_log_goes() {
    let (_temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
    let dir = work.join("iotax-1");
    undo_log.make_directory(&dir).expect("dir");
    undo_log.make_file(&dir.join("image")).expect("file");
    undo_log.make_tree(&work.join("iotax-2")).expect("private");
    fs::write(work.join("iotax-2/socket"), "x").expect("scratch");
    let (undone, failed) = undo_log.undo_all();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(undone.len(), 3);
    assert_eq!(fs::read_dir(&work).expect("work").count(), 0);
    assert_eq!(fs::read_dir(&state).expect("state").count(), 0);
}

#[test]
fn what_a_dead_process_left_is_undone_and_what_a_living_one_did_is_not() {
    let (_temp, state, work) = directories();
    let mut dead = UndoLog::create(&state, "dead").expect("undo log");
    dead.make_file(&work.join("dead")).expect("file");
    drop(dead); // as a killed process does: the lock goes, the file stays
    let mut living = UndoLog::create(&state, "living").expect("undo log");
    living.make_file(&work.join("living")).expect("file");

    assert_eq!(leftovers(&state).expect("readable").len(), 1);
    let cleaned = clean(&state, false).expect("cleaned");
    assert_eq!((cleaned.undone.len(), cleaned.failed.len(), cleaned.in_use), (1, 0, 1));
    assert!(!work.join("dead").exists());
    assert!(work.join("living").exists());
}

#[test]
fn logs_of_many_living_processes_cost_no_more_time_than_one() {
    let (_temp, state, _work) = directories();
    let living: Vec<UndoLog> = (0..30)
        .map(|number| UndoLog::create(&state, &format!("living{number}")).expect("undo log"))
        .collect();
    let begun = Instant::now();
    assert!(leftovers(&state).expect("readable").is_empty());
    assert_eq!(clean(&state, false).expect("readable").in_use, living.len());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn settings_that_a_living_run_has_changed_are_in_force_too() {
    let (_temp, state, work) = directories();
    let setting = KernelFile { path: root().join("proc/sys/vm/dirty_ratio"), ..KernelFile::for_tests() };
    let mut living = UndoLog::create(&state, "living").expect("undo log");
    living.make_file(&work.join("image")).expect("file");
    assert!(settings_in_force(&state).expect("readable").is_empty());
    living.record(Effect::Setting(Box::new(setting))).expect("written");
    assert_eq!(settings_in_force(&state).expect("readable").len(), 1);
    drop(living);
    assert_eq!(settings_in_force(&state).expect("readable").len(), 1);
}

#[test]
fn what_members_of_a_dead_coordinator_left_is_undone_before_their_logs_go() {
    let (temp, _, work) = directories();
    let state = temp.path().join("undo");
    let members = temp.path().join("fleet-f");
    let mut coordinator = UndoLog::create(&state, "fleet-f").expect("undo log");
    coordinator.make_tree(&members).expect("dir");
    let member = |name: &str| {
        let undo_dir = members.join(name).join("iotax/undo");
        let mut undo_log = UndoLog::create(&undo_dir, "member").expect("undo log");
        undo_log.make_file(&work.join(name)).expect("file");
        undo_log
    };
    let (dead, living) = (member("dead"), member("living"));
    assert!(clean_tag(&state, "fleet-f").expect("readable").is_none(), "the coordinator lives");
    drop((coordinator, dead));
    assert_eq!(leftovers(&state).expect("readable").len(), 2);

    let cleaned = clean_tag(&state, "fleet-f").expect("readable").expect("it is dead");
    assert_eq!((cleaned.undone.len(), cleaned.failed.len(), cleaned.in_use), (1, 0, 1));
    assert!(!work.join("dead").exists() && work.join("living").exists() && members.exists());

    drop(living);
    let cleaned = clean_tag(&state, "fleet-f").expect("readable").expect("it is dead");
    assert_eq!((cleaned.undone.len(), cleaned.failed.len(), cleaned.in_use), (2, 0, 0));
    assert!(!work.join("living").exists() && !members.exists());
    assert_eq!(fs::read_dir(&state).expect("state").count(), 0);
    assert!(clean_tag(&state, "fleet-f").expect("readable").is_some(), "nothing is left of it");
}

#[test]
fn logs_in_directories_that_others_write_to_are_not_believed() {
    let (_temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "run").expect("undo log");
    let tree = work.join("iotax-files");
    undo_log.make_tree(&tree).expect("dir");
    let mut planted = UndoLog::create(&tree.join("x/iotax/undo"), "planted").expect("undo log");
    let victim = work.join("victim");
    planted.make_file(&victim).expect("file");
    drop((undo_log, planted));
    clean(&state, false).expect("cleaned");
    assert!(victim.exists() && !tree.exists());
}

#[test]
fn the_users_files_are_left_alone() {
    let (_temp, state, work) = directories();
    // The path is taken: nothing is replaced, and nothing remains.
    let taken = work.join("taken");
    fs::write(&taken, "the user's").expect("file");
    let mut undo_log = UndoLog::create(&state, "a").expect("undo log");
    assert!(undo_log.make_file(&taken).expect_err("refused").to_string().contains("taken"));
    // iotax's file was removed, and the user's has its name and, on many filesystems, its inode.
    let reused = work.join("reused");
    undo_log.make_file(&reused).expect("file");
    fs::remove_file(&reused).expect("removed");
    fs::write(&reused, "the user's").expect("file");
    // The user's directory is at the path.
    let there = work.join("there");
    fs::create_dir(&there).expect("dir");
    assert!(undo_log.make_directory(&there).is_err() && undo_log.make_tree(&there).is_err());
    // The user replaced iotax's directory.
    let replaced = work.join("replaced");
    undo_log.make_file(&replaced).expect("file");
    fs::write(work.join("new"), "the user's").expect("file");
    fs::rename(work.join("new"), &replaced).expect("renamed");
    // A user's file in iotax's directory keeps the directory.
    let dir = work.join("iotax-d");
    undo_log.make_directory(&dir).expect("dir");
    fs::write(dir.join("note"), "the user's").expect("file");

    let (_, failed) = undo_log.undo_all();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].effect.path(), Some(dir.as_path()));
    for path in [&taken, &reused, &replaced, &dir.join("note")] {
        assert_eq!(fs::read_to_string(path).expect("still there"), "the user's");
    }
    assert!(there.is_dir());
    assert_eq!(fs::read_dir(&work).expect("work").count(), 5);
}

#[test]
fn a_line_cut_short_by_a_crash_is_passed_over() {
    let (_temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "cut").expect("undo log");
    undo_log.make_file(&work.join("a")).expect("file");
    undo_log.file.write_all(b"{\"record\":{\"id\":9,\"effect\":{\"file\":{\"pa").expect("written");
    drop(undo_log);
    let cleaned = clean(&state, false).expect("cleaned");
    assert_eq!((cleaned.undone.len(), cleaned.failed.len()), (1, 0));
    assert_eq!(fs::read_dir(&work).expect("work").count(), 0);
}

#[test]
fn a_line_cut_short_by_a_full_disk_does_not_run_into_the_next() {
    let (_temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "full").expect("undo log");
    undo_log.make_file(&work.join("a")).expect("file");
    undo_log.fault = InjectedFault::parse("error@1").expect("valid");
    let error = undo_log.make_file(&work.join("b")).expect_err("full");
    assert!(std::error::Error::source(&error).is_some_and(|why| why.to_string().contains("No space left")));
    undo_log.make_file(&work.join("c")).expect("room again");
    drop(undo_log);
    let cleaned = clean(&state, false).expect("cleaned");
    assert_eq!((cleaned.undone.len(), cleaned.failed.len(), cleaned.unreadable.len()), (2, 0, 0));
    assert_eq!(fs::read_dir(&work).expect("work").count(), 0);
}

#[test]
fn another_file_under_the_name_of_a_tools_output_is_left_alone() {
    let (_temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
    let (image, never_made) = (work.join("image"), work.join("none"));
    let entry = undo_log.record(Effect::File { path: image.clone(), identity: None }).expect("on record");
    fs::write(&image, "ours").expect("written");
    undo_log.identify(entry).expect("known");
    let entry = undo_log.record(Effect::File { path: never_made, identity: None }).expect("on record");
    assert_eq!(undo_log.identify(entry).expect("nothing to know"), entry);
    drop(undo_log);
    fs::rename(&image, work.join("kept")).expect("renamed");
    fs::write(&image, "the user's").expect("written");
    let cleaned = clean(&state, false).expect("cleaned");
    assert_eq!(fs::read_to_string(&image).expect("still there"), "the user's");
    assert!(cleaned.failed[0].reason.contains("it is called kept there now"), "{cleaned:?}");
}

#[test]
fn a_name_may_be_as_long_as_the_filesystem_allows_and_one_that_is_longer_leaves_nothing() {
    let (_temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "long").expect("undo log");
    undo_log.make_file(&work.join("x".repeat(255))).expect("file");
    assert!(undo_log.make_file(&work.join("x".repeat(256))).is_err());
    drop(undo_log);
    let cleaned = clean(&state, false).expect("cleaned");
    assert!(cleaned.failed.is_empty(), "{cleaned:?}");
    assert_eq!(fs::read_dir(&work).expect("work").count(), 0);
}

#[test]
fn what_cannot_be_written_down_as_undone_is_undone_all_the_same() {
    let (_temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "full").expect("undo log");
    undo_log.make_file(&work.join("a")).expect("file");
    undo_log.fault = InjectedFault::parse("error@1").expect("valid");
    let (undone, failed) = undo_log.undo_all();
    assert_eq!((undone.len(), failed.len()), (1, 0));
    assert_eq!(
        (fs::read_dir(&work).expect("work").count(), fs::read_dir(&state).expect("state").count()),
        (0, 0)
    );
}

#[test]
fn a_whole_line_that_is_not_understood_keeps_its_log_and_not_the_others() {
    let (_temp, state, work) = directories();
    for (tag, damage) in [("a", "{\"record\":{\"id\":7,\"effect\":{\"mount\":{}}}}\n"), ("b", "")] {
        let mut undo_log = UndoLog::create(&state, tag).expect("undo log");
        undo_log.make_file(&work.join(tag)).expect("file");
        undo_log.file.write_all(damage.as_bytes()).expect("written");
    }
    let cleaned = clean(&state, false).expect("cleaned");
    assert_eq!((cleaned.undone.len(), cleaned.unreadable.len()), (1, 1));
    assert_eq!(unreadable(&state).expect("listed").len(), 1);
    assert!(cleaned.unreadable[0].to_string().contains("a.jsonl"), "{:?}", cleaned.unreadable);
    assert!(work.join("a").exists() && state.join("a.jsonl").exists() && !work.join("b").exists());
}

#[test]
fn what_cannot_be_undone_is_kept_until_it_is_forgotten() {
    let (_temp, state, work) = directories();
    let dir = work.join("iotax-d");
    let mut undo_log = UndoLog::create(&state, "full").expect("undo log");
    undo_log.make_directory(&dir).expect("dir");
    fs::write(dir.join("note"), "the user's").expect("file");
    drop(undo_log);
    for (forget, left) in [(false, 1), (false, 1), (true, 0)] {
        assert_eq!(clean(&state, forget).expect("cleaned").failed.len(), 1);
        assert_eq!(leftovers(&state).expect("readable").len(), left);
    }
    assert!(dir.join("note").exists());
}

#[test]
fn a_tree_goes_with_all_that_is_in_it_and_what_took_its_place_stays() {
    let (_temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "tree").expect("undo log");
    let ours = work.join("iotax-t-1.d");
    undo_log.make_tree(&ours).expect("made");
    fs::create_dir(ours.join("sub")).expect("dir");
    fs::write(ours.join("sub/file"), "ours").expect("file");
    // The target of a link in a tree is not removed.
    fs::write(work.join("note"), "the user's").expect("file");
    std::os::unix::fs::symlink(work.join("note"), ours.join("link")).expect("link");
    // The user replaced another of iotax's trees.
    let replaced = work.join("iotax-t-2.d");
    undo_log.make_tree(&replaced).expect("made");
    fs::rename(&replaced, work.join("away")).expect("renamed");
    fs::create_dir(&replaced).expect("dir");
    fs::write(replaced.join("note"), "the user's").expect("file");
    // The path is taken.
    assert!(undo_log.make_tree(&replaced).expect_err("taken").to_string().contains("iotax-t-2.d"));
    drop(undo_log);

    let cleaned = clean(&state, false).expect("cleaned");
    let [failure] = cleaned.failed.as_slice() else { panic!("{:?}", cleaned.failed) };
    assert!(failure.reason.contains("it is called away there now"), "{failure:?}");
    assert!(!ours.exists(), "gone with what was in it");
    assert_eq!(fs::read_to_string(work.join("note")).expect("still there"), "the user's");
    assert_eq!(fs::read_to_string(replaced.join("note")).expect("still there"), "the user's");
    assert_eq!(fs::read_dir(&work).expect("work").count(), 3, "no scratch is left");
}

/// Covers a process killed before its undo log had its final name.
#[test]
fn a_log_that_was_only_begun_goes() {
    let (_temp, state, _work) = directories();
    fs::create_dir(&state).expect("dir");
    let living = begin(&state.join("living.new")).expect("begun");
    for name in ["dead.new", "dead.lock"] {
        fs::write(state.join(name), "").expect("file");
    }
    clean(&state, false).expect("cleaned");
    let left: Vec<_> = fs::read_dir(&state).expect("state").map(|e| e.expect("read").file_name()).collect();
    assert_eq!(left, ["living.new"]);
    drop(living);
    clean(&state, false).expect("cleaned");
    assert_eq!(fs::read_dir(&state).expect("state").count(), 0);
}

/// Simulates a process that was killed while its tool still works: the tool applies the recorded effect only now. Returns the tool's process.
fn killed_at_work(state: &Path, work: &Path, script: &str) -> std::process::Child {
    let mut undo_log = UndoLog::create(state, "killed").expect("undo log");
    let dir = work.join("iotax-d");
    undo_log.make_directory(&dir).expect("dir");
    let late = dir.join("late");
    undo_log.record(Effect::File { path: late.clone(), identity: None }).expect("written");
    let mut tool = std::process::Command::new("sh")
        .args(["-c", &format!("echo; {script}"), "sh"])
        .arg(&late)
        .stdin(undo_log.lock().stdio().expect("a descriptor"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("sh starts");
    // Until the child has executed the shell, it has the undo log open, as this process has.
    let mut started = [0];
    tool.stdout.as_mut().expect("a pipe").read_exact(&mut started).expect("a line");
    tool
}

#[test]
fn what_a_tool_makes_after_its_process_was_killed_is_undone_too() {
    let (_temp, state, work) = directories();
    let mut tool = killed_at_work(&state, &work, "sleep 0.5; echo late > \"$1\"");
    assert_eq!(leftovers(&state).expect("readable").len(), 2, "to look waits for nobody");
    let cleaned = clean(&state, false).expect("cleaned");
    assert_eq!((cleaned.undone.len(), cleaned.failed.len()), (2, 0), "{cleaned:?}");
    assert_eq!(fs::read_dir(&work).expect("work").count(), 0);
    assert_eq!(fs::read_dir(&state).expect("state").count(), 0);
    assert!(tool.wait().expect("ended").success(), "it could do its work");
}

#[test]
fn a_tool_that_does_not_end_is_named_and_nothing_is_undone_meanwhile() {
    let (_temp, state, work) = directories();
    let mut tool = killed_at_work(&state, &work, "exec sleep 60");
    let cleaned = clean(&state, false).expect("cleaned");
    let said = format!("{:?}", cleaned.unreadable);
    assert!(cleaned.undone.is_empty() && said.contains(&format!("sleep (process {})", tool.id())), "{said}");
    assert!(work.join("iotax-d").exists());
    tool.kill().expect("killed");
    tool.wait().expect("ended");
    assert_eq!(clean(&state, false).expect("cleaned").undone.len(), 2);
}

#[test]
fn what_is_no_log_of_iotaxs_is_left_alone_at_once() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let (_temp, state, work) = directories();
    drop(UndoLog::create(&state, "t").expect("undo log"));
    fs::remove_file(state.join("t.jsonl")).expect("removed");
    mknodat(CWD, state.join("fifo.jsonl"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    fs::create_dir(state.join("dir.jsonl")).expect("made");
    std::os::unix::fs::symlink(work.join("elsewhere"), state.join("link.jsonl")).expect("linked");
    let forged = |name: &str, effect: &str| {
        let line = format!("{{\"record\":{{\"id\":0,\"effect\":{effect}}}}}\n");
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(state.join(name));
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("written");
    };
    forged("marker.jsonl", r#"{"guest":{"marker":""}}"#);
    forged("path.jsonl", r#"{"file":{"path":"/srv/../etc/passwd"}}"#);
    let cleaned = clean(&state, false).expect("readable");
    let said: Vec<String> = cleaned.unreadable.iter().map(ToString::to_string).collect();
    assert_eq!((said.len(), cleaned.undone.len()), (5, 0), "{said:?}");
    assert!(said.iter().any(|words| words.contains("is not a guest's marker")), "{said:?}");
    assert!(leftovers(&state).expect("readable").is_empty());
}
