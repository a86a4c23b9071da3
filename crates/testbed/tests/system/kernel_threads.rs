use std::path::Path;
use std::time::Instant;

use iotax_testbed::monitor::kernel::{KernelThreads, between, total_ns};
use iotax_testkit::tree;
use tempfile::TempDir;

const DISKSTATS: &str = "254 0 vda 1 1 1 1\n254 16 vdb 1 1 1 1\n253 1 dm-1 1 1 1 1\n7 0 loop0 1 1 1 1";

/// Adds a thread or process: start time in ticks, and nanoseconds on a CPU, all in the kernel.
fn put(root: &TempDir, pid: u32, name: &str, started: u64, run_ns: u64) {
    let kernel = !["bash", "(sd-pam)", "jbd2/vda-8)"].contains(&name);
    let flags: u64 = if kernel { 0x0020_8040 } else { 0x0040_0100 };
    let ticks = run_ns / 10_000_000;
    let stat = format!("{pid} ({name}) S 2 0 0 0 -1 {flags} 0 0 0 0 0 {ticks} 0 0 20 0 1 0 {started} 0 0");
    tree::write(root.path(), &format!("proc/{pid}/stat"), &stat);
    tree::write(root.path(), &format!("proc/{pid}/schedstat"), &format!("{run_ns} 5 7"));
}

/// Returns the CPU time in nanoseconds, by name, that `change` adds on a machine with these threads.
fn used(
    threads: &[(u32, &str)],
    disks: &[&str],
    filesystems: &[&str],
    change: impl FnOnce(&TempDir),
) -> Vec<(String, u64)> {
    let root = tempfile::tempdir().expect("a directory");
    tree::write(root.path(), "proc/diskstats", DISKSTATS);
    tree::write(root.path(), "proc/meminfo", "");
    for (pid, name) in threads {
        put(&root, *pid, name, 9, 1_000);
    }
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut threads = KernelThreads::new(root.path(), &owned(disks), &owned(filesystems));
    let before = threads.read();
    change(&root);
    let after = threads.read();
    between(&before, &after).into_iter().map(|(name, time)| (name, time.total_ns())).collect()
}

fn is(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(name, ns)| ((*name).to_owned(), *ns)).collect()
}

#[test]
fn a_thread_belongs_to_the_device_that_its_name_contains() {
    let threads = [
        (20, "loop0"),
        (21, "jbd2/vda-8"),
        (22, "xfsaild/dm-1"),
        (23, "jbd2/vda1-8"),
        (24, "xfsaild/dm-10"),
        (25, "dmcrypt_write/2"),
        (26, "kdmflush/253:1"),
        (27, "ksoftirqd/0"),
        (28, "bash"),
        // A program can have any name.
        (29, "jbd2/vda-8)"),
    ];
    let all = |root: &TempDir| threads.iter().for_each(|(pid, name)| put(root, *pid, name, 9, 1_500));
    assert_eq!(used(&threads, &["vda", "loop0"], &[], all), is(&[("jbd2/vda-8", 500), ("loop0", 500)]));
    assert_eq!(
        used(&threads, &["vdb", "dm-1"], &[], all),
        is(&[("kdmflush/253:1", 500), ("xfsaild/dm-1", 500)])
    );
    assert_eq!(used(&threads, &[], &[], all), is(&[]));
}

#[test]
fn kworkers_count_by_what_they_did_and_those_of_high_priority_together() {
    let threads = [
        (20, "kworker/u8:1-loop0"),
        (21, "kworker/u8:2-events_unbound"),
        (22, "kworker/0:1H-kblockd"),
        (23, "kworker/1:0H"),
        (24, "kworker/0:1-events"),
        (25, "kworker/1:2-btrfs-endio"),
        (26, "kworker/u8:3-flush-254:0"),
    ];
    let change = |root: &TempDir| {
        put(root, 20, "kworker/u8:1+loop0", 9, 1_100);
        // A worker of another device serves this one now; another worker is new.
        put(root, 21, "kworker/u8:2-loop0", 9, 1_020);
        put(root, 30, "kworker/u8:4-loop0", 50, 3);
        put(root, 22, "kworker/0:1H+kblockd", 9, 1_007);
        put(root, 23, "kworker/1:0H", 9, 1_001);
        put(root, 24, "kworker/0:1-events", 9, 9_000);
        put(root, 25, "kworker/1:2-btrfs-endio", 9, 1_040);
        put(root, 26, "kworker/u8:3-flush-254:0", 9, 1_000);
    };
    assert_eq!(
        used(&threads, &["vda", "loop0"], &["btrfs"], change),
        is(&[
            ("kworker", 8),
            ("kworker/btrfs-endio", 40),
            ("kworker/flush-254:0", 0),
            ("kworker/loop0", 123)
        ])
    );
    assert_eq!(used(&threads, &["vdb"], &["btr"], change), is(&[("kworker", 8)]));
}

#[test]
fn of_a_thread_that_ended_nothing_is_said() {
    let threads = [(20, "jbd2/vda-8"), (21, "kworker/0:1H-kblockd"), (22, "kworker/1:0H")];
    let change = |root: &TempDir| {
        // A new thread with the same name and id.
        put(root, 20, "jbd2/vda-8", 77, 5_000);
        std::fs::remove_dir_all(root.path().join("proc/21")).expect("gone");
        put(root, 22, "kworker/1:0H", 9, 2_000);
    };
    assert_eq!(used(&threads, &["vda"], &[], change), is(&[]));
}

#[test]
fn the_live_machine_has_workers() {
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() != "kthreadd") {
        iotax_testkit::skip!("the kernel's threads are not to be seen in this container");
    }
    let mut threads = KernelThreads::new(Path::new("/"), &[], &[]);
    let begun = Instant::now();
    let first = threads.read();
    let (found, again) = (begun.elapsed(), Instant::now());
    let second = threads.read();
    println!("the first reading took {found:?}, the next one {:?}", again.elapsed());
    assert!(between(&first, &second).contains_key("kworker"), "{first:?}");
}

#[test]
fn threads_without_a_devices_name_count_among_all() {
    let root = tempfile::tempdir().expect("a directory");
    tree::write(root.path(), "proc/diskstats", DISKSTATS);
    let threads =
        [(20, "loop0"), (21, "kswapd0"), (22, "z_wr_iss"), (23, "kworker/0:1-nfsiod"), (24, "bash")];
    let mut kernel = KernelThreads::new(root.path(), &["loop0".to_owned()], &[]);
    assert_eq!(total_ns(&kernel.read(), &kernel.read()), None);
    threads.iter().for_each(|(pid, name)| put(&root, *pid, name, 9, 1_000));
    let before = kernel.read();
    threads.iter().for_each(|(pid, name)| put(&root, *pid, name, 9, 3_000));
    let after = kernel.read();
    assert_eq!(total_ns(&before, &after), Some(8_000), "all but the program");
    assert_eq!(between(&before, &after).len(), 1);
}
