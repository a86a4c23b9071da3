//! Reads a domain's `<disk>` element, with its controller and I/O threads.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use iotax_model::target::{Aio, Bus, CacheMode, Discard, Encryption, FileSpec, Format, GuestSpec};
use roxmltree::Node;

use super::{DomainError, child, image, text};

/// Properties of a disk that are not part of the guest's settings.
pub(super) struct DomainDisk {
    pub(super) name: String,
    pub(super) source: Option<PathBuf>,
    pub(super) file: FileSpec,
}

/// Attributes of `<driver>` that iotax reproduces, that only concern error handling, or that get a separate note.
const DRIVER: [&str; 10] = [
    "name",
    "type",
    "cache",
    "io",
    "discard",
    "iothread",
    "queues",
    "error_policy",
    "rerror_policy",
    "detect_zeroes",
];
/// Child elements of `<disk>` that iotax reproduces, or that only identify the disk.
const PARTS: [&str; 12] = [
    "driver",
    "source",
    "target",
    "address",
    "alias",
    "boot",
    "serial",
    "wwn",
    "vendor",
    "product",
    "backingStore",
    "auth",
];

/// Child elements of `<source>` that locate the disk or control access to it, and do not affect performance.
const SOURCE: [&str; 6] = ["host", "auth", "seclabel", "snapshot", "config", "address"];

/// Finds the disk with the target name `wanted`; for `None`, the first disk. CD and floppy drives and passed-through LUNs are left out.
pub(super) fn choose<'a, 'i>(root: Node<'a, 'i>, wanted: Option<&str>) -> Result<Node<'a, 'i>, DomainError> {
    let devices =
        child(root, "devices").ok_or_else(|| DomainError::at(root, "the domain has no <devices>"))?;
    let disks: Vec<Node<'a, 'i>> = devices
        .children()
        .filter(|node| node.tag_name().name() == "disk")
        .filter(|node| node.attribute("device").is_none_or(|device| device == "disk"))
        .collect();
    let names: Vec<&str> = disks.iter().map(|disk| name(*disk)).collect();
    match wanted {
        None => {
            disks.first().copied().ok_or_else(|| DomainError::at(devices, "no <disk device='disk'> is in it"))
        }
        Some(wanted) => {
            names.iter().position(|name| *name == wanted).map(|index| disks[index]).ok_or_else(|| {
                DomainError::at(devices, format!("it has no disk {wanted:?}; accepted: {}", names.join(", ")))
            })
        }
    }
}

pub(super) fn name<'a>(disk: Node<'a, '_>) -> &'a str {
    child(disk, "target").and_then(|target| target.attribute("dev")).unwrap_or_default()
}

/// Reads a disk element. Writes the guest's settings into `guest`, and adds a note for each setting that is not reproduced.
pub(super) fn read(
    root: Node<'_, '_>,
    disk: Node<'_, '_>,
    guest: &mut GuestSpec,
    notes: &mut Vec<String>,
) -> Result<DomainDisk, DomainError> {
    guest.bus = bus(root, disk)?;
    let driver = child(disk, "driver");
    let attribute = |key: &str| driver.and_then(|driver| driver.attribute(key));
    let mut left_out = Vec::new();
    guest.cache = word(driver, "cache", CacheMode::Writeback, &mut left_out)?;
    guest.aio = word(driver, "io", Aio::Threads, &mut left_out)?;
    guest.discard = word(driver, "discard", Discard::Ignore, &mut left_out)?;
    let format = match attribute("type") {
        None => Format::Raw,
        Some(format) => format.parse().map_err(|error| DomainError::at(disk, error))?,
    };
    if !left_out.is_empty() {
        notes.push(format!("left to QEMU by the domain: {}", left_out.join(", ")));
    }
    let controller = controller(root, disk).and_then(|controller| child(controller, "driver"));
    let virtio =
        [driver.filter(|_| guest.bus == Bus::VirtioBlk), controller.filter(|_| guest.bus == Bus::VirtioScsi)];
    for driver in virtio.into_iter().flatten() {
        guest.iothread = Some(threads(driver));
        guest.queues = number(driver, "queues")?;
    }
    let file = file(disk, format, notes);
    not_done(disk, driver, controller, notes);
    Ok(DomainDisk { name: name(disk).to_owned(), source: source(disk), file })
}

/// Returns the disk's bus, as given or as libvirt infers it from the target name. Fails for a bus that iotax does not support.
fn bus(root: Node<'_, '_>, disk: Node<'_, '_>) -> Result<Bus, DomainError> {
    let target = child(disk, "target").ok_or_else(|| DomainError::at(disk, "a <disk> without a <target>"))?;
    let letters = name(disk).trim_start_matches("nvme");
    let inferred = match letters.get(..2) {
        _ if letters != name(disk) => "nvme",
        Some("vd") => "virtio",
        Some("sd") => "scsi",
        Some("hd") => "ide",
        _ => "",
    };
    match target.attribute("bus").unwrap_or(inferred) {
        "virtio" => Ok(Bus::VirtioBlk),
        "sata" => Ok(Bus::Sata),
        "ide" => Ok(Bus::Ide),
        "nvme" => Ok(Bus::Nvme),
        "scsi" => match controller(root, disk).and_then(|controller| controller.attribute("model")) {
            Some("virtio-scsi" | "virtio-transitional" | "virtio-non-transitional") => Ok(Bus::VirtioScsi),
            model => Err(DomainError::at(
                disk,
                format!(
                    "a scsi disk on controller model {:?}: accepted: virtio-scsi",
                    model.unwrap_or("(none)")
                ),
            )),
        },
        other => {
            Err(DomainError::at(target, format!("bus={other:?}: accepted: virtio, scsi, sata, ide, nvme")))
        }
    }
}

/// Returns the SCSI controller with the number in the disk's address, or with number 0 if the address gives none; `None` if the domain
/// lists no such controller.
pub(super) fn controller<'a, 'i>(root: Node<'a, 'i>, disk: Node<'a, 'i>) -> Option<Node<'a, 'i>> {
    let index = child(disk, "address").and_then(|address| address.attribute("controller")).unwrap_or("0");
    child(root, "devices")?.children().find(|node| {
        node.tag_name().name() == "controller"
            && node.attribute("type") == Some("scsi")
            && node.attribute("index").unwrap_or("0") == index
    })
}

/// Parses an attribute of `<driver>`. If the attribute is missing or `default`, returns QEMU's default and adds key and default to
/// `left_out`.
fn word<T: FromStr<Err: std::fmt::Display> + std::fmt::Display>(
    driver: Option<Node<'_, '_>>,
    key: &str,
    default: T,
    left_out: &mut Vec<String>,
) -> Result<T, DomainError> {
    let given = driver.and_then(|driver| Some((driver, driver.attribute(key)?)));
    match given.filter(|(_, word)| *word != "default") {
        None => {
            left_out.push(format!("{key} ({default})"));
            Ok(default)
        }
        Some((driver, word)) => {
            word.parse().map_err(|error| DomainError::at(driver, format!("<driver {key}={word:?}>: {error}")))
        }
    }
}

/// Returns the number of I/O threads that a driver element assigns: 1 with the attribute `iothread`, several with a child `<iothreads>`,
/// else 0.
pub(super) fn threads(driver: Node<'_, '_>) -> u32 {
    let several = child(driver, "iothreads").map_or(0, |threads| {
        threads.children().filter(|thread| thread.tag_name().name() == "iothread").count()
    });
    match (driver.attribute("iothread"), several) {
        (_, 1..) => u32::try_from(several).unwrap_or(u32::MAX),
        (Some(_), 0) => 1,
        (None, 0) => 0,
    }
}

fn number(node: Node<'_, '_>, key: &str) -> Result<Option<u32>, DomainError> {
    let Some(found) = node.attribute(key) else { return Ok(None) };
    found.parse().map(Some).map_err(|_| DomainError::at(node, format!("{key}={found:?}: accepted: a number")))
}

/// Returns the path of the local file or device behind the disk; `None` for other disks, such as a network disk or a volume.
pub(super) fn source(disk: Node<'_, '_>) -> Option<PathBuf> {
    let source = child(disk, "source")?;
    source.attribute("file").or_else(|| source.attribute("dev")).map(PathBuf::from)
}

/// Returns the settings for a new image that resembles the disk's.
fn file(disk: Node<'_, '_>, format: Format, notes: &mut Vec<String>) -> FileSpec {
    let source = source(disk);
    match disk.attribute("type").unwrap_or("file") {
        "file" => {}
        "block" => notes.push(format!(
            "the disk is the device {}; a file stands for it here (a device or a volume is measured with a plan)",
            source.as_deref().unwrap_or(Path::new("?")).display()
        )),
        other => {
            let protocol = child(disk, "source").and_then(|source| source.attribute("protocol"));
            let protocol = protocol.map(|protocol| format!(" ({protocol})")).unwrap_or_default();
            notes.push(format!("the disk is of type {other}{protocol}; a file stands for it here"));
        }
    }
    let stored = std::iter::successors(child(disk, "backingStore"), |store| child(*store, "backingStore"));
    let backing = stored.filter(|store| child(*store, "source").is_some()).count();
    let file = image::like(source.as_deref(), format, u32::try_from(backing).unwrap_or(u32::MAX), notes);
    encrypted(disk, file, notes)
}

/// Returns the `<encryption>` element of a disk that QEMU encrypts with LUKS; `None` for any other disk. libvirt accepts it in the disk or
/// in its source.
fn luks<'a, 'i>(disk: Node<'a, 'i>) -> Option<Node<'a, 'i>> {
    let of_source = child(disk, "source").and_then(|source| child(source, "encryption"));
    of_source.or_else(|| child(disk, "encryption")).filter(|node| node.attribute("format") == Some("luks"))
}

/// Adds the disk's LUKS encryption to the settings of the new image. Adds a note if the image's format cannot be encrypted, or if the
/// domain names a cipher.
fn encrypted(disk: Node<'_, '_>, file: FileSpec, notes: &mut Vec<String>) -> FileSpec {
    let Some(luks) = luks(disk) else { return file };
    let encrypted = match file.format {
        Format::Raw => FileSpec { format: Format::Luks, ..file },
        Format::Qcow2 => FileSpec { encrypt: Some(Encryption::Luks), ..file },
        _ => {
            notes.push(format!("<encryption> is not reproduced in an image of format {}", file.format));
            return file;
        }
    };
    if let Some(cipher) = child(luks, "cipher") {
        let size = cipher.attribute("size").unwrap_or("?");
        let words = ["name", "mode"].map(|key| cipher.attribute(key).unwrap_or("?")).join("-");
        notes.push(format!("the cipher {words} of {size} bits is AES-256 in XTS mode here"));
    }
    encrypted
}

/// Adds a note for each attribute and element of the disk that iotax does not reproduce.
fn not_done(
    disk: Node<'_, '_>,
    driver: Option<Node<'_, '_>>,
    controller: Option<Node<'_, '_>>,
    notes: &mut Vec<String>,
) {
    if let Some(how) = driver.and_then(|driver| driver.attribute("detect_zeroes")).filter(|how| *how != "off")
    {
        notes.push(format!("detect_zeroes={how:?} is not reproduced; iotax writes no zeros"));
    }
    for driver in [driver, controller].into_iter().flatten() {
        for attribute in driver.attributes().filter(|attribute| !DRIVER.contains(&attribute.name())) {
            notes.push(format!("<driver {}={:?}> is not reproduced", attribute.name(), attribute.value()));
        }
        for part in
            driver.children().filter(|part| part.is_element() && part.tag_name().name() != "iothreads")
        {
            notes.push(format!("<{}> of <driver> is not reproduced", part.tag_name().name()));
        }
    }
    let of_disk = disk.children().filter(|part| !PARTS.contains(&part.tag_name().name()));
    let of_source = child(disk, "source").into_iter().flat_map(|source| source.children());
    let of_source = of_source.filter(|part| !SOURCE.contains(&part.tag_name().name()));
    let is_luks = |part: &Node<'_, '_>| luks(disk).is_some_and(|luks| luks.id() == part.id());
    for part in of_disk.chain(of_source).filter(|part| part.is_element() && !is_luks(part)) {
        notes.push(format!("<{}>{} is not reproduced", part.tag_name().name(), settings(part)));
    }
    if let Some(rate) = child(disk, "target").and_then(|target| target.attribute("rotation_rate")) {
        notes.push(format!(
            "rotation_rate={rate:?} is not reproduced: it tells the guest whether the disk is an SSD"
        ));
    }
}

/// Returns the content of an element for a note: its text, or the names and texts of its child elements.
fn settings(part: Node<'_, '_>) -> String {
    let of_children = part
        .children()
        .filter(Node::is_element)
        .map(|child| format!(" {}={}", child.tag_name().name(), text(child)));
    match text(part) {
        "" => of_children.collect(),
        said => format!(" {said}"),
    }
}
