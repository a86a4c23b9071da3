//! Scratch disks and ports that are attached to a running domain of libvirt.

use iotax_model::Plan;
use iotax_model::target::Format;
use iotax_model::units::Bytes;

use super::{Built, image};
use crate::build_error::BuildError;
use crate::libvirt::{ScratchSource, disk_xml, port_xml};
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoEntry, UndoLog};
use crate::virsh::{AttachedDevice, GuestPort};

/// Bytes of the largest sectors that disks have. The length of a scratch disk is a multiple of it.
const SECTOR: u64 = 4096;

/// A new disk attached to a domain.
#[derive(Debug)]
pub struct ScratchDisk {
    /// Serial number of the disk, by which the guest finds it.
    pub serial: String,
    /// The disk's image on this machine.
    pub image: Built,
}

/// Returns the size of a scratch disk for a plan.
#[must_use]
pub fn scratch_size(plan: &Plan) -> Bytes {
    Bytes(plan.size().0.next_multiple_of(SECTOR))
}

/// Attaches a virtio-serial port to the domain, through which an agent is reached. `name` is the port's name, `iotax-` and a unique tag.
/// Returns the port and its entry in the undo log.
pub fn attach_port(
    source: &ScratchSource,
    name: &str,
    undo_log: &mut UndoLog,
) -> Result<(GuestPort, UndoEntry), BuildError> {
    let device = device(source, &format!("ua-{name}-port"));
    let entry = undo_log.record(Effect::AttachedDevice(device.clone()))?;
    device.attach(&port_xml(name, &device.alias), undo_log.lock())?;
    let port = GuestPort::in_xml(&source.address, &source.address.xml()?, name).ok_or_else(|| {
        Refusal::environment(format!("libvirt://{}: libvirt names no socket of the port {name}", source.name))
    })?;
    Ok((port, entry))
}

/// Creates an image of `size` bytes next to that of the domain's disk, and attaches it to the domain with the same settings. `name` is
/// `iotax-` and a unique tag of at least 15 characters.
pub fn attach_disk(
    source: &ScratchSource,
    name: &str,
    size: Bytes,
    undo_log: &mut UndoLog,
) -> Result<ScratchDisk, BuildError> {
    let extension = if source.file.format == Format::Raw { "raw" } else { source.file.format.word() };
    let path = source.dir.join(name).with_added_extension(extension);
    let image = image::build(&path, size, &source.file, true, undo_log)?;
    // virtio-blk has 20 characters for it.
    let serial: String = name.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
    let device = device(source, &format!("ua-{name}-disk"));
    let xml = disk_xml(&source.address.xml()?, &source.disk, &path, &serial, &device.alias)
        .map_err(|error| Refusal::environment(format!("libvirt://{}: {error}", source.name)))?;
    undo_log.record(Effect::AttachedDevice(device.clone()))?;
    device.attach(&xml, undo_log.lock())?;
    Ok(ScratchDisk { serial, image })
}

fn device(source: &ScratchSource, alias: &str) -> AttachedDevice {
    AttachedDevice { domain: source.address.clone(), name: source.name.clone(), alias: alias.to_owned() }
}
