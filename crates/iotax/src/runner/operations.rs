//! Operations on a guest's disk, or on an exported image, during a watch: creates the files that they write, and restores the disk
//! afterwards.

use std::fs::OpenOptions;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use iotax_model::plan::Operation;
use iotax_testbed::guest::operation::{OperationFiles, Operator};
use iotax_testbed::target::{image, preflight};
use iotax_testbed::undo::{Effect, UndoEntry, UndoLog};

use super::target::{HostSite, LocalStorage, Site, Target};

/// The disk operations of one measurement, ready to be carried out.
pub(super) struct Operations {
    operator: Mutex<Operator>,
    entries: Vec<UndoEntry>,
}

impl Operations {
    /// Creates the files that the operations write, and connects to the QEMU process that has the disk. Fails for a disk that is not on
    /// this host or that no QEMU has, and if there is too little free space.
    pub(super) fn prepare(
        target: &mut Target,
        operations: &[Operation],
        copy_iops: Option<u32>,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<Self> {
        let (built, top, file) = match &target.site {
            Site::Guest(site) => (&site.storage.built, Some(site.top()), site.image().cloned()),
            Site::Host(HostSite { storage: LocalStorage { built, .. }, .. }) => {
                let top = built.exported.as_ref().and_then(|image| image.top());
                (built, top, target.spec.file().cloned())
            }
            Site::Domain(_) | Site::Remote(_) | Site::Network(_) => {
                anyhow::bail!("operations are for disks on this host that a QEMU has")
            }
        };
        let none = "operations are for images on this host that a QEMU has";
        let ((top, format), (stored, _)) = top.zip(built.stored()).context(none)?;
        let copies = operations.iter().filter(|operation| operation.copies());
        let covers = [Operation::Snapshot, Operation::Stream].into_iter();
        let covers = covers.filter(|operation| operations.contains(operation));
        let has_fleecing = operations.contains(&Operation::BackupFleecing);
        let written = copies.clone().count() + covers.clone().count() + usize::from(has_fleecing);
        if let Some(directory) = stored.parent() {
            preflight::check_room(directory, built.size.0.saturating_mul(written as u64))?;
        }
        let mut entries = Vec::new();
        let file = file.unwrap_or_default();
        let mut files =
            OperationFiles { copy_iops, encrypted: file.encrypt.is_some(), ..OperationFiles::default() };
        let mut create = |undo_log: &mut UndoLog, name: &str| {
            let path = stored.with_extension(format!("watch-{name}"));
            entries.push(undo_log.record(Effect::File { path: path.clone(), identity: None })?);
            let made = OpenOptions::new().write(true).create_new(true).open(&path);
            made.with_context(|| format!("{}", path.display()))?;
            anyhow::Ok(path)
        };
        for operation in copies {
            files.copies.push((*operation, create(undo_log, operation.word())?));
        }
        if has_fleecing {
            files.fleecing = Some(create(undo_log, "fleecing")?);
        }
        for operation in covers {
            let path = stored.with_extension(format!("watch-{operation}.qcow2"));
            entries.push(image::overlay(&path, &top, format, &file, undo_log)?);
            let overlay =
                if operation == Operation::Stream { &mut files.streamed } else { &mut files.overlay };
            *overlay = Some(path);
        }
        let of_export =
            built.exported.as_ref().map(|image| image.operator(files.clone())).transpose()?.flatten();
        let operator = match of_export {
            Some(operator) => operator,
            None => target.running_guest().context("the guest is not running")?.guest.operator(files)?,
        };
        Ok(Self { operator: Mutex::new(operator), entries })
    }

    /// Carries out an operation. Returns the reason if it failed, else `None`.
    pub(super) fn perform(&self, operation: Operation) -> Option<String> {
        let mut operator = self.operator.lock().unwrap_or_else(PoisonError::into_inner);
        operator.perform(operation).err().map(|error| error.to_string())
    }

    /// Commits the rest of a snapshot into the disk and removes the created files. Kills a guest whose disk cannot be restored, so that it
    /// is booted again.
    pub(super) fn finish(self, target: &mut Target, undo_log: &mut UndoLog) {
        let mut operator = self.operator.into_inner().unwrap_or_else(PoisonError::into_inner);
        if operator.restore().is_err() {
            target.kill_guest(undo_log);
        }
        for entry in self.entries {
            // An entry that cannot be undone now stays in the undo log.
            let _ = undo_log.undo(entry);
        }
    }
}
