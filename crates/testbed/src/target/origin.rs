//! Newly created logical volumes, and snapshots of them.

use crate::build_error::BuildError;
use crate::lvm::{Group, LVM, Scope};
use crate::undo::{Effect, UndoEntry, UndoLog};

/// A logical volume that snapshots are taken of.
#[derive(Debug, Clone)]
pub struct Origin {
    pub(super) group: Group,
    pub(super) group_name: String,
    pub(super) name: String,
    /// Extents with which a thick snapshot can copy the whole volume; thin snapshots use the pool.
    pub(super) copy_on_write: Option<u64>,
    pub(super) taken: u32,
}

impl Origin {
    /// Takes a new snapshot in place of the previous one. It takes effect even while the volume is open.
    pub fn snapshot(&mut self, undo_log: &mut UndoLog) -> Result<UndoEntry, BuildError> {
        self.taken += 1;
        let (name, origin) =
            (format!("{}-s{}", self.name, self.taken), format!("{}/{}", self.group_name, self.name));
        let extents = self.copy_on_write.map(|extents| extents.to_string());
        let mut arguments = vec!["--snapshot", "--name", &name];
        if let Some(extents) = &extents {
            arguments.extend(["--extents", extents]);
        }
        arguments.push(&origin);
        create(&self.group, &self.group_name, &name, &arguments, undo_log)
    }
}

/// Creates a volume, recorded in the undo log.
pub(super) fn create(
    group: &Group,
    group_name: &str,
    name: &str,
    arguments: &[&str],
    undo_log: &mut UndoLog,
) -> Result<UndoEntry, BuildError> {
    let scope = match group {
        Group::Own(physical) => Scope::Device(&physical.device),
        Group::Users(_) => Scope::Configured,
    };
    let (group, group_name, name) = (group.clone(), group_name.to_owned(), name.to_owned());
    let entry = undo_log.record(Effect::LogicalVolume { group, group_name, name })?;
    undo_log.run(LVM, scope.command("lvcreate", arguments))?;
    Ok(entry)
}
