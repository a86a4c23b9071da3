//! Assigns a plan's targets to volume groups, and decides which of them share a logical volume.

use std::collections::BTreeSet;
use std::path::PathBuf;

use iotax_model::Plan;
use iotax_model::target::{LvKind, TargetSpec};

use crate::device::Permission;

/// The place of a target's logical volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeLocation {
    /// A new volume group on the device with this kernel node.
    Device(PathBuf),
    /// The user's volume group with this name.
    Group(String),
}

/// The facts of a plan that decide which targets share a logical volume.
#[derive(Debug)]
pub(super) struct Sharing {
    /// The user's permission to overwrite devices, which also resolves their names to the kernel's nodes.
    permission: Permission,
    /// Kernel nodes of the devices on which a volume group is created.
    devices: BTreeSet<PathBuf>,
    /// Names of the noisy neighbours' targets, which run at the same time as the measured ones.
    noisy: BTreeSet<String>,
}

impl Sharing {
    pub(super) fn of(plan: &Plan, permission: &Permission) -> Self {
        let with_volume = plan.everything().filter(|spec| spec.bottom_volume().is_some());
        Self {
            permission: permission.clone(),
            devices: with_volume.filter_map(|spec| Some(permission.kernel_path(spec.device()?))).collect(),
            noisy: plan.neighbours.iter().map(|neighbour| neighbour.target.name.clone()).collect(),
        }
    }

    /// Returns the volume group or device that a target's bottom uses, if that is a volume or shares a device with one; `None` otherwise.
    pub(super) fn location(&self, spec: &TargetSpec) -> Option<VolumeLocation> {
        if let Some(group) = spec.bottom_volume().and_then(|volume| volume.vg.as_ref()) {
            return Some(VolumeLocation::Group(group.clone()));
        }
        let device = self.permission.kernel_path(spec.device()?);
        self.devices.contains(&device).then_some(VolumeLocation::Device(device))
    }

    /// Returns whether a target uses the shared volume of its group. Such targets are measured one at a time.
    pub(super) fn shares(&self, spec: &TargetSpec) -> bool {
        let plain =
            spec.bottom_volume().is_none_or(|volume| volume.kind == LvKind::Thick && !volume.snapshot);
        // A filesystem created by one guest must survive the next.
        let alone = spec.guest().is_none_or(|guest| guest.count == 1 && guest.filesystem.is_none());
        plain && alone && spec.formatted_by().is_none() && !self.noisy.contains(&spec.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_targets_of_a_device_share_and_all_others_do_not() {
        let plan = Plan::from_toml(
            r#"
            workload = [{ rw = "randread" }]
            target = [
                { name = "host-device", device = "/dev/none" },
                { name = "host-lvm", device = "/dev/none", lvm = {} },
                { name = "vm-lvm", device = "/dev/none", lvm = {}, guest = {} },
                { name = "thin", device = "/dev/none", lvm = { kind = "thin" } },
                { name = "snapshot", device = "/dev/none", lvm = { snapshot = true } },
                { name = "file", device = "/dev/none", lvm = {}, filesystem = { type = "ext4" }, file = {} },
                { name = "encrypted", device = "/dev/none", lvm = {}, luks = {} },
                { name = "users", lvm = { vg = "vg0" } },
                { name = "many", lvm = { vg = "vg0" }, guest = { count = 2 } },
                { name = "other", device = "/dev/zero" },
                { name = "over", stack = "device /dev/zero > luks > thick LVM volume" },
                { name = "nested", stack = "vg0 > thick LVM volume > luks > thin LVM volume" },
            ]
            [[neighbour]]
            target = { name = "noise", device = "/dev/none" }
            workload = { rw = "write" }
            "#,
        )
        .expect("a plan");
        let sharing = Sharing::of(&plan, &Permission::default());
        let group = Some(VolumeLocation::Device("/dev/none".into()));
        let users = Some(VolumeLocation::Group("vg0".into()));
        let expected = [
            ("host-device", &group, true),
            ("host-lvm", &group, true),
            ("vm-lvm", &group, true),
            ("thin", &group, false),
            ("snapshot", &group, false),
            ("file", &group, false),
            ("encrypted", &group, false),
            ("users", &users, true),
            ("many", &users, false),
            ("other", &None, true),
            ("over", &None, false),
            ("nested", &users, false),
            ("noise", &group, false),
        ];
        for (spec, (name, location, shares)) in plan.everything().zip(expected) {
            assert_eq!(
                (spec.name.as_str(), &sharing.location(spec), sharing.shares(spec)),
                (name, location, shares)
            );
        }
    }
}
