//! Rules on disk images.

use iotax_model::survey::{BrokenChain, Image, ProbedBacking, Survey};
use iotax_model::units::human;

use crate::rule::{Rule, Subject, Sureness, Violation, images, quoted, violation};

/// QEMU's default limit of the L2 table cache of a qcow2 image, in bytes.
const L2_CACHE: u64 = 32 << 20;
/// Size of an L2 table entry in bytes.
const L2_ENTRY: u64 = 8;
/// QEMU's default cluster size in bytes.
const CLUSTER: u64 = 64 << 10;
/// Minimum number of backing files for which a chain is reported as long.
const LONG_CHAIN: usize = 4;
/// Mean extent size in bytes below which a file is fragmented.
const SMALL_EXTENT: u64 = 1 << 20;
/// Number of extents up to which a file is never reported as fragmented.
const FEW_EXTENTS: u64 = 1000;

/// Returns the L2 cache size in bytes that a guest sets for an image; `None` if no guest sets one.
fn l2_cache(survey: &Survey, image: &Image) -> Option<u64> {
    let disks = survey.guests.iter().flat_map(|guest| &guest.disks);
    let mut own = disks.filter(|disk| disk.path.as_ref().is_some_and(|path| path.value == image.path));
    own.find_map(|disk| Some(disk.l2_cache_bytes.as_ref()?.value))
}

/// Returns a violation if QEMU probes the format of a backing image, and `is_meant` is true for the format that the backing image's header
/// shows; else `None`.
fn probed(image: &Image, is_meant: fn(Option<&str>) -> bool) -> Option<Violation> {
    let header = image.qcow2.as_ref()?;
    let ProbedBacking { overlay, base, format } = header.value.probed.as_ref()?;
    let format = format.as_deref();
    if !is_meant(format) {
        return None;
    }
    let value = match format {
        Some(format) => format!("{overlay} names {base} without its format; by its header it is {format}"),
        None => format!("{overlay} names {base} without its format"),
    };
    let remedy = format!(
        "with the guest off: qemu-img rebase -u -b {} -F {} {}",
        quoted(base),
        format.unwrap_or("FORMAT"),
        quoted(overlay)
    );
    violation(&image.path, value, header, remedy)
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "image-corrupt",
        subject: Subject::Image,
        sureness: Sureness::Fault,
        title: "QEMU marked an image corrupt",
        why: "QEMU found its tables inconsistent and opens it for reading only.",
        source: "QEMU: docs/interop/qcow2.rst, corrupt bit",
        check: |survey| {
            images(survey, |image| {
                let header = image.qcow2.as_ref().filter(|header| header.value.corrupt == Some(true))?;
                violation(
                    &image.path,
                    "corrupt: true",
                    header,
                    format!("back it up, then: qemu-img check -r all {}", quoted(&image.path)),
                )
            })
        },
    },
    Rule {
        id: "image-larger-than-space",
        subject: Subject::Image,
        sureness: Sureness::Depends,
        title: "An image can grow beyond the space that is left",
        why: "When the filesystem is full, the guest's writes fail or QEMU pauses the guest. If you overcommit on purpose, monitor the free space.",
        source: "QEMU: qemu-img(1), preallocation; libvirt domain XML, error_policy='enospace'",
        check: |survey| {
            images(survey, |image| {
                let file = image.file.as_ref()?;
                let space = survey.filesystem_of(&image.path)?.space.as_ref()?;
                let left = image.disk_bytes()?.saturating_sub(file.value.allocated_bytes);
                let is_over = left > space.value.available_bytes;
                let value = format!(
                    "{} are not allocated yet, {} are free ({})",
                    human::bytes(left),
                    human::bytes(space.value.available_bytes),
                    space.source
                );
                is_over.then(|| violation(&image.path, value, file, "free space, or move the image; fstrim in the guest with discard=unmap gives some back"))?
            })
        },
    },
    Rule {
        id: "image-backing-missing",
        subject: Subject::Image,
        sureness: Sureness::Fault,
        title: "An image below an overlay is missing",
        why: "QEMU cannot open the overlay, and what only the image below holds is lost with it.",
        source: "QEMU: docs/interop/qcow2.rst, backing file name; qemu-img(1), rebase",
        check: |survey| {
            images(survey, |image| {
                let header = image.qcow2.as_ref()?;
                let Some(BrokenChain::Missing { overlay, base }) = &header.value.broken else { return None };
                let remedy = format!(
                    "restore it; if it was moved, with the guest off: qemu-img rebase -u -b NEW_PLACE -F FORMAT {}",
                    quoted(overlay)
                );
                violation(
                    &image.path,
                    format!("{overlay} is on {base}, which does not exist"),
                    header,
                    remedy,
                )
            })
        },
    },
    Rule {
        id: "image-backing-loop",
        subject: Subject::Image,
        sureness: Sureness::Fault,
        title: "An image is below itself",
        why: "QEMU cannot open a chain of images that has no end.",
        source: "QEMU: docs/interop/qcow2.rst, backing file name; qemu-img(1), rebase",
        check: |survey| {
            images(survey, |image| {
                let header = image.qcow2.as_ref()?;
                let Some(BrokenChain::Loop { overlay, base }) = &header.value.broken else { return None };
                let remedy = format!(
                    "name the right base, with the guest off: qemu-img rebase -u -b BASE -F FORMAT {}",
                    quoted(overlay)
                );
                violation(&image.path, format!("{overlay} is on {base}, which is above it"), header, remedy)
            })
        },
    },
    Rule {
        id: "image-raw-base-probed",
        subject: Subject::Image,
        sureness: Sureness::Fault,
        title: "An overlay does not say that the image below is raw",
        why: "QEMU guesses the format from bytes that a guest may have written, and then reads whatever file those bytes name.",
        source: "QEMU: docs/about/removed-features.rst, qemu-img backing file without format",
        check: |survey| images(survey, |image| probed(image, |format| format == Some("raw"))),
    },
    Rule {
        id: "image-format-probed",
        subject: Subject::Image,
        sureness: Sureness::Depends,
        title: "An overlay does not name the format of the image below",
        why: "QEMU guesses it from the image's first bytes, which is unsafe if a guest ever wrote the image as a raw disk.",
        source: "QEMU: docs/about/removed-features.rst, qemu-img backing file without format",
        check: |survey| images(survey, |image| probed(image, |format| format != Some("raw"))),
    },
    Rule {
        id: "image-aes",
        subject: Subject::Image,
        sureness: Sureness::Fault,
        title: "An image has qcow2's old encryption",
        why: "Its design is broken, and QEMU no longer runs guests on it.",
        source: "QEMU: docs/system/qemu-block-drivers.rst.inc, encrypt.format=aes",
        check: |survey| {
            images(survey, |image| {
                let header = image
                    .qcow2
                    .as_ref()
                    .filter(|header| header.value.encryption.as_deref() == Some("aes"))?;
                violation(
                    &image.path,
                    "encrypt.format aes",
                    header,
                    "qemu-img convert to a new image with encrypt.format=luks",
                )
            })
        },
    },
    Rule {
        id: "image-tables-beyond-cache",
        subject: Subject::Image,
        sureness: Sureness::Cost,
        title: "An image is larger than the cache for its tables covers",
        why: "Random I/O over all of it reads a table from the image for each I/O whose entry is not cached.",
        source: "QEMU: docs/qcow2-cache.txt",
        check: |survey| {
            images(survey, |image| {
                let header = image.qcow2.as_ref()?;
                let (disk, cluster) = (header.value.virtual_bytes?, header.value.cluster_bytes?);
                let entry = if header.value.extended_l2 == Some(true) { 2 * L2_ENTRY } else { L2_ENTRY };
                let covered = (l2_cache(survey, image).unwrap_or(L2_CACHE) / entry).checked_mul(cluster)?;
                let value = format!(
                    "{} with clusters of {}; the cache covers {}",
                    human::bytes(disk),
                    human::bytes(cluster),
                    human::bytes(covered)
                );
                let needed = disk.div_ceil(cluster) * entry;
                (disk > covered).then(|| {
                    violation(
                        &image.path,
                        value,
                        header,
                        format!("l2-cache-size={needed}, or <metadata_cache><max_size> of libvirt"),
                    )
                })?
            })
        },
    },
    Rule {
        id: "image-small-clusters",
        subject: Subject::Image,
        sureness: Sureness::Cost,
        title: "An image has clusters below QEMU's default",
        why: "It has more tables to read and update for the same data, and each allocation is smaller.",
        source: "QEMU: docs/qcow2-cache.txt; qemu-img(1), cluster_size",
        check: |survey| {
            images(survey, |image| {
                let header = image.qcow2.as_ref()?;
                let cluster = header.value.cluster_bytes.filter(|size| *size < CLUSTER)?;
                violation(
                    &image.path,
                    format!("clusters of {}", human::bytes(cluster)),
                    header,
                    "qemu-img convert -O qcow2 to a new image with the default cluster size",
                )
            })
        },
    },
    Rule {
        id: "overlay-copies-clusters",
        subject: Subject::Image,
        sureness: Sureness::Cost,
        title: "An overlay copies large clusters for small writes",
        why: "The first write to a cluster copies the rest of it from the image below.",
        source: "QEMU: docs/interop/qcow2.rst, extended L2 entries; qemu-img(1), extended_l2",
        check: |survey| {
            images(survey, |image| {
                let header = image.qcow2.as_ref().filter(|header| !header.value.backing.is_empty())?;
                let cluster = header.value.cluster_bytes.filter(|size| *size > CLUSTER)?;
                let is_whole = header.value.extended_l2 != Some(true);
                let value = format!("clusters of {} on a backing image", human::bytes(cluster));
                is_whole.then(|| {
                    violation(
                        &image.path,
                        value,
                        header,
                        "make overlays with cluster_size=64k, or with extended_l2=on",
                    )
                })?
            })
        },
    },
    Rule {
        id: "image-chain-long",
        subject: Subject::Image,
        sureness: Sureness::Depends,
        title: "An image is on a long chain of others",
        why: "A read of what the upper ones lack asks each of them, and each has tables and a cache of its own.",
        source: "QEMU: docs/interop/live-block-operations.rst",
        check: |survey| {
            images(survey, |image| {
                let header = image.qcow2.as_ref()?;
                let depth = header.value.backing.len();
                let value = format!("{depth} images below it");
                (depth >= LONG_CHAIN).then(|| {
                    violation(
                        &image.path,
                        value,
                        header,
                        "virsh blockcommit; with the guest off, qemu-img commit merges one image into the next, which no other overlay may use",
                    )
                })?
            })
        },
    },
    Rule {
        id: "image-internal-snapshots",
        subject: Subject::Image,
        sureness: Sureness::Depends,
        title: "An image has snapshots within it",
        why: "The first write to each cluster after a snapshot allocates a new one; deleting snapshots later takes long.",
        source: "QEMU: docs/interop/qcow2.rst, snapshots",
        check: |survey| {
            images(survey, |image| {
                let header = image.qcow2.as_ref().filter(|header| header.value.snapshots > 0)?;
                let value = format!("{} snapshots", header.value.snapshots);
                violation(
                    &image.path,
                    value,
                    header,
                    format!(
                        "qemu-img snapshot -l {0}; while it is not in use: qemu-img snapshot -d TAG {0}",
                        quoted(&image.path)
                    ),
                )
            })
        },
    },
    Rule {
        id: "image-old-version",
        subject: Subject::Image,
        sureness: Sureness::Depends,
        title: "An image has qcow2's old version",
        why: "Version 0.10 cannot mark zeros without writing them, and has no lazy refcounts.",
        source: "qemu-img(1), compat",
        check: |survey| {
            images(survey, |image| {
                let header =
                    image.qcow2.as_ref().filter(|header| header.value.compat.as_deref() == Some("0.10"))?;
                violation(
                    &image.path,
                    "compat 0.10",
                    header,
                    format!("while it is not in use: qemu-img amend -o compat=1.1 {}", quoted(&image.path)),
                )
            })
        },
    },
    Rule {
        id: "image-foreign-format",
        subject: Subject::Image,
        sureness: Sureness::Depends,
        title: "An image has another hypervisor's format",
        why: "QEMU reads and writes these formats for exchange; raw and qcow2 are the ones that it is built to run.",
        source: "QEMU: docs/system/images.rst, Disk image file formats",
        check: |survey| {
            images(survey, |image| {
                let format = image.format.as_ref().filter(|format| format.value != "qcow2")?;
                violation(
                    &image.path,
                    format.value.clone(),
                    format,
                    format!("qemu-img convert -O qcow2 {} NEW.qcow2", quoted(&image.path)),
                )
            })
        },
    },
    Rule {
        id: "image-fragmented",
        subject: Subject::Image,
        sureness: Sureness::Depends,
        title: "An image is in many pieces",
        why: "A request over the border of two extents becomes two; on a rotating disk each border is a seek.",
        source: "filefrag(8)",
        check: |survey| {
            images(survey, |image| {
                let extents = image.extents.as_ref().filter(|extents| extents.value > FEW_EXTENTS)?;
                let allocated = image.file.as_ref()?.value.allocated_bytes;
                let mean = allocated.checked_div(extents.value)?;
                let value = format!("{} extents of {} on average", extents.value, human::bytes(mean));
                (mean < SMALL_EXTENT).then(|| {
                    violation(
                        &image.path,
                        value,
                        extents,
                        "copy it while the guest is off: cp --sparse=auto; preallocation=falloc for new ones",
                    )
                })?
            })
        },
    },
    Rule {
        id: "image-copy-on-write",
        subject: Subject::Image,
        sureness: Sureness::Cost,
        title: "An image is on btrfs with copy on write",
        why: "Each overwrite goes to a new place: random writes fragment the image without end.",
        source: "btrfs(5), nodatacow; chattr(1), C",
        check: |survey| {
            images(survey, |image| {
                let in_place = image.in_place.as_ref().filter(|in_place| !in_place.value)?;
                let filesystem = survey.filesystem_of(&image.path)?;
                let is_copied = !filesystem.has("nodatacow");
                let is_image = image.format.is_some()
                    || survey
                        .guests
                        .iter()
                        .flat_map(|guest| &guest.disks)
                        .any(|disk| disk.path.as_ref().is_some_and(|path| path.value == image.path));
                (is_copied && is_image).then(|| {
                    violation(
                        &image.path,
                        "no attribute C",
                        in_place,
                        "chattr +C on an empty directory, then copy the image into it",
                    )
                })?
            })
        },
    },
];
