//! Targets: the storage or network to measure, and the layers it consists of.
//!
//! A target is built from the bottom up, and each layer is optional: a block device, a logical volume, a filesystem, a file on it, a loop
//! device over the file, a guest that has the topmost layer as its disk.

mod block;
mod description;
mod guest;
mod image;
mod layer;
mod network;
mod remote;
mod settings;
mod stack;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

pub use block::{FilesystemSpec, FsType, LoopSpec, LvKind, LvmSpec};
pub use guest::{Accel, Aio, Bus, CacheMode, Discard, GuestFs, GuestSpec, MachineType};
pub use image::{FileSpec, Format, Preallocation, Snapshot};
pub use layer::{Layer, LayerKind};
pub use network::{LocalPath, NetPath, NetworkEnds, NetworkSpec, NetworkStack, Nic};
pub use remote::Remote;
pub use settings::{Setting, SettingError, SettingScope, Settings};
pub use stack::{BlockStack, DiskStack, NewFile, Stack, StorageStack};

/// The space that a plan's workloads need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequiredSpace {
    /// In the target itself.
    pub area: Bytes,
    /// At most, next to the target on the same filesystem, for files that workloads create.
    pub files: Bytes,
}

/// A target as a plan describes it. Exactly one of `path`, `device`, `lvm.vg`, `file.dir` and `network` is at the bottom.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// Unique within a plan.
    pub name: String,
    /// A file or block device, on this machine or as `ssh://[user@]host[:port]/path` on another. An existing one is measured as it is; a
    /// missing file is created, filled, measured and removed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<PathBuf>,
    /// Run the agent on the path's machine under sudo(8).
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub sudo: bool,
    /// A block device. iotax writes to it only if the command line names it again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<PathBuf>,
    /// A new logical volume.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lvm: Option<LvmSpec>,
    /// A new filesystem on the device or volume.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub filesystem: Option<FilesystemSpec>,
    /// A new file, on that filesystem or in a directory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<FileSpec>,
    /// A network path between client and server, instead of storage.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub network: Option<NetworkSpec>,
    /// A loop device over the file.
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none", default)]
    pub loop_device: Option<LoopSpec>,
    /// The guest that has the target as its disk; if absent, it is measured on the host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guest: Option<GuestSpec>,
    /// Name of a `[[neighbour]]` that produces load while this target is measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub neighbour: Option<String>,
    /// Settings of the kernel that hold while the target is measured: applied right before each measurement, restored right after it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub settings: Option<Settings>,
}

/// An invalid target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("target {name:?}: {reason}")]
pub struct TargetError {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl TargetSpec {
    /// The machine of a path on another machine. The path must have passed [`Self::check`].
    #[must_use]
    pub fn remote(&self) -> Option<Remote> {
        Remote::parse(&self.path.as_ref()?.to_string_lossy()).ok()
    }

    /// The settings of the kernel that are given.
    #[must_use]
    pub fn setting_values(&self) -> Vec<(Setting, String)> {
        self.settings.as_ref().map(Settings::values).unwrap_or_default()
    }

    /// Returns whether this target has settings and is otherwise the same storage as another, and not a guest's.
    #[must_use]
    pub fn is_same_storage(&self, other: &Self) -> bool {
        let bare = |spec: &Self| Self { name: String::new(), settings: None, ..spec.clone() };
        let shareable =
            self.guest.is_none() && self.network.is_none() && self.lvm.is_none() && self.filesystem.is_none();
        let has_snapshot = self.file.as_ref().is_some_and(|file| file.snapshot.is_some());
        // Two targets without settings are two files: A against A.
        !self.setting_values().is_empty() && shareable && !has_snapshot && bare(self) == bare(other)
    }

    /// The filesystem that the guest creates on its disk.
    #[must_use]
    pub fn filesystem_in_guest(&self) -> Option<GuestFs> {
        self.guest.as_ref()?.filesystem
    }

    /// Size of the disk or file needed to measure `space`: a filesystem in the guest takes its part and holds the workloads' files.
    #[must_use]
    pub fn disk_size(&self, space: RequiredSpace) -> Bytes {
        match &self.guest {
            Some(guest) if guest.filesystem.is_some() => {
                guest.disk_size(Bytes(space.area.0.saturating_add(space.files.0)))
            }
            _ => space.area,
        }
    }

    /// Size of a filesystem created for the target's file: the file, and on the host the workloads' files.
    #[must_use]
    pub fn on_filesystem(&self, space: RequiredSpace) -> Bytes {
        let beside = if self.guest.is_some() { 0 } else { space.files.0 };
        Bytes(self.disk_size(space).0.saturating_add(beside))
    }

    /// Rejects a name that paths and volumes cannot carry, and combinations that cannot be built.
    pub fn check(&self) -> Result<(), TargetError> {
        let simple = !self.name.is_empty()
            && self.name.len() <= 40
            && self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            && !self.name.starts_with('.');
        if !simple {
            let accepted = "a name is 1 to 40 letters, digits, '-', '_' or '.' and does not begin with '.'";
            return Err(self.refused(accepted.into()));
        }
        self.stack().map(drop)
    }

    pub(crate) fn refused(&self, reason: String) -> TargetError {
        TargetError { name: self.name.clone(), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> TargetSpec {
        TargetSpec {
            name: "vm".into(),
            file: Some(FileSpec {
                dir: Some("/srv".into()),
                format: Format::Qcow2,
                preallocation: Preallocation::Metadata,
                snapshot: Some(Snapshot::External),
                ..FileSpec::default()
            }),
            guest: Some(GuestSpec::default()),
            ..TargetSpec::default()
        }
    }

    #[test]
    fn impossible_targets_are_refused_with_the_reason() {
        assert_eq!(spec().check(), Ok(()));
        let file = spec().file.expect("has one");
        for (bad, word) in [
            (TargetSpec { file: None, ..spec() }, "needs path"),
            (TargetSpec { path: Some("/x".into()), ..spec() }, "excludes"),
            (TargetSpec { path: Some("/x".into()), file: None, ..spec() }, "measured where it is"),
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

    #[test]
    fn layers_stand_on_what_can_carry_them() {
        let device =
            || TargetSpec { name: "t".into(), device: Some("/dev/x".into()), ..TargetSpec::default() };
        let ext4 = || Some(FilesystemSpec { kind: FsType::Ext4, mount_options: None, nodatacow: false });
        let lvm = |vg: Option<&str>| Some(LvmSpec { vg: vg.map(str::to_owned), ..LvmSpec::default() });
        let here = || Some(FileSpec::default());
        for good in [
            device(),
            TargetSpec { lvm: lvm(None), ..device() },
            TargetSpec {
                lvm: lvm(None),
                filesystem: ext4(),
                file: here(),
                guest: Some(GuestSpec::default()),
                ..device()
            },
            TargetSpec {
                filesystem: ext4(),
                file: here(),
                loop_device: Some(LoopSpec::default()),
                ..device()
            },
            TargetSpec { device: None, lvm: lvm(Some("vg")), ..device() },
            TargetSpec { device: None, path: Some("ssh://me@host/x".into()), ..device() },
            TargetSpec { device: None, path: Some("ssh://me@host/x".into()), sudo: true, ..device() },
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for (bad, word) in [
            (TargetSpec { lvm: lvm(Some("vg")), ..device() }, "exclude each other"),
            (TargetSpec { device: None, lvm: lvm(None), ..device() }, "needs vg"),
            (TargetSpec { file: here(), ..device() }, "needs a filesystem"),
            (TargetSpec { filesystem: ext4(), ..device() }, "needs file"),
            (TargetSpec { device: None, file: here(), ..device() }, "needs dir"),
            (TargetSpec { loop_device: Some(LoopSpec::default()), ..device() }, "loop needs"),
            (TargetSpec { device: None, path: Some("ssh://host".into()), ..device() }, "no path"),
            (TargetSpec { path: Some("/x".into()), ..device() }, "excludes device"),
            (TargetSpec { sudo: true, ..device() }, "another machine"),
        ] {
            assert!(bad.check().expect_err(word).to_string().contains(word), "{bad:?}: {:?}", bad.check());
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

        let mounted = TargetSpec { guest: Some(with(Some(GuestFs::Ext4))), ..spec() };
        assert!(mounted.check().expect_err("exchanged").to_string().contains("use snapshot = \"internal\""));
        let file = mounted.file.clone().map(|file| FileSpec { snapshot: Some(Snapshot::Internal), ..file });
        assert_eq!(TargetSpec { file, ..mounted }.check(), Ok(()));
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
