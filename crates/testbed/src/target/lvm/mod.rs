//! Creates logical volumes, in an existing volume group of the user or in a new one on a block device.
//!
//! On a device that iotax made for a target, the group is that target's alone. Targets of a plan on a device of the user share one group
//! per device. In each of these and of the user's groups, one volume is shared by all targets without snapshots, thin provisioning or
//! formatting, if they are measured one at a time. Raw targets on such a device use the bytes below that volume, so that device and LVM are
//! compared on the same part of the disk.

mod capacity;
mod location;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::target::{Layer, LayerKind, LvmSpec, RequiredSpace, TargetSpec, VolumeAllocation};
use iotax_model::units::Bytes;
use iotax_model::wire::Identity;

use super::ExportedImage;
use super::ground::{BlockGround, Ground, TakenBlock};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::origin::{Origin, create};
use super::purge::purge;
use crate::build_error::BuildError;
use crate::device::{self, DeviceArea, DevicePin, OverwrittenDevice, Permission};
use crate::lvm::{self, Group, LVM, Physical, Scope};
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoLog};
use capacity::allocation;
pub use capacity::{check, possible};
use location::Sharing;
pub use location::VolumeLocation;

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

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        if matches!(below, Ground::Machine) {
            return match at.builder.volumes.location(at.target) {
                Some(location) => ground(&location, at),
                None => Err(Refusal::input("lvm stands on a device or in a group, and there is none").into()),
            };
        }
        let taken = below.block()?.take(at.builder.permission.signature)?;
        let allocation = self.allocation(at.size(), LvmSpec::EXTENT);
        let volume = at.builder.volumes.build_on(&taken, &allocation, at.undo_log)?;
        Ok(on_volume(volume, taken.transient, at))
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
    Ok(on_volume(volume, false, at))
}

/// Converts a volume to a block device for the next layer. `transient` is true if the volume goes with the device that it is on.
fn on_volume(volume: Volume, transient: bool, at: &mut LayerSite<'_>) -> Ground {
    let Volume { path, offset, size, shared, identity, origin } = volume;
    if origin.is_some() {
        *at.origin = origin;
    }
    let area = DeviceArea { path, offset, size };
    Ground::Block(BlockGround { area, shared, identity, claim: None, transient })
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
    /// Number of groups that this run created.
    created: usize,
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
        let purges = plan.preconditions();
        Self {
            tag: tag.to_owned(),
            space: plan.space(),
            sharing,
            purges,
            groups: BTreeMap::new(),
            created: 0,
        }
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

    /// Builds the storage of a target at `location`. A device is checked again before it becomes a volume group.
    pub fn build(
        &mut self,
        spec: &TargetSpec,
        location: &VolumeLocation,
        permission: &Permission,
        undo_log: &mut UndoLog,
    ) -> Result<Volume, BuildError> {
        if !self.groups.contains_key(location) {
            let volume_group = match location {
                VolumeLocation::Device(device) => self.on_users_device(device, permission, undo_log)?,
                VolumeLocation::Group(name) => users_group(name)?,
            };
            self.groups.insert(location.clone(), volume_group);
        }
        let volume_group = self.groups.get_mut(location).expect("inserted above");
        let allocation = allocation(spec, self.space, volume_group.extent);
        let name = match &volume_group.shared {
            Some(name) if self.sharing.shares(spec) => name.clone(),
            _ => {
                let name = volume_group.add(&self.tag, &allocation, undo_log)?;
                if self.sharing.shares(spec) {
                    volume_group.shared = Some(name.clone());
                }
                name
            }
        };
        if let (VolumeLocation::Device(device), None) = (location, spec.bottom_volume()) {
            let offset = offset_of(device, &volume_group.name, &name)?;
            let (path, size) = (device.clone(), self.space.area);
            let identity = volume_group.pin.as_ref().map(|pin| Identity::Disk(pin.disk));
            return Ok(Volume { path, offset, size, shared: true, identity, origin: None });
        }
        Ok(volume_group.volume(name, &allocation))
    }

    /// Builds a volume in a new group on a block device that iotax made.
    fn build_on(
        &mut self,
        below: &TakenBlock,
        allocation: &VolumeAllocation,
        undo_log: &mut UndoLog,
    ) -> Result<Volume, BuildError> {
        let mut group = self.new_group(&below.area.path, below.transient, false, undo_log)?;
        let name = group.add(&self.tag, allocation, undo_log)?;
        Ok(group.volume(name, allocation))
    }

    /// Claims a device of the user for a new group.
    fn on_users_device(
        &mut self,
        device: &Path,
        permission: &Permission,
        undo_log: &mut UndoLog,
    ) -> Result<OpenGroup, BuildError> {
        let claim = device::claim(device, permission)?;
        let pin = claim.pin();
        undo_log.record(Effect::Overwritten(OverwrittenDevice::new(claim.block.path.clone())))?;
        let purged = self.purges.then(|| purge(&claim.block.path, undo_log));
        // LVM must claim the device exclusively itself.
        drop(claim);
        let group = self.new_group(device, false, permission.signature, undo_log)?;
        Ok(OpenGroup { pin: Some(pin), purged, ..group })
    }

    /// Turns a block device into a physical volume with a new group, after wiping all signatures if `wipe` is true.
    fn new_group(
        &mut self,
        device: &Path,
        transient: bool,
        wipe: bool,
        undo_log: &mut UndoLog,
    ) -> Result<OpenGroup, BuildError> {
        let (tag, number) = (&self.tag, self.created);
        self.created += 1;
        let physical = Physical::new(device.to_owned(), transient, tag, number);
        let name = format!("iotax-{tag}{}", if number == 0 { String::new() } else { format!("-{number}") });
        let (scope, node) = (Scope::Device(device), device.to_string_lossy());
        undo_log.record(Effect::PhysicalVolume(physical.clone()))?;
        if wipe {
            undo_log.run(device::WIPEFS, ["--all", &node])?;
        }
        let identity = ["--uuid", &physical.uuid, "--norestorefile"];
        undo_log.run(LVM, scope.command("pvcreate", &[&identity[..], &[&node]].concat()))?;
        undo_log.record(Effect::VolumeGroup { name: name.clone(), physical: physical.clone() })?;
        let extent = format!("{}b", LvmSpec::EXTENT);
        undo_log.run(LVM, scope.command("vgcreate", &["--physicalextentsize", &extent, &name, &node]))?;
        let group = Group::Own(Box::new(physical));
        Ok(OpenGroup {
            group,
            name,
            extent: LvmSpec::EXTENT,
            pin: None,
            purged: None,
            shared: None,
            volumes: 0,
        })
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

    /// Describes a volume of the group.
    fn volume(&self, name: String, allocation: &VolumeAllocation) -> Volume {
        let path = Path::new("/dev").join(&self.name).join(&name);
        let origin = allocation.snapshots.then(|| Origin {
            group: self.group.clone(),
            group_name: self.name.clone(),
            name,
            copy_on_write: allocation.copy_on_write,
            taken: 0,
        });
        Volume { path, offset: Bytes(0), size: allocation.size, shared: false, identity: None, origin }
    }
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
