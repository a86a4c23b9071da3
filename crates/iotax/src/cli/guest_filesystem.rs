//! Filesystems that guests get for workloads that make files.

use iotax_model::target::Stack;
use iotax_model::workload::Workload;

/// Adds a filesystem to the guest of the target `name` if it has none and one of the workloads makes files. Returns a note about it.
pub(super) fn add_filesystem(name: &str, stack: &mut Stack, workloads: &[Workload]) -> Option<String> {
    let workload = workloads.iter().find(|workload| workload.needs_directory())?;
    let note = || format!("{name}: filesystem = ext4 in the guest, for {} makes files", workload.name);
    stack.add_guest_filesystem().then(note)
}
