//! QEMU guests: how they are built and how they see a disk.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::units::Bytes;
use crate::workload::words;

words! {
    /// How the guest sees the disk.
    Bus, "bus" {
        /// virtio-blk over PCI, or over MMIO on microvm.
        VirtioBlk = "virtio-blk",
        /// A SCSI disk on a virtio-scsi controller.
        VirtioScsi = "virtio-scsi",
        /// An emulated NVMe controller.
        Nvme = "nvme",
        /// A disk on an emulated AHCI controller.
        Sata = "sata",
        /// A disk on an emulated PIIX3 controller.
        Ide = "ide",
    }
}

words! {
    /// QEMU's machine type.
    MachineType, "machine" {
        /// The modern PC, with PCI Express.
        Q35 = "q35",
        /// The old PC, with PCI.
        Pc = "pc",
        /// The least that boots Linux: no PCI, virtio over MMIO.
        Microvm = "microvm",
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

words! {
    /// What becomes of discarded blocks beneath the guest.
    Discard, "discard" {
        /// They are given back to the storage.
        Unmap = "unmap",
        /// Nothing.
        Ignore = "ignore",
    }
}

words! {
    /// A filesystem that is made in a guest.
    GuestFs, "filesystem" {
        /// ext4.
        Ext4 = "ext4",
        /// XFS.
        Xfs = "xfs",
    }
}

/// A QEMU guest that sees the target as its disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GuestSpec {
    /// How the guest sees the disk.
    pub bus: Bus,
    /// Cache mode of the drive.
    pub cache: CacheMode,
    /// I/O backend of the drive.
    pub aio: Aio,
    /// What becomes of discarded blocks.
    pub discard: Discard,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: Bytes,
    /// Threads that serve the disk beside QEMU's main loop. `true` is one, `false` none.
    #[serde(deserialize_with = "flag_or_number")]
    #[schemars(with = "FlagOrNumber")]
    pub iothread: u32,
    /// Queues of the disk. Absent: QEMU's choice, for virtio one for each virtual CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// The machine.
    pub machine: MachineType,
    /// A filesystem made in the guest: a file on it is measured. Absent: the raw disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<GuestFs>,
    /// How many such guests run at once, each with a disk of its own.
    pub count: u32,
    /// The guest's kernel. Absent: the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,
}

impl Default for GuestSpec {
    fn default() -> Self {
        Self {
            bus: Bus::VirtioBlk,
            cache: CacheMode::None,
            aio: Aio::IoUring,
            discard: Discard::Unmap,
            vcpus: 1,
            memory: Bytes(512 << 20),
            iothread: 1,
            queues: None,
            machine: MachineType::Q35,
            filesystem: None,
            count: 1,
            kernel: None,
        }
    }
}

/// The forms of `iothread`.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum FlagOrNumber {
    Flag(bool),
    Number(u32),
}

/// `iothread = true` is the common case of `iothread = 1`.
fn flag_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    struct Either;
    impl serde::de::Visitor<'_> for Either {
        type Value = u32;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("true, false or a number of threads")
        }

        fn visit_bool<E>(self, flag: bool) -> Result<u32, E> {
            Ok(u32::from(flag))
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u32, E> {
            u32::try_from(number).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u32, E> {
            u32::try_from(number)
                .map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self))
        }
    }
    deserializer.deserialize_any(Either)
}

impl GuestSpec {
    /// Refuses what QEMU would refuse.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.aio == Aio::Native && !self.cache.direct() {
            return Err(format!(
                "aio = \"native\" needs cache = \"none\" or \"directsync\", not {:?}",
                self.cache.word()
            ));
        }
        if self.vcpus == 0 || self.vcpus > 64 {
            return Err(format!("vcpus = {}: accepted: 1 to 64", self.vcpus));
        }
        if self.memory < Bytes(256 << 20) {
            return Err(format!("memory = {}: at least 256m is needed to boot", self.memory));
        }
        if self.count == 0 || self.count > 64 {
            return Err(format!("count = {}: accepted: 1 to 64", self.count));
        }
        Ok(())
    }
}
