//! Rules on disks and partitions.

use iotax_model::survey::{Disk, DiskKind, Fact, Survey};
use iotax_model::units::human;

use crate::rule::{Rule, Subject, Sureness, disks, violation};

/// Usual block size of filesystems, and page size of the page cache, in bytes.
const PAGE: u64 = 4096;
/// Read-ahead in KiB above which a disk is reported, because concurrent readers evict each other's pages from the page cache.
const LONG_READ_AHEAD_KIB: u64 = 16_384;
/// Maximum request size (max_sectors_kb) in KiB below which a disk is reported, if its hardware accepts larger requests.
const SMALL_REQUEST_KIB: u64 = 128;
/// Command timeout in seconds below which commands may time out while a disk is still recovering from an error.
const SHORT_TIMEOUT_S: u64 = 10;
/// Name prefixes of SCSI drivers whose hardware handles one command at a time.
const ONE_AT_A_TIME: [&str; 3] = ["ata_piix", "usb-storage", "pata_"];
/// Number of CPUs from which a disk with a single hardware queue is reported.
const MANY_CPUS: u32 = 4;

fn node(disk: &Disk) -> String {
    format!("/dev/{}", disk.name)
}

/// Returns the disk that contains a partition; `None` if the survey does not name one.
fn whole<'a>(survey: &'a Survey, partition: &Disk) -> Option<&'a Disk> {
    survey.disk(partition.below.first()?)
}

/// Returns whether a disk is a SCSI, SAS or SATA disk behind a real controller; false for other kinds and for unknown drivers. Virtual
/// disks may report any properties.
fn is_real(disk: &Disk) -> bool {
    let driver = disk.scsi.as_ref().and_then(|scsi| scsi.driver.as_ref());
    disk.kind == DiskKind::Scsi
        && driver
            .is_some_and(|driver| !["virtio_scsi", "storvsc_host", "pvscsi"].contains(&driver.value.as_str()))
}

fn is_rotational(disk: &Disk, value: bool) -> bool {
    disk.rotational.as_ref().is_some_and(|flag| flag.value == value)
}

fn cpus_of(list: &str) -> Option<&str> {
    (!list.is_empty() && list.bytes().all(|byte| byte.is_ascii_digit())).then_some(list)
}

/// Returns the CPU that receives all interrupts of a disk, with the fact that shows it. `None` with fewer than two interrupts, or unless
/// each is known to go to that one CPU alone.
fn only_cpu(disk: &Disk) -> Option<(&str, &Fact<String>)> {
    let (first, rest) = disk.interrupts.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let fact = first.cpus.as_ref()?;
    let cpu = cpus_of(&fact.value)?;
    let same = rest.iter().all(|other| other.cpus.as_ref().is_some_and(|cpus| cpus.value == cpu));
    same.then_some((cpu, fact))
}

/// Parses the GT/s at the start of a text such as `8.0 GT/s PCIe`; `None` if the text does not begin with a number.
fn gigatransfers(speed: &str) -> Option<f64> {
    speed.split_whitespace().next()?.parse().ok()
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "disk-offline",
        subject: Subject::Disk,
        sureness: Sureness::Fault,
        title: "The kernel gave a disk up",
        why: "I/O to it fails at once, and it does not come back by itself.",
        source: "Linux: include/scsi/scsi_device.h, enum scsi_device_state",
        check: |survey| {
            disks(survey, |disk| {
                let state = disk.scsi.as_ref()?.state.as_ref()?;
                let is_lost = ["offline", "transport-offline"].contains(&state.value.as_str());
                let remedy = format!("dmesg | grep {}; then echo running > {}", disk.name, state.source);
                is_lost
                    .then(|| violation(&disk.name, format!("its state is {}", state.value), state, remedy))?
            })
        },
    },
    Rule {
        id: "disk-warns",
        subject: Subject::Disk,
        sureness: Sureness::Fault,
        title: "An NVMe disk warns of its own failure",
        why: "A critical warning stands for lost spare blocks, heat, unreliable media, a read-only disk or a failed backup of its cache.",
        source: "NVM Express Base Specification, SMART / Health Information log, Critical Warning",
        check: |survey| {
            disks(survey, |disk| {
                let warning = disk.wear.as_ref()?.critical_warning.as_ref().filter(|bits| bits.value != 0)?;
                let value = format!("critical warning {:#04x}", warning.value);
                violation(&disk.name, value, warning, format!("back up, then: smartctl -x {}", node(disk)))
            })
        },
    },
    Rule {
        id: "disk-media-errors",
        subject: Subject::Disk,
        sureness: Sureness::Fault,
        title: "An NVMe disk has media errors",
        why: "Each of these errors is data that the disk could not correct.",
        source: "NVM Express Base Specification, SMART / Health Information log, Media and Data Integrity Errors",
        check: |survey| {
            disks(survey, |disk| {
                let errors = disk.wear.as_ref()?.media_errors.as_ref().filter(|errors| errors.value > 0)?;
                let value = format!("{} media errors", errors.value);
                violation(&disk.name, value, errors, format!("back up, then: smartctl -x {}", node(disk)))
            })
        },
    },
    Rule {
        id: "disk-worn",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "An NVMe disk is near the end of its endurance",
        why: "The vendor's estimate of its life is used up from 100% on; a worn disk is slower and may fail.",
        source: "NVM Express Base Specification, SMART / Health Information log, Percentage Used",
        check: |survey| {
            disks(survey, |disk| {
                let used = disk.wear.as_ref()?.percent_used.as_ref().filter(|used| used.value >= 90)?;
                let value = format!("{}% of its endurance is used", used.value);
                violation(
                    &disk.name,
                    value,
                    used,
                    format!("plan its replacement; smartctl -A {}", node(disk)),
                )
            })
        },
    },
    Rule {
        id: "flushes-dropped",
        subject: Subject::Disk,
        sureness: Sureness::Fault,
        title: "The kernel sends no flushes to a disk with a volatile cache",
        why: "The disk acknowledges writes from its cache and the kernel takes them for durable: fsync protects nothing at a power cut.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, write_cache",
        check: |survey| {
            disks(survey, |disk| {
                let kernel = disk.write_cache.as_ref().filter(|cache| cache.value == "write through")?;
                let own = disk.device_cache.as_ref().filter(|cache| cache.value.starts_with("write back"))?;
                let value = format!(
                    "the kernel takes it for {}, the disk is {} ({})",
                    kernel.value, own.value, own.source
                );
                violation(&disk.name, value, kernel, format!("echo 'write back' > {}", kernel.source))
            })
        },
    },
    Rule {
        id: "partition-misaligned",
        subject: Subject::Disk,
        sureness: Sureness::Cost,
        title: "A partition begins within a physical block",
        why: "Each 4 KiB write touches two physical blocks, which the disk must read, change and write back.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, alignment_offset and physical_block_size",
        check: |survey| {
            disks(survey, |disk| {
                let start = disk.start_bytes.as_ref()?;
                let whole = whole(survey, disk)?;
                let block = match whole.kind {
                    // The file behind a loop device is stored in page-sized blocks, whatever block size the device reports.
                    DiskKind::Loop => PAGE,
                    _ => whole.physical_block_bytes.as_ref()?.value,
                };
                let rest = start.value.checked_rem(block).filter(|rest| *rest > 0)?;
                let value = format!("it begins {rest} bytes into a block of {}", human::bytes(block));
                violation(
                    &disk.name,
                    value,
                    start,
                    "copy the data to a partition made by: parted --align optimal".to_owned(),
                )
            })
        },
    },
    Rule {
        id: "partition-not-on-4k",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "A partition does not begin at a multiple of 4 KiB",
        why: "The disk claims physical blocks of 512 bytes. Flash and many arrays use larger ones inside, and then pay for each 4 KiB write twice.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, physical_block_size",
        check: |survey| {
            disks(survey, |disk| {
                let start = disk.start_bytes.as_ref().filter(|start| start.value % PAGE > 0)?;
                let whole = whole(survey, disk).filter(|whole| whole.kind != DiskKind::Loop)?;
                whole.physical_block_bytes.as_ref().filter(|block| block.value == 512)?;
                let value = format!("it begins at sector {}", start.value / 512);
                let remedy = format!("compare: iotax bench {} and iotax bench {}", node(disk), node(whole));
                violation(&disk.name, value, start, remedy)
            })
        },
    },
    Rule {
        id: "bfq-on-nvme",
        subject: Subject::Disk,
        sureness: Sureness::Cost,
        title: "BFQ schedules an NVMe disk",
        why: "BFQ takes more CPU time per request than the others; its documentation gives limits of 80,000 to 400,000 IOPS by CPU.",
        source: "Linux: Documentation/block/bfq-iosched.rst",
        check: |survey| {
            disks(survey, |disk| {
                let scheduler = disk.scheduler.as_ref().filter(|name| name.value == "bfq")?;
                (disk.kind == DiskKind::Nvme).then(|| {
                    violation(
                        &disk.name,
                        "scheduler bfq",
                        scheduler,
                        format!("echo none > {}", scheduler.source),
                    )
                })?
            })
        },
    },
    Rule {
        id: "scheduler-on-nvme",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "A scheduler orders the requests of an NVMe disk",
        why: "The kernel's default for NVMe with several queues is none; another one trades CPU time for fairness between programs.",
        source: "Linux: Documentation/block/switching-sched.rst, Documentation/block/kyber-iosched.rst",
        check: |survey| {
            disks(survey, |disk| {
                let scheduler = disk.scheduler.as_ref();
                let scheduler = scheduler.filter(|name| !["none", "bfq"].contains(&name.value.as_str()))?;
                let remedy = format!("measure with and without: iotax tune {}", node(disk));
                let value = format!("scheduler {}", scheduler.value);
                (disk.kind == DiskKind::Nvme).then(|| violation(&disk.name, value, scheduler, remedy))?
            })
        },
    },
    Rule {
        id: "no-scheduler-on-hdd",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "Nothing orders the requests of a rotating disk",
        why: "A head that follows arrival order seeks more, and reads wait behind writes; the disk's own queue orders only what it has.",
        source: "Linux: Documentation/block/deadline-iosched.rst",
        check: |survey| {
            disks(survey, |disk| {
                let scheduler = disk.scheduler.as_ref().filter(|name| name.value == "none")?;
                let fits = is_real(disk) && is_rotational(disk, true);
                fits.then(|| {
                    violation(
                        &disk.name,
                        "scheduler none, rotational",
                        scheduler,
                        format!("echo mq-deadline > {}", scheduler.source),
                    )
                })?
            })
        },
    },
    Rule {
        id: "nvme-rotational",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "An NVMe disk is marked as rotating",
        why: "Filesystems, swap and schedulers then avoid seeks that do not exist; a udev rule or a hypervisor set the flag.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, rotational",
        check: |survey| {
            disks(survey, |disk| {
                let flag =
                    disk.rotational.as_ref().filter(|flag| flag.value && disk.kind == DiskKind::Nvme)?;
                violation(&disk.name, "rotational 1", flag, format!("echo 0 > {}", flag.source))
            })
        },
    },
    Rule {
        id: "read-ahead-off",
        subject: Subject::Disk,
        sureness: Sureness::Cost,
        title: "Read-ahead is off",
        why: "A sequential buffered reader waits for the disk at every request, as nothing is read before it is asked for.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, read_ahead_kb",
        check: |survey| {
            disks(survey, |disk| {
                let ahead = disk.read_ahead_kib.as_ref().filter(|ahead| ahead.value == 0)?;
                let holds_one =
                    survey.filesystems.iter().any(|held| held.device.as_deref() == Some(&disk.name));
                let is_disk = !matches!(disk.kind, DiskKind::Partition | DiskKind::Other);
                (holds_one || is_disk).then(|| {
                    violation(&disk.name, "read_ahead_kb 0", ahead, format!("echo 128 > {}", ahead.source))
                })?
            })
        },
    },
    Rule {
        id: "read-ahead-long",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "Read-ahead is very long",
        why: "It helps one sequential reader of a slow array; several readers throw out each other's pages.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, read_ahead_kb",
        check: |survey| {
            disks(survey, |disk| {
                let ahead = disk.read_ahead_kib.as_ref().filter(|ahead| ahead.value > LONG_READ_AHEAD_KIB)?;
                let value = format!("read_ahead_kb {}", ahead.value);
                violation(
                    &disk.name,
                    value,
                    ahead,
                    format!("measure with and without: iotax tune {}", node(disk)),
                )
            })
        },
    },
    Rule {
        id: "requests-small",
        subject: Subject::Disk,
        sureness: Sureness::Cost,
        title: "Large requests are cut into small ones",
        why: "The kernel splits each larger I/O, and every piece costs a command of its own.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, max_sectors_kb",
        check: |survey| {
            disks(survey, |disk| {
                // A layer only inherits the limit of the disk below it.
                let most = disk.request_max_kib.as_ref().filter(|_| disk.below.is_empty())?;
                let most = Some(most).filter(|most| most.value < SMALL_REQUEST_KIB)?;
                let hardware =
                    disk.hardware_request_max_kib.as_ref().filter(|hardware| hardware.value > most.value)?;
                let value = format!(
                    "requests of at most {} KiB, the hardware takes {} KiB",
                    most.value, hardware.value
                );
                let remedy = format!("echo {} > {}", hardware.value.min(1280), most.source);
                violation(&disk.name, value, most, remedy)
            })
        },
    },
    Rule {
        id: "merges-off",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "Neighbouring requests are not merged",
        why: "Small sequential I/O reaches the disk in as many commands as it was issued; merging pays off unless all I/O is random.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, nomerges",
        check: |survey| {
            disks(survey, |disk| {
                let flag = disk.no_merges.as_ref().filter(|flag| flag.value == 2)?;
                let is_bottom = disk.below.is_empty();
                is_bottom
                    .then(|| violation(&disk.name, "nomerges 2", flag, format!("echo 0 > {}", flag.source)))?
            })
        },
    },
    Rule {
        id: "queue-few-requests",
        subject: Subject::Disk,
        sureness: Sureness::Cost,
        title: "The queue before a disk is short",
        why: "Programs block once it is full, and the scheduler has little to choose from.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, nr_requests",
        check: |survey| {
            disks(survey, |disk| {
                let requests = disk.requests.as_ref().filter(|requests| requests.value < 16)?;
                // Without a scheduler, nr_requests is the hardware's queue depth.
                let is_set = disk.scheduler.as_ref().is_some_and(|name| name.value != "none");
                let value = format!("nr_requests {}", requests.value);
                is_set.then(|| {
                    violation(&disk.name, value, requests, format!("echo 256 > {}", requests.source))
                })?
            })
        },
    },
    Rule {
        id: "queue-depth-one",
        subject: Subject::Disk,
        sureness: Sureness::Cost,
        title: "A disk gets one command at a time",
        why: "Without command queueing a rotating disk cannot order its seeks, and an SSD uses one of its channels.",
        source: "Linux: Documentation/ABI/testing/sysfs-block-device, queue_depth; libata.force=noncq",
        check: |survey| {
            disks(survey, |disk| {
                let scsi = disk.scsi.as_ref()?;
                let depth = scsi.queue_depth.as_ref().filter(|depth| depth.value == 1)?;
                let driver = scsi.driver.as_ref()?;
                let is_able = !ONE_AT_A_TIME.iter().any(|name| driver.value.starts_with(name));
                let value = format!("queue_depth 1 at driver {}", driver.value);
                is_able.then(|| violation(&disk.name, value, depth, format!("echo 31 > {}", depth.source)))?
            })
        },
    },
    Rule {
        id: "write-cache-off",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "The write cache of a SATA disk is off",
        why: "Each write then waits for the media. It is slower, and needs no flush; behind a RAID controller it is meant to be so.",
        source: "hdparm(8), -W",
        check: |survey| {
            disks(survey, |disk| {
                let cache =
                    disk.device_cache.as_ref().filter(|cache| cache.value.starts_with("write through"))?;
                let is_sata =
                    disk.scsi.as_ref()?.driver.as_ref().is_some_and(|driver| driver.value == "ahci");
                is_sata.then(|| {
                    violation(&disk.name, "write through", cache, format!("hdparm -W1 {}", node(disk)))
                })?
            })
        },
    },
    Rule {
        id: "timeout-short",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "Commands time out early",
        why: "A disk may take longer to recover from a bad sector; the kernel then resets the bus, and a RAID drops the disk.",
        source: "Linux: Documentation/scsi/scsi_eh.rst",
        check: |survey| {
            disks(survey, |disk| {
                let timeout = disk.scsi.as_ref()?.timeout_s.as_ref()?;
                let is_short = timeout.value < SHORT_TIMEOUT_S && is_real(disk);
                let value = format!("{} s", timeout.value);
                is_short
                    .then(|| violation(&disk.name, value, timeout, format!("echo 30 > {}", timeout.source)))?
            })
        },
    },
    Rule {
        id: "pci-link-narrow",
        subject: Subject::Disk,
        sureness: Sureness::Cost,
        title: "An NVMe disk's link is below what the disk can do",
        why: "The link is the ceiling of its bandwidth; a slot, a riser or a bad contact limits it.",
        source: "Linux: Documentation/ABI/testing/sysfs-bus-pci, current_link_speed and current_link_width",
        check: |survey| {
            disks(survey, |disk| {
                let link = disk.link.as_ref()?;
                let (width, most) = (link.width.as_ref()?, link.width_max.as_ref()?);
                let speeds = link.speed.as_ref().zip(link.speed_max.as_ref());
                let speeds = speeds
                    .and_then(|(now, most)| Some((gigatransfers(&now.value)?, gigatransfers(&most.value)?)));
                // A virtual controller reports no PCIe lanes.
                let is_narrow = width.value > 0 && width.value < most.value;
                let is_slow = width.value > 0 && speeds.is_some_and(|(now, most)| now < most);
                let speed = speeds.map(|(now, most)| format!(" at {now} of {most} GT/s")).unwrap_or_default();
                let value = format!("{} of {} lanes{speed}", width.value, most.value);
                (is_narrow || is_slow).then(|| {
                    violation(&disk.name, value, width, "check the slot; lspci -vv | grep -A30 Non-Volatile")
                })?
            })
        },
    },
    Rule {
        id: "node-unknown",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "The kernel does not know which NUMA node a disk is at",
        why: "Interrupts and buffers may then be on the far node; the firmware says nothing.",
        source: "Linux: Documentation/ABI/testing/sysfs-bus-pci, numa_node",
        check: |survey| {
            let nodes = survey.machine.nodes.as_ref().map_or(1, |nodes| nodes.value);
            disks(survey, |disk| {
                let node = disk.node.as_ref().filter(|node| node.value < 0 && nodes > 1)?;
                violation(
                    &disk.name,
                    format!("numa_node {} on {nodes} nodes", node.value),
                    node,
                    "update the firmware, or set it there",
                )
            })
        },
    },
    Rule {
        id: "interrupts-on-one-cpu",
        subject: Subject::Disk,
        sureness: Sureness::Cost,
        title: "One CPU serves all interrupts of a disk",
        why: "Its queues are there so that each CPU completes its own I/O; one CPU is the ceiling instead.",
        source: "Linux: Documentation/core-api/irq/irq-affinity.rst",
        check: |survey| {
            let cpus = survey.machine.environment.cpus.unwrap_or(1);
            disks(survey, |disk| {
                let (cpu, fact) = only_cpu(disk).filter(|_| cpus > 1)?;
                let value = format!("{} queues interrupt CPU {cpu} of {cpus} CPUs", disk.interrupts.len());
                violation(
                    &disk.name,
                    value,
                    fact,
                    "systemctl restart irqbalance, or spread smp_affinity_list",
                )
            })
        },
    },
    Rule {
        id: "virtio-one-queue",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "A virtio disk has one queue for many CPUs",
        why: "All CPUs share its lock and its interrupt. QEMU has a queue for each CPU from 5.2 on, unless the definition says otherwise.",
        source: "QEMU 5.2 ChangeLog, virtio-blk num-queues",
        check: |survey| {
            let cpus = survey.machine.environment.cpus.unwrap_or(1);
            disks(survey, |disk| {
                let queues = disk.queues.as_ref().filter(|queues| queues.value == 1 && cpus >= MANY_CPUS)?;
                let fits = disk.kind == DiskKind::Virtio;
                let value = format!("1 queue for {cpus} CPUs");
                fits.then(|| {
                    violation(
                        &disk.name,
                        value,
                        queues,
                        "in the guest's definition: queues='N' of <driver>, num-queues=N",
                    )
                })?
            })
        },
    },
    Rule {
        id: "virtio-no-event-index",
        subject: Subject::Disk,
        sureness: Sureness::Depends,
        title: "A virtio disk notifies at every request",
        why: "Without event indices neither side can tell the other to be quiet for a while: more exits and interrupts per I/O.",
        source: "Virtio 1.1, section 2.6.7, VIRTIO_F_EVENT_IDX",
        check: |survey| {
            const EVENT_INDEX: usize = 29;
            disks(survey, |disk| {
                let bits = disk.virtio_features.as_ref()?;
                let is_off = bits.value.as_bytes().get(EVENT_INDEX) == Some(&b'0');
                is_off.then(|| {
                    violation(
                        &disk.name,
                        "feature bit 29 is 0",
                        bits,
                        "in the guest's definition: event_idx='on'",
                    )
                })?
            })
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_is_one_number() {
        for (list, expected) in [("3", Some("3")), ("0-3", None), ("1,2", None), ("", None)] {
            assert_eq!(cpus_of(list), expected, "{list}");
        }
        assert_eq!(gigatransfers("8.0 GT/s PCIe"), Some(8.0));
        assert_eq!(gigatransfers("Unknown"), None);
    }
}
