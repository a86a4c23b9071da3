//! Surveys the whole machine: kernel settings, memory, CPU time and cgroup limits.

use std::path::Path;

use iotax_model::survey::{CgroupLimit, Fact, GuestSetup, Known, MachineSetup, Tcp};

use super::reader::Reader;
use crate::host_info;

/// Names of files that hold cgroup limits: of cgroup v2, and of the v1 controllers blkio and cpu.
const LIMITS: [&str; 7] = [
    "io.max",
    "cpu.max",
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
    "cpu.cfs_quota_us",
];

pub(super) fn machine(reader: &Reader<'_>, guests: &[GuestSetup]) -> MachineSetup {
    let vm = |file: &str| reader.number(&format!("/proc/sys/vm/{file}"));
    let frequency = |file: &str| reader.text(&format!("/sys/devices/system/cpu/cpu0/cpufreq/{file}"));
    let tcp = |file: &str| format!("/proc/sys/net/ipv4/{file}");
    // The three numbers are the smallest, the first and the largest size.
    let largest =
        |file: &str| reader.text(&tcp(file))?.read(|all| all.split_whitespace().nth(2)?.parse().ok());
    MachineSetup {
        environment: host_info::environment(reader.root()),
        clocksource: reader.text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        frequency_driver: frequency("scaling_driver"),
        governor: frequency("scaling_governor"),
        command_line: reader.text("/proc/cmdline"),
        dirty_percent: vm("dirty_ratio"),
        dirty_bytes: vm("dirty_bytes"),
        dirty_background_percent: vm("dirty_background_ratio"),
        dirty_background_bytes: vm("dirty_background_bytes"),
        swappiness: vm("swappiness"),
        swaps: reader.text("/proc/swaps").and_then(|all| all.read(|all| Some(first_words(all)))),
        zone_reclaim: vm("zone_reclaim_mode"),
        huge_page_defrag: reader
            .text("/sys/kernel/mm/transparent_hugepage/defrag")
            .and_then(|all| all.read(|all| Some(crate::stack::device::in_use(all).to_owned()))),
        memory_stalls_percent: reader
            .text("/proc/pressure/memory")
            .and_then(|all| all.read(|all| stalls(all))),
        steal_percent: reader.text("/proc/stat").and_then(|all| all.read(|all| steal(all))),
        aio: reader.number("/proc/sys/fs/aio-nr"),
        aio_max: reader.number("/proc/sys/fs/aio-max-nr"),
        io_uring_disabled: reader.number("/proc/sys/kernel/io_uring_disabled"),
        nodes: nodes(reader),
        trim_timer: trim_timer(reader),
        limits: limits(reader, guests),
        tcp: Tcp {
            window_scaling: reader.number(&tcp("tcp_window_scaling")),
            selective_ack: reader.number(&tcp("tcp_sack")),
            receive_max_bytes: largest("tcp_rmem"),
            send_max_bytes: largest("tcp_wmem"),
        },
    }
}

/// Returns the first word of each line of a table, without the heading.
fn first_words(table: &str) -> Vec<String> {
    table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Returns the percentage of the last five minutes in which all tasks stalled on memory, from the text of
/// /proc/pressure/memory; `None` if the text lacks it.
fn stalls(pressure: &str) -> Option<f64> {
    let full = pressure.lines().find_map(|line| line.strip_prefix("full "))?;
    full.split_whitespace().find_map(|word| word.strip_prefix("avg300="))?.parse().ok()
}

/// Returns the CPU time stolen by the hypervisor since boot, in percent of used and stolen time; `None` if /proc/stat lacks it. Idle time
/// does not count, because it cannot be stolen.
fn steal(stat: &str) -> Option<f64> {
    let times: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = times[..] else { return None };
    let busy = user + nice + system + irq + softirq + steal;
    (busy > 0).then(|| 100.0 * steal as f64 / busy as f64)
}

fn nodes(reader: &Reader<'_>) -> Known<u64> {
    const NODES: &str = "/sys/devices/system/node";
    let names = reader.names(NODES).into_iter().filter(|name| {
        name.strip_prefix("node").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let count = names.filter(|name| name != "node").count() as u64;
    (count > 0).then(|| Fact::new(count, NODES))
}

/// Returns true if fstrim runs periodically, by systemd's timer or a cron job; `None` on machines without systemd.
fn trim_timer(reader: &Reader<'_>) -> Known<bool> {
    const TIMER: &str = "/etc/systemd/system/timers.target.wants/fstrim.timer";
    if !reader.full_path("/etc/systemd/system").is_dir() {
        return None;
    }
    // A link whose target only exists on the live machine counts too.
    let is_on = reader.full_path(TIMER).symlink_metadata().is_ok()
        || ["/etc/cron.weekly/fstrim", "/etc/cron.daily/fstrim"]
            .iter()
            .any(|job| reader.full_path(job).exists());
    Some(Fact::new(is_on, TIMER))
}

/// Returns the CPU and I/O limits of the cgroups of this process and of the guests, and of all cgroups above them.
fn limits(reader: &Reader<'_>, guests: &[GuestSetup]) -> Vec<CgroupLimit> {
    let guests = guests.iter().filter_map(|guest| Some((guest.name.clone(), guest.pid?.to_string())));
    let members = std::iter::once(("this process".to_owned(), "self".to_owned())).chain(guests);
    let mut found: Vec<CgroupLimit> = Vec::new();
    for (of, process) in members {
        let Some(groups) = reader.text(&format!("/proc/{process}/cgroup")) else { continue };
        for directory in groups.value.lines().filter_map(|line| directory(reader, line)).flatten() {
            for file in LIMITS {
                let lines = reader.text(&format!("{directory}/{file}"));
                let lines = lines.iter().flat_map(|all| {
                    all.value.lines().map(|line| Fact::new(line.to_owned(), all.source.clone()))
                });
                for limit in lines.filter(|limit| is_limit(file, &limit.value)) {
                    let known = found.iter().any(|known| known.limit == limit);
                    if !known {
                        found.push(CgroupLimit { of: of.clone(), file: file.to_owned(), limit });
                    }
                }
            }
        }
    }
    found
}

/// Returns the directories of a cgroup and of all cgroups above it, from a line of /proc/PID/cgroup such as `0::/machine.slice/vm` or
/// `7:blkio:/`. `None` for a hierarchy without CPU or I/O limits.
fn directory(reader: &Reader<'_>, line: &str) -> Option<Vec<String>> {
    let mut parts = line.splitn(3, ':');
    let (controllers, path) = (parts.nth(1)?, parts.next()?);
    let mount = match controllers.split(',').find(|name| ["blkio", "cpu"].contains(name)) {
        Some(name) => format!("/sys/fs/cgroup/{name}"),
        None if controllers.is_empty() => ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
            .iter()
            .find(|mount| reader.full_path(mount).is_dir())
            .map(|mount| (*mount).to_owned())?,
        None => return None,
    };
    let groups = Path::new(path).ancestors().map(|group| group.to_string_lossy().into_owned());
    Some(groups.map(|group| format!("{mount}{}", group.trim_end_matches('/'))).collect())
}

/// Returns false if a line of a limit file means unlimited.
fn is_limit(file: &str, line: &str) -> bool {
    match file {
        "cpu.max" => !line.starts_with("max"),
        "cpu.cfs_quota_us" => line.parse::<i64>().is_ok_and(|quota| quota > 0),
        "io.max" => line.split_whitespace().skip(1).any(|word| !word.ends_with("=max")),
        _ => true,
    }
}
