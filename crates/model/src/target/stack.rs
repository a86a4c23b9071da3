//! The parts of a target, once its keys have been found to fit together.
//!
//! A plan's table has a key for each part and may combine them in any way. [`TargetSpec::stack`] rejects combinations that cannot be built
//! and returns the others in a form that has no room for them.

use std::path::Path;

use super::{
    FileSpec, FilesystemSpec, Format, FsType, GuestSpec, LoopSpec, LvmSpec, NetworkEnds, NetworkStack,
    Remote, Snapshot, TargetError, TargetSpec,
};

/// A target, by where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stack<'a> {
    /// A file or device on this machine, or a new file there.
    Path(&'a Path),
    /// The same on another machine.
    Remote(Remote),
    /// Storage that iotax builds on this machine.
    Storage(StorageStack<'a>),
    /// A network path between client and server.
    Network(NetworkStack<'a>),
}

/// Storage that iotax builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageStack<'a> {
    /// The topmost layer on the host.
    pub disk: DiskStack<'a>,
    /// The guest that has it as its disk.
    pub guest: Option<&'a GuestSpec>,
}

/// The topmost layer on the host, and all below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskStack<'a> {
    /// A bare device or volume.
    Block(BlockStack<'a>),
    /// A new file in an existing directory.
    InDirectory(&'a Path, NewFile<'a>),
    /// A new file on a new filesystem.
    OnFilesystem(BlockStack<'a>, &'a FilesystemSpec, NewFile<'a>),
}

/// A block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockStack<'a> {
    /// An existing device.
    Device(&'a Path),
    /// A volume in a new group on an existing device.
    NewGroup(&'a Path, &'a LvmSpec),
    /// A volume in an existing group.
    Group(&'a str, &'a LvmSpec),
}

/// A file that iotax creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewFile<'a> {
    /// A raw file, with a loop device over it if one is wanted.
    Raw(&'a FileSpec, Option<&'a LoopSpec>),
    /// A qcow2 image.
    Qcow2(&'a FileSpec),
}

impl<'a> Stack<'a> {
    /// The fix if file workloads have no filesystem to run on; `None` if, as far as the plan shows, they have one.
    #[must_use]
    pub const fn wants_filesystem(&self) -> Option<&'static str> {
        let storage = match self {
            Self::Network(_) => return Some("it is a network; give a path, file, device or lvm"),
            Self::Path(_) | Self::Remote(_) => return None,
            Self::Storage(storage) => storage,
        };
        match (storage.guest, storage.disk) {
            (Some(GuestSpec { filesystem: Some(_), .. }), _) => None,
            (Some(_), _) => Some("the guest sees a raw disk; add filesystem = \"ext4\" to guest"),
            (None, DiskStack::Block(_)) => {
                Some("a device or volume is raw; add filesystem = { type = \"ext4\" } and file = {}")
            }
            (None, DiskStack::InDirectory(_, file) | DiskStack::OnFilesystem(_, _, file)) => match file {
                NewFile::Raw(_, Some(_)) => Some("a loop device is a raw disk; leave loop out"),
                NewFile::Raw(_, None) | NewFile::Qcow2(_) => None,
            },
        }
    }

    /// The number of parts that are built and measured at the same time: one, or one per guest or server.
    #[must_use]
    pub fn instances(&self) -> usize {
        match self {
            Self::Network(NetworkStack { ends: NetworkEnds::Servers(servers), .. }) => servers.len(),
            _ => self.guest().map_or(1, |guest| guest.count as usize),
        }
    }

    /// The guest that is measured.
    #[must_use]
    pub const fn guest(&self) -> Option<&'a GuestSpec> {
        match self {
            Self::Storage(storage) => storage.guest,
            Self::Network(network) => network.ends.guest(),
            Self::Path(_) | Self::Remote(_) => None,
        }
    }
}

impl<'a> DiskStack<'a> {
    /// The block device at the bottom.
    #[must_use]
    pub const fn block(&self) -> Option<BlockStack<'a>> {
        match self {
            Self::Block(block) | Self::OnFilesystem(block, ..) => Some(*block),
            Self::InDirectory(..) => None,
        }
    }

    /// The settings of the new file.
    #[must_use]
    pub const fn file(&self) -> Option<&'a FileSpec> {
        match self {
            Self::InDirectory(_, file) | Self::OnFilesystem(_, _, file) => Some(file.spec()),
            Self::Block(_) => None,
        }
    }
}

impl<'a> BlockStack<'a> {
    /// The existing device below it.
    #[must_use]
    pub const fn device(&self) -> Option<&'a Path> {
        match self {
            Self::Device(path) | Self::NewGroup(path, _) => Some(path),
            Self::Group(..) => None,
        }
    }
}

impl<'a> NewFile<'a> {
    /// Its settings.
    #[must_use]
    pub const fn spec(&self) -> &'a FileSpec {
        match self {
            Self::Raw(spec, _) | Self::Qcow2(spec) => spec,
        }
    }
}

/// The bottom of a target by its keys.
enum Bottom<'a> {
    Network(NetworkStack<'a>),
    Path(&'a Path),
    Remote(Remote),
    Block(BlockStack<'a>),
    /// The file's directory, if there is a file.
    Directory,
}

impl TargetSpec {
    /// The target's parts, or the reason why they cannot be built. Ignores the name.
    pub fn stack(&self) -> Result<Stack<'_>, TargetError> {
        self.parse().map_err(|reason| self.refused(reason))
    }

    fn parse(&self) -> Result<Stack<'_>, String> {
        let bottom = self.bottom()?;
        if self.sudo && !matches!(bottom, Bottom::Remote(_)) {
            return Err("sudo is for a path on another machine, ssh://[user@]host[:port]/path".into());
        }
        let stack = match bottom {
            Bottom::Path(_) | Bottom::Remote(_) if self.loop_device.is_some() => return Err(no_raw_file()),
            Bottom::Path(path) => Stack::Path(path),
            Bottom::Remote(remote) => Stack::Remote(remote),
            Bottom::Network(network) => Stack::Network(network),
            Bottom::Block(block) => Stack::Storage(self.storage(Some(block))?),
            Bottom::Directory => Stack::Storage(self.storage(None)?),
        };
        if let Some(guest) = &self.guest {
            self.check_guest(guest)?;
        }
        if let Some(settings) = &self.settings {
            settings.check().map_err(|error| format!("settings: {error}"))?;
            if matches!(stack, Stack::Remote(_) | Stack::Network(_)) {
                return Err(
                    "settings belong to storage on this machine: a path, device, lvm or file here".into()
                );
            }
        }
        Ok(stack)
    }

    /// Finds the one thing at the bottom.
    fn bottom(&self) -> Result<Bottom<'_>, String> {
        if let Some(network) = &self.network {
            let storage = self.path.is_some()
                || self.device.is_some()
                || self.lvm.is_some()
                || self.filesystem.is_some()
                || self.file.is_some()
                || self.loop_device.is_some();
            if storage {
                return Err(
                    "network stands alone: it excludes path, device, lvm, filesystem, file and loop".into()
                );
            }
            return network.stack(self.guest.as_ref()).map(Bottom::Network);
        }
        if let Some(path) = &self.path {
            if self.device.is_some() || self.lvm.is_some() || self.file.is_some() || self.filesystem.is_some()
            {
                return Err("path stands alone: it excludes device, lvm, filesystem and file".into());
            }
            if self.guest.is_some() {
                return Err("a guest needs file, lvm or device; path is measured where it is".into());
            }
            return if Remote::is_meant(path) {
                Remote::parse(&path.to_string_lossy()).map(Bottom::Remote)
            } else {
                Ok(Bottom::Path(path))
            };
        }
        let block = match (&self.device, &self.lvm) {
            (None, None) => return Ok(Bottom::Directory),
            (Some(device), None) => BlockStack::Device(device),
            (device, Some(lvm)) => match (device, &lvm.vg) {
                (Some(device), None) => BlockStack::NewGroup(device, lvm),
                (None, Some(group)) => BlockStack::Group(group, lvm),
                (Some(_), Some(_)) => {
                    return Err("lvm.vg and device exclude each other: a group on the device is new".into());
                }
                (None, None) => return Err("lvm needs vg = \"...\", or a device for a new group".into()),
            },
        };
        if self.file.is_some() && self.filesystem.is_none() {
            return Err("a file needs a filesystem = { type = \"ext4\" } on the device or volume".into());
        }
        Ok(Bottom::Block(block))
    }

    /// Storage on a block device, or in the file's directory.
    fn storage<'a>(&'a self, block: Option<BlockStack<'a>>) -> Result<StorageStack<'a>, String> {
        let disk = match (block, &self.filesystem, &self.file) {
            (None, _, None) => {
                return Err(
                    "needs path = \"...\", file = { dir = \"...\" }, device = \"...\", lvm = { vg = \"...\" } or network = { via = \"...\" }"
                        .into(),
                );
            }
            (None, Some(_), _) => return Err("filesystem needs a device or a volume to be made on".into()),
            (Some(_), Some(_), None) => return Err("filesystem needs file = {} on it".into()),
            (Some(_), None, _) if self.loop_device.is_some() => return Err(no_raw_file()),
            (Some(block), None, _) => DiskStack::Block(block),
            (Some(block), Some(filesystem), Some(file)) => {
                if filesystem.nodatacow && filesystem.kind != FsType::Btrfs {
                    return Err(format!("nodatacow is for btrfs, not {}", filesystem.kind));
                }
                if file.dir.is_some() {
                    return Err("file lies on the target's own filesystem; leave dir out".into());
                }
                DiskStack::OnFilesystem(block, filesystem, self.new_file(file)?)
            }
            (None, None, Some(file)) => {
                let dir = file.dir.as_deref();
                let dir = dir.ok_or("file needs dir = \"...\", or a filesystem of the target's own")?;
                DiskStack::InDirectory(dir, self.new_file(file)?)
            }
        };
        Ok(StorageStack { disk, guest: self.guest.as_ref() })
    }

    fn new_file<'a>(&'a self, file: &'a FileSpec) -> Result<NewFile<'a>, String> {
        file.check(self.guest.is_some())?;
        match (file.format, &self.loop_device) {
            (Format::Raw, loop_device) => Ok(NewFile::Raw(file, loop_device.as_ref())),
            (Format::Qcow2, None) => Ok(NewFile::Qcow2(file)),
            (Format::Qcow2, Some(_)) => Err(no_raw_file()),
        }
    }

    fn check_guest(&self, guest: &GuestSpec) -> Result<(), String> {
        guest.check()?;
        let snapshot = self.file.as_ref().and_then(|file| file.snapshot);
        if snapshot == Some(Snapshot::External) && guest.filesystem.is_some() {
            return Err(
                "snapshot = \"external\" takes the disk back to what it was, which a filesystem mounted in the guest \
                 does not survive; use snapshot = \"internal\", or leave guest.filesystem out"
                    .into(),
            );
        }
        if guest.count > 1 && self.device.is_some() {
            return Err("several guests need a disk each: use file or lvm with a volume group".into());
        }
        Ok(())
    }
}

fn no_raw_file() -> String {
    "loop needs a file with format = \"raw\" beneath it".into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{LocalPath, NetPath};

    fn stack(keys: &str, described: fn(&Stack<'_>) -> bool) {
        let spec: TargetSpec = toml::from_str(&format!("name = 't'\n{keys}")).expect(keys);
        let stack = spec.stack().expect(keys);
        assert!(described(&stack), "{keys}: {stack:?}");
    }

    #[test]
    fn every_kind_of_target_has_a_variant_of_its_own() {
        stack("path = '/srv/x'", |it| *it == Stack::Path(Path::new("/srv/x")));
        stack(
            "path = 'ssh://box/x'",
            |it| matches!(it, Stack::Remote(remote) if remote.destination == "box"),
        );
        stack("device = '/dev/x'\nguest = {}", |it| {
            matches!(
                it,
                Stack::Storage(StorageStack {
                    disk: DiskStack::Block(BlockStack::Device(_)),
                    guest: Some(_)
                })
            )
        });
        stack("device = '/dev/x'\nlvm = {}", |it| {
            matches!(
                it,
                Stack::Storage(StorageStack { disk: DiskStack::Block(BlockStack::NewGroup(..)), .. })
            )
        });
        stack("lvm = { vg = 'vg0' }\nfilesystem = { type = 'xfs' }\nfile = {}\nloop = {}", |it| {
            matches!(
                it,
                Stack::Storage(StorageStack {
                    disk: DiskStack::OnFilesystem(BlockStack::Group("vg0", _), _, NewFile::Raw(_, Some(_))),
                    ..
                })
            )
        });
        stack("file = { dir = '/srv', format = 'qcow2' }\nguest = {}", |it| {
            matches!(
                it,
                Stack::Storage(StorageStack { disk: DiskStack::InDirectory(_, NewFile::Qcow2(_)), .. })
            )
        });
        stack("network = { via = 'bridge' }\nguest = {}", |it| {
            matches!(it, Stack::Network(NetworkStack { ends: NetworkEnds::Local(LocalPath::Bridge(_)), .. }))
        });
        stack("network = { via = 'server', peer = 'a,b' }", |it| {
            matches!(it, Stack::Network(NetworkStack { spec, ends: NetworkEnds::Servers(servers) })
                if servers.len() == 2 && spec.via == NetPath::Server)
        });
    }
}
