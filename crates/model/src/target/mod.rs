//! Targets: the storage or network path to measure, with its layers.
//!
//! A target is a [`Stack`] of layers from the bottom up. Each layer must accept the interface that the layer below offers.

mod area;
mod description;
mod fitting;
mod kind;
mod layer;
mod layers;
mod machine;
mod part;
mod planned_device;
mod remote;
mod settings;
mod stack;
mod table;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;
use layers::TargetTable;

pub use area::Area;
pub use kind::TargetKind;
pub use layer::{Layer, LayerKind};
pub use layers::{
    Accel, Aio, BottomLocation, Bus, CacheMode, CacheSpec, CacheType, CgroupSpec, DelaySpec, DeviceSpec,
    Discard, DmCacheMode, DomainType, Encryption, ErrorRate, FileSpec, FilesystemSpec, FilterSpec,
    FilterType, Format, FsType, FuseSpec, GuestFs, GuestSpec, ImageSpec, IntegrityMode, IntegritySpec,
    IscsiSpec, LayerInterface, LayerSpec, LayerType, LocalPath, LoopSpec, LuksSpec, LvKind, LvmSpec,
    MachineType, MdSpec, NbdAddress, NbdClient, NbdExportSpec, NbdServer, NbdSpec, NetPath, NetworkEnds,
    NetworkSpec, NetworkStack, NfsSpec, Nic, NinePCache, NinePSpec, NvmeTcpSpec, OsdMedia, OverlaySpec,
    PathSpec, PlannedLayer, Preallocation, RaidBitmap, RaidLevel, RbdSpec, SecurityModel, ShareProtocol,
    ShareSpec, Snapshot, Subformat, TmpfsSpec, VirtioSpec, VirtiofsCache, VirtiofsSpec, VolatileSpec,
    VolumeAllocation, XenBackend, XenSpec, ZfsCompression, ZfsKind, ZfsPrimaryCache, ZfsSpec, ZfsSync,
};
pub use machine::{ContainerEngine, Machine};
pub use part::Part;
pub use planned_device::{DirectoryProtocol, PlannedDevice};
pub use remote::Remote;
pub use settings::{Setting, SettingError, SettingScope, Settings};
pub use stack::Stack;

/// Space that a plan's workloads need on a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequiredSpace {
    /// Space for the area that workloads access.
    pub area: Bytes,
    /// Additional space on the target's filesystem for files that workloads create next to the area.
    pub files: Bytes,
}

/// A target as defined in a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "TargetTable", into = "TargetTable")]
pub struct TargetSpec {
    /// Name of the target, unique within a plan.
    pub name: String,
    /// The layers of the target, from the bottom up.
    pub stack: Stack,
    /// True to run the agent on the other machine under sudo(8). Only for a target whose path is `ssh://...`.
    pub sudo: bool,
    /// Name of a `[[neighbour]]` that generates load while this target is measured; `None` for no such load.
    pub neighbour: Option<String>,
    /// Kernel settings that are applied while the target is measured; `None` to leave the kernel's settings as they are.
    pub settings: Option<Settings>,
}

/// The reason why a target is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("target {name:?}: {reason}")]
pub struct TargetError {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl TargetError {
    /// Returns the reason for the error, without the target's name.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl TargetSpec {
    /// Creates a target with these layers, without kernel settings and background load.
    pub fn new(name: impl Into<String>, stack: impl Into<Stack>) -> Self {
        Self { name: name.into(), stack: stack.into(), ..Self::default() }
    }

    /// Returns the path of an existing file or device to measure, or of a file to create, here or on another machine; `None` for other
    /// targets.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.stack.find::<PathSpec>().map(|PathSpec(path)| path.as_path())
    }

    /// Returns the path of the block device at the bottom of the stack, which iotax writes to only if `--overwrite` names it too; `None`
    /// without one.
    #[must_use]
    pub fn device(&self) -> Option<&Path> {
        self.stack.find::<DeviceSpec>().map(|DeviceSpec(path)| path.as_path())
    }

    /// Returns the logical volume at the bottom of the stack, in a group of the user's or in a new one on `device`; `None` without one.
    #[must_use]
    pub fn bottom_volume(&self) -> Option<&LvmSpec> {
        match self.stack.layers() {
            [PlannedLayer::Device(_), PlannedLayer::Lvm(volume), ..] | [PlannedLayer::Lvm(volume), ..] => {
                Some(volume)
            }
            _ => None,
        }
    }

    /// Returns the layers above the block device and the logical volume at the bottom of the stack.
    #[must_use]
    pub fn on_bottom(&self) -> &[PlannedLayer] {
        match self.stack.layers() {
            [PlannedLayer::Device(_), PlannedLayer::Lvm(_), above @ ..]
            | [PlannedLayer::Device(_) | PlannedLayer::Lvm(_), above @ ..] => above,
            all => all,
        }
    }

    /// Returns the key of the layer that formats the block device or logical volume at the bottom of the stack, also through a delay or
    /// another transparent layer; `None` if no layer formats it.
    #[must_use]
    pub fn formatted_by(&self) -> Option<&'static str> {
        let layer = self.on_bottom().iter().find(|layer| !layer.kind().is_transparent())?.kind();
        layer.formats().then(|| layer.key())
    }

    /// Returns the topmost filesystem that iotax creates on the host; `None` without one.
    #[must_use]
    pub fn filesystem(&self) -> Option<&FilesystemSpec> {
        self.stack.find()
    }

    /// Returns the topmost file that iotax creates on the host; `None` without one.
    #[must_use]
    pub fn file(&self) -> Option<&FileSpec> {
        self.stack.find()
    }

    /// Returns the topmost loop device in the stack; `None` without one.
    #[must_use]
    pub fn loop_device(&self) -> Option<&LoopSpec> {
        self.stack.find()
    }

    /// Returns the network path to measure; `None` for storage.
    #[must_use]
    pub fn network(&self) -> Option<&NetworkSpec> {
        self.stack.find()
    }

    /// Returns whether this is a network target whose server iotax runs on this host.
    #[must_use]
    pub fn has_server_here(&self) -> bool {
        self.network().is_some_and(|network| !network.via.is_given())
    }

    /// Returns the QEMU guest in which workloads run; `None` without one.
    #[must_use]
    pub fn guest(&self) -> Option<&GuestSpec> {
        self.stack.find()
    }

    /// Returns the Xen domain in which workloads run; `None` without one.
    #[must_use]
    pub fn xen(&self) -> Option<&XenSpec> {
        self.stack.find()
    }

    /// Returns whether workloads run in a guest or a Xen domain, which see the storage as their disk or the network by their card.
    #[must_use]
    pub fn is_in_guest(&self) -> bool {
        self.guest().is_some() || self.xen().is_some()
    }

    /// Returns the machine or container with the target, and the path there; `None` for targets on this machine. The target must have
    /// passed [`Self::check`].
    #[must_use]
    pub fn remote(&self) -> Option<Remote> {
        Remote::parse(&self.path()?.to_string_lossy()).ok()
    }

    /// Returns the kernel settings that the target sets, with their values; empty without settings.
    #[must_use]
    pub fn setting_values(&self) -> Vec<(Setting, String)> {
        self.settings.as_ref().map(Settings::values).unwrap_or_default()
    }

    /// Returns whether this target can reuse the storage of `other`: it has kernel settings, and apart from settings and name the two are equal.
    /// Only for stacks of paths, devices, files and loop devices without snapshots.
    #[must_use]
    pub fn is_same_storage(&self, other: &Self) -> bool {
        let bare = |spec: &Self| Self { name: String::new(), settings: None, ..spec.clone() };
        let is_reusable = self.stack.layers().iter().all(|layer| layer.kind().is_reusable());
        // Equal targets without settings are an A/A comparison, which needs two files.
        !self.setting_values().is_empty() && is_reusable && bare(self) == bare(other)
    }

    /// Returns the type of the filesystem that the guest creates on its disk; `None` without a guest, or if it uses the raw disk.
    #[must_use]
    pub fn filesystem_in_guest(&self) -> Option<GuestFs> {
        self.guest()?.filesystem
    }

    /// Returns the size of the disk or file that the target needs for `space`. A filesystem in the guest needs additional space, and also
    /// holds the files that workloads create.
    #[must_use]
    pub fn disk_size(&self, space: RequiredSpace) -> Bytes {
        match self.guest() {
            Some(guest) if guest.filesystem.is_some() => {
                guest.disk_size(Bytes(space.area.0.saturating_add(space.files.0)))
            }
            _ => space.area,
        }
    }

    /// Returns the space that the target needs on a filesystem of the host: its file and, unless workloads run in a guest, the files that
    /// workloads create.
    #[must_use]
    pub fn on_filesystem(&self, space: RequiredSpace) -> Bytes {
        let beside = if self.is_in_guest() { 0 } else { space.files.0 };
        Bytes(self.disk_size(space).0.saturating_add(beside))
    }

    /// Rejects a name that cannot be part of a path or volume name, and a stack that cannot be built.
    pub fn check(&self) -> Result<(), TargetError> {
        let simple = !self.name.is_empty()
            && self.name.len() <= 40
            && self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            && !self.name.starts_with('.');
        if !simple {
            let accepted = "a name is 1 to 40 letters, digits, '-', '_' or '.' and does not begin with '.'";
            return Err(self.refused(accepted.into()));
        }
        self.kind().map(drop)
    }

    pub(crate) fn refused(&self, reason: String) -> TargetError {
        TargetError { name: self.name.clone(), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(keys: &str) -> TargetSpec {
        toml::from_str(&format!("name = 't'\n{keys}")).unwrap_or_else(|error| panic!("{keys}: {error}"))
    }

    const SNAPSHOT: &str =
        "file = { dir = '/srv', format = 'qcow2', preallocation = 'metadata', snapshot = 'external' }\n";

    #[test]
    fn impossible_targets_are_refused_with_the_reason() {
        for (keys, words) in [
            (
                "guest = {}",
                "guest needs a block device, a raw file, a disk image, a network for a guest or a directory for a guest below it",
            ),
            ("", "needs path = \"...\", file = { dir"),
            ("path = '/x'\nfile = { dir = '/srv' }", "file stands at the bottom, which path excludes"),
            ("path = '/x'\nguest = {}", "path is measured where it is, so guest cannot stand on it"),
            (
                SNAPSHOT,
                "ends with file, a disk image, on which nothing can be measured; add virtio = {} or fuse = {} or guest = {} (in a line: > virtio)",
            ),
            ("file = { dir = '/srv', preallocation = 'metadata' }\nguest = {}", "metadata"),
            (
                "file = { dir = '/srv', snapshot = 'external' }\nguest = {}",
                "snapshot needs format = \"qcow2\"",
            ),
            ("file = { dir = '/srv' }\nguest = { aio = 'native', cache = 'writeback' }", "native"),
            (
                "file = { dir = '/srv', format = 'qcow2', preallocation = 'metadata' }\nfilter = { type = 'quorum' }\nvirtio = {}",
                "quorum needs a raw file right below it, for a second one next to it, and file is a disk image; in a line: DIR > raw file > quorum",
            ),
            ("file = { dir = '/srv' }\nguest = { vcpus = 0 }", "vcpus"),
            ("file = { dir = '/srv' }\nguest = { memory = '1m' }", "memory"),
        ] {
            let refusal = target(keys).check().expect_err(words).to_string();
            assert!(refusal.contains(words), "{keys}: {refusal}");
        }
        for name in ["a b", "../x"] {
            let refusal = TargetSpec::new(name, PathSpec("/x".into())).check().expect_err(name).to_string();
            assert!(refusal.contains("letters"), "{refusal}");
        }
    }

    #[test]
    fn what_formats_a_device_is_found_through_a_delay_and_not_above_a_file() {
        for (stack, key) in [
            ("device /dev/x", None),
            ("device /dev/x > thick LVM volume", None),
            ("device /dev/x > ext4 > raw file", Some("filesystem")),
            ("device /dev/x > delay read=1ms > ext4 > raw file", Some("filesystem")),
            ("device /dev/x > delay read=1ms > thick LVM volume", Some("lvm")),
            ("/srv > raw file > loop > luks", None),
        ] {
            let found = target(&format!("stack = '{stack}'"));
            let found = if found.device().is_some() { found.formatted_by() } else { None };
            assert_eq!(found, key, "{stack}");
        }
    }

    #[test]
    fn layers_stand_on_what_offers_what_they_need() {
        for good in [
            "device = '/dev/x'",
            "device = '/dev/x'\nlvm = {}",
            "device = '/dev/x'\nlvm = {}\nfilesystem = { type = 'ext4' }\nfile = {}\nguest = {}",
            "device = '/dev/x'\nfilesystem = { type = 'ext4' }\nfile = {}\nloop = {}",
            "lvm = { vg = 'vg' }",
            "path = 'ssh://me@host/x'",
            "path = 'ssh://me@host/x'\nsudo = true",
            "path = 'docker://web/x'",
            "path = 'kubectl://default/web-0/x'",
            "path = 'libvirt://web1:vdb'",
            "stack = '/srv > raw file > loop direct_io=true > xfs > qcow2 file > virtio-scsi cache=none aio=threads > guest'",
            "stack = '/srv > raw file > loop direct_io=true > thick LVM volume'",
            "stack = '/srv > raw file > loop direct_io=true > luks > thin LVM volume + snapshot > luks > ext4 > raw file'",
            "stack = '/srv > raid1 raid_devices=2 > thick LVM volume > thick LVM volume'",
            "stack = 'device /dev/x > delay read=1ms > thick LVM volume'",
        ] {
            assert_eq!(target(good).check(), Ok(()), "{good}");
        }
        for (bad, words) in [
            ("device = '/dev/x'\nlvm = { vg = 'vg' }", "lvm stands at the bottom, which device excludes"),
            (
                "lvm = {}",
                "lvm needs vg = \"...\", or a block device below it for a new group; over a file: stack = \"/srv > raw file > loop direct_io=true > thick LVM volume\"",
            ),
            (
                "device = '/dev/x'\nfile = {}",
                "file needs a directory, and device is a block device; put filesystem = { type = \"ext4\" } between",
            ),
            (
                "device = '/dev/x'\nfilesystem = { type = 'ext4' }",
                "ends with filesystem, a directory, on which nothing can be measured; add file = {} (in a line: > raw file)",
            ),
            ("file = {}", "file needs dir"),
            ("filesystem = { type = 'ext4' }\nfile = {}", "filesystem needs a block device below it"),
            ("device = '/dev/x'\nloop = {}", "loop needs a raw file, and device is a block device"),
            ("path = 'ssh://host'", "no path"),
            ("path = '/x'\ndevice = '/dev/x'", "device stands at the bottom, which path excludes"),
            ("device = '/dev/x'\nsudo = true", "another machine"),
            ("path = 'docker://web/x'\nsudo = true", "docker://USER@CONTAINER/path"),
            ("path = 'kubectl://web/x'", "no path; accepted: kubectl://namespace/pod[:container]/path"),
            (
                "stack = '/srv > raw file > thick LVM volume'",
                "lvm needs a block device, and file is a raw file; put loop = {} between (in a line: loop)",
            ),
            (
                "stack = 'vg0 > thick LVM volume + snapshot > luks > thick LVM volume + snapshot'",
                "lvm: a snapshot of one volume is taken before each measurement, and two volumes have snapshot = true",
            ),
            ("luks = {}", "luks needs a block device below it"),
            (
                "file = { dir = '/srv' }\nluks = {}",
                "luks needs a block device below it; over a file: stack = \"/srv > raw file > loop direct_io=true > luks\"",
            ),
            (
                "file = { dir = '/srv' }\ncache = { size = '1m' }",
                "cache needs a block device below it; over a file: stack = \"/srv > raw file > loop direct_io=true > dm-cache size=1m\"",
            ),
            (
                "lvm = { vg = 'vg' }\ncache = { size = '64m' }",
                "cache needs dir = \"...\", a directory on the fast device",
            ),
            ("zfs = { kind = 'zvol' }", "zfs needs a block device below it; over a file: stack"),
            (
                "device = '/dev/x'\nzfs = { kind = 'zvol' }",
                "zfs: zpool writes a partition table to a whole device; put lvm = {} between, or use a file with a loop device",
            ),
            (
                "stack = '/srv > raid1 raid_devices=2 > zvol'",
                "zfs: zpool writes a partition table to an array; put luks = {} between, or use a file with a loop device",
            ),
            ("cgroup = { riops = 5 }", "cgroup needs a raw file, a block device, a virtio device"),
            (
                "path = '/x'\ncgroup = { riops = 5 }",
                "path is measured where it is, so cgroup cannot stand on it",
            ),
            ("file = { dir = '/srv' }\nguest = {}\ncgroup = {}", "cgroup needs a limit"),
            (
                "stack = '/srv > raw file > cgroup riops=5 > loop'",
                "cgroup is a limit on the load, which stands on top",
            ),
            ("nvme_tcp = {}", "nvme_tcp needs a block device or a raw file below it"),
            ("share = {}\nfile = {}", "share needs dir = \"...\", or a filesystem of the target's own"),
            ("share = { dir = '/srv', nconnect = 17 }\nfile = {}", "nconnect = 17: accepted: 1 to 16"),
            (
                "share = { dir = '/srv', protocol = 'smb', max_channels = 0 }\nfile = {}",
                "max_channels = 0: accepted: 1 to 16",
            ),
            (
                "share = { dir = '/srv', protocol = 'smb', nconnect = 2 }\nfile = {}",
                "nconnect needs protocol = \"nfs\"; smb has max_channels",
            ),
            (
                "share = { dir = '/srv', seal = true }\nfile = {}",
                "max_channels and seal need protocol = \"smb\"; nfs has nconnect",
            ),
            (
                "share = { dir = '/srv' }",
                "ends with share, a directory, on which nothing can be measured; add file",
            ),
            ("overlay = { dir = '/srv' }\nshare = {}\nfile = {}", "does not export what overlay makes"),
            ("file = { dir = '/srv' }\nnfs = {}", "ends with nfs, a block node of QEMU's"),
            ("9p = {}\nguest = {}", "9p needs dir = \"...\", or a filesystem of the target's own"),
            (
                "virtiofs = {}\nguest = {}",
                "virtiofs needs dir = \"...\", or a filesystem of the target's own",
            ),
            (
                "virtiofs = { dir = '/srv' }",
                "ends with virtiofs, a directory for a guest, on which nothing can be measured; add guest = {} (in a line: > guest)",
            ),
            (
                "file = { dir = '/srv' }\nvirtiofs = {}\nguest = {}",
                "virtiofs needs a directory, and file is a raw file",
            ),
            (
                "9p = { dir = '/srv' }\nxen = { type = 'pv' }",
                "xen needs a block device, a raw file or a disk image, and 9p is a directory for a guest",
            ),
            (
                "9p = { dir = '/srv' }\nguest = { bus = 'nvme' }",
                "guest: bus is for a disk, and 9p gives the guest a directory in its place; leave it out",
            ),
            (
                "virtiofs = { dir = '/srv' }\nguest = { filesystem = 'ext4' }",
                "guest: filesystem is for a disk, and virtiofs gives the guest a directory",
            ),
            ("9p = { dir = '/srv', msize = '1k' }\nguest = {}", "9p: msize = 1k: accepted: 4k to 1GiB"),
            ("md = { level = 'raid1', raid_devices = 2 }", "md needs dir"),
            (
                "device = '/dev/x'\nintegrity = {}",
                "integrity: its superblock would lie on that device with no UUID",
            ),
            ("device = '/dev/x'\nnvme_tcp = {}", "nvme_tcp: a filesystem on it would lie on that device"),
            (
                "device = '/dev/x'\nmd = { level = 'raid1', raid_devices = 2 }",
                "md needs a directory, and device is a block device; put filesystem",
            ),
        ] {
            let refusal = target(bad).check().expect_err(words).to_string();
            assert!(refusal.contains(words), "{bad}: {refusal}");
        }
    }

    #[test]
    fn what_no_qemu_can_do_is_refused_with_the_reason() {
        for (keys, words) in [
            ("bus = 'ide'\nmachine = 'q35'", "bus = \"ide\" needs machine = \"pc\", not \"q35\""),
            ("bus = 'ide'\nmachine = 'microvm'", "needs machine = \"pc\""),
            ("bus = 'nvme'\nmachine = 'microvm'", "no PCI, which bus = \"nvme\" needs"),
            ("bus = 'sata'\nmachine = 'microvm'", "no PCI, which bus = \"sata\" needs"),
            ("bus = 'sata'\nqueues = 2", "bus = \"sata\" has one"),
            ("bus = 'ide'\nqueues = 2", "bus = \"ide\" has one"),
            ("queues = 0", "accepted: 1 to 256"),
            ("queues = 257", "accepted: 1 to 256"),
            ("bus = 'sata'\niothread = true", "QEMU serves bus = \"sata\" in its main loop"),
            ("bus = 'ide'\niothread = true", "QEMU serves bus = \"ide\" in its main loop"),
            ("bus = 'nvme'\niothread = 2", "QEMU serves bus = \"nvme\" in its main loop"),
            ("iothread = 2", "the disk has 1; set queues = 2"),
            ("iothread = 4\nvcpus = 2", "the disk has 2; set queues = 4"),
            ("cache = 'unsafe'\naio = 'native'", "needs cache = \"none\" or \"directsync\", not \"unsafe\""),
            ("count = 0", "accepted: 1 to 64"),
        ] {
            let guest: GuestSpec = toml::from_str(keys).expect(keys);
            let refusal = guest.check().expect_err(keys);
            assert!(refusal.contains(words), "{keys}: {refusal}");
        }
        for keys in [
            "bus = 'ide'",
            "bus = 'sata'\nmachine = 'pc'\niothread = false",
            "bus = 'nvme'\nqueues = 8",
            "bus = 'virtio-scsi'\nmachine = 'microvm'\niothread = 2\nvcpus = 2",
            "iothread = 4\nqueues = 4",
        ] {
            let guest: GuestSpec = toml::from_str(keys).expect(keys);
            assert_eq!(guest.check(), Ok(()), "{keys}");
        }
    }

    #[test]
    fn a_filesystem_in_the_guest_needs_a_larger_disk_and_no_other_under_it() {
        let size = Bytes(64 << 20);
        let with = |kind| GuestSpec { filesystem: kind, ..GuestSpec::default() };
        assert_eq!(with(None).disk_size(size), size);
        assert_eq!(with(Some(GuestFs::Ext4)).disk_size(size), Bytes((64 + 4 + 128) << 20));
        assert_eq!(with(Some(GuestFs::Xfs)).disk_size(size), Bytes(320 << 20));
        assert_eq!(with(Some(GuestFs::Xfs)).disk_size(Bytes(1 << 30)), Bytes((1024 + 64 + 128) << 20));

        let mounted = format!("{SNAPSHOT}guest = {{ filesystem = 'ext4' }}");
        let refusal = target(&mounted).check().expect_err("exchanged").to_string();
        assert!(refusal.contains("use snapshot = \"internal\""), "{refusal}");
        assert_eq!(target(&mounted.replace("external", "internal")).check(), Ok(()));
    }

    #[test]
    fn an_iothread_is_a_flag_or_a_number() {
        for (text, threads) in [("true", 1), ("false", 0), ("4", 4)] {
            let guest: GuestSpec = toml::from_str(&format!("iothread = {text}")).expect("valid");
            assert_eq!(guest.iothreads(), threads);
        }
        assert!(
            toml::from_str::<GuestSpec>("iothread = \"x\"")
                .expect_err("text")
                .to_string()
                .contains("number of threads")
        );
    }
}
