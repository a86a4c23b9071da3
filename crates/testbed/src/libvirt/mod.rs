//! Reads the disk settings of a libvirt domain, to reproduce and measure them on another disk, in a guest that iotax boots or in the domain
//! itself.
//!
//! Supports libvirt's domain XML format. A missing cache, I/O or discard mode gets QEMU's default, and settings of the disk that iotax does
//! not reproduce are left out; a note names each. An unsupported bus, machine type or architecture is an error. The domain's own disk is
//! opened only to read the header of a qcow2 image.

mod alternatives;
mod disk;
mod image;
mod scratch;
mod setup;

use std::fmt;
use std::path::PathBuf;

use iotax_model::survey::{Fact, GuestSetup};
use iotax_model::target::{FileSpec, GuestSpec, MachineType};
use iotax_model::units::{Bytes, human};
use roxmltree::{Document, Node};

use crate::program::ProgramError;
use crate::virsh::VIRSH;

pub use alternatives::alternatives;
pub use scratch::ScratchSource;
pub(crate) use scratch::{disk_xml, port_xml};
pub use setup::setup;

/// Maximum memory of a guest in bytes: direct I/O needs no more, and several guests run at the same time.
const MOST_MEMORY: Bytes = Bytes(1 << 30);
/// Minimum memory of a guest in bytes.
const LEAST_MEMORY: Bytes = Bytes(512 << 20);
/// Maximum number of virtual CPUs of a guest.
const MOST_CPUS: u32 = 64;

/// Elements of a domain that affect the cost of I/O and that iotax does not reproduce.
const NOT_DONE: [&str; 8] = [
    "cputune",
    "numatune",
    "blkiotune",
    "memtune",
    "memoryBacking",
    "resource",
    "launchSecurity",
    "commandline",
];

/// The settings of a domain and of one of its disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Name of the domain; `domain` if the XML has none.
    pub name: String,
    /// The target name of the disk, such as `vda`.
    pub disk: String,
    /// Path of the local file or device behind the disk; `None` for other disks, such as a network disk or a volume.
    pub source: Option<PathBuf>,
    /// CPUs, memory, machine type and disk options for an equivalent guest.
    pub guest: GuestSpec,
    /// Settings for a new image that resembles the disk's; the directory is not set.
    pub file: FileSpec,
    /// One sentence for each difference from the domain and each assumed default.
    pub notes: Vec<String>,
}

/// The reason why a domain cannot be read or its disk cannot be reproduced.
#[derive(Debug, thiserror::Error)]
#[error("{}{message}", position.map(|(line, column)| format!("line {line}, column {column}: ")).unwrap_or_default())]
pub struct DomainError {
    /// Line and column in the XML, counted from 1; `None` if the error has no position.
    position: Option<(u32, u32)>,
    message: String,
}

impl DomainError {
    fn at(node: Node<'_, '_>, message: impl fmt::Display) -> Self {
        let position = node.document().text_pos_at(node.range().start);
        Self { position: Some((position.row, position.col)), message: message.to_string() }
    }
}

/// Reads a domain's XML with `virsh dumpxml`.
pub fn dumpxml(domain: &str) -> Result<String, ProgramError> {
    let xml = VIRSH.run(["--readonly", "dumpxml", "--domain", domain])?;
    Ok(String::from_utf8_lossy(&xml).into_owned())
}

/// Fills in the paths of disks that are libvirt volumes, by asking libvirt. A volume gets no path if it is neither a local file nor a
/// device, or if virsh fails.
pub fn locate_volumes(guest: &mut GuestSetup) {
    for disk in &mut guest.disks {
        let Some((pool, volume)) = disk.volume.as_ref().and_then(|volume| volume.value.split_once('/'))
        else {
            continue;
        };
        let command = ["--readonly", "vol-path", "--pool", pool, "--vol", volume];
        let Ok(path) = VIRSH.run(command) else { continue };
        let path = String::from_utf8_lossy(&path).trim().to_owned();
        disk.path =
            path.starts_with('/').then(|| Fact::new(path, format!("virsh vol-path --pool {pool} {volume}")));
    }
}

/// Parses a domain's XML. Returns the settings of the domain and of its disk with the target name `disk`; for `None`, of the first disk. CD
/// and floppy drives and passed-through LUNs do not count as disks. Does no I/O on the disk, except reading the header of a qcow2 image.
pub fn read(xml: &str, disk: Option<&str>) -> Result<Domain, DomainError> {
    let document = Document::parse(xml).map_err(|error| not_xml(&error))?;
    let root = domain(&document)?;
    let mut notes = Vec::new();
    let mut guest = machine(root, &mut notes)?;
    let node = disk::choose(root, disk)?;
    let disk = disk::read(root, node, &mut guest, &mut notes)?;
    for part in NOT_DONE {
        if child(root, part).is_some() {
            notes.push(format!("<{part}> is not reproduced"));
        }
    }
    let name = child(root, "name").map(text).filter(|name| !name.is_empty());
    let name = name.unwrap_or("domain").to_owned();
    Ok(Domain { name, disk: disk.name, source: disk.source, guest, file: disk.file, notes })
}

fn not_xml(error: &roxmltree::Error) -> DomainError {
    let position = error.pos();
    // The text ends in the position.
    let error = error.to_string();
    let reason = error.strip_suffix(&format!(" at {position}")).unwrap_or(&error);
    DomainError {
        position: Some((position.row, position.col)),
        message: format!("this is not XML: {reason}"),
    }
}

/// Returns the root element of a document. Fails if it is not `<domain>`.
fn domain<'a, 'i>(document: &'a Document<'i>) -> Result<Node<'a, 'i>, DomainError> {
    let root = document.root_element();
    if root.tag_name().name() == "domain" {
        return Ok(root);
    }
    let found = root.tag_name().name();
    Err(DomainError::at(root, format!("<{found}>: accepted: <domain>, as virsh dumpxml prints it")))
}

/// Reads CPUs, memory and machine type of a domain. Adds a note for each value that differs from the domain's.
fn machine(root: Node<'_, '_>, notes: &mut Vec<String>) -> Result<GuestSpec, DomainError> {
    match root.attribute("type") {
        Some("kvm") => {}
        Some("qemu") => {
            notes.push("the domain is emulated (type 'qemu'); use --accel tcg to match it".into());
        }
        other => {
            let found = other.unwrap_or_default();
            return Err(DomainError::at(root, format!("<domain type={found:?}>: accepted: kvm, qemu")));
        }
    }
    // libvirt's default machine is pc.
    let mut guest = GuestSpec { iothread: Some(0), machine: Some(MachineType::Pc), ..GuestSpec::default() };
    if let Some(vcpu) = child(root, "vcpu") {
        let number = vcpu.attribute("current").unwrap_or(text(vcpu));
        let cpus = number.parse().ok().filter(|cpus| *cpus > 0);
        let cpus: u32 = cpus.ok_or_else(|| {
            DomainError::at(vcpu, format!("<vcpu> {number:?}: accepted: a number of CPUs, from 1"))
        })?;
        guest.vcpus = cpus.min(MOST_CPUS);
        if cpus > MOST_CPUS {
            notes.push(format!("{MOST_CPUS} CPUs instead of {cpus}"));
        }
    }
    if let Some(memory) = child(root, "memory") {
        let bytes = memory_bytes(memory)?;
        guest.memory = bytes.clamp(LEAST_MEMORY, MOST_MEMORY);
        if guest.memory != bytes {
            notes.push(format!(
                "{} of memory instead of {}",
                human::bytes(guest.memory.0),
                human::bytes(bytes.0)
            ));
        }
    }
    if let Some(kind) = child(root, "os").and_then(|os| child(os, "type")) {
        if let Some(arch) = kind.attribute("arch").filter(|arch| *arch != "x86_64") {
            return Err(DomainError::at(kind, format!("arch={arch:?}: accepted: x86_64")));
        }
        if let Some(machine) = kind.attribute("machine") {
            let known = match machine {
                "q35" => MachineType::Q35,
                "pc" => MachineType::Pc,
                "microvm" => MachineType::Microvm,
                _ if machine.starts_with("pc-q35-") => MachineType::Q35,
                _ if machine.starts_with("pc-i440fx-") => MachineType::Pc,
                _ => {
                    let message =
                        format!("machine={machine:?}: accepted: q35, pc-q35-*, pc, pc-i440fx-*, microvm");
                    return Err(DomainError::at(kind, message));
                }
            };
            if machine != known.word() {
                notes.push(format!("machine {machine} is {known} of the QEMU here"));
            }
            guest.machine = Some(known);
        }
    }
    Ok(guest)
}

/// Parses memory such as `<memory unit='KiB'>4194304</memory>` into bytes; the default unit is KiB.
fn memory_bytes(node: Node<'_, '_>) -> Result<Bytes, DomainError> {
    let unit = node.attribute("unit").unwrap_or("KiB");
    let factor: Option<u64> = match unit {
        "b" | "bytes" => Some(1),
        "KB" => Some(1000),
        "k" | "KiB" => Some(1 << 10),
        "MB" => Some(1_000_000),
        "M" | "MiB" => Some(1 << 20),
        "GB" => Some(1_000_000_000),
        "G" | "GiB" => Some(1 << 30),
        "TB" => Some(1_000_000_000_000),
        "T" | "TiB" => Some(1 << 40),
        _ => None,
    };
    let bytes =
        factor.zip(text(node).parse::<u64>().ok()).and_then(|(factor, number)| number.checked_mul(factor));
    bytes.map(Bytes).ok_or_else(|| {
        let found = format!("<memory unit={unit:?}> {:?}", text(node));
        DomainError::at(
            node,
            format!("{found}: accepted: a whole number of b, KB, KiB, MB, MiB, GB, GiB, TB or TiB"),
        )
    })
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.tag_name().name() == name)
}

fn text<'a>(node: Node<'a, '_>) -> &'a str {
    node.text().unwrap_or_default().trim()
}
