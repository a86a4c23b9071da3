use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use iotax_model::record::{CpuTime, DiskActivity, DiskFlushes, HostActivity, HostCpu, NicActivity, Pressure};
use iotax_testbed::monitor::{GuestThreads, Monitor, MonitorSnapshot, delta};
use iotax_testbed::stack;
use iotax_testkit::tree;
use tempfile::TempDir;

/// A mirror with one leg in an older kernel's format, a device with an in-flight request, a guest with three threads.
const BEFORE: &str = "\
proc/diskstats = 8 0 sda 100 10 1000 200 50 5 400 100 3 250 300\\n254 0 vda 1000 1 8000 4000 2000 2 16000 6000 0 9000 10000 7 0 70 7 9 9\\n254 1 vda1 5 5 5 5
proc/stat = cpu  1000 10 500 9000 40 3 7 20 100 1\\ncpu0 1 1 1 1 1 1 1 1 1 1\\nintr 5
proc/pressure/io = some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500
proc/pressure/cpu = some avg10=0.00 avg60=0.00 avg300=0.00 total=10
proc/pressure/memory = some avg10=0.00 avg60=0.00 avg300=0.00 total=0\\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0
";

const AFTER: &str = "\
proc/diskstats = 8 0 sda 100 10 1000 200 50 5 400 100 3 250 300\\n254 0 vda 1300 4 10400 4300 2100 7 16800 6100 0 9500 11000 9 0 90 9 9 9
proc/stat = cpu  1100 15 550 9100 45 4 9 22 130 3\\ncpu0 1 1 1 1 1 1 1 1 1 1\\nintr 5
proc/pressure/io = some avg10=0.00 avg60=0.00 avg300=0.00 total=4000\\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=900
proc/pressure/cpu = some avg10=0.00 avg60=0.00 avg300=0.00 total=17
proc/pressure/memory = some avg10=0.00 avg60=0.00 avg300=0.00 total=2\\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0
";

const TICK: u64 = 10_000_000;

fn disks(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn change(root: &TempDir, recorded: &str) {
    for line in recorded.lines() {
        let (path, content) = line.split_once(" = ").expect("a file");
        tree::write(root.path(), path, &content.replace("\\n", "\n"));
    }
}

/// Writes a thread's stat and schedstat.
fn thread(root: &TempDir, tid: u32, started: u64, ticks: (u64, u64), run_ns: u64, runs: u64) {
    let task = format!("proc/70/task/{tid}");
    let (user, system) = ticks;
    let stat = format!(
        "{tid} (CPU 0/KVM) x) S 1 70 70 0 -1 4194560 1 2 3 4 {user} {system} 9 9 20 0 3 0 {started} 5 6"
    );
    tree::write(root.path(), &format!("{task}/stat"), &stat);
    tree::write(root.path(), &format!("{task}/schedstat"), &format!("{run_ns} 55 {runs}"));
}

/// Writes the process's own stat, in ticks.
fn process(root: &TempDir, user: u64, system: u64) {
    let stat = format!("70 (qemu) S 1 70 70 0 -1 4194560 1 2 3 4 {user} {system} 9 9 20 0 3 0 5 5 6");
    tree::write(root.path(), "proc/70/stat", &stat);
}

fn guest() -> GuestThreads {
    GuestThreads {
        pid: 70,
        roles: [("vcpu".to_owned(), vec![71, 72]), ("iothread".to_owned(), vec![73])].into(),
        server: None,
    }
}

/// Returns the activity between two snapshots two seconds apart; the window began one second before the first.
fn over(root: &TempDir, monitor: &mut Monitor, change: impl FnOnce(&TempDir)) -> HostActivity {
    let start = Instant::now();
    let first = monitor.snapshot_at(start + Duration::from_secs(1));
    change(root);
    let second = monitor.snapshot_at(start + Duration::from_secs(3));
    delta(&first, &second, start)
}

fn watch(names: &[&str], to: &str) -> HostActivity {
    let root = tree::build(BEFORE);
    let mut monitor = Monitor::new(root.path(), disks(names), Vec::new());
    over(&root, &mut monitor, |root| change(root, to))
}

fn cpu(user_ns: u64, system_ns: u64) -> CpuTime {
    CpuTime { user_ns, system_ns }
}

fn role(name: &str, time: CpuTime) -> (String, CpuTime) {
    (name.to_owned(), time)
}

#[test]
fn flushes_are_counted_where_the_kernel_counts_them() {
    let line = |name: &str, flushes: u64| {
        format!("7 0 {name} 1 0 1 1 1 0 1 1 0 1 1 4 5 6 7 {flushes} {}\n", flushes * 3)
    };
    let diskstats = |flushes: u64| {
        let old = "8 0 old 1 0 1 1 1 0 1 1 0 1 1 4 5 6 7\n";
        let named = ["loop0", "fua", "through", "dm-0", "unread"].map(|name| line(name, flushes));
        named.concat() + old
    };
    let root = tree::build("");
    for (name, cache, fua) in [
        ("loop0", "write back", "0"),
        ("fua", "write back", "1"),
        ("through", "write through", "0"),
        ("unread", "?", "?"),
        ("old", "write back", "0"),
    ] {
        tree::write(root.path(), &format!("sys/block/{name}/mq/0/nr_tags"), "64\n");
        tree::write(root.path(), &format!("sys/block/{name}/queue/write_cache"), &format!("{cache}\n"));
        tree::write(root.path(), &format!("sys/block/{name}/queue/fua"), &format!("{fua}\n"));
    }
    // A device without request queues, as of the device mapper.
    tree::write(root.path(), "sys/block/dm-0/queue/write_cache", "write back\n");
    tree::write(root.path(), "proc/diskstats", &diskstats(10));
    let names = disks(&["loop0", "fua", "through", "dm-0", "unread", "old"]);
    let mut monitor = Monitor::new(root.path(), names, Vec::new());
    let seen = over(&root, &mut monitor, |root| tree::write(root.path(), "proc/diskstats", &diskstats(17)));
    let known = |volatile_cache, fua| {
        Some(DiskFlushes { done: 7, wait_ns: 21_000_000, volatile_cache, fua, fua_writes: None })
    };
    let found: BTreeMap<&str, Option<DiskFlushes>> =
        seen.disks.iter().map(|(name, disk)| (name.as_str(), disk.flushes)).collect();
    let expected = [
        ("loop0", known(Some(true), Some(false))),
        ("fua", known(Some(true), Some(true))),
        ("through", known(Some(false), Some(false))),
        ("dm-0", None),
        ("unread", known(None, None)),
        ("old", None),
    ];
    assert_eq!(found, BTreeMap::from(expected));
}

#[test]
fn known_counters_give_exact_figures() {
    let idle = DiskActivity { read_wait_ns: Some(0), write_wait_ns: Some(0), ..DiskActivity::default() };
    let vda = DiskActivity {
        reads: 300,
        read_bytes: 2400 * 512,
        read_merges: 3,
        writes: 100,
        write_bytes: 800 * 512,
        write_merges: 5,
        busy: 0.25,
        mean_wait_ns: Some(1e6),
        read_wait_ns: Some(300_000_000),
        write_wait_ns: Some(100_000_000),
        flushes: None,
    };
    assert_eq!(
        watch(&["vda", "sda", "vda1", "sdx"], AFTER),
        HostActivity {
            at_ns: 3_000_000_000,
            duration_ns: 2_000_000_000,
            disks: [("sda".to_owned(), idle), ("vda".to_owned(), vda)].into(),
            cpu: Some(HostCpu {
                user_ns: 105 * TICK,
                system_ns: 50 * TICK,
                irq_ns: 3 * TICK,
                iowait_ns: Some(5 * TICK),
                idle_ns: 100 * TICK,
                steal_ns: 2 * TICK,
                guest_ns: 32 * TICK,
            }),
            pressure: Some(Pressure {
                io_some_ns: 3_000_000,
                io_full_ns: 400_000,
                cpu_some_ns: 7_000,
                memory_some_ns: 2_000,
            }),
            ..HostActivity::default()
        }
    );
}

#[test]
fn a_counter_that_ran_backwards_makes_its_part_absent_and_no_other() {
    // Each of the nine counters of vda in turn, including wrapped 32-bit times.
    for (counter, smaller) in [
        ("1300 4", "999 4"),
        ("1300 4", "1300 0"),
        ("10400", "7999"),
        ("4300", "12"),
        ("2100", "1999"),
        ("7 16800", "1 16800"),
        ("16800", "15999"),
        ("6100", "12"),
        ("9500", "12"),
    ] {
        let to = AFTER.replacen(counter, smaller, 1);
        assert_ne!(to, AFTER, "{counter}");
        let activity = watch(&["vda", "sda"], &to);
        assert_eq!(activity.disks.keys().collect::<Vec<_>>(), ["sda"], "{counter} -> {smaller}");
        assert!(activity.cpu.is_some() && activity.pressure.is_some());
    }
    let activity = watch(&["vda"], &AFTER.replace("cpu  1100", "cpu  900"));
    assert!(activity.cpu.is_none() && activity.pressure.is_some() && activity.disks.len() == 1);
    let activity = watch(&["vda"], &AFTER.replace("total=900", "total=499"));
    assert!(activity.pressure.is_none() && activity.cpu.is_some());
}

#[test]
fn iowait_may_fall_without_costing_the_rest() {
    let cpu = watch(&[], &AFTER.replace(" 9100 45 ", " 9100 39 ")).cpu.expect("the rest is sound");
    assert_eq!((cpu.iowait_ns, cpu.user_ns, cpu.idle_ns), (None, 105 * TICK, 100 * TICK));
}

#[test]
fn what_the_kernel_does_not_have_is_absent() {
    let root = tree::build("proc/stat = cpu  1 2 3 4");
    let mut monitor = Monitor::new(root.path(), disks(&["vda"]), vec![guest()]);
    let activity = over(&root, &mut monitor, |_| ());
    let nothing =
        HostActivity { at_ns: 3_000_000_000, duration_ns: 2_000_000_000, ..HostActivity::default() };
    assert_eq!(activity, nothing);

    let root = tree::build(BEFORE);
    fs::remove_file(root.path().join("proc/pressure/memory")).expect("removed");
    let mut monitor = Monitor::new(root.path(), disks(&["vda"]), Vec::new());
    let activity = over(&root, &mut monitor, |root| change(root, AFTER));
    assert!(
        activity.pressure.is_none() && activity.cpu.is_some() && activity.disks.len() == 1,
        "{activity:?}"
    );
}

#[test]
fn of_several_guests_the_roles_are_summed_and_what_one_does_not_tell_is_absent() {
    let root = tree::build(BEFORE);
    process(&root, 10, 10);
    thread(&root, 71, 9, (5, 5), 100 * TICK, 7);
    thread(&root, 73, 9, (5, 5), 10 * TICK, 7);
    let mut monitor = Monitor::new(root.path(), Vec::new(), vec![guest(), guest()]);
    let activity = over(&root, &mut monitor, |root| {
        process(root, 13, 11);
        thread(root, 71, 9, (7, 5), 102 * TICK, 8);
        // Its counter runs backwards.
        thread(root, 73, 9, (5, 5), 9 * TICK, 8);
    });
    assert_eq!(activity.guest_threads, [role("vcpu", cpu(4 * TICK, 0))].into());
}

#[test]
fn a_disk_that_vanished_is_absent() {
    let activity = watch(&["vda", "sda"], &AFTER.replace(" 0 vda ", " 0 vdb "));
    assert_eq!(activity.disks.keys().collect::<Vec<_>>(), ["sda"]);
}

#[test]
fn a_device_is_never_busy_for_longer_than_the_window() {
    let activity = watch(&["vda"], &AFTER.replace(" 9500 ", " 11100 "));
    assert_eq!(activity.disks["vda"].busy.to_bits(), 1_f64.to_bits());
}

#[test]
fn a_window_of_no_length_has_no_shares() {
    let root = tree::build(BEFORE);
    let mut monitor = Monitor::new(root.path(), disks(&["vda"]), Vec::new());
    let now = Instant::now();
    let (first, second) = (monitor.snapshot_at(now), monitor.snapshot_at(now));
    assert!(delta(&first, &second, now).disks.is_empty());
}

#[test]
fn threads_are_summed_by_role() {
    let root = tree::build("proc/70/");
    thread(&root, 70, 5, (100, 100), 2_000_000_000, 9);
    thread(&root, 71, 5, (0, 0), 1_000, 1);
    thread(&root, 72, 5, (50, 50), 1_000_000_000, 9);
    thread(&root, 73, 5, (10, 30), 400_000_000, 9);
    let mut monitor = Monitor::new(root.path(), Vec::new(), vec![guest()]);
    let activity = over(&root, &mut monitor, |root| {
        // A quarter of the ticks in the kernel splits the exact total.
        thread(root, 71, 5, (30, 10), 400_001_004, 20);
        // Below a tick, split by the thread's lifetime: half and half.
        thread(root, 72, 5, (50, 50), 1_000_003_000, 10);
        // 73 did not run. The main thread: kernel only.
        thread(root, 70, 5, (100, 103), 2_030_000_000, 10);
        // A new thread counts in full.
        thread(root, 90, 7, (0, 2), 17_000_000, 3);
    });
    assert_eq!(
        activity.guest_threads,
        [
            role("vcpu", cpu(300_000_003 + 1_500, 100_000_001 + 1_500)),
            role("iothread", cpu(0, 0)),
            role("main", cpu(0, 30_000_000)),
            role("worker", cpu(0, 17_000_000)),
        ]
        .into()
    );
}

#[test]
fn threads_of_a_server_are_one_role_and_ended_ones_too() {
    let root = tree::build("proc/70/");
    process(&root, 1000, 1000);
    thread(&root, 70, 5, (0, 0), 200_000_000, 9);
    thread(&root, 71, 5, (0, 0), 300_000_000, 9);
    thread(&root, 72, 5, (0, 0), 400_000_000, 9);
    let server = GuestThreads { pid: 70, roles: BTreeMap::new(), server: Some("ceph-osd".to_owned()) };
    let mut monitor = Monitor::new(root.path(), Vec::new(), vec![server]);
    let activity = over(&root, &mut monitor, |root| {
        thread(root, 70, 5, (10, 0), 300_000_000, 10);
        thread(root, 71, 5, (10, 0), 400_000_000, 10);
        fs::remove_dir_all(root.path().join("proc/70/task/72")).expect("removed");
        process(root, 1050, 1000);
    });
    assert_eq!(activity.guest_threads, [role("ceph-osd", cpu(500_000_000, 0))].into());
}

#[test]
fn without_schedstat_ticks_are_counted() {
    let root = tree::build("proc/70/");
    // A kernel without schedstat writes zeros.
    thread(&root, 73, 5, (10, 30), 0, 0);
    let mut monitor = Monitor::new(root.path(), Vec::new(), vec![guest()]);
    let activity = over(&root, &mut monitor, |root| thread(root, 73, 5, (13, 31), 0, 0));
    assert_eq!(activity.guest_threads, [role("iothread", cpu(3 * TICK, TICK))].into());
}

#[test]
fn a_role_that_lost_a_thread_or_ran_backwards_is_absent() {
    let start = |root: &TempDir| {
        thread(root, 71, 5, (10, 10), 200_000_000, 9);
        thread(root, 72, 5, (10, 10), 200_000_000, 9);
        thread(root, 73, 5, (10, 10), 200_000_000, 9);
    };
    let lost = |root: &TempDir| fs::remove_dir_all(root.path().join("proc/70/task/72")).expect("removed");
    let reused = |root: &TempDir| thread(root, 72, 6, (20, 20), 400_000_000, 9);
    let run_backwards = |root: &TempDir| thread(root, 72, 5, (20, 20), 100_000_000, 9);
    let ticks_backwards = |root: &TempDir| thread(root, 72, 5, (20, 9), 400_000_000, 9);
    let unreadable = |root: &TempDir| tree::write(root.path(), "proc/70/task/72/stat", "72 (CPU 1/KVM) S 1");
    let changes: [&dyn Fn(&TempDir); 5] = [&lost, &reused, &run_backwards, &ticks_backwards, &unreadable];
    for (index, change) in changes.iter().enumerate() {
        let root = tree::build("proc/70/");
        start(&root);
        let mut monitor = Monitor::new(root.path(), Vec::new(), vec![guest()]);
        let activity = over(&root, &mut monitor, change);
        assert_eq!(activity.guest_threads, [role("iothread", cpu(0, 0))].into(), "change {index}");
    }
}

/// A guest with a thread of each role; in two seconds the I/O thread works for 400 ms and the worker for 200 ms.
fn over_guest(process_after: (u64, u64), lost: &[u32]) -> BTreeMap<String, CpuTime> {
    let root = tree::build("proc/70/");
    process(&root, 1000, 1000);
    thread(&root, 71, 5, (10, 10), 200_000_000, 9);
    thread(&root, 73, 5, (10, 10), 200_000_000, 9);
    thread(&root, 90, 5, (10, 10), 200_000_000, 9);
    thread(&root, 91, 5, (10, 10), 200_000_000, 9);
    let mut monitor = Monitor::new(root.path(), Vec::new(), vec![guest()]);
    let activity = over(&root, &mut monitor, |root| {
        thread(root, 73, 5, (30, 30), 600_000_000, 9);
        thread(root, 91, 5, (30, 10), 400_000_000, 9);
        process(root, process_after.0, process_after.1);
        for tid in lost {
            fs::remove_dir_all(root.path().join(format!("proc/70/task/{tid}"))).expect("removed");
        }
    });
    activity.guest_threads
}

#[test]
fn the_time_of_threads_that_ended_is_the_workers() {
    let idle = role("vcpu", cpu(0, 0));
    let iothread = role("iothread", cpu(200_000_000, 200_000_000));
    let all = |worker: CpuTime| [idle.clone(), iothread.clone(), role("worker", worker)].into();
    // An ended thread used 300 ms more than the living ones, 100 ms of it in the kernel.
    assert_eq!(over_guest((1060, 1030), &[90]), all(cpu(400_000_000, 100_000_000)));
    // A thread began and ended in between.
    assert_eq!(over_guest((1060, 1030), &[]), all(cpu(400_000_000, 100_000_000)));
    // Three ticks may be rounding.
    assert_eq!(over_guest((1043, 1020), &[90]), all(cpu(200_000_000, 0)));
    assert_eq!(over_guest((1037, 1020), &[]), all(cpu(200_000_000, 0)));
    assert_eq!(over_guest((1044, 1020), &[90]), all(cpu(240_000_000, 0)));
}

#[test]
fn what_ended_threads_used_is_absent_where_it_cannot_be_told() {
    let idle = role("vcpu", cpu(0, 0));
    let iothread = role("iothread", cpu(200_000_000, 200_000_000));
    // The process's time ran backwards, or contradicts its threads'.
    assert_eq!(over_guest((999, 1100), &[90]), [idle.clone(), iothread.clone()].into());
    assert_eq!(over_guest((1000, 1001), &[90]), [idle.clone(), iothread.clone()].into());
    // Without an ended thread, the threads' own sums count.
    let worker = role("worker", cpu(200_000_000, 0));
    assert_eq!(over_guest((999, 1100), &[]), [idle, iothread.clone(), worker].into());
    // The virtual CPU's thread ended too: the rest cannot be split.
    assert_eq!(over_guest((1060, 1030), &[71, 90]), [iothread].into());
}

/// Burns CPU in this thread until its own clock shows `time`.
fn burn(time: Duration) {
    let used = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).expect("below a second"))
    };
    let start = used();
    while used() < start + time {
        std::hint::black_box(start);
    }
}

/// Incompressible bytes from a linear congruential generator (Knuth's MMIX constants).
fn incompressible(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let step = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(step).take(length).collect()
}

#[test]
fn the_live_machine_is_seen_at_work() {
    const WRITTEN: usize = 8 << 20;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let root = Path::new("/");
    let stack = stack::of_path(root, dir.path()).expect("readable");
    let this = GuestThreads {
        pid: std::process::id(),
        roles: [("burner".to_owned(), vec![rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()])]
            .into(),
        server: None,
    };
    let mut monitor = Monitor::new(root, stack.disks.clone(), vec![this]);
    let start = Instant::now();
    let first = monitor.snapshot();
    burn(Duration::from_millis(200));
    std::thread::spawn(|| burn(Duration::from_millis(100))).join().expect("burnt");
    let mut file = fs::File::create(dir.path().join("written")).expect("created");
    file.write_all(&incompressible(WRITTEN)).expect("written");
    file.sync_all().expect("synced");
    let second = monitor.snapshot();
    let activity = delta(&first, &second, start);
    println!("{activity:#?}");

    let burner = activity.guest_threads.get("burner").expect("this thread lives");
    // The kernel updates a running thread's time only at scheduler ticks.
    assert!(
        burner.total_ns() >= 180_000_000 && burner.total_ns() <= activity.duration_ns + 20_000_000,
        "{burner:?}"
    );
    // The other thread ended between snapshots; its time is known to three ticks.
    let worker = activity.guest_threads.get("worker").expect("it used CPU");
    assert!(worker.total_ns() >= 60_000_000, "{worker:?}");
    let cpu = activity.cpu.expect("every kernel has /proc/stat");
    assert!(cpu.busy_ns() > 0, "{cpu:?}");
    assert_eq!(activity.disks.keys().collect::<BTreeSet<_>>(), stack.disks.iter().collect());
    if stack.disks.is_empty() {
        iotax_testkit::skipped::<()>(format_args!("{} is on no block device here", dir.path().display()));
    } else {
        let written: u64 = activity.disks.values().map(|disk| disk.write_bytes).sum();
        assert!(written >= WRITTEN as u64, "{written}");
    }
    match fs::read_to_string("/proc/pressure/io") {
        Ok(_) => assert!(activity.pressure.is_some()),
        Err(error) => iotax_testkit::skipped(format_args!("this kernel keeps no pressure ({error})")),
    }
    println!("one snapshot takes {:?}", cost(&mut monitor));
}

fn cost(monitor: &mut Monitor) -> Duration {
    const ROUNDS: u32 = 200;
    let start = Instant::now();
    let last: Option<MonitorSnapshot> = (0..ROUNDS).map(|_| monitor.snapshot()).last();
    std::hint::black_box(last);
    start.elapsed() / ROUNDS
}

#[test]
fn interfaces_are_those_of_a_processs_namespace_and_one_that_ran_backwards_is_absent() {
    const HEAD: &str =
        "Inter-|   Receive                |  Transmit\n face |bytes packets errs|bytes packets";
    let root = tempfile::tempdir().expect("a directory");
    let put = |process: &str, lines: &str| {
        tree::write(root.path(), &format!("proc/{process}/net/dev"), &format!("{HEAD}\n{lines}"));
    };
    put("self", "    lo:100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  eth0: 5000 50 1 2 0 0 0 0 700 7 0 1 0 0 0 0");
    put("70", "  eth0:9000 90 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n  gone: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0");
    let monitor = || Monitor::new(root.path(), Vec::new(), Vec::new());
    let mut monitors =
        [monitor().with_network(root.path(), None), monitor().with_network(root.path(), Some(70)), monitor()];
    let before = monitors.each_mut().map(Monitor::snapshot);
    put("self", "    lo: 99 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  eth0: 8000 53 2 4 0 0 0 0 800 9 5 1 0 0 0 0");
    put("70", "  eth0:9500 95 0 0 0 0 0 0 30 2 0 0 0 0 0 0\n  new: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0");
    let after = monitors.each_mut().map(Monitor::snapshot);
    let nics = |monitor: usize| delta(&before[monitor], &after[monitor], Instant::now()).nics;
    let near =
        NicActivity { rx_bytes: 3000, rx_packets: 3, rx_drops: 3, tx_bytes: 100, tx_packets: 2, tx_drops: 5 };
    assert_eq!(nics(0), BTreeMap::from([("eth0".to_owned(), near)]), "lo ran backwards");
    let far =
        NicActivity { rx_bytes: 500, rx_packets: 5, tx_bytes: 20, tx_packets: 1, ..NicActivity::default() };
    assert_eq!(nics(1), BTreeMap::from([("eth0".to_owned(), far)]), "others come and go");
    assert!(nics(2).is_empty(), "nobody asked");
}
