//! Computes the space that logical volumes need, and checks that it is available.

use std::collections::BTreeMap;
use std::path::Path;

use iotax_model::Plan;
use iotax_model::target::{LvmSpec, RequiredSpace, TargetSpec, VolumeAllocation};
use iotax_model::units::human;

use super::location::{Sharing, VolumeLocation};
use crate::device::Permission;
use crate::lvm::{self, LVM, ReportRow, Scope};
use crate::program::ProgramError;
use crate::refusal::Refusal;
use crate::target::existing;
use crate::target::sizes::size_on;

/// Computes the space of the volume at the bottom of a target, with extents of `extent` bytes. A target on the device itself takes as
/// much as with a plain volume.
pub(super) fn allocation(spec: &TargetSpec, space: RequiredSpace, extent: u64) -> VolumeAllocation {
    let plain = LvmSpec::default();
    spec.bottom_volume().unwrap_or(&plain).allocation(size_on(spec.on_bottom(), space), extent)
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
    if !plan.everything().any(|spec| spec.stack.has::<LvmSpec>()) {
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
    let take = |spec: &&TargetSpec| allocation(spec, space, extent).extents(extent);
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
    let is_bare = |spec: &&&TargetSpec| spec.bottom_volume().is_none();
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
    let extents = demand(specs, sharing, space, LvmSpec::EXTENT);
    let need = extents.saturating_mul(LvmSpec::EXTENT).saturating_add(LvmSpec::HEADER);
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
    use iotax_model::units::Bytes;

    use super::*;

    #[test]
    fn a_volume_holds_what_stands_on_it() {
        for (target, size, whole) in [
            ("lvm = {}", 1 << 20, 4 << 20),
            ("lvm = {}\nfilesystem = { type = 'xfs' }\nfile = {}", 1 << 20, 300 << 20),
            ("lvm = {}\nluks = {}", 1 << 20, 36 << 20),
            ("", 5 << 20, 8 << 20),
        ] {
            let text = format!("workload = [{{}}]\n[[target]]\nname = 't'\ndevice = '/dev/none'\n{target}");
            let plan = Plan::from_toml(&text).expect("a plan");
            let space = RequiredSpace { area: Bytes(size), files: Bytes(0) };
            assert_eq!(allocation(&plan.targets[0], space, LvmSpec::EXTENT).size, Bytes(whole), "{target}");
        }
    }
}
