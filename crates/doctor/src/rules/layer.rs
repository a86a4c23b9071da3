//! Rules on layers between disks and filesystems: loop devices, RAID, device mapper, multipath, bcache.

use iotax_model::survey::{Disk, DiskKind, MapperTarget, SwallowedFlushes};
use iotax_model::units::human;

use crate::rule::{Rule, Subject, Sureness, Violation, disks, violation};

/// Minimum usage of a pool or snapshot, in percent, at which it may be full before anyone checks again.
const NEARLY_FULL_PERCENT: u64 = 90;
/// RAID levels that compute parity.
const PARITY: [&str; 3] = ["raid4", "raid5", "raid6"];

/// Builds a violation that cites a line of dmsetup's output; always `Some`.
#[expect(clippy::unnecessary_wraps, reason = "checks end with it, and have nothing to report otherwise")]
fn mapper_violation(disk: &Disk, value: String, line: &MapperTarget, remedy: String) -> Option<Violation> {
    Some(Violation { component: title(disk), observed: value, source: line.source.clone(), remedy })
}

/// Returns the device's name in /dev/mapper, or the kernel's name if there is none.
fn title(disk: &Disk) -> String {
    let title = disk.mapped.as_ref().and_then(|mapped| mapped.title.as_ref());
    title.map_or_else(|| disk.name.clone(), |title| title.value.clone())
}

/// Returns the lines of a device's dmsetup status with this target type.
fn status<'a>(disk: &'a Disk, kind: &'a str) -> impl Iterator<Item = &'a MapperTarget> {
    disk.mapped.iter().flat_map(|mapped| &mapped.status).filter(move |line| line.kind == kind)
}

fn table<'a>(disk: &'a Disk, kind: &'a str) -> impl Iterator<Item = &'a MapperTarget> {
    disk.mapped.iter().flat_map(|mapped| &mapped.table).filter(move |line| line.kind == kind)
}

/// Converts `used/total` to a percentage, rounded down; `None` if malformed, or if the total is 0.
fn percent(part: &str) -> Option<u64> {
    let (used, total) = part.split_once('/')?;
    let (used, total): (u64, u64) = (used.parse().ok()?, total.parse().ok()?);
    used.checked_mul(100)?.checked_div(total)
}

/// Returns whether a device's UUID ends with a suffix that LVM gives to hidden devices.
fn is_hidden(disk: &Disk, suffix: &str) -> bool {
    let uuid = disk.mapped.as_ref().and_then(|mapped| mapped.uuid.as_ref());
    uuid.is_some_and(|uuid| uuid.value.starts_with("LVM-") && uuid.value.ends_with(suffix))
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "flushes-swallowed",
        subject: Subject::Layer,
        sureness: Sureness::Fault,
        title: "A layer swallowed flushes when they were counted",
        why: "Writes that it acknowledged as durable are gone after a power cut, whatever its settings say.",
        source: "Linux: Documentation/block/writeback_cache_control.rst",
        check: |survey| {
            let all = survey.swallowed_flushes.iter().filter_map(|fact| {
                let SwallowedFlushes { target, layer, asked, passed_on, report } = &fact.value;
                let value = format!(
                    "{} asked, {} passed on by {layer}",
                    human::grouped(*asked),
                    human::grouped(*passed_on)
                );
                violation(
                    target,
                    value,
                    fact,
                    format!("{report} shows each layer; measure again: iotax flush TARGET"),
                )
            });
            all.collect()
        },
    },
    Rule {
        id: "layer-misaligned",
        subject: Subject::Layer,
        sureness: Sureness::Cost,
        title: "A volume is not aligned to the disks below it",
        why: "Writes that are aligned for the filesystem straddle blocks or stripes of the disks, and become reads and writes.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, alignment_offset",
        check: |survey| {
            disks(survey, |disk| {
                let is_layer = matches!(disk.kind, DiskKind::Mapped | DiskKind::Raid | DiskKind::Bcache);
                let offset = disk.alignment_bytes.as_ref().filter(|offset| offset.value != 0 && is_layer)?;
                let value = format!("alignment_offset {}", offset.value);
                violation(
                    title(disk),
                    value,
                    offset,
                    "recreate it on aligned partitions (pvcreate --dataalignment 1m)",
                )
            })
        },
    },
    Rule {
        id: "blocks-smaller-than-below",
        subject: Subject::Layer,
        sureness: Sureness::Cost,
        title: "A loop device offers smaller blocks than the disk below it has",
        why: "Each write below the disk's block size becomes a read and a write, and direct I/O is not possible.",
        source: "Linux: drivers/block/loop.c; losetup(8), --sector-size",
        check: |survey| {
            disks(survey, |disk| {
                let own = disk.logical_block_bytes.as_ref().filter(|_| disk.kind == DiskKind::Loop)?;
                let below = survey.disk(disk.below.first()?)?.logical_block_bytes.as_ref()?;
                let value = format!(
                    "blocks of {} on blocks of {} ({})",
                    human::bytes(own.value),
                    human::bytes(below.value),
                    below.source
                );
                let remedy = format!("losetup --sector-size {} when it is attached", below.value);
                (own.value < below.value).then(|| violation(&disk.name, value, own, remedy))?
            })
        },
    },
    Rule {
        id: "loop-through-cache",
        subject: Subject::Layer,
        sureness: Sureness::Depends,
        title: "A loop device goes through the page cache",
        why: "Data is cached twice, and writes reach the disk when writeback gets to them; reads that repeat can be faster.",
        source: "losetup(8), --direct-io",
        check: |survey| {
            disks(survey, |disk| {
                let file = disk.loop_file.as_ref()?;
                let direct = file.direct.as_ref().filter(|direct| !direct.value)?;
                // The page cache serves read-only files such as snap packages well.
                let is_image = file.path.as_ref().is_none_or(|path| {
                    std::path::Path::new(&path.value).extension().is_none_or(|end| end != "snap")
                });
                is_image.then(|| {
                    violation(
                        &disk.name,
                        "dio 0",
                        direct,
                        format!("losetup --direct-io=on /dev/{}", disk.name),
                    )
                })?
            })
        },
    },
    Rule {
        id: "discard-stops",
        subject: Subject::Layer,
        sureness: Sureness::Depends,
        title: "A layer does not pass discards down",
        why: "The SSD or the thin pool below never learns what is free. With encryption that may be wanted: it shows which blocks are in use.",
        source: "Linux: Documentation/ABI/stable/sysfs-block, discard_max_bytes; Documentation/admin-guide/device-mapper/dm-crypt.rst, allow_discards",
        check: |survey| {
            disks(survey, |disk| {
                let is_layer = matches!(disk.kind, DiskKind::Mapped | DiskKind::Raid);
                let own = disk.discard_max_bytes.as_ref().filter(|most| most.value == 0 && is_layer)?;
                let able = |name: &String| {
                    survey.disk(name).is_some_and(|below| {
                        below.discard_max_bytes.as_ref().is_some_and(|most| most.value > 0)
                    })
                };
                let all = !disk.below.is_empty() && disk.below.iter().all(able);
                let value = format!("discard_max_bytes 0, while {} takes discards", disk.below.join(", "));
                let remedy = if table(disk, "crypt").next().is_some() {
                    "option discard in /etc/crypttab; now: cryptsetup refresh --allow-discards NAME"
                } else {
                    "dmsetup table shows the layer's options"
                };
                all.then(|| violation(title(disk), value, own, remedy))?
            })
        },
    },
    Rule {
        id: "raid-degraded",
        subject: Subject::Layer,
        sureness: Sureness::Fault,
        title: "A RAID lacks members",
        why: "One more failure may lose the data, and reads of the missing member are computed from the others.",
        source: "Linux: Documentation/admin-guide/md.rst, degraded",
        check: |survey| {
            disks(survey, |disk| {
                let missing = disk.raid.as_ref()?.missing.as_ref().filter(|missing| missing.value > 0)?;
                let value = format!("{} members are missing", missing.value);
                violation(
                    &disk.name,
                    value,
                    missing,
                    format!("mdadm --detail /dev/{0}; mdadm /dev/{0} --add DISK", disk.name),
                )
            })
        },
    },
    Rule {
        id: "raid-mismatch",
        subject: Subject::Layer,
        sureness: Sureness::Fault,
        title: "The parity of a RAID does not match its data",
        why: "A check found sectors whose parity is wrong: after a disk fails, what is computed from it is wrong too.",
        source: "md(4), Scrubbing and mismatches",
        check: |survey| {
            disks(survey, |disk| {
                let raid = disk.raid.as_ref()?;
                // On mirrors, swap and in-flight writes cause harmless mismatches.
                raid.level.as_ref().filter(|level| PARITY.contains(&level.value.as_str()))?;
                let count = raid.mismatches.as_ref().filter(|count| count.value > 0)?;
                let value = format!("mismatch_cnt {}", count.value);
                violation(
                    &disk.name,
                    value,
                    count,
                    format!("check the disks, then: echo repair > /sys/block/{}/md/sync_action", disk.name),
                )
            })
        },
    },
    Rule {
        id: "raid-busy",
        subject: Subject::Layer,
        sureness: Sureness::Cost,
        title: "A RAID is being rebuilt or checked",
        why: "It reads or writes all members in full meanwhile; what is measured now is not what the array does.",
        source: "Linux: Documentation/admin-guide/md.rst, sync_action",
        check: |survey| {
            disks(survey, |disk| {
                let action = disk.raid.as_ref()?.action.as_ref()?;
                let is_busy = !["idle", "frozen"].contains(&action.value.as_str());
                let value = format!("sync_action {}", action.value);
                is_busy.then(|| violation(&disk.name, value, action, "wait for it: cat /proc/mdstat"))?
            })
        },
    },
    Rule {
        id: "raid-without-bitmap",
        subject: Subject::Layer,
        sureness: Sureness::Depends,
        title: "A RAID has no write-intent bitmap",
        why: "After a crash the whole array is synchronised instead of what was written last; the bitmap costs writes in turn.",
        source: "md(4), Bitmap write-intent logging",
        check: |survey| {
            disks(survey, |disk| {
                let raid = disk.raid.as_ref()?;
                let has_redundancy = raid
                    .level
                    .as_ref()
                    .is_some_and(|level| level.value != "raid0" && level.value.starts_with("raid"));
                let bitmap =
                    raid.bitmap.as_ref().filter(|location| location.value == "none" && has_redundancy)?;
                violation(
                    &disk.name,
                    "bitmap none",
                    bitmap,
                    format!("mdadm --grow --bitmap=internal /dev/{}", disk.name),
                )
            })
        },
    },
    Rule {
        id: "thin-pool-full",
        subject: Subject::Layer,
        sureness: Sureness::Fault,
        title: "A thin pool is nearly full",
        why: "When data or metadata run out, writes wait and then fail, and the filesystems on it stop.",
        source: "lvmthin(7), Data space exhaustion; Linux: Documentation/admin-guide/device-mapper/thin-provisioning.rst",
        check: |survey| {
            disks(survey, |disk| {
                let line = status(disk, "thin-pool").next()?;
                // Transaction, metadata blocks, data blocks.
                let (metadata, data) = (percent(line.words.get(1)?)?, percent(line.words.get(2)?)?);
                let is_full = metadata.max(data) >= NEARLY_FULL_PERCENT;
                let value = format!("data {data}%, metadata {metadata}% used");
                is_full.then(|| {
                    mapper_violation(
                        disk,
                        value,
                        line,
                        "lvextend --size +10g POOL; lvextend --poolmetadatasize +256m POOL".into(),
                    )
                })?
            })
        },
    },
    Rule {
        id: "snapshot-full",
        subject: Subject::Layer,
        sureness: Sureness::Fault,
        title: "An LVM snapshot is full or nearly so",
        why: "A full snapshot becomes invalid, and what it kept is lost.",
        source: "lvcreate(8), --snapshot; Linux: Documentation/admin-guide/device-mapper/snapshot.rst",
        check: |survey| {
            disks(survey, |disk| {
                let line = status(disk, "snapshot").next()?;
                let part = line.words.first()?;
                let used = percent(part);
                let is_full = part == "Invalid"
                    || part == "Overflow"
                    || used.is_some_and(|used| used >= NEARLY_FULL_PERCENT);
                let value = used.map_or_else(|| part.clone(), |used| format!("{used}% used"));
                is_full.then(|| {
                    mapper_violation(
                        disk,
                        value,
                        line,
                        "lvextend --size +1g SNAPSHOT, or lvremove SNAPSHOT".into(),
                    )
                })?
            })
        },
    },
    Rule {
        id: "volume-has-snapshot",
        subject: Subject::Layer,
        sureness: Sureness::Cost,
        title: "A volume has an LVM snapshot that copies before each first write",
        why: "The first write to a chunk waits until its old content is read and written to the snapshot.",
        source: "Linux: Documentation/admin-guide/device-mapper/snapshot.rst, snapshot-origin",
        check: |survey| {
            disks(survey, |disk| {
                let uuid = disk.mapped.as_ref()?.uuid.as_ref()?;
                let origin = disk
                    .below
                    .iter()
                    .filter_map(|name| survey.disk(name))
                    .find(|below| is_hidden(below, "-real"))?;
                // A snapshot lies on the same hidden volume and also has a COW store.
                let is_snapshot = disk
                    .below
                    .iter()
                    .filter_map(|name| survey.disk(name))
                    .any(|below| is_hidden(below, "-cow"));
                let value = format!("it is on {}, which snapshots share", title(origin));
                (!is_snapshot).then(|| {
                    violation(
                        title(disk),
                        value,
                        uuid,
                        "lvs -o +origin; lvremove SNAPSHOT when it is no longer needed",
                    )
                })?
            })
        },
    },
    Rule {
        id: "crypt-workqueues",
        subject: Subject::Layer,
        sureness: Sureness::Depends,
        title: "Encryption hands each I/O of an SSD to another thread",
        why: "On fast disks the hand-over takes longer than the encryption; on slow ones it spreads the CPU's work.",
        source: "Linux: Documentation/admin-guide/device-mapper/dm-crypt.rst, no_read_workqueue and no_write_workqueue",
        check: |survey| {
            disks(survey, |disk| {
                let line = table(disk, "crypt").next()?;
                let bottoms = survey.bottoms(&disk.name);
                let is_ssd = !bottoms.is_empty()
                    && bottoms.iter().all(|below| below.rotational.as_ref().is_some_and(|flag| !flag.value));
                let is_queued = !line
                    .words
                    .iter()
                    .any(|word| word == "no_read_workqueue" || word == "no_write_workqueue");
                let remedy = format!(
                    "measure both: cryptsetup refresh --perf-no_read_workqueue --perf-no_write_workqueue {}",
                    title(disk)
                );
                (is_ssd && is_queued).then(|| {
                    mapper_violation(
                        disk,
                        "neither no_read_workqueue nor no_write_workqueue".into(),
                        line,
                        remedy,
                    )
                })?
            })
        },
    },
    Rule {
        id: "multipath-one-path",
        subject: Subject::Layer,
        sureness: Sureness::Fault,
        title: "A multipath device has one path",
        why: "The next failure of a cable, a switch or a controller stops its I/O.",
        source: "multipath(8)",
        check: |survey| {
            disks(survey, |disk| {
                let uuid =
                    disk.mapped.as_ref()?.uuid.as_ref().filter(|uuid| uuid.value.starts_with("mpath-"))?;
                let paths = &disk.below;
                let value = format!("its only path is {}", paths.first()?);
                (paths.len() == 1).then(|| {
                    violation(title(disk), value, uuid, "multipath -ll; then check the other path")
                })?
            })
        },
    },
    Rule {
        id: "multipath-path-failed",
        subject: Subject::Layer,
        sureness: Sureness::Fault,
        title: "A path of a multipath device has failed",
        why: "Fewer paths are left than were planned, and all I/O goes over them.",
        source: "multipath(8); Linux: drivers/md/dm-mpath.c, multipath_status",
        check: |survey| {
            disks(survey, |disk| {
                let line = status(disk, "multipath").next()?;
                // Each path is `MAJOR:MINOR STATE FAILURES`.
                let failed: Vec<&str> = line
                    .words
                    .windows(2)
                    .filter(|pair| pair[0].contains(':') && pair[1] == "F")
                    .map(|pair| pair[0].as_str())
                    .collect();
                let value = format!("failed: {}", failed.join(", "));
                (!failed.is_empty())
                    .then(|| mapper_violation(disk, value, line, "multipath -ll; dmesg shows why".into()))?
            })
        },
    },
    Rule {
        id: "multipath-waits-forever",
        subject: Subject::Layer,
        sureness: Sureness::Depends,
        title: "A multipath device without paths queues its I/O forever",
        why: "Programs then hang instead of failing, and so does a shutdown. Some clusters want that, most hosts want a limit.",
        source: "multipath.conf(5), no_path_retry",
        check: |survey| {
            disks(survey, |disk| {
                let line = table(disk, "multipath")
                    .find(|line| line.words.iter().any(|word| word == "queue_if_no_path"))?;
                mapper_violation(
                    disk,
                    "queue_if_no_path".into(),
                    line,
                    "no_path_retry 12 in /etc/multipath.conf; now: dmsetup message MAP 0 fail_if_no_path"
                        .into(),
                )
            })
        },
    },
    Rule {
        id: "iscsi-slow-failover",
        subject: Subject::Layer,
        sureness: Sureness::Cost,
        title: "An iSCSI path of a multipath device fails late",
        why: "The session holds its I/O for this long before multipath may use another path.",
        source: "open-iscsi README, 8.1 iSCSI settings for dm-multipath",
        check: |survey| {
            disks(survey, |disk| {
                let recovery = disk.scsi.as_ref()?.iscsi_recovery_s.as_ref()?;
                let is_late = recovery.value < 0 || recovery.value > 30;
                let is_path =
                    survey.disks.iter().any(|above| above.below.contains(&disk.name) && is_multipath(above));
                let value = format!("recovery_tmo {} s", recovery.value);
                (is_late && is_path).then(|| violation(&disk.name, value, recovery, "node.session.timeo.replacement_timeout = 5 in /etc/iscsi/iscsid.conf; then log in again"))?
            })
        },
    },
    Rule {
        id: "fc-slow-failover",
        subject: Subject::Layer,
        sureness: Sureness::Cost,
        title: "A Fibre Channel path of a multipath device fails late",
        why: "Without fast_io_fail_tmo its I/O waits until the port is given up, up to dev_loss_tmo, before another path is used.",
        source: "multipath.conf(5), fast_io_fail_tmo",
        check: |survey| {
            disks(survey, |disk| {
                let fail = disk.scsi.as_ref()?.fc_fast_fail.as_ref().filter(|fail| fail.value == "off")?;
                let is_path =
                    survey.disks.iter().any(|above| above.below.contains(&disk.name) && is_multipath(above));
                is_path.then(|| {
                    violation(
                        &disk.name,
                        "fast_io_fail_tmo off",
                        fail,
                        "fast_io_fail_tmo 5 in /etc/multipath.conf; multipathd reconfigure",
                    )
                })?
            })
        },
    },
    Rule {
        id: "bcache-inconsistent",
        subject: Subject::Layer,
        sureness: Sureness::Fault,
        title: "A bcache device was used without its dirty cache",
        why: "Its cache holds data that the disk lacks and that no longer fits: the disk's content is not what was written.",
        source: "Linux: Documentation/admin-guide/bcache.rst, state",
        check: |survey| {
            disks(survey, |disk| {
                let state =
                    disk.bcache.as_ref()?.state.as_ref().filter(|state| state.value == "inconsistent")?;
                violation(
                    &disk.name,
                    "state inconsistent",
                    state,
                    "restore the filesystem from a backup, or check it: fsck",
                )
            })
        },
    },
    Rule {
        id: "bcache-without-cache",
        subject: Subject::Layer,
        sureness: Sureness::Cost,
        title: "A bcache device runs without its cache",
        why: "All I/O goes to the slow disk.",
        source: "Linux: Documentation/admin-guide/bcache.rst, state and cache_mode",
        check: |survey| {
            disks(survey, |disk| {
                let bcache = disk.bcache.as_ref()?;
                let state = bcache.state.as_ref().filter(|state| state.value == "no cache");
                let mode = bcache.mode.as_ref().filter(|mode| mode.value == "none");
                let fact = state.or(mode)?;
                let value = if state.is_some() { "state no cache" } else { "cache_mode none" };
                violation(
                    &disk.name,
                    value,
                    fact,
                    format!(
                        "echo CACHE-SET-UUID > /sys/block/{0}/bcache/attach; echo writethrough > /sys/block/{0}/bcache/cache_mode",
                        disk.name
                    ),
                )
            })
        },
    },
];

fn is_multipath(disk: &Disk) -> bool {
    let uuid = disk.mapped.as_ref().and_then(|mapped| mapped.uuid.as_ref());
    uuid.is_some_and(|uuid| uuid.value.starts_with("mpath-"))
}
