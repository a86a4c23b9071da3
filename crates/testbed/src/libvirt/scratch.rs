//! A running domain in which a scratch disk can be measured, and the XML of the devices that are attached to it.

use std::path::{Path, PathBuf};

use iotax_model::target::{Bus, FileSpec, Format, GuestSpec};
use roxmltree::{Document, Node};

use super::{DomainError, child, disk, domain, not_xml, read};
use crate::refusal::Refusal;
use crate::virsh::DomainAddress;

/// Name of the guest agent's port.
const AGENT_PORT: &str = "org.qemu.guest_agent.0";

/// Attributes of `<driver>` that a scratch disk does not take from the domain's disk. The scratch disk's error policy is `report`: with
/// QEMU's default, a full disk of the host would pause the guest.
const NOT_TAKEN: [&str; 5] = ["name", "type", "error_policy", "rerror_policy", "copy_on_read"];

/// A running domain with a guest agent, and the settings of the disk that a scratch disk is to resemble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScratchSource {
    /// Address of the domain.
    pub address: DomainAddress,
    /// Name of the domain.
    pub name: String,
    /// Target name of the domain's disk, such as `vda`.
    pub disk: String,
    /// Directory of the disk's image, in which the scratch disk's image is created.
    pub dir: PathBuf,
    /// CPUs, memory, machine type and disk options of the domain.
    pub guest: GuestSpec,
    /// Settings for the scratch disk's image.
    pub file: FileSpec,
    /// True if QEMU emulates the domain's CPU (type `qemu`).
    pub emulated: bool,
}

impl ScratchSource {
    /// Finds a domain and its disk with the target name `disk`; for `None`, its first disk. Changes nothing.
    ///
    /// # Errors
    /// The domain is not on this machine, does not run or has no guest agent, or no scratch disk can be made like its disk.
    pub fn find(domain: &str, disk: Option<&str>) -> Result<Self, Refusal> {
        let shown = format!("libvirt://{domain}");
        let failed = |error| Refusal::environment(format!("{shown}: {error}"));
        let address = DomainAddress::find(domain).map_err(failed)?;
        if !address.is_here() {
            return Err(Refusal::input(format!(
                "{shown}: virsh connects to {}, whose files are on another machine; run iotax there",
                address.uri
            )));
        }
        match address.state().map_err(failed)?.as_str() {
            "running" => {}
            "paused" => {
                return Err(Refusal::environment(format!(
                    "{shown}: the domain is paused; let it go on (virsh resume)"
                )));
            }
            state => {
                return Err(Refusal::environment(format!(
                    "{shown}: the domain is {state}; start it (virsh start)"
                )));
            }
        }
        let xml = address.xml().map_err(failed)?;
        has_agent(&xml).map_err(|reason| Refusal::environment(format!("{shown}: {reason}")))?;
        let source = Self::in_xml(&address, &xml, disk)
            .map_err(|reason| Refusal::input(format!("{shown}: {reason}")))?;
        address.ping().map_err(|error| {
            Refusal::environment(format!("{shown}: {error}; does qemu-guest-agent run in the guest?"))
        })?;
        Ok(source)
    }

    fn in_xml(address: &DomainAddress, xml: &str, disk: Option<&str>) -> Result<Self, String> {
        let found = read(xml, disk).map_err(|error| error.to_string())?;
        let document = Document::parse(xml).map_err(|error| error.to_string())?;
        let node = disk_node(&document, Some(&found.disk)).map_err(|error| error.to_string())?;
        let name = &found.disk;
        if !matches!(found.guest.bus, Bus::VirtioBlk | Bus::VirtioScsi) {
            let bus = found.guest.bus;
            return Err(format!(
                "disk {name} is on {bus}, to which nothing can be attached while the guest runs; name a disk on virtio or virtio-scsi"
            ));
        }
        if found.file.encrypt.is_some() || found.file.format == Format::Luks {
            return Err(format!(
                "disk {name} is encrypted, and a scratch disk would not be; name another disk"
            ));
        }
        if !matches!(found.file.format, Format::Raw | Format::Qcow2) {
            let format = found.file.format;
            return Err(format!("disk {name} is {format}; accepted: raw, qcow2"));
        }
        let path = found.source.map_or_else(|| volume(address, node), Ok)?;
        let dir = path.parent().filter(|_| path.is_file());
        let dir = dir.ok_or_else(|| {
            format!(
                "disk {name} is {}, which is no file of this machine; name a disk that is",
                path.display()
            )
        })?;
        // The scratch disk is a whole image, whatever is below the disk.
        let file = FileSpec { snapshot: None, backing_depth: None, ..found.file };
        Ok(Self {
            address: address.clone(),
            name: found.name,
            disk: found.disk.clone(),
            dir: dir.to_owned(),
            guest: found.guest,
            file,
            emulated: document.root_element().attribute("type") == Some("qemu"),
        })
    }
}

/// Fails if the domain has no port for the guest agent, or if libvirt reports that no agent is connected to it.
fn has_agent(xml: &str) -> Result<(), String> {
    let document = Document::parse(xml).map_err(|error| error.to_string())?;
    let port = document
        .descendants()
        .find(|node| node.has_tag_name("target") && node.attribute("name") == Some(AGENT_PORT));
    match port.map(|port| port.attribute("state")) {
        None => Err(format!(
            "it has no channel for a guest agent; add <channel type='unix'><target type='virtio' name='{AGENT_PORT}'/></channel> to its \
             devices (virsh edit), and install qemu-guest-agent in the guest"
        )),
        Some(Some("disconnected")) => {
            Err("no guest agent runs in it; install and start qemu-guest-agent in the guest".into())
        }
        Some(_) => Ok(()),
    }
}

fn disk_node<'a, 'i>(document: &'a Document<'i>, name: Option<&str>) -> Result<Node<'a, 'i>, DomainError> {
    disk::choose(domain(document)?, name)
}

/// Asks libvirt for the path of a disk that is a volume of a storage pool.
fn volume(address: &DomainAddress, disk: Node<'_, '_>) -> Result<PathBuf, String> {
    let name = disk::name(disk);
    let source = child(disk, "source");
    let attribute = |key| source.and_then(|source| source.attribute(key));
    match (attribute("pool"), attribute("volume")) {
        (Some(pool), Some(volume)) => {
            address.volume_path(pool, volume).map(Into::into).map_err(|error| error.to_string())
        }
        _ => Err(format!("disk {name} is no file of this machine; name a disk that is")),
    }
}

/// Returns the XML of a virtio-serial port with an alias. On the host, QEMU listens on a Unix socket for the port.
pub(crate) fn port_xml(name: &str, alias: &str) -> String {
    format!(
        "<channel type='unix'><source mode='bind'/><target type='virtio' name='{name}'/><alias name='{alias}'/></channel>"
    )
}

/// Returns the XML of a scratch disk with the image `file`. Bus, limits and most driver options are those of the disk with the target name
/// `like` in the domain's XML. The scratch disk gets a free name on the same bus and controller.
pub(crate) fn disk_xml(
    xml: &str,
    like: &str,
    file: &Path,
    serial: &str,
    alias: &str,
) -> Result<String, DomainError> {
    let document = Document::parse(xml).map_err(|error| not_xml(&error))?;
    let node = disk_node(&document, Some(like))?;
    let driver = child(node, "driver");
    let attribute = |key: &str| driver.and_then(|driver| driver.attribute(key));
    let format = attribute("type").unwrap_or("raw");
    let taken = driver.into_iter().flat_map(|driver| driver.attributes());
    let taken = taken.filter(|attribute| !NOT_TAKEN.contains(&attribute.name()));
    let taken: Vec<String> =
        taken.map(|option| format!("{}='{}'", option.name(), escaped(option.value()))).collect();
    let options = format!("name='qemu' type='{}' error_policy='report' {}", escaped(format), taken.join(" "));
    let options = options.trim_end();
    let whole = |node: Node<'_, '_>| &xml[node.range()];
    let of_driver: String =
        driver.into_iter().flat_map(|driver| driver.children()).filter(Node::is_element).map(whole).collect();
    let limits: String =
        ["iotune", "blockio"].iter().filter_map(|name| child(node, name)).map(whole).collect();
    let target = child(node, "target");
    let bus = target.and_then(|target| target.attribute("bus"));
    let scsi = bus == Some("scsi") || bus.is_none() && like.starts_with("sd");
    let (bus, prefix) = if scsi { ("scsi", "sd") } else { ("virtio", "vd") };
    let used: Vec<Node<'_, '_>> = document.descendants().filter(|node| node.has_tag_name("disk")).collect();
    let name = free_name(prefix, &used);
    let address = if scsi { scsi_address(node, &used) } else { String::new() };
    Ok(format!(
        "<disk type='file' device='disk'><driver {options}>{of_driver}</driver><source file='{}'/>\
         <target dev='{name}' bus='{bus}'/>{limits}<serial>{serial}</serial><alias name='{alias}'/>{address}</disk>",
        escaped(&file.to_string_lossy())
    ))
}

/// Returns the first name with this prefix, such as `vdb`, that no disk has.
fn free_name(prefix: &str, used: &[Node<'_, '_>]) -> String {
    let names: Vec<&str> = used.iter().map(|node| disk::name(*node)).collect();
    let letters = ('a'..='z').map(String::from);
    let pairs = ('a'..='z').flat_map(|first| ('a'..='z').map(move |second| format!("{first}{second}")));
    let mut all = letters.chain(pairs).map(|letters| format!("{prefix}{letters}"));
    all.find(|name| !names.contains(&name.as_str())).unwrap_or_else(|| format!("{prefix}aaa"))
}

/// Returns the address of a free unit on the controller of `like`, so that libvirt does not add a controller of another model.
fn scsi_address(like: Node<'_, '_>, used: &[Node<'_, '_>]) -> String {
    let address = |node: Node<'_, '_>, key: &str| -> Option<u32> {
        child(node, "address")?.attribute(key)?.parse().ok()
    };
    let controller = address(like, "controller").unwrap_or(0);
    let is_used = |unit: &u32| {
        used.iter().any(|node| {
            address(*node, "controller") == Some(controller) && address(*node, "unit") == Some(*unit)
        })
    };
    let unit = (0..u32::MAX).find(|unit| !is_used(unit)).unwrap_or(0);
    format!("<address type='drive' controller='{controller}' bus='0' target='0' unit='{unit}'/>")
}

/// Escapes a text for an XML attribute in single quotes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = "<domain type='kvm'><name>web1</name><devices>\
        <disk type='file' device='cdrom'><target dev='sda' bus='scsi'/><address type='drive' controller='0' unit='0'/></disk>\
        <disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none' io='native' discard='unmap' \
        error_policy='stop'><iothreads><iothread id='2'/></iothreads></driver><source file='/srv/a.qcow2'/>\
        <target dev='vda' bus='virtio'/><iotune><total_iops_sec>500</total_iops_sec></iotune><serial>S</serial></disk>\
        <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/srv/b.raw'/>\
        <target dev='sdb' bus='scsi'/><address type='drive' controller='0' bus='0' target='0' unit='1'/></disk>\
        <controller type='scsi' index='0' model='virtio-scsi'/>\
        <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/></channel>\
        </devices></domain>";

    #[test]
    fn a_scratch_disk_has_the_settings_of_the_disk_and_nothing_of_its_own() {
        let made = disk_xml(DOMAIN, "vda", Path::new("/srv/a'b.qcow2"), "iotax1", "ua-iotax-1a2b-disk");
        assert_eq!(
            made.expect("a disk"),
            "<disk type='file' device='disk'><driver name='qemu' type='qcow2' error_policy='report' cache='none' io='native' \
             discard='unmap'><iothreads><iothread id='2'/></iothreads></driver><source file='/srv/a&apos;b.qcow2'/>\
             <target dev='vdb' bus='virtio'/><iotune><total_iops_sec>500</total_iops_sec></iotune>\
             <serial>iotax1</serial><alias name='ua-iotax-1a2b-disk'/></disk>"
        );
        let made = disk_xml(DOMAIN, "sdb", Path::new("/srv/c.raw"), "iotax1", "ua-x").expect("a disk");
        assert!(made.contains("type='raw' error_policy='report'>"), "{made}");
        assert!(made.contains("<target dev='sdc' bus='scsi'/>"), "{made}");
        assert!(
            made.contains("<address type='drive' controller='0' bus='0' target='0' unit='2'/></disk>"),
            "{made}"
        );
        assert!(disk_xml(DOMAIN, "vdz", Path::new("/x"), "s", "a").is_err());
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_the_remedy() {
        let temp = tempfile::tempdir().expect("a directory");
        let file = temp.path().join("a.qcow2");
        std::fs::write(&file, []).expect("written");
        let address = DomainAddress { uri: "qemu:///system".into(), uuid: "u".into() };
        let here =
            DOMAIN.replace("/srv/a.qcow2", &file.display().to_string()).replace("qcow2' cache", "raw' cache");
        let found = ScratchSource::in_xml(&address, &here, None).expect("a domain");
        assert_eq!((found.name.as_str(), found.disk.as_str(), found.emulated), ("web1", "vda", false));
        assert_eq!(found.dir, temp.path());
        for (xml, disk, words) in [
            (here.clone(), Some("vdz"), "it has no disk \"vdz\"; accepted: vda, sdb"),
            (here.clone(), Some("sdb"), "disk sdb is /srv/b.raw, which is no file of this machine"),
            (here.replace("bus='virtio'", "bus='sata'"), None, "name a disk on virtio or virtio-scsi"),
            (
                here.replace("type='raw' cache", "type='vdi' cache"),
                None,
                "disk vda is vdi; accepted: raw, qcow2",
            ),
            (here.replace("<serial>", "<encryption format='luks'/><serial>"), None, "disk vda is encrypted"),
        ] {
            let refusal = ScratchSource::in_xml(&address, &xml, disk).expect_err(words);
            assert!(refusal.contains(words), "{refusal}");
        }
        assert_eq!(has_agent(DOMAIN), Ok(()));
        let silent = has_agent(&DOMAIN.replace("'connected'", "'disconnected'")).expect_err("no agent");
        assert!(silent.contains("start qemu-guest-agent"), "{silent}");
        let none = has_agent(&DOMAIN.replace("guest_agent", "other")).expect_err("no port");
        assert!(none.contains("add <channel type='unix'>"), "{none}");
    }
}
