//! The kinds of layers that a plan can name, one file per kind.
//!
//! To add a kind, add a file with its keys and its [`LayerType`], and a line in `layers!` below, which generates the table form of plans and the
//! schema. The compiler then requires the code in `testbed::target` that builds the layer.

mod cache;
mod cgroup;
mod delay;
mod device;
mod file;
mod filesystem;
mod filter;
mod fuse;
mod guest;
mod image;
mod integrity;
mod iscsi;
mod loop_device;
mod luks;
mod lvm;
mod md;
mod nbd;
mod nbd_export;
mod network;
mod nfs;
mod nine_p;
mod nvme_tcp;
mod overlay;
mod path;
mod rbd;
mod segments;
mod share;
mod tmpfs;
mod virtio;
mod virtiofs;
mod volatile;
mod xen;
mod zfs;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::area::Area;
use super::part::Part;
use super::{DirectoryProtocol, Settings};
use crate::units::Bytes;

pub use cache::{CacheSpec, CacheType, DmCacheMode};
pub use cgroup::CgroupSpec;
pub use delay::DelaySpec;
pub use device::DeviceSpec;
pub use file::{Encryption, FileSpec, Format, Preallocation, Snapshot, Subformat};
pub use filesystem::{FilesystemSpec, FsType};
pub use filter::{FilterSpec, FilterType};
pub use fuse::FuseSpec;
pub use guest::{Accel, Aio, Bus, CacheMode, Discard, GuestFs, GuestSpec, MachineType};
pub use image::ImageSpec;
pub use integrity::{IntegrityMode, IntegritySpec};
pub use iscsi::IscsiSpec;
pub use loop_device::LoopSpec;
pub use luks::LuksSpec;
pub use lvm::{LvKind, LvmSpec, VolumeAllocation};
pub use md::{MdSpec, RaidBitmap, RaidLevel};
pub use nbd::{ErrorRate, NbdClient, NbdServer, NbdSpec};
pub use nbd_export::{NbdAddress, NbdExportSpec};
pub use network::{LocalPath, NetPath, NetworkEnds, NetworkSpec, NetworkStack, Nic};
pub use nfs::NfsSpec;
pub use nine_p::{NinePCache, NinePSpec, SecurityModel};
pub use nvme_tcp::NvmeTcpSpec;
pub use overlay::OverlaySpec;
pub use path::PathSpec;
pub use rbd::{OsdMedia, RbdSpec};
pub(super) use segments::Segments;
use segments::keys;
pub(super) use segments::word;
pub use share::{ShareProtocol, ShareSpec};
pub use tmpfs::TmpfsSpec;
pub use virtio::VirtioSpec;
pub use virtiofs::{VirtiofsCache, VirtiofsSpec};
pub use volatile::VolatileSpec;
pub use xen::{DomainType, XenBackend, XenSpec};
pub use zfs::{ZfsCompression, ZfsKind, ZfsPrimaryCache, ZfsSpec, ZfsSync};

/// The interface that a layer offers to the layer above, such as a block device or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerInterface {
    /// No interface. Layers that can be built on it are at the bottom of a stack.
    Nothing,
    /// A block device on the host.
    Block,
    /// A directory in which files can be created.
    Directory,
    /// A raw file, whose bytes are those of the disk.
    RawFile,
    /// A disk image in a format that QEMU can read.
    Image,
    /// A node of QEMU's block layer, such as a filter, which QEMU programs can use as a disk.
    BlockNode,
    /// The queues of a virtio block device, which iotax drives without a guest.
    VirtioQueue,
    /// The disk of a guest, seen from within the guest.
    GuestDisk,
    /// A file on a filesystem within a guest.
    FileInGuest,
    /// A network path to which a guest's NIC can be connected.
    GuestNetwork,
    /// A directory of the host that a guest can mount.
    GuestDirectory,
    /// The storage of the layer below, with an I/O limit on the processes that use the storage. Only for the top of a stack.
    Limited,
    /// A file, device or network that is measured as it is: no layer can be built on it.
    Found,
}

impl LayerInterface {
    /// Returns whether workloads can run on this interface, so that a layer that offers it may be the topmost.
    #[must_use]
    pub const fn is_measurable(self) -> bool {
        match self {
            Self::Block
            | Self::RawFile
            | Self::VirtioQueue
            | Self::GuestDisk
            | Self::FileInGuest
            | Self::Limited
            | Self::Found => true,
            Self::Nothing
            | Self::Directory
            | Self::Image
            | Self::BlockNode
            | Self::GuestNetwork
            | Self::GuestDirectory => false,
        }
    }

    /// Returns the text for the interface in error messages: `a block device`, `a raw file`.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing below it",
            Self::Block => "a block device",
            Self::Directory => "a directory",
            Self::RawFile => "a raw file",
            Self::Image => "a disk image",
            Self::BlockNode => "a block node of QEMU's",
            Self::VirtioQueue => "a virtio device without a guest",
            Self::GuestDisk => "a guest's disk",
            Self::FileInGuest => "a file in a guest",
            Self::GuestNetwork => "a network for a guest",
            Self::GuestDirectory => "a directory for a guest",
            Self::Limited => "a limit on the load, which stands on top",
            Self::Found => "something that is measured where it is",
        }
    }
}

/// Interfaces that QEMU's storage daemon can open as a disk.
const BENEATH_A_DAEMON: &[LayerInterface] =
    &[LayerInterface::RawFile, LayerInterface::Image, LayerInterface::BlockNode, LayerInterface::Block];

/// Needs of a layer that creates files, at the bottom of a stack.
const DIR_OR_FILESYSTEM: &str = "dir = \"...\", or a filesystem of the target's own";

/// Rejects a layer that leaves `left` on a device of the user, where it could not be told from the user's after a restart.
fn check_made(below: &[PlannedLayer], left: &str) -> Result<(), String> {
    let device = below.iter().rev().find(|layer| !layer.kind().is_transparent());
    if device.is_none_or(|layer| DeviceSpec::of(layer).is_none()) {
        return Ok(());
    }
    Err(format!(
        "{left} would lie on that device with no UUID on record, and after a restart it could not be told from somebody's; put lvm = {{}} \
         between, or use a file with a loop device"
    ))
}

/// Location on this machine of the bottom layer of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BottomLocation<'a> {
    /// A file or device that exists, or the path of a file to create.
    Path(&'a Path),
    /// A block device that the stack is built on.
    Device(&'a Path),
    /// An LVM volume group in which a volume is created.
    Group(&'a str),
    /// A directory in which the layer's files are created.
    Directory(&'a Path),
}

/// The properties that each kind of layer defines: its key, the interfaces below and above, its checks.
pub trait LayerType {
    /// Returns the key of the layer in a target's table of a plan file.
    fn key(&self) -> &'static str;

    /// Returns the interfaces that this layer can be built on; the layer below must offer one of them.
    fn stands_on(&self) -> &'static [LayerInterface];

    /// Returns the interface that this layer offers to the layer above or to workloads.
    fn offers(&self) -> LayerInterface;

    /// Returns the cache mode in which this layer accesses the layer below, fixed or from a setting; `None` if the layer sets no mode of
    /// its own.
    fn cache(&self) -> Option<CacheMode>;

    /// Returns the I/O backend with which QEMU opens the layer below; `None` if QEMU does not open the layer below.
    fn aio(&self) -> Option<Aio> {
        None
    }

    /// Returns whether QEMU's client for this layer sends flushes even if the cache mode above says to ignore them.
    fn client_flushes(&self) -> bool {
        false
    }

    /// Returns whether the layer reads or writes more data below than is requested of it, for example for copies, checksums or a journal.
    fn amplifies(&self) -> bool {
        false
    }

    /// Returns the setting by which the layer makes reads fail with EIO, as `error_rate = 1%`; `None` if it makes none fail.
    fn failing_reads(&self) -> Option<String> {
        None
    }

    /// Returns whether each byte lies on the layer below at the same place as without this layer, so that what stands on it is found
    /// there too.
    fn is_transparent(&self) -> bool {
        false
    }

    /// Returns whether the kernel's NFS server exports the layer's directory.
    fn is_exported_by_nfs(&self) -> bool {
        true
    }

    /// Returns the name and the remedy for a device that zpool(8) would partition; `None` for one that it takes as it is.
    fn partitioned_by_zpool(&self) -> Option<&'static str> {
        None
    }

    /// Returns the protocol by which a guest mounts the layer's directory; `None` if it mounts none.
    fn shared_directory(&self) -> Option<DirectoryProtocol> {
        None
    }

    /// Returns whether targets that differ in kernel settings alone can use one and the same storage of this layer in turn.
    fn is_reusable(&self) -> bool {
        false
    }

    /// Returns the remedy for workloads that make files if this layer is the topmost; `None` if it offers a filesystem for them.
    fn wants_filesystem(&self) -> Option<&'static str> {
        match self.offers() {
            LayerInterface::GuestDisk => {
                Some("the guest sees a raw disk; add filesystem = \"ext4\" to guest")
            }
            LayerInterface::VirtioQueue => Some(
                "a virtio device is a raw disk; leave virtio out, or use a guest with filesystem = \"ext4\"",
            ),
            LayerInterface::Block => {
                Some("a device or volume is raw; add filesystem = { type = \"ext4\" } and file = {}")
            }
            _ => None,
        }
    }

    /// Returns what the layer needs at the bottom of a stack, where a key of its own can say it; `None` if no key can.
    fn needed_at_bottom(&self) -> Option<&'static str> {
        None
    }

    /// Returns the error for a layer below that this layer does not accept, in place of the usual one; `below` names it and what it offers.
    fn unfit(&self, below: &str) -> Option<String> {
        let _ = below;
        None
    }

    /// Returns whether the layer formats the block device below it, and so destroys the device's content.
    fn formats(&self) -> bool {
        false
    }

    /// Rejects values out of range, and settings that exclude each other.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Rejects layers below that exclude this layer although their interfaces fit; `below` is the stack under this layer, from the bottom
    /// up.
    fn check_on(&self, below: &[PlannedLayer]) -> Result<(), String> {
        let _ = below;
        Ok(())
    }

    /// Rejects layers above that exclude settings of this layer; `above` is the stack on this layer, from the bottom up.
    fn check_under(&self, above: &[PlannedLayer]) -> Result<(), String> {
        let _ = above;
        Ok(())
    }

    /// Returns the location of this layer on this machine if it is the bottom layer and has one; `None` for others, such as a network.
    fn location(&self) -> Option<BottomLocation<'_>> {
        None
    }

    /// Returns all paths on this machine in the layer's settings, as mutable references, so that a caller can make them absolute.
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }

    /// Rejects settings that a plan from an untrusted author may not use: such a plan may only read, and create files within `area`.
    /// Implementations destructure the settings in full, so that a new key does not compile until it is considered.
    fn confine(&self, area: &dyn Area) -> Result<(), String>;

    /// Returns the layer as a list of parts, the units in which targets are compared; see [`Part`].
    fn parts(&self) -> Vec<Part>;

    /// Returns the bytes that the layer below must offer so that this layer can offer `above` bytes; the caller rounds them up to whole
    /// sectors. `files` is the space for files that workloads create next to the target: the topmost layer with a filesystem adds it to its
    /// size and sets it to `None`.
    fn size_below(&self, above: Bytes, files: &mut Option<Bytes>) -> Bytes {
        let _ = files;
        above
    }

    /// Returns the text of the layer in the line of a stack, if it is built on `below`: one or more segments, without the arrows between
    /// them.
    fn segments(&self, below: Option<&PlannedLayer>) -> Vec<String>;
}

/// A kind of layer that can be parsed from the line of a stack.
trait FromLine: Sized {
    /// The layer's forms in a line, for the error about an unknown layer; without settings.
    const FORMS: &[&str];

    /// Parses the layer from the next segments of a line; `None` if the next segment names another kind of layer.
    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>>;
}

/// The part of a stack's line in front of the segment that is parsed next.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::target) struct Below<'a> {
    /// A directory or volume group that the line names for the next layer; `None` without one.
    pub(in crate::target) place: Option<&'a str>,
    /// The layer below; `None` at the bottom.
    pub(in crate::target) layer: Option<&'a PlannedLayer>,
}

/// Settings of one kind of layer, which can be borrowed from a [`PlannedLayer`].
pub trait LayerSpec: LayerType + Sized {
    /// Returns the layer's settings if the layer is of this kind, else `None`.
    fn of(layer: &PlannedLayer) -> Option<&Self>;
    /// Returns the layer's settings as [`Self::of`] does, but as a mutable reference.
    fn of_mut(layer: &mut PlannedLayer) -> Option<&mut Self>;
}

macro_rules! layers {
    ($($(#[$doc:meta])* $field:ident $(as $key:literal)? : $variant:ident($spec:ty)),+ $(,)?) => {
        /// A layer of a stack: its kind with its settings.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum PlannedLayer { $($(#[$doc])* $variant($spec)),+ }

        impl PlannedLayer {
            /// Returns the layer as a [`LayerType`], for its key, interfaces and checks.
            #[must_use]
            pub fn kind(&self) -> &dyn LayerType {
                match self { $(Self::$variant(spec) => spec),+ }
            }

            /// Returns the layer as [`Self::kind`] does, but as a mutable reference.
            pub fn kind_mut(&mut self) -> &mut dyn LayerType {
                match self { $(Self::$variant(spec) => spec),+ }
            }

            /// Returns the keys of all layers in a plan file.
            #[cfg(test)]
            pub(in crate::target) fn keys() -> Vec<&'static str> {
                vec![$([$($key,)? stringify!($field)][0]),+]
            }

            /// Returns the forms of all layers in a stack's line, without settings.
            pub(in crate::target) fn forms() -> Vec<&'static str> {
                [$(<$spec>::FORMS),+].concat()
            }

            /// Parses the next layer of a stack's line; `None` if the next segment is no layer.
            pub(in crate::target) fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
                // The first form that matches is used. A path matches any text, so it is tried last.
                let read = [$(|segments: &mut Segments, below: &Below<'_>| {
                    Some(<$spec>::read(segments, below)?.map(Self::$variant))
                }),+];
                read.iter().rev().find_map(|read| read(segments, below))
            }
        }

        /// A target in the table form of plan files and the store. Layers given by their keys are stacked in the order of the keys here; `stack`
        /// allows any other order.
        #[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(in crate::target) struct TargetTable {
            /// Name of the target, unique within a plan.
            pub(in crate::target) name: String,
            /// All layers on one line, from the bottom up, in the form that reports print; in place of the layers' keys.
            #[serde(skip_serializing_if = "Option::is_none", default)]
            pub(in crate::target) stack: Option<String>,
            $(
                $(#[$doc])*
                $(#[serde(rename = $key)])?
                #[serde(skip_serializing_if = "Option::is_none", default)]
                pub(in crate::target) $field: Option<$spec>,
            )+
            /// Run the agent on the path's machine under sudo(8).
            #[serde(skip_serializing_if = "std::ops::Not::not", default)]
            pub(in crate::target) sudo: bool,
            /// Name of a `[[neighbour]]` that generates load while this target is measured [default: none]
            #[serde(skip_serializing_if = "Option::is_none", default)]
            pub(in crate::target) neighbour: Option<String>,
            /// Settings of the kernel that hold while the target is measured: applied right before each measurement, restored right after
            /// it.
            #[serde(skip_serializing_if = "Option::is_none", default)]
            pub(in crate::target) settings: Option<Settings>,
        }

        impl TargetTable {
            /// Removes the layers that the table gives by their keys, and returns them from the bottom up.
            pub(in crate::target) fn take_layers(&mut self) -> Vec<PlannedLayer> {
                let layers = [$(self.$field.take().map(PlannedLayer::$variant)),+];
                layers.into_iter().flatten().collect()
            }

            /// Sets the keys of these layers. Returns false if the layers are not in the order of the keys or a kind occurs twice; the table
            /// then needs `stack`.
            pub(in crate::target) fn set_layers(&mut self, layers: &[PlannedLayer]) -> bool {
                let mut left = layers;
                $(
                    if let Some((PlannedLayer::$variant(spec), above)) = left.split_first() {
                        self.$field = Some(spec.clone());
                        left = above;
                    }
                )+
                left.is_empty()
            }
        }

        $(
            impl From<$spec> for PlannedLayer {
                fn from(spec: $spec) -> Self {
                    Self::$variant(spec)
                }
            }

            impl LayerSpec for $spec {
                fn of(layer: &PlannedLayer) -> Option<&Self> {
                    if let PlannedLayer::$variant(spec) = layer { Some(spec) } else { None }
                }

                fn of_mut(layer: &mut PlannedLayer) -> Option<&mut Self> {
                    if let PlannedLayer::$variant(spec) = layer { Some(spec) } else { None }
                }
            }
        )+
    };
}

layers! {
    /// A file or block device, on this machine, on another (`ssh://[user@]host[:port]/path`) or in a container:
    /// `docker://[user@]container/path`, `podman://`, `lxc://`, `incus://`, `lxd://`, `kubectl://namespace/pod[:container]/path`. An
    /// existing file or device is measured as it is; a missing file is created, filled, measured and removed. `libvirt://domain[:disk]`
    /// attaches a new disk to a running guest, fills it, measures it in the guest and removes it. The new disk is set up like the guest's
    /// disk `disk`, by default its first.
    path: Path(PathSpec),
    /// An existing disk image, opened by QEMU. The image is never changed: writes need an overlay.
    image: Image(ImageSpec),
    /// An export of an existing NBD server, as `nbd://host[:port][/export]` or `nbd+unix:///[export]?socket=PATH`. iotax writes to the export
    /// only if the command line names it again.
    nbd_export: NbdExport(NbdExportSpec),
    /// A network path between client and server, instead of storage.
    network: Network(NetworkSpec),
    /// A block device. iotax writes to it only if the command line names it again.
    device: Device(DeviceSpec),
    /// A new logical volume.
    lvm: Lvm(LvmSpec),
    /// A new md array (RAID).
    md: Md(MdSpec),
    /// A delay before each I/O, by dm-delay.
    delay: Delay(DelaySpec),
    /// Checksums for each sector, kept by dm-integrity.
    integrity: Integrity(IntegritySpec),
    /// A device-mapper cache (dm-cache or dm-writecache) in front of the block device below.
    cache: Cache(CacheSpec),
    /// Encryption of the block device below by dm-crypt (LUKS2).
    luks: Luks(LuksSpec),
    /// A new ZFS pool on the block device below, with a volume (zvol) or a filesystem (dataset).
    zfs: Zfs(ZfsSpec),
    /// A filesystem in memory.
    tmpfs: Tmpfs(TmpfsSpec),
    /// A new filesystem on the block device below.
    filesystem: Filesystem(FilesystemSpec),
    /// iotax's FUSE filesystem on the filesystem below or in a given directory, which keeps writes in memory until they are flushed.
    volatile: Volatile(VolatileSpec),
    /// An overlayfs on the filesystem below or in a given directory, as containers use it.
    overlay: Overlay(OverlaySpec),
    /// The directory below, exported by NFS or SMB on this machine and mounted by the kernel's client.
    share: Share(ShareSpec),
    /// A new file on the filesystem below or in a given directory.
    file: File(FileSpec),
    /// A QEMU block filter over the layer below: throttle, compress, copy-on-read, blkdebug or quorum.
    filter: Filter(FilterSpec),
    /// The layer below, served by NBD and read by QEMU's client or the kernel's.
    nbd: Nbd(NbdSpec),
    /// The raw file, served by iSCSI and read by QEMU's initiator.
    iscsi: Iscsi(IscsiSpec),
    /// The raw file, served by NFS and read by QEMU's client.
    nfs: Nfs(NfsSpec),
    /// An image in a Ceph cluster that iotax starts for the run, read by QEMU's client. The raw file is the cluster's disk.
    rbd: Rbd(RbdSpec),
    /// The layer below as a guest's QEMU would access it, shown as a raw file by the FUSE export of QEMU's storage daemon.
    fuse: Fuse(FuseSpec),
    /// The layer below as a guest's QEMU would access it, shown as a virtio block device by QEMU's storage daemon, without a guest.
    virtio: Virtio(VirtioSpec),
    /// The directory below or a given one, which QEMU serves to its guest over 9p.
    nine_p as "9p": NineP(NinePSpec),
    /// The directory below or a given one, which virtiofsd serves to a guest.
    virtiofs: Virtiofs(VirtiofsSpec),
    /// A loop device over the file.
    loop_device as "loop": Loop(LoopSpec),
    /// The raw file or device, served by the kernel's NVMe target and connected by TCP on loopback.
    nvme_tcp: NvmeTcp(NvmeTcpSpec),
    /// The QEMU guest that has the target as its disk, or that is the client of a network.
    guest: Guest(GuestSpec),
    /// The Xen domain that has the target as its disk.
    xen: Xen(XenSpec),
    /// A limit on the I/O of the processes that generate the load.
    cgroup: Cgroup(CgroupSpec),
}

/// Returns the layers that error messages suggest when one is missing: plan key, text in the line of a stack, and settings.
pub(super) fn proposals() -> [(&'static str, &'static str, PlannedLayer); 6] {
    [
        ("filesystem = { type = \"ext4\" }", "ext4", FilesystemSpec::new(FsType::Ext4).into()),
        ("file = {}", "raw file", FileSpec::default().into()),
        ("loop = {}", "loop", LoopSpec::default().into()),
        ("virtio = {}", "virtio", VirtioSpec::default().into()),
        ("fuse = {}", "fuse", FuseSpec::default().into()),
        ("guest = {}", "virtio-blk > guest", GuestSpec::default().into()),
    ]
}
