//! Puts layers on one another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use iotax_model::Plan;
use iotax_model::plan::Space;
use iotax_model::target::{FileSpec, Format, TargetSpec};
use iotax_model::units::Bytes;

use super::device::{self, Block, Claim, Permission};
use super::lvm::{Origin, Volume, Volumes};
use super::{BuildError, Built, existing, filesystem, loop_device, qcow2, raw};
use crate::ledger::Ledger;

/// Builds the targets of one run. What several of them share (a folder, a device) is made or claimed once.
#[derive(Debug)]
pub struct Builder {
    tag: String,
    /// Of what is created.
    space: Space,
    /// As far as the workloads reach; absent: a device is used whole.
    reach: Option<Bytes>,
    permission: Permission,
    volumes: Volumes,
    /// Folders of iotax's own, by the directory that they are in.
    folders: BTreeMap<PathBuf, PathBuf>,
    /// Devices that targets of this run hold, by the kernel's name.
    claims: BTreeMap<PathBuf, Weak<Claim>>,
}

/// A block device for what comes on top.
struct Ground {
    block: Block,
    writable: bool,
    /// Whether LVM holds it.
    shared: bool,
    claim: Option<Arc<Claim>>,
    /// It is a volume that is to have snapshots.
    origin: Option<Origin>,
}

impl Builder {
    /// For the targets of a plan. `tag` stands in the name of everything that is made.
    #[must_use]
    pub fn new(tag: &str, plan: &Plan, permission: Permission) -> Self {
        Self {
            tag: tag.to_owned(),
            space: plan.space(),
            reach: plan.reach(),
            permission,
            volumes: Volumes::new(tag, plan),
            folders: BTreeMap::new(),
            claims: BTreeMap::new(),
        }
    }

    /// Builds one target. The description must have passed the plan's check and [`super::preflight::check`].
    pub fn build(&mut self, spec: &TargetSpec, ledger: &mut Ledger) -> Result<Built, BuildError> {
        if let Some(path) = &spec.path {
            return if path.exists() {
                existing::open(path)
            } else {
                raw::build_at(path, self.space.area, ledger)
            };
        }
        let Some(file) = &spec.file else {
            let ground = self.ground(spec, ledger)?;
            let built = self.on(ground);
            // Beside the area there is the rest of the filesystem that the guest makes.
            let in_guest = spec.filesystem_in_guest().is_some();
            return Ok(if in_guest { Built { size: self.space.area, ..built } } else { built });
        };
        let mut origin = None;
        let directory = match (&spec.filesystem, &file.dir) {
            (Some(filesystem), _) => {
                // It must be free for mkfs and mount, which claim it in their turn.
                let Ground { block, claim, origin: volume, .. } = self.ground(spec, ledger)?;
                if claim.is_some() && !self.permission.signature {
                    device::check_signature(&block.path)?;
                }
                drop(claim);
                origin = volume;
                filesystem::check_room(
                    filesystem.kind,
                    spec.on_filesystem(self.space),
                    &block.path,
                    block.size,
                )?;
                filesystem::build(&block, filesystem, &format!("{}-{}", self.tag, spec.name), ledger)?
            }
            (None, Some(dir)) => self.folder(dir, ledger)?,
            (None, None) => unreachable!("Plan::check refuses a file without a place"),
        };
        let built = Built {
            origin,
            ..self.file(&directory.join(&spec.name), spec.disk_size(self.space), file, ledger)?
        };
        let Some(settings) = &spec.loop_device else { return Ok(built) };
        let (path, warning) = loop_device::build(&built.path, settings, ledger)?;
        Ok(Built { path, warnings: warning.into_iter().collect(), ..built })
    }

    /// The device or volume at a target's bottom.
    fn ground(&mut self, spec: &TargetSpec, ledger: &mut Ledger) -> Result<Ground, BuildError> {
        if let Some(volume) = self.volumes.build(spec, &self.permission, ledger)? {
            let Volume { path, offset, size, shared, origin } = volume;
            let block = Block { path, offset, size };
            return Ok(Ground { block, writable: true, shared, claim: None, origin });
        }
        let Some(path) = &spec.device else {
            unreachable!("Plan::check refuses a target without a bottom");
        };
        if !self.permission.allows(path) {
            let block = device::whole(path)?;
            return Ok(Ground { block, writable: false, shared: false, claim: None, origin: None });
        }
        let name = std::fs::canonicalize(path).map_err(BuildError::file(path))?;
        let held = self.claims.get(&name).and_then(Weak::upgrade);
        let claim = match held {
            Some(claim) => claim,
            None => Arc::new(device::claim(path, &self.permission)?),
        };
        self.claims.insert(name, Arc::downgrade(&claim));
        let block = claim.block.clone();
        Ok(Ground { block, writable: true, shared: false, claim: Some(claim), origin: None })
    }

    /// A device as a target of its own.
    fn on(&self, ground: Ground) -> Built {
        let Ground { block, writable, shared, claim, origin } = ground;
        Built {
            path: block.path,
            offset: block.offset,
            format: Format::Raw,
            size: self.reach.map_or(block.size, |reach| reach.min(block.size)),
            writable,
            shared: shared || claim.is_some(),
            identity: None,
            held: None,
            claim,
            entry: None,
            snapshot: None,
            origin,
            warnings: Vec::new(),
        }
    }

    /// A new file of `length` bytes, as what reads it sees it, whose name without extension is `stem`.
    fn file(
        &self,
        stem: &Path,
        length: Bytes,
        file: &FileSpec,
        ledger: &mut Ledger,
    ) -> Result<Built, BuildError> {
        let built = match file.format {
            Format::Raw => {
                raw::build_in(&stem.with_added_extension("raw"), length, file.preallocation, ledger)
            }
            Format::Qcow2 => qcow2::build(&stem.with_added_extension("qcow2"), length, file, ledger),
        }?;
        Ok(Built { size: self.space.area, ..built })
    }

    /// The folder of iotax's own in a directory.
    fn folder(&mut self, dir: &Path, ledger: &mut Ledger) -> Result<PathBuf, BuildError> {
        // Under whatever name it is given: there is one folder in it.
        let dir = std::fs::canonicalize(dir).map_err(BuildError::file(dir))?;
        if let Some(folder) = self.folders.get(&dir) {
            return Ok(folder.clone());
        }
        let folder = dir.join(format!("iotax-{}", self.tag));
        ledger.make_directory(&folder)?;
        self.folders.insert(dir, folder.clone());
        Ok(folder)
    }
}
