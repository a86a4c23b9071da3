//! Validates the contents of an undo log, so that a damaged or forged line cannot make iotax touch anything that it did not create.

use std::path::{Component, Path};

use super::effect::Effect;
use crate::cgroup::{self, RunCgroup};
use crate::kernel_file::{self, KernelFile};
use crate::lvm::{Group, Physical};
use crate::mapper::{self, Mapping};
use crate::nvme_tcp;
use crate::share;
use crate::virsh::{self, DomainAddress};

/// Name prefix of everything that iotax creates: guests, namespaces, volume groups and so on.
const OURS: &str = "iotax-";
/// Minimum length of the tag in a name, in characters.
const TAG: usize = 4;
/// Lengths of the groups of characters in a UUID of LVM.
const PHYSICAL: [usize; 7] = [6, 4, 4, 4, 4, 4, 6];
/// Lengths of the groups of characters in a standard UUID.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];
/// Maximum length of a kernel setting's value in bytes.
const LONGEST: usize = 64;

impl Effect {
    /// Rejects an effect that iotax cannot have recorded, for example because a name lacks iotax's prefix. /sys and /proc are below `root`.
    pub(super) fn check_form(&self, root: &Path) -> Result<(), String> {
        match self {
            Self::Directory { path, .. } | Self::Tree { path, .. } | Self::File { path, .. } => {
                absolute(path)
            }
            Self::Guest { marker } => tagged("a guest's marker", marker),
            Self::Domain(domain) => {
                tagged("the name of a domain that iotax made", &domain.name)?;
                expect(is_uuid(&domain.uuid, &UUID), "a UUID", &domain.uuid)
            }
            Self::Daemon { marker } => tagged("a daemon's marker", marker),
            Self::Agent(agent) => {
                let word = |c: char| c.is_ascii_hexdigit();
                tagged("an agent's tag", &agent.tag)?;
                agent.domain.as_ref().map_or(Ok(()), check_domain)?;
                expect(agent.sha256.len() == 64 && agent.sha256.chars().all(word), "a hash", &agent.sha256)
            }
            Self::PhysicalVolume(physical) => check_physical(physical),
            Self::VolumeGroup { name, physical } => {
                tagged("the name of a group that iotax made", name)?;
                check_physical(physical)
            }
            Self::LogicalVolume { group, group_name, name } => {
                expect(is_name(group_name), "the name of a volume group", group_name)?;
                expect(is_name(name), "the name of a volume", name)?;
                match group {
                    Group::Own(physical) => check_physical(physical),
                    Group::Users(uuid) => {
                        expect(is_uuid(uuid, &PHYSICAL), "the UUID of a volume group", uuid)?;
                        tagged("the name of a volume that iotax made", name)
                    }
                }
            }
            Self::Overwritten(device) => absolute(&device.node),
            Self::Filesystem(made) => {
                absolute(&made.device)?;
                expect(is_uuid(&made.uuid, &UUID), "a UUID", &made.uuid)
            }
            Self::Luks(header) => {
                absolute(&header.device)?;
                expect(is_uuid(&header.uuid, &UUID), "a UUID", &header.uuid)
            }
            Self::Mapping(mapping) => {
                let Mapping { name, uuid } = mapping;
                tagged("the name of a mapping that iotax made", name)?;
                let is_ours = ["CRYPT-", mapper::OWN].iter().any(|start| uuid.starts_with(start));
                let is_ours = is_ours && uuid.ends_with(name.as_str());
                expect(is_ours, "the UUID of a mapping that iotax made", uuid)
            }
            Self::NvmeTarget(target) => {
                nqn(&target.nqn)?;
                nqn(&target.host)?;
                expect(
                    target.address.ip().is_loopback(),
                    "an address on loopback",
                    &target.address.to_string(),
                )
            }
            Self::NvmeConnection(connection) => nqn(&connection.nqn),
            Self::Array(array) => {
                expect(is_uuid(&array.uuid, &UUID), "a UUID", &array.uuid)?;
                array.members.iter().try_for_each(|member| absolute(&member.file))
            }
            Self::ZfsPool(pool) => {
                tagged("the name of a pool that iotax made", &pool.name)?;
                absolute(&pool.device)?;
                let guid = pool.guid.as_deref().unwrap_or("0");
                expect(guid.parse::<u64>().is_ok(), "the GUID of a pool", guid)
            }
            Self::Mount(mounted) => {
                absolute(&mounted.point)?;
                let numbers = mounted.source.split_once(':');
                let is_number = numbers.is_some_and(|(a, b)| a.parse::<u32>().and(b.parse::<u32>()).is_ok());
                if is_number {
                    return Ok(());
                }
                let name = share::of_source(&mounted.source).map_or(&*mounted.source, |(_, name)| name);
                tagged("a device number or the name of a mount that iotax made", name)
            }
            Self::Loop(attached) => absolute(&attached.file),
            Self::FuseExport(export) => {
                absolute(&export.point)?;
                tagged("a storage daemon's marker", &export.marker)
            }
            Self::Namespace(namespace) => tagged("a network namespace that iotax made", &namespace.name),
            Self::Interface(interface) => {
                tagged("a network namespace that iotax made", &interface.namespace)?;
                expect(is_name(&interface.name), "the name of an interface", &interface.name)
            }
            Self::Commands { marker } => tagged("a marker of events", marker),
            Self::Cgroup(cgroup) => {
                let RunCgroup { path, home } = cgroup;
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                tagged("a control group that iotax made", &name)?;
                in_cgroups(root, path)?;
                in_cgroups(root, home)
            }
            Self::IoController(controller) => in_cgroups(root, &controller.root),
            Self::Setting(file) => check_setting(root, file),
            Self::TraceInstance(instance) => tagged("a tracing instance that iotax made", &instance.name),
            Self::AttachedDevice(device) => {
                check_domain(&device.domain)?;
                let alias = device.alias.strip_prefix("ua-").unwrap_or_default();
                tagged("the alias of a device that iotax attached", alias)
            }
        }
    }
}

fn expect(is_fine: bool, what: &str, text: &str) -> Result<(), String> {
    if is_fine { Ok(()) } else { Err(format!("{text:?} is not {what}; nothing of this log is undone")) }
}

fn absolute(path: &Path) -> Result<(), String> {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let is_fine = path.is_absolute() && path.file_name().is_some() && path.components().all(is_plain);
    expect(is_fine, "an absolute path without ..", &path.to_string_lossy())
}

/// Rejects an NQN that does not consist of the standard prefix and a UUID.
fn nqn(name: &str) -> Result<(), String> {
    let uuid = name.strip_prefix(nvme_tcp::NQN).unwrap_or_default();
    expect(is_uuid(uuid, &UUID), "the NVMe name of what iotax made", name)
}

/// Rejects a path outside of the cgroup hierarchies.
fn in_cgroups(root: &Path, path: &Path) -> Result<(), String> {
    absolute(path)?;
    let is_there = path.starts_with(root.join(cgroup::CGROUPS.trim_start_matches('/')));
    expect(is_there, "a directory of control groups", &path.to_string_lossy())
}

/// Returns whether a name is non-empty, starts with neither `-` nor `.`, and has only characters that LVM and ip(8) allow in names.
fn is_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "+_.-".contains(c);
    !name.is_empty() && !name.starts_with(['-', '.']) && name.chars().all(is_fine)
}

/// Rejects a name that does not begin with `iotax-` and a run's tag.
fn tagged(what: &str, name: &str) -> Result<(), String> {
    let tag = name.strip_prefix(OURS).map(|rest| rest.split('-').next().unwrap_or_default());
    let is_tag = tag.is_some_and(|tag| tag.len() >= TAG && tag.chars().all(|c| c.is_ascii_alphanumeric()));
    expect(is_tag && is_name(name), what, name)
}

fn is_uuid(text: &str, groups: &[usize]) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq(groups.iter().copied())
        && parts.iter().all(|part| part.chars().all(|c| c.is_ascii_alphanumeric()))
}

fn check_physical(physical: &Physical) -> Result<(), String> {
    absolute(&physical.device)?;
    expect(is_uuid(&physical.uuid, &PHYSICAL), "the UUID of a physical volume", &physical.uuid)
}

fn check_domain(domain: &DomainAddress) -> Result<(), String> {
    expect(virsh::is_local(&domain.uri), "the URI of a libvirt daemon on this machine", &domain.uri)?;
    expect(is_uuid(&domain.uuid, &UUID), "the UUID of a domain", &domain.uuid)
}

fn check_setting(root: &Path, file: &KernelFile) -> Result<(), String> {
    let path = file.path.to_string_lossy();
    absolute(&file.path)?;
    expect(kernel_file::is_setting(root, &file.path), "the file of a setting that iotax tries", &path)?;
    let is_value = |value: &String| value.len() <= LONGEST && !value.contains(char::is_control);
    let mut all = file.values.iter().chain([&file.was]);
    all.try_for_each(|value| expect(is_value(value), "a setting's value", value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_file::KernelFile;

    #[test]
    fn only_what_iotax_could_have_recorded_is_believed() {
        let disk = r#""device":"/dev/sdb","disk":null"#;
        let group = r#""uuid":"000000-0000-0000-000i-otax-1a2b-3c4dn7""#;
        let setting = |path: &str, was: &str| {
            format!(r#"{{"setting":{{"path":"{path}","was":"{was}","values":["64"],"boot_id":null}}}}"#)
        };
        let agent = |tag: &str, to: &str| {
            let host = format!(r#""host":{{"machine":"{to}","sudo":false}}"#);
            format!(r#"{{"agent":{{{host},"tag":"{tag}","sha256":"{}","target":"/x"}}}}"#, "a".repeat(64))
        };
        let nvme = |uuid: &str, ip: &str| {
            let names = format!(r#""nqn":"{nqn}{uuid}","host":"{nqn}{uuid}""#, nqn = nvme_tcp::NQN);
            format!(r#"{{"nvme_target":{{{names},"port":7,"address":"{ip}:4420"}}}}"#)
        };
        let attached = |uri: &str, alias: &str| {
            let domain = format!(r#"{{"uri":"{uri}","uuid":"0f0e0d0c-0b0a-4908-8706-050403020100"}}"#);
            format!(r#"{{"attached_device":{{"domain":{domain},"name":"web1","alias":"{alias}"}}}}"#)
        };
        for (line, is_fine) in [
            (r#"{"file":{"path":"/srv/new"}}"#.to_owned(), true),
            (r#"{"file":{"path":"srv/new"}}"#.to_owned(), false),
            (r#"{"file":{"path":"/srv/../etc/shadow"}}"#.to_owned(), false),
            (r#"{"directory":{"path":"/"}}"#.to_owned(), false),
            (r#"{"guest":{"marker":"iotax-1a2b3c4d-vm_raw.2"}}"#.to_owned(), true),
            (r#"{"guest":{"marker":""}}"#.to_owned(), false),
            (r#"{"daemon":{"marker":"iotax-1a2b3c4d-virtio_raw"}}"#.to_owned(), true),
            (r#"{"daemon":{"marker":""}}"#.to_owned(), false),
            (r#"{"guest":{"marker":"qemu"}}"#.to_owned(), false),
            (r#"{"guest":{"marker":"iotax-"}}"#.to_owned(), false),
            (r#"{"guest":{"marker":"iotax-vm"}}"#.to_owned(), false),
            (r#"{"commands":{"marker":"iotax-1a2b3c4d-event-1"}}"#.to_owned(), true),
            (r#"{"commands":{"marker":"1"}}"#.to_owned(), false),
            (r#"{"namespace":{"name":"iotax-1a2b3c4d-client"}}"#.to_owned(), true),
            (r#"{"namespace":{"name":"iotax-"}}"#.to_owned(), false),
            (r#"{"namespace":{"name":"iotax-1a2b3c4d-/../users"}}"#.to_owned(), false),
            (r#"{"interface":{"namespace":"iotax-1a2b3c4d-near","name":"veth0","kind":"veth"}}"#.to_owned(), true),
            (r#"{"interface":{"namespace":"iotax-1a2b3c4d-near","name":"-all","kind":"veth"}}"#.to_owned(), false),
            (r#"{"mount":{"point":"/tmp/iotax-x","source":"7:0"}}"#.to_owned(), true),
            (r#"{"mount":{"point":"/tmp/iotax-x","source":"iotax-1a2b-vm-overlay"}}"#.to_owned(), true),
            (r#"{"mount":{"point":"/tmp/iotax-x","source":"iotax-1a2b-vm-share:/"}}"#.to_owned(), true),
            (r#"{"mount":{"point":"/tmp/iotax-x","source":"//127.0.0.1/iotax-1a2b-vm-share"}}"#.to_owned(), true),
            (r#"{"mount":{"point":"/tmp/iotax-x","source":"box:/"}}"#.to_owned(), false),
            (r#"{"mount":{"point":"/tmp/iotax-x","source":"//127.0.0.1/home"}}"#.to_owned(), false),
            (r#"{"mount":{"point":"/tmp/iotax-x","source":"7"}}"#.to_owned(), false),
            (format!(r#"{{"physical_volume":{{{disk},{group}}}}}"#), true),
            (format!(r#"{{"luks":{{{disk},"uuid":"0f0e0d0c-0b0a-4908-8706-050403020100"}}}}"#), true),
            (format!(r#"{{"luks":{{{disk},"uuid":"../../sda"}}}}"#), false),
            (r#"{"mapping":{"name":"iotax-1a2b-t","uuid":"CRYPT-LUKS2-00-iotax-1a2b-t"}}"#.to_owned(), true),
            (r#"{"mapping":{"name":"iotax-1a2b-t","uuid":"IOTAX-dm-cache-iotax-1a2b-t"}}"#.to_owned(), true),
            (r#"{"mapping":{"name":"iotax-1a2b-t","uuid":"LVM-iotax-1a2b-t"}}"#.to_owned(), false),
            (r#"{"cgroup":{"path":"/sys/fs/cgroup/blkio/iotax-1a2b-t","home":"/sys/fs/cgroup/blkio"}}"#.to_owned(), true),
            (r#"{"cgroup":{"path":"/sys/fs/cgroup/user.slice","home":"/sys/fs/cgroup"}}"#.to_owned(), false),
            (r#"{"cgroup":{"path":"/srv/iotax-1a2b-t","home":"/sys/fs/cgroup"}}"#.to_owned(), false),
            (r#"{"io_controller":{"root":"/sys/fs/cgroup","boot_id":null}}"#.to_owned(), true),
            (r#"{"io_controller":{"root":"/srv","boot_id":null}}"#.to_owned(), false),
            (nvme("0f0e0d0c-0b0a-4908-8706-050403020100", "127.0.0.1"), true),
            (nvme("0f0e0d0c-0b0a-4908-8706-050403020100", "10.0.0.1"), false),
            (nvme("../mine", "127.0.0.1"), false),
            (r#"{"nvme_connection":{"nqn":"nqn.2014-08.org.nvmexpress.discovery"}}"#.to_owned(), false),
            (r#"{"mapping":{"name":"home","uuid":"CRYPT-LUKS2-00-home"}}"#.to_owned(), false),
            (r#"{"array":{"uuid":"0f0e0d0c-0b0a-4908-8706-050403020100","members":[]}}"#.to_owned(), true),
            (r#"{"zfs_pool":{"name":"iotax-1a2b-t-zfs","device":"/dev/loop0","guid":null}}"#.to_owned(), true),
            (r#"{"zfs_pool":{"name":"iotax-1a2b-t-zfs","device":"/dev/loop0","guid":"17291000"}}"#.to_owned(), true),
            (r#"{"zfs_pool":{"name":"iotax-1a2b-t-zfs","device":"/dev/loop0","guid":"-a"}}"#.to_owned(), false),
            (r#"{"zfs_pool":{"name":"rpool","device":"/dev/loop0","guid":"17291000"}}"#.to_owned(), false),
            (r#"{"array":{"uuid":"home","members":[]}}"#.to_owned(), false),
            (format!(r#"{{"physical_volume":{{{disk},"uuid":"x || 1"}}}}"#), false),
            (r#"{"logical_volume":{"group":{"users":"x"},"group_name":"vg","name":"iotax-1a2b3c4d-volume0"}}"#.to_owned(), false),
            (
                r#"{"logical_volume":{"group":{"users":"000000-0000-0000-0000-0000-0000-000000"},"group_name":"vg","name":"home"}}"#
                    .to_owned(),
                false,
            ),
            (format!(r#"{{"filesystem":{{{disk},"kind":"ext4","uuid":"../../sda"}}}}"#), false),
            (setting("/sys/class/block/sda/queue/nr_requests", "64"), true),
            (setting("/sys/class/block/sda/queue/iosched/fifo_batch", "64"), true),
            (setting("/proc/sys/vm/dirty_ratio", "64"), true),
            (setting("/proc/sys/vm/dirty_ratio", "64\\n65"), false),
            (setting("/proc/sys/kernel/core_pattern", "|/tmp/x"), false),
            (setting("/sys/class/block/sda/queue/../../../../kernel/uevent_helper", "x"), false),
            (setting("/sys/class/block/sda/queue/zoned", "x"), false),
            (setting("/etc/cron.d/x", "x"), false),
            (attached("qemu:///system", "ua-iotax-1a2b3c4d-disk"), true),
            (attached("qemu:///system", "ua-disk0"), false),
            (attached("qemu:///system", "virtio-disk0"), false),
            (attached("--help", "ua-iotax-1a2b3c4d-disk"), false),
            (r#"{"trace_instance":{"name":"iotax-1a2b3c4d-record"}}"#.to_owned(), true),
            (r#"{"trace_instance":{"name":"../users"}}"#.to_owned(), false),
            (agent("iotax-0123456789abcdef", "ssh://me@there"), true),
            (agent("iotax-0123456789abcdef", "podman://web"), true),
            (agent("x", "ssh://me@there"), false),
        ] {
            let effect: Effect = serde_json::from_str(&line).expect(&line);
            let checked = effect.check_form(Path::new("/"));
            assert_eq!(checked.is_ok(), is_fine, "{line}: {checked:?}");
        }
        // A machine that cannot be typed as a target is not even parsed.
        for to in ["ssh://-oProxyCommand=x", "docker://--privileged", "sh://x"] {
            assert!(serde_json::from_str::<Effect>(&agent("iotax-0123456789abcdef", to)).is_err(), "{to}");
        }
        let file = KernelFile { path: "/x/proc/sys/vm/dirty_ratio".into(), ..KernelFile::for_tests() };
        assert!(Effect::Setting(Box::new(file)).check_form(Path::new("/x")).is_ok());
    }
}
