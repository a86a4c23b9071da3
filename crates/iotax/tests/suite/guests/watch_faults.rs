//! Tests of the cost of faults in a guest, compared with its kernel log, and of windows without events.

use serde_json::Value;

use crate::lab_guest::{Extras, LabGuest};
use crate::watch_lab::{
    LOAD, MS, STALL, boot, gap_and_event, gaps_of_writes, memory_disks, number, nvme_tcp, observed_at,
    timeout, watch,
};

/// Magic number of tmpfs in statfs(2).
const TMPFS: u64 = 0x0102_1994;
/// Interval at which the states of devices are polled, in ms.
const POLL: u64 = 100;

/// Returns the time of a source's only line with these words.
fn only(episode: &Value, source: &str, words: &str) -> u64 {
    let times = observed_at(episode, source, words);
    let [at] = times[..] else { panic!("{source}: {words}: {times:?}: {episode}") };
    at
}

/// Makes `/dev/md0` a mirror of the guest's two disks, without a superblock, so that no mdadm(8) is needed.
fn mirror(guest: &mut LabGuest) {
    let md = "/sys/block/md0/md";
    for line in [
        "echo md0 > /sys/module/md_mod/parameters/new_array".to_owned(),
        format!("echo raid1 > {md}/level; echo 2 > {md}/raid_disks; echo none > {md}/resync_start"),
        format!("for disk in ram0 ram1; do cat /sys/block/$disk/dev > {md}/new_dev; done"),
        format!("echo 0 > {md}/dev-ram0/slot; echo 1 > {md}/dev-ram1/slot; echo 8192 > {md}/component_size"),
        // Under a load it would copy no more than 1 MB a second.
        format!("echo active > {md}/array_state; echo 200000 > {md}/sync_speed_min"),
        // The first open gives a new array its number (diskseq), which udev does elsewhere.
        "dd if=/dev/md0 of=/dev/null count=1 2> /dev/null".into(),
    ] {
        guest.sh(&line);
    }
}

#[test]
fn a_mirror_that_loses_a_leg_and_gets_it_back_costs_nothing() {
    let extras = Extras { programs: &["wipefs"], modules: &["raid1"], ..Extras::default() };
    let Some(mut guest) = boot(&extras) else { return };
    memory_disks(&mut guest, 2, 8);
    mirror(&mut guest);
    let md = "/sys/block/md0/md";
    let fail = format!("fail@1s = echo faulty > {md}/dev-ram1/state");
    let add = format!(
        "echo remove > {md}/dev-ram1/state && cat /sys/block/ram1/dev > {md}/new_dev && echo recover > {md}/sync_action"
    );
    let mirrored = watch(&mut guest, "/dev/md0", &fail, &format!("--event 'add@3s = {add}'"));
    assert_eq!((number(&mirrored["failed"]), number(&mirrored["lost"])), (0, 0), "{mirrored}");
    assert_eq!((&mirrored["whole"], &mirrored["late"]), (&true.into(), &0.into()), "{mirrored}");
    assert!(gaps_of_writes(&mirrored).iter().all(|(_, gap)| *gap < STALL * MS), "{mirrored}");
    let events = mirrored["events"].as_array().expect("events");
    assert!(events.iter().all(|event| event.get("failure").is_none()), "{mirrored}");
    let [failed, added] = [0, 1].map(|index: usize| number(&events[index]["at_ns"]));

    // States are seen at the first look after the kernel's own line, which follows the event.
    let soon = |earlier: u64, later: u64| later >= earlier && later <= earlier + (POLL + STALL) * MS;
    let disabled = only(&mirrored, "kernel", "Disk failure on ram1");
    let recovered = only(&mirrored, "kernel", "md0: recovery done");
    assert!(soon(failed, disabled) && recovered >= added, "{mirrored}");
    for (cause, change) in [
        (disabled, "md0 dev-ram1: in_sync -> faulty"),
        (disabled, "md0 degraded: 0 -> 1"),
        (recovered, "md0 degraded: 1 -> 0"),
    ] {
        // The kernel writes its line a moment before or after the state has changed.
        assert!(soon(cause, only(&mirrored, "state", change) + 20 * MS), "{change}: {mirrored}");
    }
    assert!(only(&mirrored, "state", "-> in_sync") >= added, "{mirrored}");
    assert_eq!(guest.sh(&format!("cat {md}/degraded")), "0");
    guest.sh("cmp /dev/ram0 /dev/ram1");

    // Re-added without a resync, a leg lacks the blocks written meanwhile: 200, some of which are written again. The kernel chooses the leg
    // to read from, so the other one is marked write-mostly.
    let stale = format!(
        "--event 'add@3s = echo writemostly > {md}/dev-ram0/state && echo re-add > {md}/dev-ram1/state'"
    );
    let stale = watch(&mut guest, "/dev/md0", &fail, &stale);
    let lost = number(&stale["lost"]);
    assert!((100..=260).contains(&lost) && number(&stale["failed"]) == 0, "{stale}");
    eprintln!("faulty seen after {} us; {lost} stale blocks", (disabled - failed) / 1000);
}

#[test]
fn a_command_that_is_not_answered_costs_the_scsi_timeout_and_its_abort() {
    const LIMIT: u64 = 3000;
    const DEPTH: usize = 32;
    let extras = Extras { programs: &["wipefs"], ..Extras::default() };
    let Some(mut guest) = boot(&extras) else { return };
    guest.sh("insmod /lab/scsi_debug.ko dev_size_mb=16 statistics=1");
    guest.sh(&format!("echo {} > /sys/block/sda/device/timeout", LIMIT / 1000));
    // Few commands, and a line for each step of their recovery.
    guest.sh(&format!("echo {DEPTH} > /sys/block/sda/device/queue_depth"));
    guest.sh("echo 4 > /proc/sys/dev/scsi/logging_level");
    // Commands are ignored until the queue is full; later ones and retries are answered.
    let mute = "mute@1s = cd /sys/bus/pseudo/drivers/scsi_debug; echo 4 > opts; echo -1 > every_nth; sleep 2; echo 0 > every_nth; echo 0 > opts";
    let muted = watch(&mut guest, "/dev/sda", mute, "");
    let ((at, gap), (begin, _)) = gap_and_event(&muted);
    let aborts = observed_at(&muted, "kernel", "abort scheduled");
    let retries = observed_at(&muted, "kernel", "retry aborted command");
    assert_eq!((aborts.len(), retries.len()), (DEPTH, DEPTH), "{muted}");
    let (first_abort, last_retry) = (aborts[0], retries[DEPTH - 1]);
    assert!(at + 50 * MS >= begin && at <= begin + STALL * MS, "{muted}");
    // The kernel checks its timers at least once in 256 ticks of 4 ms.
    let abort_after = first_abort.saturating_sub(at);
    assert!(abort_after + 50 * MS >= LIMIT * MS && abort_after <= (LIMIT + 1024 + STALL) * MS, "{muted}");
    let end = at + gap;
    assert!(gap >= LIMIT * MS && end >= first_abort && end <= last_retry + STALL * MS, "{muted}");
    assert_eq!((number(&muted["failed"]), number(&muted["lost"])), (0, 0), "{muted}");
    // 200 a second, those that were due until a second before the end.
    let expected = (gap / MS - 1000) / 5;
    let late = number(&muted["late"]);
    assert!((expected - 30..=expected + 100).contains(&late), "{expected}: {muted}");
    assert_eq!(timeout(&muted, "sda", "SCSI command timeout"), (Some(LIMIT / 1000), "exceeded"), "{muted}");
    let hung = muted["stalled"].as_array().expect("devices");
    assert!(hung.iter().any(|one| one["device"] == "sda" && !one["gap"].is_null()), "{muted}");
    eprintln!(
        "gap of {} ms, first abort after {}, last retry after {}, {late} late of {expected} expected",
        gap / MS,
        abort_after / MS,
        (last_retry - at) / MS
    );
}

/// Puts a bond between the guest and a namespace `far`, where a bridge joins the other ends of its two legs.
fn bond(guest: &mut LabGuest) {
    for line in [
        "ip netns add far && ip link add bond type bond mode active-backup miimon 100",
        "for leg in 0 1; do ip link add leg$leg type veth peer name port$leg netns far && ip link set leg$leg master bond; done",
        "ip addr add 192.0.2.1/24 dev bond && ip link set bond up",
        "ip -n far link add far type bridge && ip -n far addr add 192.0.2.2/24 dev far && ip -n far link set far up",
        "for leg in 0 1; do ip -n far link set port$leg master far up; done",
        "for wait in $(seq 50); do ping -c 1 -W 1 192.0.2.2 > /dev/null && break; done",
    ] {
        guest.sh(line);
    }
}

#[test]
fn a_bond_whose_leg_goes_down_costs_what_its_miimon_and_tcp_take() {
    const MIIMON: u64 = 100;
    let modules = ["nvmet_tcp", "nvme_tcp", "bonding", "veth", "bridge"];
    let programs = ["wipefs", "ip"];
    let extras = Extras { programs: &programs, modules: &modules, ..Extras::default() };
    let Some(mut guest) = boot(&extras) else { return };
    memory_disks(&mut guest, 1, 64);
    bond(&mut guest);
    nvme_tcp(&mut guest, "192.0.2.2", "nsenter --net=/run/netns/far");
    let active = |guest: &mut LabGuest| guest.sh("cat /sys/class/net/bond/bonding/active_slave");
    assert_eq!(active(&mut guest), "leg0");
    // Its own path, since busybox's shell prefers busybox's `ip`, which has no namespaces.
    let cable = "leg@2s = /lab/ip -n far link set port0 down";
    let sent = |guest: &mut LabGuest| -> u64 {
        guest.sh("cat /sys/class/net/leg1/statistics/tx_packets").parse().expect("a number")
    };
    let before = sent(&mut guest);
    let pulled = watch(&mut guest, "/dev/nvme0n1", cable, "");
    let through = sent(&mut guest) - before;
    assert_eq!(active(&mut guest), "leg1");
    assert!(pulled["events"][0].get("failure").is_none(), "{pulled}");
    // Each of the 200 I/Os a second of the last four seconds needs a packet.
    assert!(through >= 600, "{through}: {pulled}");
    assert_eq!((number(&pulled["failed"]), number(&pulled["lost"])), (0, 0), "{pulled}");
    assert_eq!((&pulled["whole"], &pulled["late"]), (&true.into(), &0.into()), "{pulled}");

    let (_, (begin, took)) = gap_and_event(&pulled);
    let down = only(&pulled, "link", "leg0: down");
    assert!(down >= begin && down <= begin + took + STALL * MS, "{pulled}");
    assert!(observed_at(&pulled, "link", "leg1: down").is_empty(), "{pulled}");
    let switched = only(&pulled, "kernel", "(slave leg1): making interface the new active one");
    let without = switched.saturating_sub(down);
    assert!(without <= (MIIMON + STALL) * MS, "{pulled}");
    // TCP sends again after 0.2 s, and then after twice the time.
    let most = 2 * without + (200 + STALL) * MS;
    let gaps = gaps_of_writes(&pulled);
    assert!(gaps.iter().all(|(_, gap)| *gap <= most), "{most}: {pulled}");
    let longest = gaps.iter().map(|(_, gap)| gap / MS).max();
    eprintln!(
        "switched {} ms after the leg was down, longest gap {longest:?} ms, {through} packets",
        without / MS
    );
}

mod alone {
    //! Runs alone: a stall caused by another test would count as a gap.

    use iotax_testkit::{require, skip, thorough};

    use super::*;
    use crate::lab::{Lab, assert_valid, text};

    #[test]
    fn windows_in_which_nothing_happens_raise_no_alarm() {
        require!(program "pkill");
        let lab = Lab::alone();
        let work = lab.work();
        let on = rustix::fs::statfs(&work).expect("a filesystem");
        if u64::try_from(on.f_type) == Ok(TMPFS) {
            skip!("{} is on a tmpfs", work.display());
        }
        let windows = if thorough() { 100 } else { 10 };
        let repeat = windows.to_string();
        let load = ["watch", work.to_str().expect("text"), "--runtime", "3", "--repeat", &repeat];
        let requires = ["gap < 500ms", "late = 0", "errors = 0", "lost = 0"];
        let requires: Vec<&str> = requires.iter().flat_map(|one| ["--require", one]).collect();
        let common: Vec<&str> = LOAD.split_whitespace().collect();
        let quiet = lab.run(&[&load, &common[..], &requires, &["--json", "-"]].concat());
        let said = text(&quiet.stdout);
        // The exit code shows that all of them hold in every window.
        assert_eq!(quiet.status.code(), Some(0), "{said} {}", text(&quiet.stderr));
        let json: Value = serde_json::from_str(&said).expect("JSON");
        assert_valid(&json);
        let episodes = json["watch"].as_array().expect("a watch");
        assert_eq!(episodes.len(), windows);
        for episode in episodes {
            let verdicts = episode["requirements"].as_array().expect("requirements").iter();
            let passed = verdicts.filter(|one| one["verdict"] == "passed").count();
            assert_eq!((passed, &episode["whole"]), (4, &true.into()), "{episode}");
            assert!(episode["events"].as_array().is_some_and(Vec::is_empty), "{episode}");
            let counts = ["late", "failed", "lost"].map(|count| number(&episode[count]));
            assert_eq!(counts, [0; 3], "{episode}");
            let gaps = episode["gaps"].as_array().expect("gaps");
            assert!(gaps.iter().all(|gap| number(&gap["duration_ns"]) < 500 * MS), "{episode}");
        }
        lab.assert_nothing_left();
        let gaps = episodes.iter().filter_map(|one| one["gaps"].as_array()).flatten();
        eprintln!("longest of all gaps: {:?} ms", gaps.map(|gap| number(&gap["duration_ns"]) / MS).max());

        // The same load fails what cannot hold: an agent that is stopped for most of a second.
        let stop = "stop@1s = pkill -STOP -P $PPID -f '[e]xe agent'; sleep 0.8; pkill -CONT -P $PPID -f '[e]xe agent'";
        let load = ["watch", work.to_str().expect("text"), "--runtime", "3", "--event", stop];
        let stopped = lab.run(&[&load, &common[..], &requires].concat());
        let said = text(&stopped.stdout);
        assert_eq!(stopped.status.code(), Some(1), "{said} {}", text(&stopped.stderr));
        assert!(said.contains("gap < 500ms: FAILED"), "{said}");
        assert!(said.contains("The load itself did not run for"), "{said}");
    }
}
