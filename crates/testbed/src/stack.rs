//! Reads the layers below a path: device, partition, device-mapper, RAID, loop, filesystem, file.
//!
//! The mount table maps a path to its filesystem, /sys/dev/block maps that to a device, and each device's directory lists the devices below
//! it. All files are below a root path, `/` on a live system.

pub(crate) mod device;
pub(crate) mod mount;
pub(crate) mod timeouts;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use iotax_model::guest_abi::SHARE_TAG;
use iotax_model::record::Timeout;
use iotax_model::target::{Layer, LayerKind, ShareProtocol};
use iotax_model::units::human;

use crate::zfs;
use mount::Mount;

/// The layers below a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerStack {
    /// All layers from the bottom up. A layer on several others (a mirror, a volume over two disks) follows all of them and the layers
    /// below them; shared layers are listed once.
    pub layers: Vec<Layer>,
    /// Kernel names of the block devices among the layers, from the bottom up.
    pub disks: Vec<String>,
    /// Kernel names of those that stand on no other device of this machine: the physical disks, as far as this machine sees them.
    pub physical: Vec<String>,
    /// Timeouts and error policies of the layers, as far as they can be read; from the bottom up.
    pub timeouts: Vec<Timeout>,
    /// The files and devices whose page cache may hold data of the path: the path itself, and files and devices behind loop devices and
    /// behind exports of this machine's own servers (NFS, SMB, NVMe). Empty for a directory without any of these.
    pub(crate) cached_in: Vec<PathBuf>,
    /// The mounts of the filesystems among the layers, from the bottom up.
    pub(crate) mounts: Vec<Mount>,
}

impl LayerStack {
    /// Returns whether a program that iotax cannot identify serves one of the layers: a FUSE filesystem's daemon, an NBD client or a ublk
    /// server.
    #[must_use]
    pub fn is_served_by_programs(&self) -> bool {
        self.mounts.iter().any(|mount| mount.kind.starts_with("fuse"))
            || self.disks.iter().any(|disk| disk.starts_with("nbd") || disk.starts_with("ublkb"))
    }

    /// Returns whether one of the layers is a ZFS filesystem or volume. Even direct I/O to these passes through ZFS's cache in memory.
    #[must_use]
    pub fn is_on_zfs(&self) -> bool {
        self.mounts.iter().any(|mount| mount.kind == zfs::FILESYSTEM)
            || self.layers.iter().any(|layer| layer.kind == LayerKind::Zvol)
    }
}

/// An error while reading the layers below a path.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The path does not exist or cannot be accessed.
    #[error("cannot inspect {path}: {source}; name an existing file, directory or block device")]
    Path {
        /// The path whose layers were to be read, as given.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The path is not a file, directory or block device.
    #[error("{path} is neither a file nor a directory nor a block device; name one of these")]
    Kind {
        /// The path whose layers were to be read, as given.
        path: PathBuf,
    },
    /// The mount table cannot be read, or has no mount for the path.
    #[error("cannot tell the filesystem of {path} from {table}: {reason}; is /proc mounted here?")]
    Mounts {
        /// The path whose layers were to be read, as given.
        path: PathBuf,
        /// Path of the mount table.
        table: PathBuf,
        /// Reason why the mount is unknown.
        reason: String,
    },
}

/// Reads the layers below an existing file, directory or block device. The last layer is the file or device itself or, for a directory, its
/// filesystem.
pub fn of_path(root: &Path, path: &Path) -> Result<LayerStack, StackError> {
    let mut walk = Walk { root, stack: LayerStack::default(), entered: Vec::new(), reads_pools: true };
    walk.add_path(path)?;
    Ok(walk.stack)
}

/// Returns the physical disks below a path: [`LayerStack::physical`]. For a file that does not exist, those below its directory. Empty if
/// none is known, as in memory and on the network.
#[must_use]
pub fn physical_disks(root: &Path, path: &Path) -> Vec<String> {
    let stack =
        of_path(root, path).or_else(|error| path.parent().map_or(Err(error), |dir| of_path(root, dir)));
    stack.map(|stack| stack.physical).unwrap_or_default()
}

/// Returns the files and devices whose page cache may hold data of a path: the path itself, and files and devices behind loop devices and
/// behind exports of this machine's own servers (NFS, SMB, NVMe). A device below a filesystem is left out: its page cache holds only
/// metadata.
#[must_use]
pub fn cached_in(root: &Path, path: PathBuf) -> Vec<PathBuf> {
    let found = of_path(root, &path).map(|stack| stack.cached_in).unwrap_or_default();
    if found.is_empty() { vec![path] } else { found }
}

/// A block device as a layer, with the devices directly below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLayer {
    /// The device's kind, name and details.
    pub layer: Layer,
    /// Kernel names of the devices directly below: for a partition its disk, for a loop device the device that holds its backing file.
    pub on: Vec<String>,
}

/// Describes the block device with this kernel name; `None` if it is not in /sys.
#[must_use]
pub fn of_device(root: &Path, name: &str) -> Option<DeviceLayer> {
    let mut walk = Walk { root, stack: LayerStack::default(), entered: Vec::new(), reads_pools: false };
    let on = walk.add_named(name)?;
    Some(DeviceLayer { layer: walk.stack.layers.pop()?, on })
}

/// Returns the mount points by device number (`major:minor`). Includes filesystems without a block device, whose major number is 0.
#[must_use]
pub fn mount_points(root: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut points: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for mount in mount::table(&root.join("proc/self")).unwrap_or_default() {
        let of_device = points.entry(mount.number).or_default();
        if !of_device.contains(&mount.point) {
            of_device.push(mount.point);
        }
    }
    points
}

/// State of a walk from a path down to its disks. Layers are added on the way back up.
struct Walk<'a> {
    root: &'a Path,
    stack: LayerStack,
    /// Kernel names of the devices already visited, so that shared layers are added once and cycles end.
    entered: Vec<String>,
    /// True to run ZFS's tools for the disks and properties of its pools.
    reads_pools: bool,
}

impl Walk<'_> {
    /// Adds the layers below `path` and, if it is a file or block device, the file or device itself.
    fn add_path(&mut self, path: &Path) -> Result<(), StackError> {
        let unreachable = |source| StackError::Path { path: path.to_owned(), source };
        let resolved = self.canonical(path).map_err(unreachable)?;
        let found = fs::metadata(&resolved).map_err(unreachable)?;
        let kind = found.file_type();
        if kind.is_file() || kind.is_block_device() {
            self.stack.cached_in.push(resolved.clone());
        }
        if kind.is_block_device() {
            let number = found.rdev();
            let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
            if !self.add_number(&number) {
                self.add_layer(Layer::new(LayerKind::Device, number, "not described in /sys"));
            }
            return Ok(());
        }
        if !kind.is_file() && !kind.is_dir() {
            return Err(StackError::Kind { path: path.to_owned() });
        }
        // The mount table and the layers use paths relative to the root.
        let root = fs::canonicalize(self.root).map_err(unreachable)?;
        let inside = Path::new("/").join(resolved.strip_prefix(root).unwrap_or(&resolved));
        let mount = mount::of(self.root, &inside).map_err(|(table, reason)| StackError::Mounts {
            path: path.to_owned(),
            table,
            reason,
        })?;
        // Data written to an overlay goes to its upper directory, if this process can access that. A volatile
        // directory and a share have such a directory too.
        let upper = mount.upper_directory().filter(|upper| self.canonical(upper).is_ok());
        let on_device = match upper {
            Some(upper) => self.add_path(&upper).is_ok(),
            None => self.add_source(&mount),
        };
        if let Some((protocol, served)) = mount.served_directory() {
            let file = inside.strip_prefix(&mount.point).ok().filter(|_| kind.is_file());
            // The server's file has separate pages in the page cache.
            self.stack.cached_in.extend(file.and_then(|file| self.canonical(&served.join(file)).ok()));
            let server = match protocol {
                ShareProtocol::Nfs => "the kernel's server",
                ShareProtocol::Smb => "smbd",
            };
            let detail = format!("{server} on this machine, through the page cache");
            self.add_layer(Layer::new(LayerKind::Export, protocol.name(), detail));
        }
        let properties = self.dataset_properties(&mount);
        self.add_layer(filesystem(&mount, &properties, on_device));
        self.add_filesystem_timeouts(&mount);
        self.stack.mounts.push(mount);
        if kind.is_file() {
            let name = inside.file_name().unwrap_or(inside.as_os_str()).to_string_lossy();
            let detail = format!("{}, {}", inside.display(), human::bytes(found.len()));
            self.add_layer(Layer::new(LayerKind::File, name, detail));
        }
        Ok(())
    }

    /// Resolves symbolic links of a path below the root.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let path = std::path::absolute(path)?;
        fs::canonicalize(self.root.join(path.strip_prefix("/").unwrap_or(&path)))
    }

    fn add_layer(&mut self, layer: Layer) {
        if !self.stack.layers.contains(&layer) {
            self.stack.layers.push(layer);
        }
    }
}

/// Text in a filesystem layer's description before the source of a filesystem without a known block device.
const NO_DEVICE: &str = ", no block device below it is known: its source is ";

/// Returns the layers that existed below a target's directory before the run, up to the directory's filesystem. `made` is the number of
/// host filesystems that iotax created above it.
#[must_use]
pub fn beneath_directory(layers: &[Layer], made: usize) -> &[Layer] {
    let is_guest = |layer: &Layer| layer.kind == LayerKind::Guest;
    let host = &layers[..layers.iter().position(is_guest).unwrap_or(layers.len())];
    let mut from_above = (0..host.len()).rev().filter(|at| host[*at].kind == LayerKind::Filesystem);
    from_above.nth(made).map_or(&[], |top| &host[..=top])
}

/// Returns the identity of each layer (kind, name, detail) without parts that change on a reboot or remount, to compare two runs.
pub fn identity(layers: &[Layer]) -> impl Iterator<Item = (LayerKind, &str, &str)> {
    layers.iter().map(|Layer { kind, name, detail, .. }| match kind {
        // A loop device's number is arbitrary: the first free one.
        LayerKind::Loop => (*kind, "", detail.as_str()),
        LayerKind::Partition | LayerKind::Dm | LayerKind::Md | LayerKind::Zvol => (*kind, name.as_str(), ""),
        LayerKind::Filesystem => {
            (*kind, name.as_str(), detail.split_once(NO_DEVICE).map_or("", |(_, source)| source))
        }
        _ => (*kind, name.as_str(), detail.as_str()),
    })
}

/// Describes a filesystem. `properties` are settings that the mount table does not show.
fn filesystem(mount: &Mount, properties: &[String], on_device: bool) -> Layer {
    let mut detail = format!("{}, {}", mount.point.display(), mount.options);
    detail.extend(properties.iter().flat_map(|property| [", ", property]));
    // The layers below a directory that iotax shares with a guest are on the host's record.
    if !on_device && mount.source != SHARE_TAG {
        detail = format!("{detail}{NO_DEVICE}{:?}", mount.source);
    }
    Layer::new(LayerKind::Filesystem, mount.name(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(loop_name: &str, file: &str, options: &str) -> Vec<Layer> {
        vec![
            Layer::new(LayerKind::Device, "vda", "virtio disk"),
            Layer::new(LayerKind::Filesystem, "ext4", "/, rw"),
            Layer::new(LayerKind::File, "image", file),
            Layer::new(LayerKind::Loop, loop_name, format!("of {file}")),
            Layer::new(LayerKind::Filesystem, "ext4", options),
        ]
    }

    #[test]
    fn a_filesystem_that_is_mounted_again_is_the_same() {
        let same = |one: &[Layer], other: &[Layer]| identity(one).eq(identity(other));
        let stood = layers("loop0", "/a/image", "/mnt, rw,relatime");
        assert!(same(&stood, &layers("loop7", "/a/image", "/mnt, rw,noatime")));
        assert!(!same(&stood, &layers("loop0", "/b/image", "/mnt, rw,relatime")));
        assert!(!same(&stood, &stood[..2]));
        let share = |source: &str| {
            [Layer::new(LayerKind::Filesystem, "nfs", format!("/mnt, rw{NO_DEVICE}{source:?}"))]
        };
        assert!(same(&share("host:/a"), &share("host:/a")) && !same(&share("host:/a"), &share("host:/b")));
    }

    #[test]
    fn what_is_made_in_a_directory_and_in_its_guest_is_not_beneath_it() {
        let mut all = layers("loop0", "/a/image", "/mnt, rw");
        let below = all.clone();
        for (kind, name, made) in [
            (LayerKind::File, "new", 0),
            (LayerKind::Filesystem, "overlay", 1),
            (LayerKind::Image, "raw", 1),
            (LayerKind::Guest, "guest", 1),
            (LayerKind::Filesystem, "xfs", 1),
        ] {
            all.push(Layer::new(kind, name, ""));
            assert_eq!(beneath_directory(&all, made), below);
        }
        assert!(beneath_directory(&all[..1], 0).is_empty());
    }
}
