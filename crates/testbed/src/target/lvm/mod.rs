//! Creates logical volumes, in an existing volume group of the user or in a new one on a device.
//!
//! Targets of a plan share one volume group per device. In each group, one volume is shared by all targets without snapshots, thin
//! provisioning or formatting, if they are measured one at a time. Raw targets on such a device use the bytes below that volume, so that
//! device and LVM are compared on the same part of the disk.

mod capacity;
mod place;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::target::{Layer, LayerKind, LvmSpec, RequiredSpace, TargetSpec};
use iotax_model::units::Bytes;
use iotax_model::wire::Identity;

use super::ExportedImage;
use super::ground::{BlockGround, Ground};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::origin::{Origin, create};
use super::purge::purge;
use crate::build_error::BuildError;
use crate::device::{self, DeviceArea, DevicePin, OverwrittenDevice, Permission};
use crate::lvm::{self, Group, LVM, Physical, Scope};
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoLog};
use capacity::{EXTENT, VolumeAllocation};
pub use capacity::{check, possible};
use place::Sharing;
pub use place::VolumeLocation;

/// The storage of a target: a logical volume, or the byte range of the device below the shared volume.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Path of the logical volume or of the device.
    pub path: PathBuf,
    /// Byte offset of the storage on the volume or device.
    pub offset: Bytes,
    /// Length of the storage in bytes, at least as requested.
    pub size: Bytes,
    /// True for a byte range of a device that LVM holds open.
    pub shared: bool,
    /// Identity of the device for a byte range; `None` for a logical volume.
    pub identity: Option<Identity>,
    /// The logical volume to take snapshots of; `None` without snapshots.
    pub origin: Option<Origin>,
}

impl Build for LvmSpec {
    /// Checks nothing: [`check`] checks all volumes of a plan together.
    fn check(&self, _: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        Ok(())
    }

    fn build(&self, _: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        match at.builder.volumes.location(at.target) {
            Some(location) => ground(&location, at),
            None => Err(Refusal::input("lvm stands on a device or in a group, and there is none").into()),
        }
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        let detail = format!("{}, new before each measurement", self.kind);
        self.snapshot.then(|| Layer::new(LayerKind::Snapshot, "LVM snapshot", detail)).into_iter().collect()
    }
}

/// Builds the storage of a target at `location`, and converts it to a block device for the next layer.
pub(super) fn ground(location: &VolumeLocation, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
    let permission = at.builder.permission.clone();
    let volume = at.builder.volumes.build(at.target, location, &permission, at.undo_log)?;
    let Volume { path, offset, size, shared, identity, origin } = volume;
    *at.origin = origin;
    let area = DeviceArea { path, offset, size };
    Ok(Ground::Block(BlockGround { area, shared, identity, claim: None, transient: false }))
}

/// The volume groups and logical volumes of one run.
#[derive(Debug)]
pub struct Volumes {
    tag: String,
    space: RequiredSpace,
    sharing: Sharing,
    /// True to purge a device before it becomes a volume group.
    purges: bool,
    groups: BTreeMap<VolumeLocation, OpenGroup>,
}

/// A volume group that this run uses.
#[derive(Debug)]
struct OpenGroup {
    group: Group,
    name: String,
    extent: u64,
    /// Keeps the device of a new group open; `None` for an existing group.
    pin: Option<DevicePin>,
    /// Outcome of the purge of a new group's device; `None` without one. The devices of an existing group hold others' volumes.
    purged: Option<String>,
    /// Name of the volume that plain targets share; `None` until it is created.
    shared: Option<String>,
    /// Number of volumes that this run created in the group.
    volumes: u32,
}

impl Volumes {
    /// Prepares the volumes of a plan. `tag` becomes part of the names of new groups, and of volumes in existing groups.
    #[must_use]
    pub fn new(tag: &str, plan: &Plan, permission: &Permission) -> Self {
        let sharing = Sharing::of(plan, permission);
        let purges = plan.until_steady().is_some();
        Self { tag: tag.to_owned(), space: plan.space(), sharing, purges, groups: BTreeMap::new() }
    }

    /// Returns the outcome of the purge below a target's volume group; `None` without one.
    pub(super) fn purged(&self, spec: &TargetSpec) -> Option<String> {
        self.groups.get(&self.location(spec)?)?.purged.clone()
    }

    /// Returns the volume group or device that a target uses, if it uses LVM or shares a device with a target that does; `None` otherwise.
    #[must_use]
    pub fn location(&self, spec: &TargetSpec) -> Option<VolumeLocation> {
        self.sharing.location(spec)
    }

    /// Builds the storage of a target at `place`. A device is checked again before it becomes a volume group.
    pub fn build(
        &mut self,
        spec: &TargetSpec,
        place: &VolumeLocation,
        permission: &Permission,
        undo_log: &mut UndoLog,
    ) -> Result<Volume, BuildError> {
        let number = self.groups.len();
        if !self.groups.contains_key(place) {
            let standing = match place {
                VolumeLocation::Device(device) => {
                    new_group(device, (&self.tag, number), self.purges, permission, undo_log)?
                }
                VolumeLocation::Group(name) => users_group(name)?,
            };
            self.groups.insert(place.clone(), standing);
        }
        let standing = self.groups.get_mut(place).expect("inserted above");
        let allocation = VolumeAllocation::of(spec, self.space, standing.extent);
        let name = match &standing.shared {
            Some(name) if self.sharing.shares(spec) => name.clone(),
            _ => {
                let name = standing.add(&self.tag, &allocation, undo_log)?;
                if self.sharing.shares(spec) {
                    standing.shared = Some(name.clone());
                }
                name
            }
        };
        if let (VolumeLocation::Device(device), None) = (place, spec.lvm()) {
            let offset = offset_of(device, &standing.name, &name)?;
            let (path, size) = (device.clone(), self.space.area);
            let identity = standing.pin.as_ref().map(|pin| Identity::Disk(pin.disk));
            return Ok(Volume { path, offset, size, shared: true, identity, origin: None });
        }
        let path = Path::new("/dev").join(&standing.name).join(&name);
        let origin = allocation.snapshots.then(|| Origin {
            group: standing.group.clone(),
            group_name: standing.name.clone(),
            name,
            copy_on_write: allocation.copy_on_write,
            taken: 0,
        });
        let (offset, size) = (Bytes(0), allocation.size);
        Ok(Volume { path, offset, size, shared: false, identity: None, origin })
    }
}

impl OpenGroup {
    /// Creates a logical volume, with its pool if it is thin. Returns its name.
    fn add(
        &mut self,
        tag: &str,
        allocation: &VolumeAllocation,
        undo_log: &mut UndoLog,
    ) -> Result<String, BuildError> {
        self.volumes += 1;
        // A new group has the tag in its own name.
        let name = match &self.group {
            Group::Own(_) => format!("volume{}", self.volumes),
            Group::Users(_) => format!("iotax-{tag}-volume{}", self.volumes),
        };
        let extents = allocation.data.to_string();
        let mut create = |name: &str, arguments: &[&str]| {
            let named = [&["--name", name], arguments].concat();
            create(&self.group, &self.name, name, &named, undo_log)
        };
        if let Some(metadata) = allocation.pool_metadata {
            let (pool, metadata) = (format!("{name}-pool"), format!("{metadata}b"));
            let spare = ["--poolmetadatasize", &metadata, "--poolmetadataspare", "n"];
            create(
                &pool,
                &[&["--type", "thin-pool", "--extents", &extents], &spare[..], &[&self.name]].concat(),
            )?;
            let size = format!("{}b", allocation.size.0);
            create(&name, &["--virtualsize", &size, "--thinpool", &pool, &self.name])?;
        } else {
            // Volumes in a new group are contiguous, so that raw targets can use the same bytes.
            let contiguous = if matches!(self.group, Group::Own(_)) { "y" } else { "n" };
            let wipe = ["--contiguous", contiguous, "--wipesignatures", "y"];
            create(
                &name,
                &[&["--type", "linear", "--extents", &extents], &wipe[..], &[&self.name]].concat(),
            )?;
        }
        Ok(name)
    }
}

/// Turns a device into a physical volume with a new volume group.
fn new_group(
    device: &Path,
    (tag, number): (&str, usize),
    purges: bool,
    permission: &Permission,
    undo_log: &mut UndoLog,
) -> Result<OpenGroup, BuildError> {
    let claim = device::claim(device, permission)?;
    let pin = claim.pin();
    undo_log.record(Effect::Overwritten(OverwrittenDevice::new(claim.block.path.clone())))?;
    let purged = purges.then(|| purge(&claim.block.path, undo_log));
    // LVM must claim the device exclusively itself.
    drop(claim);
    let physical = Physical::new(device.to_owned(), tag, number);
    let name = format!("iotax-{tag}{}", if number == 0 { String::new() } else { format!("-{number}") });
    let (scope, node) = (Scope::Device(device), device.to_string_lossy());
    undo_log.record(Effect::PhysicalVolume(physical.clone()))?;
    if permission.signature {
        undo_log.run(device::WIPEFS, ["--all", &node])?;
    }
    let identity = ["--uuid", &physical.uuid, "--norestorefile"];
    undo_log.run(LVM, scope.command("pvcreate", &[&identity[..], &[&node]].concat()))?;
    undo_log.record(Effect::VolumeGroup { name: name.clone(), physical: physical.clone() })?;
    let extent = format!("{EXTENT}b");
    undo_log.run(LVM, scope.command("vgcreate", &["--physicalextentsize", &extent, &name, &node]))?;
    let group = Group::Own(Box::new(physical));
    Ok(OpenGroup { group, name, extent: EXTENT, pin: Some(pin), purged, shared: None, volumes: 0 })
}

/// Looks up an existing volume group of the user. Its free space was checked with the plan.
fn users_group(name: &str) -> Result<OpenGroup, BuildError> {
    let found = capacity::users_group(name)?;
    let group = Group::Users(found.uuid);
    let (name, extent) = (name.to_owned(), found.extent);
    Ok(OpenGroup { group, name, extent, pin: None, purged: None, shared: None, volumes: 0 })
}

/// Returns the byte offset of a contiguous volume on its device.
fn offset_of(device: &Path, group: &str, name: &str) -> Result<Bytes, BuildError> {
    let selection = format!("vg_name={group} && lv_name={name}");
    let fields = "pe_start,pvseg_start,vg_extent_size";
    let rows = Scope::Device(device).report("pvs", fields, &selection)?;
    let start = match rows.as_slice() {
        [row] => ["pe_start", "pvseg_start", "vg_extent_size"].map(|field| lvm::number(row, field)),
        _ => [None; 3],
    };
    match start {
        [Some(first), Some(extents), Some(extent)] => Ok(Bytes(first + extents * extent)),
        _ => Err(Refusal::environment(format!(
            "{}: where {group}/{name} lies on it is not known: {rows:?}",
            device.display()
        ))
        .into()),
    }
}
