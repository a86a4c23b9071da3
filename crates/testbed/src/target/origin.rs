//! Creates logical volumes, and snapshots of them.

use crate::build_error::BuildError;
use crate::lvm::{Group, LVM, Scope};
use crate::undo::{Effect, UndoEntry, UndoLog};

/// A logical volume of which snapshots are taken.
#[derive(Debug, Clone)]
pub struct Origin {
    pub(super) group: Group,
    pub(super) group_name: String,
    pub(super) name: String,
    /// Number of extents that a thick snapshot needs to hold a copy of the whole volume; `None` for a thin volume.
    pub(super) copy_on_write: Option<u64>,
    pub(super) taken: u32,
}

impl Origin {
    /// Takes another snapshot of the volume, even while the volume is open. The caller removes the previous one.
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

/// Creates a logical volume with lvcreate's `arguments`, after recording it in the undo log.
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
