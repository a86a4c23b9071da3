//! Builds targets on a block device of the user.

use iotax_model::target::{DeviceSpec, PlannedLayer};
use iotax_model::units::{Bytes, human};
use iotax_model::wire::Identity;

use super::ground::{BlockGround, Ground};
use super::layer::{Build, Check, LayerSite};
use super::needs::{Needs, OverwrittenNeed};
use super::preflight::check_length;
use super::sizes::size_on;
use super::{Built, existing, filesystem, lvm};
use crate::build_error::BuildError;
use crate::device;
use crate::refusal::Refusal;

impl Build for DeviceSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        let Self(path) = self;
        device::check(at.target, at.plan, at.permission)?;
        let length = existing::length(&at.permission.kernel_path(path));
        let length = length.map_err(|error| Refusal::environment(error.to_string()))?;
        let is_known = needs.overwritten.iter().any(|known| known.path == *path);
        if at.permission.allows(path) && !is_known {
            needs.overwritten.push(OverwrittenNeed { path: path.clone(), length });
        }
        match at.above {
            // Volumes are checked together.
            [PlannedLayer::Lvm(_), ..] => Ok(()),
            [PlannedLayer::Filesystem(spec), ..] => {
                filesystem::check_room(spec.kind, size_on(&at.above[1..], at.plan.space()), path, length)
            }
            above => {
                let (space, shown) = (at.plan.space(), path.display().to_string());
                let needed = size_on(above, space);
                let has_size = at.target.filesystem_in_guest().is_some() || at.target.file().is_some();
                if has_size && needed > length {
                    return Err(Refusal::input(format!(
                        "{shown}: its length of {} is less than the {} that {:?} needs; use a smaller --size or another device",
                        human::bytes(length.0),
                        human::bytes(needed.0),
                        at.target.name
                    )));
                }
                let taken = if has_size { 0 } else { needed.0 - space.area.0 };
                check_length(&shown, Bytes(length.0.saturating_sub(taken)), &at.plan.work_on(at.target))
            }
        }
    }

    fn build(&self, _: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let Self(path) = self;
        if at.target.bottom_volume().is_some() {
            // The volume group is created on the device later.
            return Ok(Ground::Machine);
        }
        let is_bare =
            at.above.iter().all(|layer| matches!(layer, PlannedLayer::Guest(_) | PlannedLayer::Cgroup(_)));
        if is_bare && !at.builder.permission.allows(path) {
            let found = existing::open(path)?;
            return Ok(Ground::Built(Box::new(Built { size: at.builder.reached(found.size), ..found })));
        }
        if let Some(location) = at.builder.volumes.location(at.target) {
            return lvm::ground(&location, at);
        }
        let claim = at.builder.claim(path, at.undo_log)?;
        let identity = Some(Identity::Disk(claim.pin().disk));
        Ok(Ground::Block(BlockGround {
            area: claim.block.clone(),
            shared: false,
            identity,
            claim: Some(claim),
            transient: false,
        }))
    }
}
