//! Reads block devices and the devices below them from /sys and adds them to a stack.

use std::fs;
use std::path::{Path, PathBuf};

use iotax_model::target::{Layer, LayerKind};
use iotax_model::units::human;

use super::Walk;
use super::mount::Mount;
use crate::host_info::text;
use crate::mapper::Mapping;
use crate::zfs;

/// Bytes per sector in /sys, whatever the device's block size.
const SECTOR: u64 = 512;

impl Walk<'_> {
    /// Adds the block devices of a mounted filesystem. Returns false if none is found, as for a filesystem in memory, on the network or on
    /// another filesystem.
    pub(super) fn add_source(&mut self, mount: &Mount) -> bool {
        if self.add_number(&mount.number) {
            return true;
        }
        if mount.kind == zfs::FILESYSTEM {
            return self.add_pool(&mount.source);
        }
        // Without a device number: btrfs lists its devices in /sys, others name them as their source.
        let names: Vec<String> =
            mount.source.split(':').filter_map(|source| self.kernel_name(source)).collect();
        let names = if mount.kind == "btrfs" { self.btrfs_members(&names) } else { names };
        let found: Vec<PathBuf> = names.iter().filter_map(|name| self.directory(name)).collect();
        found.iter().for_each(|directory| self.add_device(directory));
        !found.is_empty()
    }

    /// Adds the device with the number `major:minor` and the layers below it. Returns false if the device is not in /sys.
    pub(super) fn add_number(&mut self, number: &str) -> bool {
        let Ok(directory) = fs::canonicalize(self.root.join("sys/dev/block").join(number)) else {
            return false;
        };
        self.add_device(&directory);
        true
    }

    /// Adds the device with this kernel name and the layers below it. Returns the names of the devices directly below; `None` if the device
    /// is not in /sys.
    pub(super) fn add_named(&mut self, name: &str) -> Option<Vec<String>> {
        let directory = self.directory(&name.replace('/', "!"))?;
        let on = self.on(&directory);
        self.add_device(&directory);
        Some(on)
    }

    /// Returns the kernel names of the devices directly below the device with this directory in /sys.
    fn on(&self, directory: &Path) -> Vec<String> {
        let name = |directory: &Path| Some(directory.file_name()?.to_string_lossy().replace('!', "/"));
        if directory.join("partition").exists() {
            return directory.parent().and_then(name).into_iter().collect();
        }
        match text(&directory.join("loop/backing_file")) {
            Some(file) => {
                let stack = super::of_path(self.root, Path::new(&file)).unwrap_or_default();
                stack.disks.last().cloned().into_iter().collect()
            }
            None => below(directory).iter().filter_map(|below| name(below)).collect(),
        }
    }

    /// Adds the device with this directory in /sys, after the layers below it. Does nothing for a device that was already visited.
    fn add_device(&mut self, directory: &Path) {
        let Some(entry) = directory.file_name() else { return };
        // /sys replaces a slash in a device name with an exclamation mark.
        let name = entry.to_string_lossy().replace('!', "/");
        if self.entered.contains(&name) {
            return;
        }
        self.entered.push(name.clone());
        let mut is_physical = false;
        let layer = if directory.join("partition").exists() {
            if let Some(whole) = directory.parent() {
                self.add_device(whole);
            }
            partition(directory, &name)
        } else if let Some(file) = text(&directory.join("loop/backing_file")) {
            let reached = self.add_path(Path::new(&file)).is_ok();
            // A file in memory, or one whose devices are not known.
            is_physical = self.on(directory).is_empty();
            loop_device(directory, &name, &file, reached)
        } else if let Some(stored) = served_here(self.root, directory) {
            // If the path cannot be read, the layers below it are unknown.
            let _ = self.add_path(&stored);
            Layer::new(LayerKind::Export, "NVMe", "the kernel's target on this machine, past the page cache")
        } else if let Some(volume) = zfs::volume(self.root, &name) {
            let is_found = self.reads_pools && self.add_pool(&volume);
            is_physical = !is_found;
            self.zvol(directory, &name, volume)
        } else {
            let below_it = below(directory);
            below_it.iter().for_each(|below| self.add_device(below));
            is_physical = below_it.is_empty();
            if directory.join("dm").exists() {
                mapped(directory, &name)
            } else if directory.join("md").exists() {
                raid(directory, &name)
            } else {
                self.add_disk_timeouts(directory, &name);
                device(directory, &name)
            }
        };
        self.add_layer(layer);
        if is_physical {
            self.stack.physical.push(name.clone());
        }
        self.stack.disks.push(name);
    }

    /// Adds the disks of the ZFS pool that holds a dataset or volume, and the layers below them. Returns false if none is found.
    fn add_pool(&mut self, dataset: &str) -> bool {
        let mut is_found = false;
        for disk in zfs::disks(self.root, zfs::pool_of(dataset)) {
            let directory = self.kernel_name(&disk.to_string_lossy()).and_then(|name| self.directory(&name));
            match directory {
                Some(directory) => {
                    self.add_device(&directory);
                    is_found = true;
                }
                // A file.
                None => is_found |= self.add_path(&disk).is_ok(),
            }
        }
        is_found
    }

    /// Returns the properties of a mounted ZFS dataset that determine its speed; empty for other filesystems, or if ZFS's tools must not be
    /// run.
    pub(super) fn dataset_properties(&self, mount: &Mount) -> Vec<String> {
        if mount.kind == zfs::FILESYSTEM && self.reads_pools {
            zfs::properties(self.root, &mount.source, "recordsize,compression,sync,primarycache")
        } else {
            Vec::new()
        }
    }

    fn zvol(&self, directory: &Path, name: &str, volume: String) -> Layer {
        let properties = if self.reads_pools {
            zfs::properties(self.root, &volume, "volblocksize,compression,sync,primarycache")
        } else {
            Vec::new()
        };
        let node = [Some(name.to_owned()), sectors(directory, "size")];
        let detail = row(node.into_iter().chain(properties.into_iter().map(Some)));
        Layer::new(LayerKind::Zvol, volume, detail)
    }

    /// Returns the directory in /sys of the device with this kernel name; `None` if there is none.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        fs::canonicalize(self.root.join("sys/class/block").join(name)).ok()
    }

    /// Returns the kernel name of a device given by a path such as `/dev/sda1`, `/dev/mapper/vg-home` or `/dev/disk/by-label/home`; `None`
    /// if it is unknown.
    fn kernel_name(&self, source: &str) -> Option<String> {
        let device = Path::new(source.starts_with("/dev/").then_some(source)?);
        let linked = self.canonical(device).ok().and_then(|resolved| Some(resolved.file_name()?.to_owned()));
        let named = device.file_name()?.to_owned();
        let known = linked
            .into_iter()
            .chain([named.clone()])
            .filter_map(|name| name.into_string().ok())
            .find(|name| self.directory(name).is_some());
        known.or_else(|| {
            // Without a link in /dev: search device-mapper's own names.
            let devices = sorted(&self.root.join("sys/class/block"));
            let mapped =
                devices.iter().find(|device| text(&device.join("dm/name")).as_deref() == named.to_str())?;
            mapped.file_name()?.to_str().map(str::to_owned)
        })
    }

    /// Returns the kernel names of all devices of the btrfs filesystem that includes one of `names`; `names` itself if /sys does not list
    /// the filesystem.
    fn btrfs_members(&self, names: &[String]) -> Vec<String> {
        let filesystems = sorted(&self.root.join("sys/fs/btrfs"));
        let members = filesystems.iter().map(|filesystem| {
            let devices = sorted(&filesystem.join("devices"));
            devices
                .iter()
                .filter_map(|device| device.file_name()?.to_str().map(str::to_owned))
                .collect::<Vec<_>>()
        });
        members
            .into_iter()
            .find(|members| members.iter().any(|name| names.contains(name)))
            .unwrap_or(names.to_vec())
    }
}

/// Returns the sorted paths of a directory's entries; empty if the directory cannot be read.
pub(crate) fn sorted(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// Returns the directories in /sys of the devices directly below the device with this directory.
pub(crate) fn below(directory: &Path) -> Vec<PathBuf> {
    sorted(&directory.join("slaves")).iter().filter_map(|link| fs::canonicalize(link).ok()).collect()
}

/// Returns the path of the file or device that an NVMe namespace exports, if it is connected to this machine's own NVMe target; `None`
/// otherwise.
fn served_here(root: &Path, directory: &Path) -> Option<PathBuf> {
    let (subsystem, uuid) = (text(&directory.parent()?.join("subsysnqn"))?, text(&directory.join("uuid"))?);
    let namespaces = root.join("sys/kernel/config/nvmet/subsystems").join(subsystem).join("namespaces");
    let is_it = |namespace: &&PathBuf| text(&namespace.join("device_uuid")).as_deref() == Some(&uuid);
    let stored =
        sorted(&namespaces).iter().find(is_it).and_then(|namespace| text(&namespace.join("device_path")))?;
    Some(stored.into())
}

/// Returns a number from a file in a device's directory; `None` if it cannot be read.
fn number(directory: &Path, file: &str) -> Option<u64> {
    text(&directory.join(file))?.parse().ok()
}

/// Returns a size such as `8.00 GiB`, from a file in a device's directory that counts sectors; `None` if it cannot be read.
fn sectors(directory: &Path, file: &str) -> Option<String> {
    Some(human::bytes(number(directory, file)?.checked_mul(SECTOR)?))
}

/// Joins the known parts with commas; leaves out `None`.
fn row(parts: impl IntoIterator<Item = Option<String>>) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn device(directory: &Path, name: &str) -> Layer {
    let queue = |file: &str| text(&directory.join("queue").join(file));
    let model = text(&directory.join("device/model")).or_else(|| {
        // A virtio disk has no model; detect it by its path in /sys.
        is_on_virtio(directory).then(|| "virtio disk".to_owned())
    });
    let detail = row([
        model,
        sectors(directory, "size"),
        queue("rotational").map(|flag| if flag == "0" { "not rotational" } else { "rotational" }.to_owned()),
        queue("scheduler").map(|all| format!("scheduler {}", in_use(&all))),
        queue("logical_block_size")
            .zip(queue("physical_block_size"))
            .map(|(logical, physical)| format!("blocks of {logical} bytes logical, {physical} physical")),
        queue("write_cache").map(|mode| format!("cache {mode}")),
    ]);
    Layer::new(LayerKind::Device, name, detail)
}

/// Returns whether the device with this directory in /sys is on a virtio bus.
pub(crate) fn is_on_virtio(directory: &Path) -> bool {
    directory.ancestors().any(is_virtio)
}

fn is_virtio(resolved: &Path) -> bool {
    let name = resolved.file_name().and_then(|name| name.to_str());
    let index = name.and_then(|name| name.strip_prefix("virtio"));
    index.is_some_and(|index| !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the active entry of a list such as `none [mq-deadline]`; the whole text if it has no brackets.
pub(crate) fn in_use(schedulers: &str) -> &str {
    schedulers.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(schedulers, |(name, _)| name)
}

fn partition(directory: &Path, name: &str) -> Layer {
    let start = sectors(directory, "start").map(|start| format!("begins at {start}"));
    Layer::new(LayerKind::Partition, name, row([sectors(directory, "size"), start]))
}

/// Returns the name of the software that created a device-mapper device, such as `LVM` or `dm-crypt`, from the prefix of its UUID.
fn creator(uuid: &str) -> String {
    match uuid.split_once('-') {
        Some(("LVM", _)) => "LVM".to_owned(),
        Some(("CRYPT", rest)) if rest.starts_with("INTEGRITY-") => "dm-integrity".to_owned(),
        Some(("CRYPT", rest)) if rest.starts_with("VERITY-") => "dm-verity".to_owned(),
        Some(("CRYPT", _)) => "dm-crypt".to_owned(),
        Some(("mpath", _)) => "multipath".to_owned(),
        _ if Mapping::target_of(uuid).is_some() => Mapping::target_of(uuid).unwrap_or_default().to_owned(),
        Some((mark, _)) => format!("device-mapper ({mark})"),
        None => "device-mapper".to_owned(),
    }
}

fn mapped(directory: &Path, name: &str) -> Layer {
    let uuid = text(&directory.join("dm/uuid")).unwrap_or_default();
    let kind = creator(&uuid);
    let title = text(&directory.join("dm/name")).map_or_else(
        || name.to_owned(),
        |title| match kind.as_str() {
            "LVM" => volume_name(&title),
            _ => title,
        },
    );
    Layer::new(LayerKind::Dm, title, row([Some(name.to_owned()), Some(kind), sectors(directory, "size")]))
}

/// Converts LVM's device-mapper name, such as `my--group-volume-tpool`, into `my-group/volume-tpool`: LVM doubles hyphens within names and
/// separates the parts by a single one.
fn volume_name(name: &str) -> String {
    const HYPHEN: &str = "\0";
    let parts = name.replace("--", HYPHEN);
    parts.replacen('-', "/", 1).replace(HYPHEN, "-")
}

fn raid(directory: &Path, name: &str) -> Layer {
    let md = |file: &str| text(&directory.join("md").join(file));
    let members = md("raid_disks").map(|disks| format!("{disks} members"));
    let missing = md("degraded").filter(|count| count != "0").map(|count| format!("{count} of them missing"));
    let state = md("array_state").map(|state| format!("state {state}"));
    Layer::new(LayerKind::Md, name, row([md("level"), members, missing, sectors(directory, "size"), state]))
}

fn loop_device(directory: &Path, name: &str, file: &str, reached: bool) -> Layer {
    let direct = text(&directory.join("loop/dio")).map(|flag| match flag.as_str() {
        "0" => "through the page cache".to_owned(),
        _ => "direct I/O".to_owned(),
    });
    let offset = number(directory, "loop/offset").filter(|offset| *offset > 0);
    let detail = row([
        Some(format!("of {file}")),
        (!reached).then(|| "which cannot be reached: what is below it is not known".to_owned()),
        sectors(directory, "size"),
        direct,
        offset.map(|offset| format!("begins at byte {offset}")),
    ]);
    Layer::new(LayerKind::Loop, name, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_named_by_the_tool_that_made_it() {
        for (uuid, name) in [
            ("LVM-abc", "LVM"),
            ("CRYPT-LUKS2-00-home", "dm-crypt"),
            ("CRYPT-PLAIN-swap", "dm-crypt"),
            ("CRYPT-INTEGRITY-home", "dm-integrity"),
            ("CRYPT-VERITY-00-usr", "dm-verity"),
            ("IOTAX-dm-cache-iotax-1a2b-t-cache", "dm-cache"),
            ("IOTAX-dm-writecache-iotax-1a2b-t-cache", "dm-writecache"),
            ("IOTAX-other", "device-mapper (IOTAX)"),
            ("mpath-3600", "multipath"),
            ("part1-x", "device-mapper (part1)"),
            ("", "device-mapper"),
        ] {
            assert_eq!(creator(uuid), name, "{uuid}");
        }
    }
}
