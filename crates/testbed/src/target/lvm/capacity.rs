//! Computes the space that logical volumes need, and checks that it is available.

use std::collections::BTreeMap;
use std::path::Path;

use iotax_model::Plan;
use iotax_model::target::RequiredSpace;
use iotax_model::target::{LvKind, TargetSpec};
use iotax_model::units::{Bytes, human};

use super::location::{Sharing, VolumeLocation};
use crate::device::Permission;
use crate::lvm::{self, LVM, ReportRow, Scope};
use crate::program::ProgramError;
use crate::refusal::Refusal;
use crate::target::existing;
use crate::target::sizes::{on_block, size_on};

/// Extent size of a new volume group in bytes: LVM's default.
pub(super) const EXTENT: u64 = 4 << 20;
/// Bytes before the first extent of a new physical volume: label, metadata and alignment.
const HEADER: u64 = 4 << 20;

/// The space that one logical volume needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VolumeAllocation {
    /// Length of the volume in bytes, a multiple of the extent size.
    pub(super) size: Bytes,
    /// Number of extents of the volume or, if it is thin, of its pool.
    pub(super) data: u64,
    /// Bytes of the thin pool's metadata, a multiple of the extent size; `None` for a thick volume.
    pub(super) pool_metadata: Option<u64>,
    /// Number of extents of each snapshot; `None` without snapshots, or for a thin volume.
    pub(super) copy_on_write: Option<u64>,
    /// True if snapshots are taken of the volume.
    pub(super) snapshots: bool,
}

impl VolumeAllocation {
    /// Computes the space of a target's volume, with extents of `extent` bytes.
    pub(super) fn of(spec: &TargetSpec, space: RequiredSpace, extent: u64) -> Self {
        // Larger than any disk; avoids overflow below.
        const MOST: Bytes = Bytes(1 << 60);
        let size = size_on(on_block(spec), space).min(MOST).0;
        let extents = size.div_ceil(extent);
        let size = Bytes(extents * extent);
        let lvm = spec.lvm();
        let snapshots = lvm.is_some_and(|lvm| lvm.snapshot);
        if lvm.is_some_and(|lvm| lvm.kind == LvKind::Thin) {
            // The pool holds both versions of data that volume and snapshot do not share.
            let data = if snapshots { 2 * extents } else { extents };
            // 64 bytes per chunk of 64 KiB, and as much again for changes of the metadata itself; at least 4 MiB, at most 15 GiB, as LVM
            // allows just under 16 GiB.
            let metadata = (data * extent / 512).clamp(4 << 20, 15 << 30).next_multiple_of(extent);
            return Self { size, data, pool_metadata: Some(metadata), copy_on_write: None, snapshots };
        }
        // Each copied chunk of 4 KiB needs 16 bytes of metadata.
        let copies = size.0 + size.0 / 200 + (1 << 20);
        let copy_on_write = snapshots.then(|| copies.div_ceil(extent));
        Self { size, data: extents, pool_metadata: None, copy_on_write, snapshots }
    }

    fn extents(&self, extent: u64) -> u64 {
        let metadata = self.pool_metadata.unwrap_or_default() / extent;
        self.data + metadata + self.copy_on_write.unwrap_or_default()
    }
}

/// An existing volume group of the user.
#[derive(Debug)]
pub(super) struct UsersGroup {
    pub(super) uuid: String,
    pub(super) extent: u64,
    free: u64,
}

/// Looks up a volume group by name. Rejects a group that is missing, exported, incomplete, read-only or shared, and an ambiguous name.
pub(super) fn users_group(name: &str) -> Result<UsersGroup, Refusal> {
    const FIELDS: &str =
        "vg_name,vg_uuid,vg_extent_size,vg_free_count,vg_exported,vg_partial,vg_permissions,vg_shared";
    let groups = Scope::Configured.report("vgs", FIELDS, "").map_err(|error| environment(&error))?;
    let is = |row: &&ReportRow, field: &str, value: &str| row.get(field).is_some_and(|found| found == value);
    let mut named = groups.iter().filter(|row| is(row, "vg_name", name));
    let (Some(row), None) = (named.next(), named.next()) else {
        let known: Vec<&str> =
            groups.iter().filter_map(|row| row.get("vg_name")).map(String::as_str).collect();
        return Err(Refusal::input(format!(
            "lvm.vg = {name:?} is not the name of one volume group; accepted: {}",
            if known.is_empty() { "none, there is no group here".into() } else { known.join(", ") }
        )));
    };
    let unusable = [
        (is(&row, "vg_exported", "exported"), "is exported; import it with vgimport"),
        (is(&row, "vg_partial", "partial"), "misses some of its devices"),
        (!is(&row, "vg_permissions", "writeable"), "cannot be written"),
        (is(&row, "vg_shared", "shared"), "is shared with other machines"),
    ];
    if let Some((_, what)) = unusable.iter().find(|(met, _)| *met) {
        return Err(Refusal::environment(format!("volume group {name} {what}")));
    }
    match (row.get("vg_uuid"), lvm::number(row, "vg_extent_size"), lvm::number(row, "vg_free_count")) {
        (Some(uuid), Some(extent), Some(free)) if extent > 0 => {
            Ok(UsersGroup { uuid: uuid.clone(), extent, free })
        }
        _ => Err(Refusal::environment(format!("volume group {name}: unexpected output of vgs: {row:?}"))),
    }
}

/// Rejects a plan whose logical volumes cannot be created here, or do not fit.
pub fn check(plan: &Plan, permission: &Permission) -> Result<(), Refusal> {
    if !plan.everything().any(|spec| spec.lvm().is_some()) {
        return Ok(());
    }
    possible()?;
    let sharing = Sharing::of(plan, permission);
    let mut locations: BTreeMap<VolumeLocation, Vec<&TargetSpec>> = BTreeMap::new();
    for spec in plan.everything() {
        if let Some(location) = sharing.location(spec) {
            locations.entry(location).or_default().push(spec);
        }
    }
    for (location, specs) in &locations {
        match location {
            VolumeLocation::Device(device) => check_device(device, specs, &sharing, plan.space())?,
            VolumeLocation::Group(name) => check_group(name, specs, &sharing, plan.space())?,
        }
    }
    Ok(())
}

/// Fails if LVM cannot be used on this machine; the error names what is missing.
pub fn possible() -> Result<(), Refusal> {
    LVM.find().map_err(|error| environment(&error))?;
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::environment("LVM needs root; run iotax as root, or leave out targets with lvm"));
    }
    // Querying the version loads the driver if it is a module.
    let version = LVM.run(["version"]).map_err(|error| environment(&error))?;
    if !String::from_utf8_lossy(&version).contains("Driver version") {
        return Err(Refusal::environment(
            "this kernel has no device mapper, which LVM needs (its module is dm_mod); leave out targets with lvm",
        ));
    }
    Ok(())
}

/// Returns the number of extents that all targets on one device or volume group need together.
fn demand(specs: &[&TargetSpec], sharing: &Sharing, space: RequiredSpace, extent: u64) -> u64 {
    let take = |spec: &&TargetSpec| VolumeAllocation::of(spec, space, extent).extents(extent);
    let shared = specs.iter().find(|spec| sharing.shares(spec)).map_or(0, take);
    let own = specs.iter().filter(|spec| !sharing.shares(spec));
    let copies = |spec: &&TargetSpec| spec.guest().map_or(1, |guest| u64::from(guest.count));
    shared + own.map(|spec| take(spec) * copies(spec)).sum::<u64>()
}

fn check_device(
    device: &Path,
    specs: &[&TargetSpec],
    sharing: &Sharing,
    space: RequiredSpace,
) -> Result<(), Refusal> {
    let is_bare = |spec: &&&TargetSpec| spec.lvm().is_none();
    if let Some((spec, layer)) =
        specs.iter().filter(is_bare).find_map(|spec| Some((spec, spec.formatted_by()?)))
    {
        return Err(Refusal::input(format!(
            "target {:?}: its {layer} cannot be on {} itself, on which other targets have a volume group; give it \
             lvm = {{}} or another device",
            spec.name,
            device.display()
        )));
    }
    let length = existing::length(device).map_err(|error| Refusal::environment(error.to_string()))?;
    let need = demand(specs, sharing, space, EXTENT).saturating_mul(EXTENT).saturating_add(HEADER);
    if need > length.0 {
        return Err(Refusal::environment(format!(
            "{}: {} are needed for the volumes of {} and it holds {}; use a smaller --size or fewer targets on it",
            device.display(),
            human::bytes(need),
            names(specs),
            human::bytes(length.0)
        )));
    }
    Ok(())
}

fn check_group(
    name: &str,
    specs: &[&TargetSpec],
    sharing: &Sharing,
    space: RequiredSpace,
) -> Result<(), Refusal> {
    let found = users_group(name)?;
    let need = demand(specs, sharing, space, found.extent);
    if need > found.free {
        let shown = |extents: u64| human::bytes(extents.saturating_mul(found.extent));
        return Err(Refusal::environment(format!(
            "volume group {name}: {} are needed for the volumes of {} and {} are free ({need} and {} extents of {}); \
             use a smaller --size or fewer targets in it",
            shown(need),
            names(specs),
            shown(found.free),
            found.free,
            human::bytes(found.extent)
        )));
    }
    Ok(())
}

fn names(specs: &[&TargetSpec]) -> String {
    specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn environment(error: &ProgramError) -> Refusal {
    Refusal::environment(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(target: &str, size: u64) -> VolumeAllocation {
        let text = format!("workload = [{{}}]\n[[target]]\nname = 't'\ndevice = '/dev/none'\n{target}");
        let plan = Plan::from_toml(&text).expect("a plan");
        VolumeAllocation::of(&plan.targets[0], RequiredSpace { area: Bytes(size), files: Bytes(0) }, EXTENT)
    }

    #[test]
    fn each_kind_of_volume_takes_what_it_needs() {
        const GIB: u64 = 1 << 30;
        let thick = allocation("lvm = {}", GIB + 1);
        assert_eq!((thick.size, thick.extents(EXTENT)), (Bytes(GIB + EXTENT), 257));
        // Room for a copy of the whole volume and 0.4% of metadata.
        let snapshot = allocation("lvm = { snapshot = true }", GIB);
        assert_eq!(snapshot.copy_on_write, Some(258));
        assert_eq!(snapshot.extents(EXTENT), 256 + 258);
        let thin = allocation("lvm = { kind = 'thin', snapshot = true }", GIB);
        assert_eq!((thin.size, thin.data, thin.pool_metadata), (Bytes(GIB), 512, Some(4 << 20)));
        let file = allocation("lvm = {}\nfilesystem = { type = 'xfs' }\nfile = {}", 1 << 20);
        assert_eq!(file.size, Bytes(300 << 20));
        let encrypted = allocation("lvm = {}\nluks = {}", 1 << 20);
        assert_eq!(encrypted.size, Bytes(36 << 20));
    }
}
