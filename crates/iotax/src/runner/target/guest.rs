//! Storage on this host that is measured as a guest's disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use iotax_model::target::{Accel, FileSpec, Format, GuestSpec, Snapshot, TargetSpec};
use iotax_model::units::Bytes;
use iotax_model::wire::{AgentHello, ByteRange};
use iotax_testbed::export::StorageDaemon;
use iotax_testbed::guest::Guest;
use iotax_testbed::guest::nic::NicBackend;
use iotax_testbed::monitor::GuestThreads;
use iotax_testbed::target::{Built, image};
use iotax_testbed::undo::{UndoEntry, UndoLog};

use super::OwnAgent;
use super::storage::{LocalStorage, undo};

/// A guest that has booted.
pub(in crate::runner) struct RunningGuest {
    pub(in crate::runner) guest: Guest,
    pub(in crate::runner) hello: AgentHello,
    pub(in crate::runner) accel: Accel,
    pub(in crate::runner) boot_ns: u64,
}

impl RunningGuest {
    /// Returns QEMU with the roles of its threads, and the daemons of the guest, whose CPU time the monitor reads.
    pub(in crate::runner) fn threads(&mut self) -> anyhow::Result<Vec<GuestThreads>> {
        let qemu = GuestThreads { pid: self.guest.pid(), roles: self.guest.threads()?, server: None };
        Ok([qemu].into_iter().chain(self.guest.daemons().flat_map(StorageDaemon::threads)).collect())
    }
}

/// A target's guest with its settings and its device, running or not.
pub(in crate::runner) struct GuestSlot<'a> {
    pub(in crate::runner) target: &'a TargetSpec,
    pub(in crate::runner) spec: &'a GuestSpec,
    pub(in crate::runner) device: MeasuredDevice<'a>,
    /// The booted guest; `None` before it has booted and after it has failed.
    pub(in crate::runner) running: &'a mut Option<RunningGuest>,
}

/// The device that is measured in a guest.
pub(in crate::runner) enum MeasuredDevice<'a> {
    /// Storage of this host: the guest's disk, or a directory that it mounts.
    Storage(&'a Built),
    Nic(&'a NicBackend),
}

/// Storage on this host that a guest has as its disk or in a directory that it mounts, with the guest and the disk's overlays.
pub(in crate::runner) struct GuestSite {
    spec: GuestSpec,
    /// The settings of the image; `None` unless the storage is a file that iotax created.
    image: Option<FileSpec>,
    pub(in crate::runner) storage: LocalStorage,
    running: Option<RunningGuest>,
    overlays: Overlays,
}

/// The overlays of external snapshots.
#[derive(Default)]
struct Overlays {
    /// Images between the base and the topmost, from the bottom up.
    lower: Vec<PathBuf>,
    /// The undo entry of the topmost overlay, which is written.
    top: Option<UndoEntry>,
    /// The number of topmost overlays created so far, for their names.
    count: u32,
}

impl GuestSite {
    pub(in crate::runner) fn new(spec: &GuestSpec, image: Option<&FileSpec>, built: Built) -> Self {
        Self {
            spec: spec.clone(),
            image: image.cloned(),
            storage: LocalStorage::new(built),
            running: None,
            overlays: Overlays::default(),
        }
    }

    pub(super) const fn spec(&self) -> &GuestSpec {
        &self.spec
    }

    /// Returns the topmost image of the disk, and its format.
    pub(in crate::runner) fn top(&self) -> (PathBuf, Format) {
        let Built { path, format, .. } = &self.storage.built;
        match self.overlays.count {
            0 => (path.clone(), *format),
            count => (overlay_path(path, count), Format::Qcow2),
        }
    }

    /// Returns the files and devices that QEMU has open, and the path of the storage, which a daemon may have open in QEMU's place.
    pub(in crate::runner) fn files(&self) -> Vec<PathBuf> {
        let open = self.running.iter().flat_map(|running| running.guest.open_files());
        let unique: BTreeSet<PathBuf> = open.chain([self.storage.built.path.clone()]).collect();
        unique.into_iter().collect()
    }

    pub(in crate::runner) const fn image(&self) -> Option<&FileSpec> {
        self.image.as_ref()
    }

    pub(super) const fn running(&self) -> Option<&RunningGuest> {
        self.running.as_ref()
    }

    pub(super) const fn slot<'a>(&'a mut self, target: &'a TargetSpec) -> GuestSlot<'a> {
        let device = MeasuredDevice::Storage(&self.storage.built);
        GuestSlot { target, spec: &self.spec, device, running: &mut self.running }
    }

    pub(super) fn agent(&mut self) -> anyhow::Result<OwnAgent<'_>> {
        agent(&mut self.running)
    }

    /// Returns the whole disk or file of the guest, as the area to measure.
    pub(super) fn area(&self) -> ByteRange {
        let Built { size, shared, .. } = self.storage.built;
        ByteRange { path: None, offset: Bytes(0), size, shared, identity: None }
    }

    pub(super) fn renew_snapshots(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        self.storage.renew_snapshot(undo_log)?;
        match (self.storage.built.snapshot, &mut self.running) {
            (Some(Snapshot::External), Some(_)) => self.renew_overlay(undo_log),
            (Some(Snapshot::Internal), Some(running)) => {
                let count = self.image.as_ref().and_then(|file| file.internal_snapshots).unwrap_or(1);
                Ok(running.guest.renew_snapshots(count)?)
            }
            _ => Ok(()),
        }
    }

    /// Replaces the topmost overlay with a new, empty one. The overlays below are created once and stay empty.
    fn renew_overlay(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        let Self { running: Some(running), image: Some(file), storage, overlays, .. } = self else {
            return Ok(());
        };
        let built = &storage.built;
        let mut below = (built.path.as_path(), built.format);
        let mut add = |path: PathBuf, (below, format): (&Path, Format)| {
            anyhow::Ok((image::overlay(&path, below, format, file, undo_log)?, path))
        };
        let depth = file.backing_depth.unwrap_or(1) as usize;
        while overlays.lower.len() + 1 < depth {
            let lowest = overlays.lower.last().map_or(below, |path| (path, Format::Qcow2));
            let (_, path) =
                add(built.path.with_extension(format!("below-{}.qcow2", overlays.lower.len() + 1)), lowest)?;
            overlays.lower.push(path);
        }
        if let Some(path) = overlays.lower.last() {
            below = (path, Format::Qcow2);
        }
        overlays.count += 1;
        let (entry, path) = add(overlay_path(&built.path, overlays.count), below)?;
        running.guest.swap_disk(&path, Format::Qcow2)?;
        match overlays.top.replace(entry) {
            Some(old) => undo(old, undo_log),
            None => Ok(()),
        }
    }

    pub(super) fn forget_overlay(&mut self, undo_log: &mut UndoLog) {
        if let Some(entry) = self.overlays.top.take() {
            // If it cannot be removed now, it stays in the undo log.
            let _ = undo_log.undo(entry);
        }
    }
}

/// Returns the path of an image's topmost overlay with this number.
fn overlay_path(image: &Path, number: u32) -> PathBuf {
    image.with_extension(format!("overlay-{number}.qcow2"))
}

/// Returns a guest's agent with QEMU's block layer. Fails if the guest is not running.
pub(super) fn agent(running: &mut Option<RunningGuest>) -> anyhow::Result<OwnAgent<'_>> {
    let running = running.as_mut().context("the guest is not running")?;
    let (client, blocks) = running.guest.agent_and_blocks();
    Ok(OwnAgent { client, blocks: Some(blocks) })
}
