//! Files, devices and disk space that members need on their machines, and conflicts between members.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use iotax_fleet::message::{Assignment, Claims, FileClaim, FileIdentity, FilesystemClaim};
use iotax_model::record::FleetMode;
use iotax_model::target::Remote;
use iotax_model::units::Bytes;
use iotax_model::visible::line;
use iotax_testbed::device::Permission;
use iotax_testbed::host_info::{self, FilesystemSpace};
use iotax_testbed::refusal::Refusal;
use iotax_testbed::target::preflight;

use crate::causes::with_causes;

/// Returns the files, devices and disk space that an assignment needs on this machine. Fails with a reason if the assignment cannot be
/// carried out. Changes nothing.
pub(super) fn of(assignment: &Assignment, permission: &Permission) -> Result<Claims, String> {
    let plan = &assignment.plan;
    let refused = |refusal: Refusal| with_causes(&refusal.into());
    let needs = preflight::check(plan, permission).map_err(refused)?;
    let rooms = needs.rooms().map_err(refused)?.into_iter().map(|room| FilesystemClaim {
        device: room.device,
        directory: room.dir,
        need_bytes: room.need,
        available_bytes: room.space.available.0,
        total_bytes: room.space.total.0,
    });
    let mut files = Vec::new();
    for spec in plan.everything() {
        let is_written = plan.work_on(spec).iter().any(|work| work.modifies());
        let device = spec.device().filter(|device| is_written || permission.allows(device));
        for path in spec.path().into_iter().chain(device).filter(|path| !Remote::is_meant(path)) {
            // Existing files are only read; existing devices may be written.
            let claimed = file(path, is_written).map_err(|error| format!("{}: {error}", path.display()))?;
            files.extend(claimed.filter(|claimed| !files.contains(claimed)));
        }
    }
    Ok(Claims { boot_id: host_info::boot_id(), filesystems: rooms.collect(), files })
}

/// Returns the claim for a file to be created or a device to be written; `None` for any other path.
fn file(path: &Path, is_written: bool) -> std::io::Result<Option<FileClaim>> {
    if path.try_exists()? {
        let found = fs::metadata(path)?;
        let is_claimed = is_written && found.file_type().is_block_device();
        let identity = FileIdentity::Device(found.rdev());
        return is_claimed.then(|| Ok(FileClaim { path: path.canonicalize()?, identity })).transpose();
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let directory = directory.canonicalize()?;
    let found = fs::metadata(&directory)?;
    let name = PathBuf::from(name);
    let identity = FileIdentity::New { device: found.dev(), directory: found.ino(), name: name.clone() };
    Ok(Some(FileClaim { path: directory.join(name), identity }))
}

/// Returns an error for each pair of members that would create the same file or write to the same device, and for each filesystem without
/// enough space for all members. With shared storage, equal paths on different machines are the same file.
pub(super) fn conflicts(members: &[(&str, &Claims)], mode: FleetMode) -> Vec<String> {
    let mut conflicts = Vec::new();
    for (index, (one, claims)) in members.iter().enumerate() {
        for (other, theirs) in &members[..index] {
            let is_one_machine = claims.boot_id.is_some() && claims.boot_id == theirs.boot_id;
            let meets = |mine: &&FileClaim| {
                theirs.files.iter().any(|their| {
                    (is_one_machine && their.identity == mine.identity)
                        || (mode == FleetMode::Shared && their.path == mine.path)
                })
            };
            if let Some(both) = claims.files.iter().find(meets) {
                conflicts.push(format!(
                    "{}: {other} and {one} would both {}",
                    shown(&both.path),
                    both_do(both)
                ));
            }
        }
    }
    conflicts.extend(full(members));
    conflicts
}

fn shown(path: &Path) -> String {
    line(&path.display().to_string()).into_owned()
}

fn both_do(claim: &FileClaim) -> &'static str {
    match claim.identity {
        FileIdentity::Device(_) => "write to it; give each a device of its own, or only read",
        FileIdentity::New { .. } => {
            "make it; make it first (iotax bench --keep), or give each its own file, such as a path with ${member} in it"
        }
    }
}

/// Returns an error for each filesystem without enough space for all members together; each member has checked only its own need.
fn full(members: &[(&str, &Claims)]) -> Vec<String> {
    let mut together: BTreeMap<(&str, u64), (Vec<&str>, FilesystemClaim)> = BTreeMap::new();
    for (name, claims) in members {
        let Some(machine) = claims.boot_id.as_deref() else { continue };
        for claim in &claims.filesystems {
            let (names, sum) = together
                .entry((machine, claim.device))
                .or_insert_with(|| (Vec::new(), FilesystemClaim { need_bytes: 0, ..claim.clone() }));
            names.push(name);
            sum.need_bytes = sum.need_bytes.saturating_add(claim.need_bytes);
            sum.available_bytes = sum.available_bytes.min(claim.available_bytes);
        }
    }
    let several = together.into_values().filter(|(names, _)| names.len() > 1);
    let refused = several.filter_map(|(names, sum)| {
        let space = FilesystemSpace { available: Bytes(sum.available_bytes), total: Bytes(sum.total_bytes) };
        let directory = PathBuf::from(shown(&sum.directory));
        let refusal = preflight::check_space(&directory, space, sum.need_bytes).err()?;
        Some(format!("{} together: {refusal}", names.join(", ")))
    });
    refused.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn claims(machine: &str, need_bytes: u64, files: Vec<FileClaim>) -> Claims {
        let filesystem = FilesystemClaim {
            device: 7,
            directory: "/srv".into(),
            need_bytes,
            available_bytes: 10 * GIB,
            total_bytes: 20 * GIB,
        };
        Claims { boot_id: Some(machine.into()), filesystems: vec![filesystem], files }
    }

    #[test]
    fn members_on_one_filesystem_of_one_machine_need_room_together() {
        let (one, two) = (claims("m", 6 * GIB, Vec::new()), claims("m", 3 * GIB, Vec::new()));
        let far = claims("n", 6 * GIB, Vec::new());
        assert_eq!(conflicts(&[("a", &one), ("b", &two), ("far", &far)], FleetMode::Each), [""; 0]);
        let reasons = conflicts(&[("a", &one), ("b", &one), ("far", &far)], FleetMode::Each);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(
            reasons[0].starts_with("a, b together: /srv: 12.0 GiB are needed and 10.0 GiB are free"),
            "{reasons:?}"
        );
        let unknown = Claims { boot_id: None, ..one };
        assert_eq!(conflicts(&[("a", &unknown), ("b", &unknown)], FleetMode::Each), [""; 0]);
    }

    #[test]
    fn one_file_is_one_under_all_its_names() {
        let temp = tempfile::tempdir().expect("a directory");
        let real = temp.path().join("real");
        fs::create_dir(&real).expect("made");
        std::os::unix::fs::symlink(&real, temp.path().join("link")).expect("made");
        let claim = |path: PathBuf| file(&path, false).expect("readable").expect("it is to be made");
        let plain = claim(real.join("a"));
        for path in ["link/a", "real/./a", "real/../real/a"] {
            assert_eq!(claim(temp.path().join(path)), plain, "{path}");
        }
        assert_ne!(claim(real.join("b")).identity, plain.identity);
        fs::write(real.join("there"), "x").expect("written");
        assert_eq!(file(&real.join("there"), true).expect("readable"), None);

        let (one, two) = (claims("m", 0, vec![plain.clone()]), claims("m", 0, vec![plain.clone()]));
        let reasons = conflicts(&[("a", &one), ("b", &two)], FleetMode::Each);
        assert!(reasons.len() == 1 && reasons[0].contains("a and b would both make it"), "{reasons:?}");
        // The same path on another machine is another file, unless both share the storage.
        let far = claims("n", 0, vec![plain]);
        assert_eq!(conflicts(&[("a", &one), ("far", &far)], FleetMode::Each), [""; 0]);
        assert_eq!(conflicts(&[("a", &one), ("far", &far)], FleetMode::Shared).len(), 1);
    }
}
