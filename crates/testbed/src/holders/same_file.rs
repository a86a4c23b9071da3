//! Files that are one although stat(2) tells them apart: overlayfs shows a file of its layers under a device number of its own.

use std::collections::BTreeSet;
use std::path::Path;

use super::namespaces;
use crate::stack::mount;

/// Device and inode of a file, as from stat(2).
pub(crate) type FileNumber = (u64, u64);

/// The device numbers of all overlay filesystems that some process here sees.
#[derive(Debug, Default)]
pub(crate) struct Overlays(BTreeSet<u64>);

impl Overlays {
    /// Reads the mount tables of all mount namespaces.
    pub(crate) fn read(root: &Path) -> Self {
        let processes = std::iter::once(root.join("proc/self")).chain(namespaces(root));
        let mounts = processes.flat_map(|process| mount::table(&process).unwrap_or_default());
        let number = |mount: mount::Mount| {
            let (major, minor) = mount.number.split_once(':')?;
            (mount.kind == "overlay")
                .then(|| Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?)))?
        };
        Self(mounts.filter_map(number).collect())
    }

    /// Returns whether the two may be one file. On an overlay a file has the inode of the layer that it is in, with the layer's number in
    /// the upper bits (overlayfs, xino): two files with the same lower ones are taken for one.
    pub(crate) fn may_be_one(&self, one: FileNumber, other: FileNumber) -> bool {
        const INODE: u64 = 0xffff_ffff;
        let through_overlay = self.0.contains(&one.0) || self.0.contains(&other.0);
        one == other || (through_overlay && one.1 & INODE == other.1 & INODE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_through_an_overlay() {
        let overlays = Overlays(BTreeSet::from([46]));
        for (one, other, same) in [
            ((8, 12), (8, 12), true),
            ((8, 12), (9, 12), false),
            ((8, 12), (46, 12), true),
            ((46, 12 | 1 << 60), (8, 12), true),
            ((46, 13), (8, 12), false),
        ] {
            assert_eq!(overlays.may_be_one(one, other), same, "{one:?} {other:?}");
        }
    }
}
