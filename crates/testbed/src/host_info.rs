//! Reads facts about this machine: kernel, CPU, memory, hypervisor, free space.
//!
//! Functions that take a root path read the files below it, `/` on a live system. A value that cannot be read is `None`, except the free
//! space, which is an error.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use iotax_model::record::Environment;
use iotax_model::units::Bytes;

/// An error while reading a value without which iotax cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum HostInfoError {
    /// The filesystem's free space cannot be read.
    #[error(
        "cannot read the free space of {dir}: {source}; name an existing directory that this user can reach"
    )]
    FreeSpace {
        /// The directory whose filesystem was queried.
        dir: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
}

/// Free and total space of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilesystemSpace {
    /// Bytes available to unprivileged users.
    pub available: Bytes,
    /// Size of the filesystem in bytes.
    pub total: Bytes,
}

/// Returns the free and total space of the filesystem that holds `dir`, by statvfs(3).
pub fn free_space(dir: &Path) -> Result<FilesystemSpace, HostInfoError> {
    let room = rustix::fs::statvfs(dir)
        .map_err(|error| HostInfoError::FreeSpace { dir: dir.to_owned(), source: error.into() })?;
    Ok(FilesystemSpace {
        available: Bytes(room.f_bavail.saturating_mul(room.f_frsize)),
        total: Bytes(room.f_blocks.saturating_mul(room.f_frsize)),
    })
}

/// Reads kernel, CPU, memory and clock facts from /proc, /sys and /etc below `root`. The caller adds user, tool version, QEMU, accelerator
/// and overhead.
pub fn environment(root: &Path) -> Environment {
    let read = |path: &str| text(&root.join(path));
    let cpuinfo = read("proc/cpuinfo").unwrap_or_default();
    Environment {
        kernel: read("proc/sys/kernel/osrelease"),
        os: read("etc/os-release").or_else(|| read("usr/lib/os-release")).and_then(|text| os_name(&text)),
        // The name of this key on x86, on POWER and on ARM boards.
        cpu_model: ["model name", "cpu", "Model"]
            .iter()
            .find_map(|key| field(&cpuinfo, key))
            .map(str::to_owned),
        microcode: field(&cpuinfo, "microcode").map(str::to_owned),
        cpus: read("sys/devices/system/cpu/online").and_then(|list| length_of_list(&list)),
        memory_bytes: read("proc/meminfo").and_then(|text| memory(&text, "MemTotal")),
        governor: read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        hostname: read("proc/sys/kernel/hostname"),
        clocksource: read("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        mitigations: mitigations(&root.join("sys/devices/system/cpu/vulnerabilities")),
        hypervisor: hypervisor(root, &cpuinfo),
        ..Environment::default()
    }
}

/// Returns the login name of this process's user; `None` if it is unknown. Under sudo(8), that of the user who ran sudo.
#[must_use]
pub fn user(root: &Path) -> Option<String> {
    let uid = rustix::process::getuid();
    let caller = std::env::var("SUDO_USER").ok().filter(|name| uid.is_root() && !name.is_empty());
    caller.or_else(|| user_name(&text(&root.join("etc/passwd"))?, uid.as_raw()))
}

/// Returns the login name of a user id, from the text of passwd(5); `None` if it is not listed.
fn user_name(passwd: &str, uid: u32) -> Option<String> {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let of_user = |fields: &Vec<&str>| fields.get(2).and_then(|id| id.parse().ok()) == Some(uid);
    fields.into_iter().find(of_user).map(|fields| fields[0].to_owned())
}

/// Returns whether a filesystem keeps its files in memory only: tmpfs or ramfs.
pub(crate) fn is_in_memory(filesystem: &rustix::fs::StatFs) -> bool {
    u64::try_from(filesystem.f_type).is_ok_and(|kind| [0x0102_1994, 0x8584_58f6].contains(&kind))
}

/// Returns the boot id of the running kernel, which changes with every reboot and is the same in all containers; `None` if it cannot be
/// read.
#[must_use]
pub fn boot_id() -> Option<String> {
    text(Path::new("/proc/sys/kernel/random/boot_id"))
}

/// Returns a new random UUID from the kernel.
pub(crate) fn new_uuid() -> std::io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/uuid").map(|text| text.trim().to_owned())
}

/// Returns the content of a small file without surrounding white space; `None` if it is empty or cannot be read.
pub(crate) fn text(path: &Path) -> Option<String> {
    // Firmware strings in /sys need not be UTF-8.
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns the value of the first line `key : value` with this key; `None` if there is none or it is empty.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
}

/// Returns the value of PRETTY_NAME in os-release(5), without quotes.
fn os_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}

/// Returns the number of CPUs in a list such as `0-3,8`; `None` if the list is malformed.
fn length_of_list(list: &str) -> Option<u32> {
    list.split(',').try_fold(0_u32, |total, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        total.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// Returns the frequency of the CPU's time stamp counter in kHz, from the line `cpu MHz` of /proc/cpuinfo in a virtual machine. `None` on
/// bare metal, where that line shows the CPU's current frequency, or if the line is missing.
#[must_use]
pub fn tsc_khz(root: &Path) -> Option<u64> {
    let cpuinfo = text(&root.join("proc/cpuinfo"))?;
    field(&cpuinfo, "flags")?.split(' ').find(|flag| *flag == "hypervisor")?;
    let (whole, thousandths) = field(&cpuinfo, "cpu MHz")?.split_once('.')?;
    let khz = (thousandths.len() == 3).then(|| format!("{whole}{thousandths}"))?;
    khz.parse().ok().filter(|khz| *khz > 0)
}

/// Returns the memory in bytes that is available without swapping; `None` if the kernel does not report it.
#[must_use]
pub fn memory_available(root: &Path) -> Option<Bytes> {
    memory(&text(&root.join("proc/meminfo"))?, "MemAvailable").map(Bytes)
}

/// Returns a value of /proc/meminfo in bytes, `None` if it is missing. Its kB are KiB.
fn memory(meminfo: &str, key: &str) -> Option<u64> {
    field(meminfo, key)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the CPU vulnerability mitigations: file names in `dir` and their contents.
fn mitigations(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, text(&entry.path())?))).collect()
}

/// Returns whether QEMU emulates this machine's CPU, by the name that it gives such a CPU. False for an emulated CPU with another name.
#[must_use]
pub fn is_emulated(root: &Path) -> bool {
    let cpuinfo = text(&root.join("proc/cpuinfo")).unwrap_or_default();
    field(&cpuinfo, "model name").is_some_and(|name| name.starts_with("QEMU TCG CPU"))
}

/// Strings in firmware vendor or product names, with the hypervisors that they identify.
const FIRMWARE: [(&str, &str); 9] = [
    ("VMware", "VMware"),
    ("VirtualBox", "VirtualBox"),
    ("Microsoft Corporation Virtual Machine", "Hyper-V"),
    ("Xen", "Xen"),
    ("Amazon EC2", "Amazon EC2"),
    ("Google Compute Engine", "Google Compute Engine"),
    ("Parallels", "Parallels"),
    ("bhyve", "bhyve"),
    ("QEMU", "QEMU"),
];

/// Clocksources that only exist under a certain hypervisor, with the hypervisor's name.
const CLOCKS: [(&str, &str); 3] = [("kvm-clock", "KVM"), ("hyperv_clocksource", "Hyper-V"), ("xen", "Xen")];

/// Returns the name of the hypervisor that runs this machine, from Xen's own file, the firmware or the clocksources. If only a CPU flag
/// shows a hypervisor, the name says that it is unknown. `None` on bare metal, or if nothing shows a hypervisor.
fn hypervisor(root: &Path, cpuinfo: &str) -> Option<String> {
    if let Some(kind) = text(&root.join("sys/hypervisor/type")) {
        return Some(kind);
    }
    // x86 CPUs have a flag for virtual machines. Without it firmware strings prove nothing: bare-metal cloud machines have the same ones.
    if let Some(flags) = field(cpuinfo, "flags")
        && !flags.split_whitespace().any(|flag| flag == "hypervisor")
    {
        return None;
    }
    let known = |words: &str, table: &[(&str, &str)]| {
        table.iter().find(|(word, _)| words.contains(word)).map(|(_, name)| (*name).to_owned())
    };
    let firmware = ["sys_vendor", "product_name"]
        .iter()
        .filter_map(|file| text(&root.join("sys/class/dmi/id").join(file)))
        .collect::<Vec<_>>()
        .join(" ");
    let clocks = text(&root.join("sys/devices/system/clocksource/clocksource0/available_clocksource"));
    known(&firmware, &FIRMWARE).or_else(|| known(&clocks.unwrap_or_default(), &CLOCKS)).or_else(|| {
        // The flag is set, but there is no name.
        field(cpuinfo, "flags").map(|_| "a hypervisor that does not give its name".to_owned())
    })
}

/// Returns the current time of the monotonic clock in nanoseconds, which all processes of a machine share.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
