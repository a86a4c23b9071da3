//! Rules on filesystems.

use iotax_model::survey::{DiskKind, Filesystem};
use iotax_model::units::human;

use crate::rule::{Rule, Subject, Sureness, filesystems, violation};

/// Free space in percent below which allocators fragment files.
const LITTLE_SPACE_PERCENT: u64 = 5;
/// Free space in bytes that is enough for a filesystem of any size.
const ENOUGH_BYTES: u64 = 50 << 30;
/// Transfer size in bytes below which round trips dominate NFS.
const SMALL_TRANSFER: u64 = 65_536;
/// Commit interval in seconds above which a crash loses much data.
const LONG_COMMIT_S: u64 = 60;

fn is_nfs(filesystem: &Filesystem) -> bool {
    filesystem.kind.starts_with("nfs")
}

fn is_writable(filesystem: &Filesystem) -> bool {
    // A mount can be read-only although its filesystem is writable.
    !filesystem.has("ro")
}

fn remount(filesystem: &Filesystem, option: &str) -> String {
    format!("mount -o remount,{option} {}; and in /etc/fstab", filesystem.point)
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "filesystem-errors",
        subject: Subject::Filesystem,
        sureness: Sureness::Fault,
        title: "A filesystem recorded errors",
        why: "Its metadata or its disks were found wrong; more may be.",
        source: "Linux: Documentation/ABI/testing/sysfs-fs-ext4, errors_count; btrfs-device(8), stats",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let errors = filesystem.errors.as_ref().filter(|errors| errors.value > 0)?;
                let remedy = if filesystem.kind == "btrfs" {
                    format!("btrfs device stats {0}; btrfs scrub start {0}", filesystem.point)
                } else {
                    format!(
                        "unmount it, then: e2fsck -f /dev/{}",
                        filesystem.device.as_deref().unwrap_or("DEVICE")
                    )
                };
                violation(&filesystem.point, format!("{} errors", errors.value), errors, remedy)
            })
        },
    },
    Rule {
        id: "btrfs-device-missing",
        subject: Subject::Filesystem,
        sureness: Sureness::Fault,
        title: "A btrfs runs without one of its devices",
        why: "What was mirrored has one copy left, and what was not is gone.",
        source: "btrfs(5), degraded; Linux: fs/btrfs/sysfs.c, missing",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let missing = filesystem.missing_devices.as_ref().filter(|missing| missing.value > 0)?;
                let words = match missing.value {
                    1 => "a device is missing".to_owned(),
                    more => format!("{more} devices are missing"),
                };
                violation(
                    &filesystem.point,
                    words,
                    missing,
                    format!("btrfs filesystem show {0}; btrfs replace start ID NEW {0}", filesystem.point),
                )
            })
        },
    },
    Rule {
        id: "barriers-off",
        subject: Subject::Filesystem,
        sureness: Sureness::Fault,
        title: "A filesystem is mounted without write barriers",
        why: "It sends no flushes, so a power cut can leave it inconsistent, unless every cache below has a battery.",
        source: "ext4(5), barrier; btrfs(5), nobarrier",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let option = ["nobarrier", "barrier=0"].into_iter().find(|option| filesystem.has(option))?;
                violation(&filesystem.point, option, &filesystem.options, remount(filesystem, "barrier"))
            })
        },
    },
    Rule {
        id: "nfs-soft",
        subject: Subject::Filesystem,
        sureness: Sureness::Fault,
        title: "A writable NFS mount is soft",
        why: "A server that answers late makes writes fail, and programs that do not check lose data silently.",
        source: "nfs(5), soft / hard",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let fits = is_nfs(filesystem) && is_writable(filesystem) && filesystem.has("soft");
                fits.then(|| {
                    violation(
                        &filesystem.point,
                        "soft",
                        &filesystem.options,
                        "mount it with hard, also in /etc/fstab",
                    )
                })?
            })
        },
    },
    Rule {
        id: "nfs-over-udp",
        subject: Subject::Filesystem,
        sureness: Sureness::Fault,
        title: "NFS runs over UDP",
        why: "Fragments of a large reply can be joined with those of another one: data is corrupted silently on fast links.",
        source: "nfs(5), Using NFS over UDP on high-speed links",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let protocol = filesystem.option("proto").filter(|protocol| protocol.starts_with("udp"))?;
                is_nfs(filesystem).then(|| {
                    violation(
                        &filesystem.point,
                        format!("proto={protocol}"),
                        &filesystem.options,
                        "mount it with proto=tcp, also in /etc/fstab",
                    )
                })?
            })
        },
    },
    Rule {
        id: "inodes-used-up",
        subject: Subject::Filesystem,
        sureness: Sureness::Fault,
        title: "A filesystem has hardly an inode left",
        why: "No new file can be made although space is free.",
        source: "mke2fs(8), -i and -N",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let space = filesystem.space.as_ref().filter(|_| is_writable(filesystem))?;
                let (all, free) = (space.value.inodes, space.value.free_inodes);
                let is_low = all > 0 && free < all / 100;
                let value = format!("{free} of {all} inodes are free");
                is_low.then(|| {
                    violation(
                        &filesystem.point,
                        value,
                        space,
                        format!(
                            "find what has many files: du --inodes -x {} | sort -n | tail",
                            filesystem.point
                        ),
                    )
                })?
            })
        },
    },
    Rule {
        id: "filesystem-nearly-full",
        subject: Subject::Filesystem,
        sureness: Sureness::Cost,
        title: "A filesystem is nearly full",
        why: "The allocator searches longer and finds smaller pieces, so new files are fragmented; a sparse image on it soon stops its guest.",
        source: "Linux: Documentation/filesystems/ext4/allocators.rst; btrfs(5), No space left",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let space = filesystem.space.as_ref().filter(|_| is_writable(filesystem))?;
                let (total, free) = (space.value.total_bytes, space.value.available_bytes);
                let is_low = free < ENOUGH_BYTES && free < total / 100 * LITTLE_SPACE_PERCENT;
                let value = format!("{} of {} are free", human::bytes(free), human::bytes(total));
                is_low.then(|| {
                    violation(
                        &filesystem.point,
                        value,
                        space,
                        format!("du -x -h --max-depth 2 {} | sort -h | tail", filesystem.point),
                    )
                })?
            })
        },
    },
    Rule {
        id: "mounted-sync",
        subject: Subject::Filesystem,
        sureness: Sureness::Cost,
        title: "A filesystem is mounted so that every write waits for the disk",
        why: "Each write is flushed as if fsync followed it.",
        source: "mount(8), sync",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let fits = filesystem.has("sync") && is_writable(filesystem);
                fits.then(|| {
                    violation(&filesystem.point, "sync", &filesystem.options, remount(filesystem, "async"))
                })?
            })
        },
    },
    Rule {
        id: "journal-has-data",
        subject: Subject::Filesystem,
        sureness: Sureness::Cost,
        title: "An ext4 writes all data twice",
        why: "With data=journal everything goes to the journal first and to its place later, and direct I/O is buffered.",
        source: "Linux: Documentation/admin-guide/ext4.rst, data=journal",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let fits = filesystem.option("data") == Some("journal");
                fits.then(|| {
                    violation(
                        &filesystem.point,
                        "data=journal",
                        &filesystem.options,
                        "data=ordered in /etc/fstab, then unmount it and mount it again",
                    )
                })?
            })
        },
    },
    Rule {
        id: "data-writeback",
        subject: Subject::Filesystem,
        sureness: Sureness::Depends,
        title: "An ext4 does not order data and metadata",
        why: "After a crash files may contain what was in their blocks before. It is faster for some work, and no harm for scratch space.",
        source: "Linux: Documentation/admin-guide/ext4.rst, data=writeback",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let fits = filesystem.option("data") == Some("writeback");
                fits.then(|| {
                    violation(
                        &filesystem.point,
                        "data=writeback",
                        &filesystem.options,
                        "data=ordered in /etc/fstab, then unmount it and mount it again",
                    )
                })?
            })
        },
    },
    Rule {
        id: "access-times",
        subject: Subject::Filesystem,
        sureness: Sureness::Cost,
        title: "Every read updates the file's access time",
        why: "Reads cause metadata writes. The kernel's default, relatime, does so once a day at most.",
        source: "mount(8), strictatime and relatime",
        check: |survey| {
            const KINDS: [&str; 6] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"];
            filesystems(survey, |filesystem| {
                let is_strict = !filesystem.has("relatime") && !filesystem.has("noatime");
                let fits = KINDS.contains(&filesystem.kind.as_str()) && is_writable(filesystem) && is_strict;
                fits.then(|| {
                    violation(
                        &filesystem.point,
                        "neither relatime nor noatime",
                        &filesystem.options,
                        remount(filesystem, "relatime"),
                    )
                })?
            })
        },
    },
    Rule {
        id: "commit-rare",
        subject: Subject::Filesystem,
        sureness: Sureness::Depends,
        title: "A filesystem commits its journal rarely",
        why: "A crash loses what was written since, except what fsync wrote; the writes then come in larger bursts.",
        source: "ext4(5), commit; btrfs(5), commit",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let seconds: u64 =
                    filesystem.option("commit")?.parse().ok().filter(|seconds| *seconds > LONG_COMMIT_S)?;
                violation(
                    &filesystem.point,
                    format!("commit={seconds}"),
                    &filesystem.options,
                    remount(filesystem, "commit=5"),
                )
            })
        },
    },
    Rule {
        id: "nfs-small-transfers",
        subject: Subject::Filesystem,
        sureness: Sureness::Cost,
        title: "An NFS mount transfers small pieces",
        why: "A large read or write is split into this size, each with a request of its own. Client and server agree on up to 1 MiB by default.",
        source: "nfs(5), rsize and wsize",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let size = |key: &str| filesystem.option(key)?.parse::<u64>().ok();
                let (read, write) = (size("rsize")?, size("wsize")?);
                let fits = is_nfs(filesystem) && read.min(write) < SMALL_TRANSFER;
                fits.then(|| violation(&filesystem.point, format!("rsize={read}, wsize={write}"), &filesystem.options, "mount it without rsize and wsize; the server's limit is in /proc/fs/nfsd/max_block_size"))?
            })
        },
    },
    Rule {
        id: "nfs-no-attribute-cache",
        subject: Subject::Filesystem,
        sureness: Sureness::Cost,
        title: "An NFS mount asks the server for attributes every time",
        why: "noac turns the attribute cache off and makes writes synchronous.",
        source: "nfs(5), ac / noac",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let fits = is_nfs(filesystem) && filesystem.has("noac");
                fits.then(|| {
                    violation(
                        &filesystem.point,
                        "noac",
                        &filesystem.options,
                        "mount it without noac; lookupcache=positive if names must be fresh",
                    )
                })?
            })
        },
    },
    Rule {
        id: "stripe-unknown",
        subject: Subject::Filesystem,
        sureness: Sureness::Depends,
        title: "A filesystem does not know the stripes of the RAID below it",
        why: "It cannot place data so that full stripes are written, and a partial one costs reads of the others.",
        source: "ext4(5), stripe; xfs(5), sunit and swidth",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let raid = survey.disk(filesystem.device.as_deref()?)?.raid.as_ref()?;
                let chunk = raid.chunk_bytes.as_ref().filter(|chunk| chunk.value > 0)?;
                raid.level
                    .as_ref()
                    .filter(|level| ["raid4", "raid5", "raid6"].contains(&level.value.as_str()))?;
                let knows = match filesystem.kind.as_str() {
                    "ext4" => filesystem.option("stripe").is_some(),
                    "xfs" => filesystem.option("sunit").is_some(),
                    _ => true,
                };
                let value = format!(
                    "chunks of {} and no {}",
                    human::bytes(chunk.value),
                    if filesystem.kind == "xfs" { "sunit" } else { "stripe" }
                );
                (!knows).then(|| {
                    violation(
                        &filesystem.point,
                        value,
                        &filesystem.options,
                        "mount it with stripe=N (ext4) or sunit=N,swidth=N (xfs)",
                    )
                })?
            })
        },
    },
    Rule {
        id: "filesystem-in-user-space",
        subject: Subject::Filesystem,
        sureness: Sureness::Depends,
        title: "A filesystem is served by a program",
        why: "Each I/O wakes a daemon and copies through it; whether that matters depends on what is behind it.",
        source: "Linux: Documentation/filesystems/fuse.rst",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let fits = filesystem.kind.starts_with("fuse.") || filesystem.kind == "fuseblk";
                let remedy = format!("compare it with its disk: iotax bench {}", filesystem.point);
                fits.then(|| {
                    violation(&filesystem.point, filesystem.kind.clone(), &filesystem.options, remedy)
                })?
            })
        },
    },
    Rule {
        id: "never-trimmed",
        subject: Subject::Filesystem,
        sureness: Sureness::Depends,
        title: "An SSD's filesystem is never trimmed",
        why: "The disk keeps copying blocks that the filesystem has freed, which costs it speed and endurance.",
        source: "fstrim(8)",
        check: |survey| {
            filesystems(survey, |filesystem| {
                let timer = survey.machine.trim_timer.as_ref().filter(|timer| !timer.value)?;
                let bottoms = survey.bottoms(filesystem.device.as_deref()?);
                let is_ssd = !bottoms.is_empty()
                    && bottoms.iter().all(|disk| {
                        matches!(disk.kind, DiskKind::Nvme | DiskKind::Scsi)
                            && disk.rotational.as_ref().is_some_and(|flag| !flag.value)
                            && disk.discard_max_bytes.as_ref().is_some_and(|most| most.value > 0)
                    });
                let is_trimmed = filesystem.options.value.iter().any(|option| option.starts_with("discard"));
                (is_ssd && !is_trimmed && is_writable(filesystem)).then(|| {
                    violation(
                        &filesystem.point,
                        "no discard option, and fstrim.timer is off",
                        timer,
                        "systemctl enable --now fstrim.timer",
                    )
                })?
            })
        },
    },
];
