//! Places that can be read and written, and the layers they stand on.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;
use crate::workload::words;

words! {
    /// The format of a disk image.
    Format, "format" {
        /// The guest's bytes and nothing else.
        Raw = "raw",
        /// QEMU's copy-on-write format.
        Qcow2 = "qcow2",
    }
}

words! {
    /// What `qemu-img create` allocates in advance.
    Preallocation, "preallocation" {
        /// Nothing.
        Off = "off",
        /// qcow2: its tables.
        Metadata = "metadata",
        /// Space reserved with posix_fallocate.
        Falloc = "falloc",
        /// Space reserved and written.
        Full = "full",
    }
}

words! {
    /// A snapshot taken once the image is filled.
    Snapshot, "snapshot" {
        /// A qcow2 overlay with the image as its backing file; a new one before each measurement, so that writes allocate.
        External = "external",
    }
}

words! {
    /// How the guest sees the disk.
    Bus, "bus" {
        /// virtio-blk over PCI.
        VirtioBlk = "virtio-blk",
    }
}

words! {
    /// QEMU's cache mode of a drive.
    CacheMode, "cache" {
        /// Host page cache bypassed, guest flushes honoured.
        None = "none",
        /// Host page cache used, guest flushes honoured.
        Writeback = "writeback",
        /// Host page cache used, every write flushed.
        Writethrough = "writethrough",
        /// Host page cache bypassed, every write flushed.
        Directsync = "directsync",
        /// Host page cache used, flushes ignored.
        Unsafe = "unsafe",
    }
}

impl CacheMode {
    /// QEMU's `cache.direct`: the host's page cache is bypassed.
    #[must_use]
    pub const fn direct(self) -> bool {
        matches!(self, Self::None | Self::Directsync)
    }

    /// QEMU's `cache.no-flush`: guest flushes are ignored.
    #[must_use]
    pub const fn no_flush(self) -> bool {
        matches!(self, Self::Unsafe)
    }

    /// The guest device's `write-cache`: whether the guest is told that there is a cache to flush.
    #[must_use]
    pub const fn write_cache(self) -> bool {
        !matches!(self, Self::Writethrough | Self::Directsync)
    }
}

words! {
    /// QEMU's asynchronous I/O backend of a drive.
    Aio, "aio" {
        /// A thread pool.
        Threads = "threads",
        /// Linux AIO; needs a cache mode that bypasses the page cache.
        Native = "native",
        /// io_uring.
        IoUring = "io_uring",
    }
}

words! {
    /// What runs the guest's CPU.
    Accel, "accel" {
        /// KVM if it really runs a guest here, else TCG.
        Auto = "auto",
        /// Hardware virtualization.
        Kvm = "kvm",
        /// Emulation; results are labelled as emulated.
        Tcg = "tcg",
    }
}

/// A file that iotax creates, fills and removes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// The directory it is created in; it must exist.
    pub dir: PathBuf,
    /// Anything but raw needs a guest.
    #[serde(default = "raw")]
    pub format: Format,
    /// What is allocated in advance.
    #[serde(default = "preallocation_off")]
    pub preallocation: Preallocation,
    /// A snapshot taken once it is filled; needs a guest and qcow2.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub snapshot: Option<Snapshot>,
}

const fn raw() -> Format {
    Format::Raw
}

const fn preallocation_off() -> Preallocation {
    Preallocation::Off
}

/// A QEMU guest that sees the file as its disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuestSpec {
    /// How the guest sees the disk.
    pub bus: Bus,
    /// Cache mode of the drive.
    pub cache: CacheMode,
    /// I/O backend of the drive.
    pub aio: Aio,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: Bytes,
    /// Whether the disk has a thread of its own beside QEMU's main loop.
    pub iothread: bool,
}

impl Default for GuestSpec {
    fn default() -> Self {
        Self {
            bus: Bus::VirtioBlk,
            cache: CacheMode::None,
            aio: Aio::IoUring,
            vcpus: 1,
            memory: Bytes(512 << 20),
            iothread: true,
        }
    }
}

/// A target as a plan describes it: exactly one of `path` and `file`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// Unique within a plan.
    pub name: String,
    /// A file or block device. What exists is read as it is; what does not is created, filled, measured and removed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<PathBuf>,
    /// A new file in a directory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<FileSpec>,
    /// The guest that sees it; absent: it is measured on the host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guest: Option<GuestSpec>,
}

/// A target that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("target {name:?}: {reason}")]
pub struct TargetError {
    name: String,
    reason: String,
}

impl TargetSpec {
    /// Refuses combinations that cannot be built.
    pub fn check(&self) -> Result<(), TargetError> {
        let refuse = |reason: String| Err(TargetError { name: self.name.clone(), reason });
        let simple = !self.name.is_empty()
            && self.name.len() <= 40
            && self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            && !self.name.starts_with('.');
        if !simple {
            return refuse(
                "a name is 1 to 40 letters, digits, '-', '_' or '.' and does not begin with '.'".into(),
            );
        }
        match (&self.path, &self.file) {
            (None, None) => return refuse("needs path = \"...\" or file = { dir = \"...\" }".into()),
            (Some(_), Some(_)) => return refuse("path and file exclude each other".into()),
            (Some(_), None) if self.guest.is_some() => {
                return refuse("a guest needs file = { dir = \"...\" }; path is measured on the host".into());
            }
            _ => {}
        }
        if let Some(file) = &self.file {
            if file.format != Format::Raw && self.guest.is_none() {
                return refuse(format!(
                    "format = \"{}\" can only be read by a guest; add guest = {{}}",
                    file.format
                ));
            }
            if file.format == Format::Raw && file.preallocation == Preallocation::Metadata {
                return refuse(
                    "preallocation = \"metadata\" is for qcow2; raw takes off, falloc or full".into(),
                );
            }
            if file.snapshot.is_some() && file.format != Format::Qcow2 {
                return refuse("snapshot needs format = \"qcow2\"".into());
            }
        }
        if let Some(guest) = &self.guest {
            if guest.aio == Aio::Native && !guest.cache.direct() {
                return refuse(format!(
                    "aio = \"native\" needs cache = \"none\" or \"directsync\", not {:?}",
                    guest.cache.word()
                ));
            }
            if guest.vcpus == 0 || guest.vcpus > 64 {
                return refuse(format!("vcpus = {}: accepted: 1 to 64", guest.vcpus));
            }
            if guest.memory < Bytes(256 << 20) {
                return refuse(format!("memory = {}: at least 256m is needed to boot", guest.memory));
            }
        }
        Ok(())
    }
}

words! {
    /// What a layer is.
    LayerKind, "layer" {
        /// A physical or virtual disk of this machine.
        Device = "device",
        /// A partition of a device.
        Partition = "partition",
        /// A device-mapper device (LVM, dm-crypt, multipath ...).
        Dm = "dm",
        /// A software RAID.
        Md = "md",
        /// A loop device.
        Loop = "loop",
        /// A filesystem.
        Filesystem = "filesystem",
        /// A file on a filesystem.
        File = "file",
        /// A disk image format.
        Image = "image",
        /// A snapshot on top of an image.
        Snapshot = "snapshot",
        /// The bus by which a guest sees a disk, with the hypervisor's cache mode and I/O backend.
        Bus = "bus",
        /// A guest.
        Guest = "guest",
    }
}

/// One layer of a target's stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// What it is.
    pub kind: LayerKind,
    /// Its name: `vda`, `ext4`, `qcow2`, `virtio-blk`, `guest`.
    pub name: String,
    /// What else is known: size, model, scheduler, mount options, cache mode; may be empty.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub detail: String,
}

impl Layer {
    /// A layer.
    pub fn new(kind: LayerKind, name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, name: name.into(), detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> TargetSpec {
        TargetSpec {
            name: "vm".into(),
            path: None,
            file: Some(FileSpec {
                dir: "/srv".into(),
                format: Format::Qcow2,
                preallocation: Preallocation::Metadata,
                snapshot: Some(Snapshot::External),
            }),
            guest: Some(GuestSpec::default()),
        }
    }

    #[test]
    fn impossible_targets_are_refused_with_the_reason() {
        assert_eq!(spec().check(), Ok(()));
        let file = spec().file.expect("has one");
        for (bad, word) in [
            (TargetSpec { file: None, ..spec() }, "needs path"),
            (TargetSpec { path: Some("/x".into()), ..spec() }, "exclude"),
            (TargetSpec { path: Some("/x".into()), file: None, ..spec() }, "measured on the host"),
            (TargetSpec { guest: None, ..spec() }, "only be read by a guest"),
            (TargetSpec { name: "a b".into(), ..spec() }, "letters"),
            (TargetSpec { name: "../x".into(), ..spec() }, "letters"),
            (
                TargetSpec {
                    file: Some(FileSpec { format: Format::Raw, snapshot: None, ..file.clone() }),
                    ..spec()
                },
                "metadata",
            ),
            (
                TargetSpec {
                    file: Some(FileSpec { format: Format::Raw, preallocation: Preallocation::Off, ..file }),
                    ..spec()
                },
                "snapshot",
            ),
            (
                TargetSpec {
                    guest: Some(GuestSpec {
                        aio: Aio::Native,
                        cache: CacheMode::Writeback,
                        ..GuestSpec::default()
                    }),
                    ..spec()
                },
                "native",
            ),
            (TargetSpec { guest: Some(GuestSpec { vcpus: 0, ..GuestSpec::default() }), ..spec() }, "vcpus"),
            (
                TargetSpec {
                    guest: Some(GuestSpec { memory: Bytes(1 << 20), ..GuestSpec::default() }),
                    ..spec()
                },
                "memory",
            ),
        ] {
            assert!(bad.check().expect_err(word).to_string().contains(word), "{bad:?}");
        }
    }
}
