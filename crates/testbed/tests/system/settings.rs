use std::fs;
use std::path::Path;

use iotax_model::Plan;
use iotax_model::exit::Exit;
use iotax_model::target::{Setting, TargetSpec};
use iotax_testbed::settings::{KernelSettings, changeable, devices, offered};
use iotax_testbed::undo::UndoLog;

use iotax_testkit::tree;

/// A disk with a partition and LVM on it, a multipath map over two disks, and a loop device over a file on LVM.
const SETTINGS: &str = "
proc/self/mountinfo = 1 0 8:1 / / rw - ext4 /dev/sda1 rw\\n2 1 253:0 / /lv rw - ext4 /dev/mapper/vg-lv rw\\n3 1 253:1 / /mp rw - xfs /dev/mapper/lun rw\\n4 1 7:0 / /looped rw - ext4 /dev/loop0 rw\\n5 1 0:30 / /tmp rw - tmpfs tmpfs rw
proc/sys/vm/dirty_ratio = 20
proc/sys/vm/dirty_bytes = 0
sys/dev/block/8:1 -> ../../devices/ata1/block/sda/sda1
sys/dev/block/253:0 -> ../../devices/virtual/block/dm-0
sys/dev/block/253:1 -> ../../devices/virtual/block/dm-1
sys/dev/block/7:0 -> ../../devices/virtual/block/loop0
sys/class/block/sda -> ../../devices/ata1/block/sda
sys/class/block/sda1 -> ../../devices/ata1/block/sda/sda1
sys/class/block/sdb -> ../../devices/ata2/block/sdb
sys/class/block/sdc -> ../../devices/ata3/block/sdc
sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0
sys/class/block/dm-1 -> ../../devices/virtual/block/dm-1
sys/class/block/loop0 -> ../../devices/virtual/block/loop0
sys/devices/ata1/block/sda/mq/0/
sys/devices/ata1/block/sda/diskseq = 1
sys/devices/ata1/block/sda/queue/scheduler = none [mq-deadline] kyber
sys/devices/ata1/block/sda/queue/nr_requests = 256
sys/devices/ata1/block/sda/queue/wbt_lat_usec = 75000
sys/devices/ata1/block/sda/queue/read_ahead_kb = 128
sys/devices/ata1/block/sda/queue/max_sectors_kb = 1280
sys/devices/ata1/block/sda/queue/max_hw_sectors_kb = 32767
sys/devices/ata1/block/sda/sda1/partition = 1
sys/devices/ata2/block/sdb/mq/0/
sys/devices/ata3/block/sdc/mq/0/
sys/devices/virtual/block/dm-0/dm/name = vg-lv
sys/devices/virtual/block/dm-0/slaves/sda1 -> ../../../../ata1/block/sda/sda1
sys/devices/virtual/block/dm-0/queue/read_ahead_kb = 4096
sys/devices/virtual/block/dm-1/dm/name = lun
sys/devices/virtual/block/dm-1/mq/0/
sys/devices/virtual/block/dm-1/slaves/sdb -> ../../../../ata2/block/sdb
sys/devices/virtual/block/dm-1/slaves/sdc -> ../../../../ata3/block/sdc
sys/devices/virtual/block/loop0/mq/0/
sys/devices/virtual/block/loop0/loop/backing_file = /lv/image
home/
lv/image = four
mp/
looped/
tmp/
";

const SCHEDULER: &str = "sys/devices/ata1/block/sda/queue/scheduler";
const BATCH: &str = "sys/devices/ata1/block/sda/queue/iosched/fifo_batch";
const DEPTH: &str = "sys/devices/ata1/block/sda/queue/nr_requests";

fn plan(targets: &[&str]) -> Plan {
    let targets =
        targets.iter().zip('a'..).map(|(keys, name)| format!("[[target]]\nname = '{name}'\n{keys}\n"));
    let text = targets.collect::<String>() + "[[workload]]\nrw = 'read'\n";
    Plan::from_toml(&text).expect(&text)
}

fn target(dir: &str) -> TargetSpec {
    plan(&[&format!("file = {{ dir = '{dir}' }}")]).targets.remove(0)
}

#[test]
fn a_setting_belongs_to_the_uppermost_request_queue_and_read_ahead_to_the_top() {
    let root = tree::build(SETTINGS);
    for (dir, queues, ahead) in [
        ("/home", &["sda"][..], &["sda"][..]),
        ("/lv", &["sda"], &["dm-0"]),
        ("/mp", &["dm-1"], &["dm-1"]),
        ("/looped", &["loop0"], &["loop0"]),
        ("/tmp", &[], &[]),
    ] {
        assert_eq!(devices(root.path(), &target(dir), Setting::Scheduler), queues, "{dir}");
        assert_eq!(devices(root.path(), &target(dir), Setting::ReadAheadKb), ahead, "{dir}");
    }
    assert_eq!(offered(root.path(), &target("/lv"), Setting::Scheduler), ["none", "mq-deadline", "kyber"]);
    let known = changeable(root.path(), &target("/home"));
    assert!(known.contains(&(Setting::Scheduler, "mq-deadline".into())), "{known:?}");
    assert!(known.contains(&(Setting::DirtyRatio, "20".into())), "{known:?}");
    assert!(!known.iter().any(|(setting, _)| *setting == Setting::Nomerges), "not there: {known:?}");
}

#[test]
fn what_cannot_be_set_is_refused_with_what_is_accepted() {
    let root = tree::build(SETTINGS);
    let file = "file = { dir = '/home' }\n";
    for (keys, exit, words) in [
        ("settings = { scheduler = 'bfq' }", Exit::Usage, "offers none, mq-deadline, kyber; load"),
        ("settings = { nomerges = 2 }", Exit::Environment, "queue/nomerges"),
        ("settings = { max_sectors_kb = 65536 }", Exit::Usage, "max_hw_sectors_kb is 32767"),
        ("settings = { dirty_expire_centisecs = 5 }", Exit::Environment, "no such setting"),
        ("settings = { read_ahead_kb = 4 }\nguest = {}", Exit::Usage, "QEMU opens its image once"),
        ("settings = { read_ahead_kb = 4 }\nloop = {}", Exit::Usage, "iotax makes the device"),
    ] {
        let refusal = KernelSettings::find(root.path(), &plan(&[&format!("{file}{keys}")])).expect_err(keys);
        assert_eq!(refusal.exit, exit, "{refusal}");
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    let memory = plan(&["file = { dir = '/tmp' }\nsettings = { nr_requests = 8 }"]);
    let refusal = KernelSettings::find(root.path(), &memory).expect_err("no device").to_string();
    assert!(refusal.contains("no block device is known below /tmp"), "{refusal}");
}

/// Every file below a directory with its bytes.
fn bytes(root: &Path) -> Vec<Vec<u8>> {
    [SCHEDULER, DEPTH, "proc/sys/vm/dirty_ratio", "proc/sys/vm/dirty_bytes"]
        .map(|path| fs::read(root.join(path)).expect("there"))
        .into()
}

#[test]
fn each_target_has_its_settings_and_all_is_put_back() {
    let root = tree::build(&SETTINGS.replace("none [mq-deadline] kyber", "none"));
    let before = bytes(root.path());
    let home = "file = { dir = '/home' }\n";
    let plan = plan(&[
        home,
        &format!("{home}settings = {{ nr_requests = 64 }}"),
        &format!("{home}settings = {{ nr_requests = 8, dirty_ratio = 5 }}"),
    ]);
    let state = tempfile::tempdir().expect("a directory");
    let mut undo_log = UndoLog::create(state.path(), "run").expect("a log");
    let mut settings = KernelSettings::find(root.path(), &plan).expect("found");
    settings.record(&mut undo_log).expect("recorded");
    let log = fs::read_to_string(state.path().join("run.jsonl")).expect("read");
    assert_eq!(log.lines().count(), 3, "each file once: {log}");

    let now = |path: &str| fs::read_to_string(root.path().join(path)).expect("there");
    for (target, depth, dirty) in [(0, "256\n", "20\n"), (1, "64\n", "20\n"), (2, "8\n", "5\n")] {
        settings.apply(target, &mut undo_log).expect("applied");
        assert_eq!((now(DEPTH).as_str(), now("proc/sys/vm/dirty_ratio").as_str()), (depth, dirty));
        settings.restore(&mut undo_log).expect("restored");
        assert_eq!(bytes(root.path()), before, "{target}");
    }

    // Somebody else's value is neither taken for the former one nor overwritten.
    fs::write(root.path().join(DEPTH), "32\n").expect("written");
    // Not even one that the run itself tries, nor later.
    for value in ["32\n", "64\n", "256\n"] {
        fs::write(root.path().join(DEPTH), value).expect("written");
        let refused = settings.try_out(1, &mut undo_log).expect_err("changed");
        let reason = std::error::Error::source(&refused).expect("a reason").to_string();
        assert!(reason.contains("somebody else changed it"), "{refused}: {reason}");
        assert_eq!(now(DEPTH), value);
    }
    fs::write(root.path().join(DEPTH), "64\n").expect("written");
    let (_, failures) = undo_log.undo_all();
    assert_eq!((now(DEPTH).as_str(), failures.len()), ("64\n", 0), "{failures:?}");
}

#[test]
fn what_somebody_changes_during_a_measurement_is_left_and_the_rest_put_back() {
    let root = tree::build(&SETTINGS.replace("none [mq-deadline] kyber", "none"));
    let home = "file = { dir = '/home' }\n";
    let plan = plan(&[
        home,
        &format!("{home}settings = {{ nr_requests = 64, dirty_ratio = 5 }}"),
        &format!("{home}settings = {{ nr_requests = 8 }}"),
    ]);
    let state = tempfile::tempdir().expect("a directory");
    let mut undo_log = UndoLog::create(state.path(), "run").expect("a log");
    let mut settings = KernelSettings::find(root.path(), &plan).expect("found");
    settings.record(&mut undo_log).expect("recorded");
    let now = |path: &str| fs::read_to_string(root.path().join(path)).expect("there");
    settings.apply(1, &mut undo_log).expect("applied");
    // A value that another target of the run has.
    fs::write(root.path().join(DEPTH), "8\n").expect("written");
    let failure = settings.restore(&mut undo_log).expect_err("somebody else's");
    let reason = std::error::Error::source(&failure).expect("a reason").to_string();
    assert!(reason.contains("somebody else set it to 8") && reason.contains("it was 256"), "{reason}");
    let both = || (now(DEPTH), now("proc/sys/vm/dirty_ratio"));
    assert_eq!(both(), ("8\n".into(), "20\n".into()));
    undo_log.undo_all();
    assert_eq!(both(), ("8\n".into(), "20\n".into()));
}

#[test]
fn what_the_kernel_changes_along_is_put_back_too() {
    let root = tree::build(&SETTINGS.replace("none [mq-deadline] kyber", "none"));
    tree::write(root.path(), BATCH, "7");
    let plan = plan(&["file = { dir = '/home' }\nsettings = { scheduler = 'none' }"]);
    let state = tempfile::tempdir().expect("a directory");
    let mut undo_log = UndoLog::create(state.path(), "run").expect("a log");
    let mut settings = KernelSettings::find(root.path(), &plan).expect("found");
    settings.record(&mut undo_log).expect("recorded");
    settings.apply(0, &mut undo_log).expect("applied");
    // A scheduler brings its own depth, and the one before comes back with defaults.
    fs::write(root.path().join(DEPTH), "31\n").expect("written");
    fs::write(root.path().join(BATCH), "16\n").expect("written");
    let (undone, failures) = undo_log.undo_all();
    assert_eq!((undone.len(), failures.len()), (4, 0), "{failures:?}");
    assert_eq!(fs::read_to_string(root.path().join(DEPTH)).expect("read"), "256\n");
    assert_eq!(fs::read_to_string(root.path().join(BATCH)).expect("read"), "7\n");
}

#[test]
fn a_setting_is_one_runs_at_a_time() {
    let root = tree::build(&SETTINGS.replace("none [mq-deadline] kyber", "none"));
    let plan = plan(&["file = { dir = '/home' }\nsettings = { nr_requests = 64 }"]);
    let found = || KernelSettings::find(root.path(), &plan).expect("found");
    let (mut first, mut second) = (found(), found());
    first.claim().expect("free");
    let refused = second.claim().expect_err("the first one has it");
    let reason = std::error::Error::source(&refused).expect("a reason").to_string();
    assert!(
        refused.to_string().ends_with("nr_requests") && reason.contains("another iotax"),
        "{refused}: {reason}"
    );
    drop(first);
    // Read while the first run tried another value.
    fs::write(root.path().join(DEPTH), "8\n").expect("written");
    assert!(second.claim().is_err(), "its former value is not the former one");
    drop(second);
    fs::write(root.path().join(DEPTH), "256\n").expect("written");
    found().claim().expect("free again");
}
