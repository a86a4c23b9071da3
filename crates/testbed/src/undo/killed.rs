//! Tests that kill the process at every line of an undo log, both while it creates effects and while it cleans up. The killed process is this
//! test program, started again, which takes milliseconds.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use super::fault::VARIABLE;
use super::*;
use crate::kernel_file::KernelFile;

/// Environment variable with the directory in which the started test program works.
const TEST_DIR: &str = "IOTAX_TEST_PLACE";
const SIGKILL: i32 = 9;
/// A fault that never occurs, because no log has that many lines.
const NEVER: &str = "kill@1000000";

/// Path of a kernel setting, below the test's directory.
const SETTING: &str = "sys/class/block/sda/queue/nr_requests";

/// Returns the root below which the undo log finds /sys and /proc: the test's directory in a started test program, otherwise `/`.
pub(super) fn root() -> PathBuf {
    std::env::var_os(TEST_DIR).map_or_else(|| "/".into(), PathBuf::from)
}

/// Changes a setting and creates nested files and directories, then undoes everything. Runs in the started test program.
#[test]
#[ignore = "started by killed_at_any_line_nothing_is_left, which has it killed"]
fn stand_in_for_a_run() {
    let test_dir = PathBuf::from(std::env::var_os(TEST_DIR).expect("a place"));
    let (dir, tree) = (test_dir.join("work/iotax-d"), test_dir.join("work/iotax-t"));
    let mut undo_log = UndoLog::create(&test_dir.join("state"), "run").expect("an undo log");
    let setting = KernelFile::read(&test_dir.join(SETTING)).expect("read");
    let setting = KernelFile { values: vec!["64".into()], ..setting };
    undo_log.record(Effect::Setting(Box::new(setting.clone()))).expect("recorded");
    setting.set("64").expect("set");
    undo_log.make_file(&test_dir.join("work/new")).expect("made");
    let dir_entry = undo_log.make_directory(&dir).expect("made");
    let (image, mut file) = undo_log.make_file(&dir.join("image")).expect("made");
    file.write_all(b"ours").expect("written");
    undo_log.make_tree(&tree).expect("made");
    fs::write(tree.join("socket"), "ours").expect("written");
    // Some entries are undone before the end, and created again.
    undo_log.undo(image).expect("undone");
    undo_log.undo(dir_entry).expect("undone");
    undo_log.make_directory(&dir).expect("made");
    let (_, failed) = undo_log.undo_all();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
#[ignore = "started by killed_at_any_line_nothing_is_left, which has it killed"]
fn stand_in_for_a_clean() {
    let test_dir = PathBuf::from(std::env::var_os(TEST_DIR).expect("a place"));
    let cleaned = clean(&test_dir.join("state"), false).expect("cleaned");
    assert!(cleaned.failed.is_empty() && cleaned.unreadable.is_empty(), "{cleaned:?}");
}

/// Starts this test program to run one function in the directory `test_dir`, with a fault. Returns the exit status; panics if the function
/// fails without being killed.
fn stand_in(name: &str, test_dir: &Path, fault: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--ignored", "--exact", &format!("undo::killed::stand_in_for_a_{name}")]);
    command.env(TEST_DIR, test_dir).env(VARIABLE, fault);
    let output = command.output().expect("it starts");
    let killed = output.status.signal() == Some(SIGKILL);
    assert!(
        killed || output.status.success(),
        "{name}, {fault}: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    output.status
}

/// Creates a directory with a file of the user and a kernel setting.
fn make_test_dir() -> tempfile::TempDir {
    let test_dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(test_dir.path().join("work")).expect("made");
    fs::write(test_dir.path().join("work/note"), "the user's").expect("written");
    fs::create_dir_all(test_dir.path().join(SETTING).parent().expect("has one")).expect("made");
    fs::write(test_dir.path().join(SETTING), "256\n").expect("written");
    test_dir
}

fn assert_nothing_left(test_dir: &Path, after: &str) {
    let names = |dir: &str| -> Vec<_> {
        fs::read_dir(test_dir.join(dir))
            .expect("there")
            .map(|entry| entry.expect("read").file_name())
            .collect()
    };
    assert_eq!((names("work"), names("state")), (vec!["note".into()], vec![]), "{after}");
    assert_eq!(fs::read_to_string(test_dir.join(SETTING)).expect("there"), "256\n", "{after}");
}

#[test]
fn killed_at_any_line_nothing_is_left() {
    for kind in ["kill", "kill-after"] {
        let mut lines = 0;
        let test_dir = make_test_dir();
        while stand_in("run", test_dir.path(), &format!("{kind}@{}", lines + 1)).signal().is_some() {
            lines += 1;
            // The clean-up is killed as well, at each of its own lines in turn.
            let of_clean = format!("kill@{}", 1 + lines % 4);
            stand_in("clean", test_dir.path(), &of_clean);
            assert!(stand_in("clean", test_dir.path(), NEVER).success());
            assert_nothing_left(test_dir.path(), &format!("{kind}@{lines}, then {of_clean}"));
        }
        assert_nothing_left(test_dir.path(), "the end");
        // The log has 22 lines: one record for the setting, two for each of the five files and directories (temporary and final name), and
        // one line for the undoing of each of these 11.
        assert_eq!(lines, 22, "{kind}");
    }
}
