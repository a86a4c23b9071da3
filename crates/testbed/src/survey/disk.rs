//! Surveys block devices, from /sys/class/block.

use std::fs;
use std::path::Path;

use iotax_model::survey::{
    Bcache, Disk, DiskKind, Fact, Known, LoopFile, PciLink, QueueInterrupt, Raid, Scsi, Wear,
};
use serde_json::Value;

use super::mapper::Mapper;
use super::reader::Reader;
use crate::program::Program;
use crate::stack::{device, mount, timeouts};

const SMARTCTL: Program = Program { name: "smartctl", package: "smartmontools" };

/// Bytes per sector in /sys, whatever the device's block size.
const SECTOR: u64 = 512;

/// Kernel name prefixes of devices that a survey leaves out: most hold no persistent data.
const PASSED_OVER: [&str; 6] = ["ram", "zram", "sr", "fd", "nbd", "mtdblock"];

/// Returns the kernel names of all block devices to survey: those whose size is not 0, without the prefixes in `PASSED_OVER`. A loop device
/// without a file has size 0.
pub(super) fn all(reader: &Reader<'_>) -> Vec<String> {
    let mut names = reader.names("/sys/class/block");
    names.retain(|name| {
        let is_passed_over = PASSED_OVER.iter().any(|start| {
            name.strip_prefix(start).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        });
        !is_passed_over && reader.number::<u64>(&of(name, "size")).is_none_or(|size| size.value > 0)
    });
    names.iter().map(|name| name.replace('!', "/")).collect()
}

/// Describes the devices with these kernel names.
pub(super) fn disks(reader: &Reader<'_>, names: &[String]) -> Vec<Disk> {
    let mapper = Mapper::default();
    let interrupts = reader.text("/proc/interrupts");
    names.iter().map(|name| disk(reader, name, &mapper, interrupts.as_ref())).collect()
}

/// Returns the path of a device's file in /sys/class/block, without the root.
fn of(name: &str, file: &str) -> String {
    format!("/sys/class/block/{}/{file}", name.replace('/', "!"))
}

fn disk(reader: &Reader<'_>, name: &str, mapper: &Mapper, interrupts: Option<&Fact<String>>) -> Disk {
    let text = |file: &str| reader.text(&of(name, file));
    let number = |file: &str| reader.number::<u64>(&of(name, file));
    let sectors = |file: &str| number(file)?.read(|count| count.checked_mul(SECTOR));
    let directory = fs::canonicalize(reader.full_path(&of(name, ""))).unwrap_or_default();
    let has = |file: &str| directory.join(file).exists();
    let kind = kind(name, &directory);
    let mut disk = Disk {
        name: name.to_owned(),
        kind,
        below: below(reader, name, &directory),
        model: text("device/model"),
        size_bytes: sectors("size"),
        start_bytes: sectors("start"),
        logical_block_bytes: number("queue/logical_block_size"),
        physical_block_bytes: number("queue/physical_block_size"),
        alignment_bytes: reader.number(&of(name, "alignment_offset")),
        rotational: reader.flag(&of(name, "queue/rotational")),
        scheduler: text("queue/scheduler")
            .and_then(|all| all.read(|all| Some(device::in_use(all).to_owned()))),
        read_ahead_kib: number("queue/read_ahead_kb"),
        write_cache: text("queue/write_cache"),
        device_cache: device_cache(reader, name),
        discard_max_bytes: number("queue/discard_max_bytes"),
        request_max_kib: number("queue/max_sectors_kb"),
        hardware_request_max_kib: number("queue/max_hw_sectors_kb"),
        requests: number("queue/nr_requests"),
        no_merges: number("queue/nomerges"),
        ..Disk::default()
    };
    let queues = reader.names(&of(name, "mq")).len() as u64;
    disk.queues = (queues > 0).then(|| Fact::new(queues, of(name, "mq")));
    match kind {
        DiskKind::Nvme => add_controller(reader, name, &mut disk),
        DiskKind::Scsi => {
            disk.scsi = Some(scsi(reader, name, &directory));
            disk.node = host_node(reader, &directory);
        }
        DiskKind::Virtio => {
            disk.virtio_features = text("device/features");
            disk.node = reader.number(&of(name, "device/numa_node"));
        }
        _ => {}
    }
    disk.interrupts =
        interrupts.map(|all| queue_interrupts(reader, all, &disk, &directory)).unwrap_or_default();
    disk.raid = has("md").then(|| raid(reader, name));
    disk.mapped = has("dm").then(|| mapper.mapped(reader, text("dm/name"), text("dm/uuid")));
    disk.loop_file = has("loop")
        .then(|| LoopFile { path: text("loop/backing_file"), direct: reader.flag(&of(name, "loop/dio")) });
    disk.bcache = (kind == DiskKind::Bcache).then(|| Bcache {
        state: text("bcache/state"),
        mode: text("bcache/cache_mode").and_then(|all| all.read(|all| Some(device::in_use(all).to_owned()))),
    });
    disk
}

fn kind(name: &str, directory: &Path) -> DiskKind {
    let has = |file: &str| directory.join(file).exists();
    match name {
        _ if has("partition") => DiskKind::Partition,
        _ if has("dm") => DiskKind::Mapped,
        _ if has("md") => DiskKind::Raid,
        _ if has("loop") => DiskKind::Loop,
        _ if has("bcache") && name.starts_with("bcache") => DiskKind::Bcache,
        _ if name.starts_with("nvme") => DiskKind::Nvme,
        _ if name.starts_with("sd") => DiskKind::Scsi,
        _ if name.starts_with("vd") && device::is_on_virtio(directory) => DiskKind::Virtio,
        _ => DiskKind::Other,
    }
}

/// Returns the kernel names of the devices directly below a device: its members, its disk if it is a partition, or
/// the device that holds a loop device's file.
fn below(reader: &Reader<'_>, name: &str, directory: &Path) -> Vec<String> {
    let last = |path: &Path| Some(path.file_name()?.to_string_lossy().replace('!', "/"));
    if directory.join("partition").exists() {
        return directory.parent().and_then(last).into_iter().collect();
    }
    if let Some(file) = reader.text(&of(name, "loop/backing_file")) {
        let mount = mount::of(reader.root(), Path::new(&file.value)).ok();
        let device = mount
            .and_then(|mount| fs::canonicalize(reader.full_path("sys/dev/block").join(mount.number)).ok());
        return device.as_deref().and_then(last).into_iter().collect();
    }
    device::below(directory).iter().filter_map(|step| last(step)).collect()
}

/// Returns the write cache mode that a SCSI or virtio disk reports; `None` for other disks.
fn device_cache(reader: &Reader<'_>, name: &str) -> Known<String> {
    let of_scsi = of(name, "device/scsi_disk");
    let scsi = reader.names(&of_scsi).into_iter().next();
    scsi.and_then(|address| reader.text(&format!("{of_scsi}/{address}/cache_type")))
        .or_else(|| reader.text(&of(name, "cache_type")))
}

fn scsi(reader: &Reader<'_>, name: &str, directory: &Path) -> Scsi {
    let above = |prefix: &str| timeouts::ancestor(directory, prefix);
    Scsi {
        driver: above("host").and_then(|host| reader.text(&format!("/sys/class/scsi_host/{host}/proc_name"))),
        queue_depth: reader.number(&of(name, "device/queue_depth")),
        state: reader.text(&of(name, "device/state")),
        timeout_s: reader.number(&of(name, "device/timeout")),
        iscsi_recovery_s: above("session")
            .and_then(|session| reader.number(&format!("/sys/class/iscsi_session/{session}/recovery_tmo"))),
        fc_fast_fail: above("rport-")
            .and_then(|port| reader.text(&format!("/sys/class/fc_remote_ports/{port}/fast_io_fail_tmo"))),
    }
}

/// Returns the NUMA node of the PCI device that a disk is attached to; `None` if it is unknown.
fn host_node(reader: &Reader<'_>, directory: &Path) -> Known<i64> {
    let dir = directory.ancestors().find(|dir| dir.join("numa_node").exists())?;
    let root = fs::canonicalize(reader.root()).ok()?;
    reader.number(&format!("/{}/numa_node", dir.strip_prefix(root).ok()?.display()))
}

/// Adds the properties of a local NVMe namespace's controller (such as `nvme0` for `nvme0n1`): NUMA node, model, PCI link and wear.
fn add_controller(reader: &Reader<'_>, name: &str, disk: &mut Disk) {
    let Some(end) = name.rfind('n').filter(|end| *end > 0) else { return };
    let controller = format!("/sys/class/nvme/{}", &name[..end]);
    let text = |file: &str| reader.text(&format!("{controller}/device/{file}"));
    let number = |file: &str| reader.number(&format!("{controller}/device/{file}"));
    disk.node = reader.number(&format!("{controller}/device/numa_node"));
    disk.model = disk.model.take().or_else(|| reader.text(&format!("{controller}/model")));
    disk.link = reader.text(&format!("{controller}/device/current_link_width")).is_some().then(|| PciLink {
        speed: text("current_link_speed"),
        speed_max: text("max_link_speed"),
        width: number("current_link_width"),
        width_max: number("max_link_width"),
    });
    // Only for NVMe: smartctl opens a SCSI disk for writing.
    let output = reader.command(SMARTCTL, &["-j", "-A", &format!("/dev/{}", &name[..end])]);
    disk.wear = output.and_then(|output| wear(&output));
}

fn wear(output: &Fact<String>) -> Option<Wear> {
    let document: Value = serde_json::from_str(&output.value).ok()?;
    let log = &document["nvme_smart_health_information_log"];
    let number = |key: &str| Some(Fact::new(log[key].as_u64()?, output.source.clone()));
    Some(Wear {
        critical_warning: number("critical_warning"),
        percent_used: number("percentage_used"),
        media_errors: number("media_errors"),
    })
}

fn raid(reader: &Reader<'_>, name: &str) -> Raid {
    let md = |file: &str| of(name, &format!("md/{file}"));
    Raid {
        level: reader.text(&md("level")),
        missing: reader.number(&md("degraded")),
        action: reader.text(&md("sync_action")),
        bitmap: reader.text(&md("bitmap/location")),
        mismatches: reader.number(&md("mismatch_cnt")),
        chunk_bytes: reader.number(&md("chunk_size")),
    }
}

/// Returns the interrupts of the I/O queues of an NVMe or virtio disk, such as `nvme0q1` and `virtio1-req.0`, with their CPUs; empty for
/// other disks. Leaves out NVMe's admin queue (`q0`).
fn queue_interrupts(
    reader: &Reader<'_>,
    all: &Fact<String>,
    disk: &Disk,
    directory: &Path,
) -> Vec<QueueInterrupt> {
    let prefix = match disk.kind {
        DiskKind::Nvme => disk.name.rfind('n').map(|end| format!("{}q", &disk.name[..end])),
        DiskKind::Virtio => timeouts::ancestor(directory, "virtio").map(|name| format!("{name}-req.")),
        _ => None,
    };
    let Some(prefix) = prefix else { return Vec::new() };
    let of_line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number: u32 = number.trim().parse().ok()?;
        let name = rest.split_whitespace().next_back()?;
        let queue = name.strip_prefix(&prefix)?;
        let is_io = !queue.is_empty()
            && queue.bytes().all(|byte| byte.is_ascii_digit())
            && !(disk.kind == DiskKind::Nvme && queue == "0");
        let cpus = ["effective_affinity_list", "smp_affinity_list"]
            .iter()
            .find_map(|file| reader.text(&format!("/proc/irq/{number}/{file}")));
        is_io.then(|| QueueInterrupt { name: name.to_owned(), cpus })
    };
    all.value.lines().filter_map(of_line).collect()
}
