//! Storage on this host that is measured as a Xen domain's disk.

use std::os::unix::fs::FileTypeExt;

use anyhow::Context;
use iotax_model::target::{Layer, XenSpec};
use iotax_model::units::Bytes;
use iotax_model::wire::{AgentHello, ByteRange};
use iotax_testbed::target::Built;
use iotax_testbed::undo::{UndoEntry, UndoLog};
use iotax_testbed::xen::{DomainDisk, XenDomain};

use super::OwnAgent;
use super::storage::{LocalStorage, undo};

/// A domain that has booted.
pub(in crate::runner) struct RunningDomain {
    pub(in crate::runner) domain: XenDomain,
    pub(in crate::runner) hello: AgentHello,
    pub(in crate::runner) boot_ns: u64,
    /// The version of Xen; `None` if it is not shown.
    pub(in crate::runner) version: Option<String>,
    /// The undo log's entry of the domain.
    pub(in crate::runner) entry: UndoEntry,
}

/// Storage on this host that a Xen domain has as its disk, with the domain.
pub(in crate::runner) struct DomainSite {
    spec: XenSpec,
    pub(in crate::runner) storage: LocalStorage,
    /// The booted domain; `None` before it has booted and after it has failed.
    pub(in crate::runner) running: Option<RunningDomain>,
}

impl DomainSite {
    pub(in crate::runner) fn new(spec: &XenSpec, built: Built) -> Self {
        Self { spec: spec.clone(), storage: LocalStorage::new(built), running: None }
    }

    pub(in crate::runner) const fn spec(&self) -> &XenSpec {
        &self.spec
    }

    pub(super) fn is_device(&self) -> bool {
        std::fs::metadata(&self.storage.built.path).is_ok_and(|found| found.file_type().is_block_device())
    }

    /// Describes the disk for xl.
    pub(in crate::runner) fn disk(&self) -> DomainDisk<'_> {
        let Built { path, format, .. } = &self.storage.built;
        DomainDisk { path, format: *format, backend: self.spec.backend }
    }

    /// Returns the layers of the domain's disk and of the domain.
    pub(super) fn layers(&self) -> [Layer; 2] {
        let version = self.running.as_ref().and_then(|running| running.version.as_deref());
        self.spec.layers(version)
    }

    pub(super) fn agent(&mut self) -> anyhow::Result<OwnAgent<'_>> {
        let running = self.running.as_mut().context("the domain is not running")?;
        Ok(OwnAgent::on_host(running.domain.agent()))
    }

    /// Returns the part of the domain's disk to measure.
    pub(super) fn area(&self) -> ByteRange {
        let Built { offset, size, shared, .. } = self.storage.built;
        let offset = if self.is_device() { offset } else { Bytes(0) };
        ByteRange { path: None, offset, size, shared, identity: None }
    }

    /// Destroys the domain, if it runs.
    pub(in crate::runner) fn end(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        self.running.take().map_or(Ok(()), |running| undo(running.entry, undo_log))
    }
}
