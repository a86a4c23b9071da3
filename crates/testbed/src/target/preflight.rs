//! Checks that a plan can run on this machine, before anything is changed.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::target::{Machine, Remote, TargetKind, TargetSpec};
use iotax_model::units::{Bytes, human};
use iotax_model::workload::{Test, Workload};
use rustix::fs::Access;

use super::layer::{self, Check};
pub use super::needs::{Needs, OverwrittenNeed, Room};
use super::needs::{free_space, unusable};
use super::scratch::scratch_size;
use super::{existing, image_file, lvm};
use crate::device::{self, Permission};
use crate::host_info::{FilesystemSpace, is_in_memory};
use crate::libvirt::ScratchSource;
use crate::network;
use crate::own_file;
use crate::postgresql::Programs;
use crate::refusal::Refusal;
use crate::settings::KernelSettings;

/// Returns the bytes of a filesystem of `total` bytes that must stay free: 10% up to 10 GiB, 1 GiB up to 20 GiB, 5% above.
#[must_use]
pub fn reserve(total: u64) -> u64 {
    (total / 20).max((total / 10).min(1 << 30))
}

/// Checks a plan against this machine. Returns the space that its new files need, or the reason why it cannot run.
pub fn check(plan: &Plan, permission: &Permission) -> Result<Needs, Refusal> {
    let mut needs = Needs::default();
    device::check_permission(plan, permission)?;
    device::check_sharing(plan, permission)?;
    let shared: BTreeSet<&str> = (0..plan.targets.len())
        .filter(|place| plan.storage_of(*place) != *place)
        .map(|place| plan.targets[place].name.as_str())
        .collect();
    for target in plan.everything() {
        if shared.contains(target.name.as_str()) {
            continue;
        }
        match target.kind().map_err(|error| Refusal::input(error.to_string()))? {
            TargetKind::Remote(Remote { machine: Machine::Domain { name, disk }, .. }) => {
                check_domain((&name, disk.as_deref()), target, plan, &mut needs)?;
            }
            // The remote agent checks it.
            TargetKind::Remote(_) => {}
            TargetKind::Network(network) => network::check(network.spec)?,
            TargetKind::Path(path) => {
                check_programs(&plan.work_on(target))?;
                check_path(path, target, plan, &mut needs)?;
            }
            TargetKind::Storage => {
                check_programs(&plan.work_on(target))?;
                check_storage(target, plan, permission, &mut needs)?;
            }
        }
    }
    lvm::check(plan, permission)?;
    KernelSettings::find(Path::new("/"), plan)?;
    for room in needs.rooms()? {
        check_space(&room.dir, room.space, room.need)?;
    }
    Ok(needs)
}

/// Rejects a workload of a program that is not installed on this machine.
fn check_programs(work: &[&Workload]) -> Result<(), Refusal> {
    let Some(workload) = work.iter().find(|workload| workload.test == Some(Test::Pgbench)) else {
        return Ok(());
    };
    let found = Programs::find_pgbench();
    found.map(drop).map_err(|error| Refusal::environment(format!("workload {:?}: {error}", workload.name)))
}

/// Checks a target that is given by a path: an existing file or device, or a new file in an existing directory.
fn check_path(path: &Path, target: &TargetSpec, plan: &Plan, needs: &mut Needs) -> Result<(), Refusal> {
    let work = plan.work_on(target);
    if is_there(path)? {
        check_unwritten(path)?;
        if let Some(format) = image_file::misnamed(path) {
            let (name, path) = (&target.name, path.display());
            needs
                .notes
                .push(format!("{name}: QEMU finds no {format} image in {path}, so it is measured as raw"));
        }
        return check_found(&path.display().to_string(), Some(length_of(path)?), plan, &work)
            .map_err(|refusal| device::or_named_twice(path, plan, refusal));
    }
    let dir = directory_of(path)?;
    check_created(plan, &work)?;
    check_directory(&dir)?;
    check_direct(&dir, &work)?;
    needs.beside(&dir, plan);
    *needs.space.entry(dir).or_default() += plan.touched().0;
    Ok(())
}

/// Checks that a scratch disk for the plan can be attached to a domain of libvirt and set up like its disk, and adds the space that its
/// image needs.
fn check_domain(
    (domain, disk): (&str, Option<&str>),
    target: &TargetSpec,
    plan: &Plan,
    needs: &mut Needs,
) -> Result<(), Refusal> {
    let work = plan.work_on(target);
    check_created(plan, &work)?;
    if let Some(workload) = work.iter().find(|workload| workload.needs_directory()) {
        return Err(Refusal::input(format!(
            "libvirt://{domain}: a disk without a filesystem is measured, and {:?} makes files; name a path in the guest over ssh \
             (ssh://[user@]host/path)",
            workload.name
        )));
    }
    let source = ScratchSource::find(domain, disk)?;
    check_directory(&source.dir)?;
    check_exchange(&source.dir)?;
    let size = scratch_size(plan).0;
    *needs.space.entry(source.dir).or_default() += size + size / 50;
    Ok(())
}

/// Rejects a directory in which another user could replace a file before QEMU or losetup opens it by name. Raw files that iotax opens
/// itself do not need this: their inode is checked.
pub(super) fn check_exchange(dir: &Path) -> Result<(), Refusal> {
    match own_file::check_way(dir) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Refusal::environment(format!(
            "{}: other users can rename what is in it or in a directory above it, and so have QEMU or losetup, which open files by their names, \
             write to another file; use a directory that only you can write",
            dir.display()
        ))),
        _ => Ok(()),
    }
}

/// Returns whether a file exists at a path. Rejects dangling links and invalid names.
fn is_there(path: &Path) -> Result<bool, Refusal> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() && !path.exists() => Err(Refusal::input(format!(
            "{}: a link to {}, which is not there; give the name of the file itself",
            path.display(),
            fs::read_link(path).unwrap_or_default().display()
        ))),
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidFilename | ErrorKind::InvalidInput) => {
            Err(Refusal::input(format!("{}: {error}; give another name", path.display())))
        }
        Err(_) => Ok(false),
    }
}

/// Rejects a file that a QEMU writes as an image. A device's other users are other load, which is measured.
fn check_unwritten(path: &Path) -> Result<(), Refusal> {
    match image_file::writer(path) {
        Some(writer) => Err(Refusal::environment(format!(
            "{}: {writer} has it open as an image and writes it; measure it when that has ended",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Rejects direct I/O to new files in a directory on tmpfs or ramfs.
pub(super) fn check_direct(dir: &Path, work: &[&Workload]) -> Result<(), Refusal> {
    match rustix::fs::statfs(dir) {
        Ok(found) if is_in_memory(&found) => refuse_direct(&dir.display().to_string(), work),
        _ => Ok(()),
    }
}

/// Rejects workloads with direct I/O on storage in memory; `shown` names the storage in the error.
pub(super) fn refuse_direct(shown: &str, work: &[&Workload]) -> Result<(), Refusal> {
    match work.iter().find(|workload| workload.direct) {
        Some(workload) => Err(Refusal::input(format!(
            "{shown}: it keeps files in memory, where nothing is past the page cache, and {:?} is direct; use direct = false (--direct=false), \
             or a directory on a disk",
            workload.name
        ))),
        None => Ok(()),
    }
}

/// Checks the layers of a target from the bottom up.
fn check_storage(
    target: &TargetSpec,
    plan: &Plan,
    permission: &Permission,
    needs: &mut Needs,
) -> Result<(), Refusal> {
    let layers = target.stack.layers();
    for (height, kind) in layers.iter().map(layer::build).enumerate() {
        if let Some(kind) = kind {
            kind.check(&Check { plan, permission, target, above: &layers[height + 1..] }, needs)?;
        }
    }
    Ok(())
}

/// Checks a path that an agent is to measure. Returns the length of an existing file or device; `None` if a new file of `size` bytes can be
/// created there.
pub fn look(path: &Path, size: Bytes) -> Result<Option<Bytes>, Refusal> {
    if is_there(path)? {
        check_unwritten(path)?;
        return length_of(path).map(Some);
    }
    let dir = directory_of(path)?;
    check_directory(&dir)?;
    check_room(&dir, size.0)?;
    Ok(None)
}

/// Checks that a plan's workloads can run on an existing file or device of this length, which is only read, or on a new file if `length` is
/// `None`. `shown` is its name in errors.
pub fn check_found(
    shown: &str,
    length: Option<Bytes>,
    plan: &Plan,
    work: &[&Workload],
) -> Result<(), Refusal> {
    let Some(length) = length else { return check_created(plan, work) };
    check_nothing_beside(shown, work)?;
    check_length(shown, length, work)?;
    match work.iter().find(|workload| workload.modifies()) {
        Some(workload) => Err(Refusal::input(format!(
            "{shown}: it exists, so it is only read; {:?} changes it ({}). Give a path that does not exist: \
             it is created, filled, measured and removed",
            workload.name,
            workload.doing()
        ))),
        None => Ok(()),
    }
}

/// Rejects workloads that create files next to an existing target.
pub(super) fn check_nothing_beside(shown: &str, work: &[&Workload]) -> Result<(), Refusal> {
    match work.iter().find(|workload| workload.needs_directory()) {
        Some(workload) => Err(Refusal::input(format!(
            "{shown}: it exists, and iotax does not create files next to an existing target, which {:?} needs. \
             Give a directory, or a path that does not exist",
            workload.name
        ))),
        None => Ok(()),
    }
}

/// Rejects `need` bytes of new files in a directory if too little space would stay free.
///
/// # Errors
/// The files would leave less than the reserve, or the free space cannot be read.
pub fn check_room(dir: &Path, need: u64) -> Result<(), Refusal> {
    check_space(dir, free_space(dir)?, need)
}

/// Rejects `need` bytes of new files in a directory whose filesystem has the space `space`, if too little would stay free.
///
/// # Errors
/// The files would leave less than the reserve.
pub fn check_space(dir: &Path, space: FilesystemSpace, need: u64) -> Result<(), Refusal> {
    let keep = reserve(space.total.0);
    if space.available.0 >= need.saturating_add(keep) {
        return Ok(());
    }
    Err(Refusal::environment(format!(
        "{}: {} are needed and {} are free, of which {} always stay free (the filesystem has {}). \
         Use a smaller --size, fewer targets, or another directory",
        dir.display(),
        human::bytes(need),
        human::bytes(space.available.0),
        human::bytes(keep),
        human::bytes(space.total.0)
    )))
}

/// Returns the directory in which a new file is to be created. Rejects /dev except for /dev/shm: a typing error in a device's name would
/// create a file in memory.
fn directory_of(path: &Path) -> Result<PathBuf, Refusal> {
    let absolute =
        std::path::absolute(path).map_err(|error| Refusal::input(format!("{}: {error}", path.display())))?;
    let dir = absolute.parent().unwrap_or(Path::new("/")).to_owned();
    // A typo in a device name would create a file in memory.
    if dir.starts_with("/dev") && !dir.starts_with("/dev/shm") {
        return Err(Refusal::input(format!("{}: no such device; name one that lsblk lists", path.display())));
    }
    Ok(dir)
}

pub(super) fn check_directory(dir: &Path) -> Result<(), Refusal> {
    let metadata = fs::metadata(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Refusal::input(format!("{}: no such directory; give one that exists", dir.display()))
        }
        _ => unusable(dir, &error),
    })?;
    if !metadata.is_dir() {
        return Err(Refusal::input(format!("{}: not a directory; give one that exists", dir.display())));
    }
    rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| {
        Refusal::environment(format!(
            "{}: cannot create files there ({}); use another directory or another user",
            dir.display(),
            std::io::Error::from(errno)
        ))
    })
}

/// Rejects a workload whose offset leaves less than one block of a target that iotax creates.
pub(super) fn check_created(plan: &Plan, work: &[&Workload]) -> Result<(), Refusal> {
    let size = plan.size();
    let without = |workload: &&&Workload| size.0.saturating_sub(workload.offset.0) < workload.max_bs().0;
    match work.iter().find(without) {
        Some(workload) => Err(Refusal::input(format!(
            "workload {:?}: offset = {} leaves less than one block of the {size} that are created; give it a size",
            workload.name, workload.offset
        ))),
        None => Ok(()),
    }
}

/// Returns the length of an existing file or block device in bytes. Rejects directories and other kinds of files.
fn length_of(path: &Path) -> Result<Bytes, Refusal> {
    let metadata = fs::metadata(path).map_err(|error| unusable(path, &error))?;
    if metadata.is_dir() {
        return Err(Refusal::input(format!(
            "{}: a directory; name a file in it ({}), or say file = {{ dir = \"{}\" }} for a new one",
            path.display(),
            path.join("test.dat").display(),
            path.display()
        )));
    }
    if !metadata.is_file() && !metadata.file_type().is_block_device() {
        return Err(Refusal::input(format!("{}: neither a regular file nor a block device", path.display())));
    }
    existing::length(path).map_err(|error| Refusal::environment(error.to_string()))
}

pub(super) fn check_length(shown: &str, length: Bytes, work: &[&Workload]) -> Result<(), Refusal> {
    for workload in work {
        if let Some(size) = workload.size
            && workload.end().is_none_or(|end| end > length)
        {
            let from = if workload.offset.0 == 0 {
                String::new()
            } else {
                format!(" from --offset {}", workload.offset)
            };
            return Err(Refusal::input(format!(
                "{shown}: --size {size}{from} is more than its length of {} ({length})",
                human::bytes(length.0)
            )));
        }
        if length.0.saturating_sub(workload.offset.0) < workload.max_bs().0 {
            let from = if workload.offset.0 == 0 {
                String::new()
            } else {
                format!(" behind --offset {}", workload.offset)
            };
            return Err(Refusal::input(format!(
                "{shown}: its length of {} bytes is less than one block of {}{from}",
                length.0,
                workload.max_bs()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::exit::Exit;

    fn plan(target: &str, workload: &str) -> Plan {
        Plan::from_toml(&format!("[[target]]\nname = 't'\n{target}\n[[workload]]\n{workload}"))
            .expect("valid plan")
    }

    #[test]
    fn what_stands_in_the_way_is_said_with_the_right_exit_code() {
        let temp = tempfile::tempdir().expect("temp dir");
        let file = temp.path().join("file");
        fs::write(&file, vec![1; 8192]).expect("written");
        let (dir, file) = (temp.path().display(), file.display());
        for (target, workload, exit, words) in [
            (format!("path = '{dir}'"), "rw = 'read'", Exit::Usage, "a directory"),
            (format!("path = '{file}'"), "rw = 'write'", Exit::Usage, "only read"),
            (format!("path = '{file}'"), "rw = 'read'\nsize = '1m'", Exit::Usage, "more than its length"),
            (format!("path = '{file}'"), "rw = 'read'\nbs = '64k'", Exit::Usage, "less than one block"),
            (format!("path = '{file}'"), "rw = 'trim'", Exit::Usage, "trim"),
            (
                format!("path = '{file}'"),
                "size = '8k'\noffset = '4k'",
                Exit::Usage,
                "from --offset 4k is more",
            ),
            (format!("path = '{file}'"), "offset = '8k'", Exit::Usage, "one block of 4k behind --offset 8k"),
            (
                format!("path = '{file}'"),
                "test = 'create'\ndirect = false\nramp_time = '0s'",
                Exit::Usage,
                "does not create files next to",
            ),
            (format!("path = '{dir}/new'"), "offset = '1g'", Exit::Usage, "less than one block of the 1GiB"),
            ("path = '/dev/null'".to_owned(), "rw = 'read'", Exit::Usage, "neither"),
            (format!("file = {{ dir = '{dir}/none' }}"), "rw = 'read'", Exit::Usage, "no such directory"),
            (format!("file = {{ dir = '{file}' }}"), "rw = 'read'", Exit::Usage, "not a directory"),
            (format!("path = '{dir}/none/new'"), "rw = 'read'", Exit::Usage, "no such directory"),
            (
                format!("file = {{ dir = '{dir}' }}"),
                "rw = 'read'\nsize = '900TiB'",
                Exit::Environment,
                "are needed",
            ),
            ("file = { dir = '/proc' }".to_owned(), "rw = 'read'", Exit::Environment, "/proc"),
        ] {
            let refusal = check(&plan(&target, workload), &Permission::default()).expect_err(words);
            assert_eq!(refusal.exit, exit, "{refusal}");
            assert!(refusal.to_string().contains(words), "{refusal}");
        }
    }

    #[test]
    fn what_stays_free_follows_from_the_size() {
        const MIB: u64 = 1 << 20;
        let space = |available: u64, total: u64| FilesystemSpace {
            available: Bytes(available * MIB),
            total: Bytes(total * MIB),
        };
        for (need, available, total, fits) in [
            (61, 81, 100, true),
            (72, 81, 100, false),
            (100, 1123, 10_240, false),
            (100, 1124, 10_240, true),
            (100, 5219, 102_400, false),
            (100, 5220, 102_400, true),
        ] {
            let checked = check_space(Path::new("/srv"), space(available, total), need * MIB);
            assert_eq!(checked.is_ok(), fits, "{need} of {available} in {total}");
        }
        let refusal =
            check_space(Path::new("/srv"), space(81, 100), 72 * MIB).expect_err("too much").to_string();
        assert!(
            refusal.starts_with(
                "/srv: 72.0 MiB are needed and 81.0 MiB are free, of which 10.0 MiB always stay free (the filesystem has 100 MiB)"
            ),
            "{refusal}"
        );
    }

    /// Programs open images by name, so a user who can replace a file or directory on that path could redirect their writes.
    #[test]
    fn images_lie_where_nobody_else_can_exchange_them() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().expect("temp dir");
        let file = format!("file = {{ dir = '{}' }}", temp.path().display());
        let image = file.replace(" }", ", format = 'qcow2' }") + "\nguest = {}";
        let checked = |target: &str, mode| {
            fs::set_permissions(temp.path(), fs::Permissions::from_mode(mode)).expect("changed");
            check(&plan(target, "rw = 'read'\nsize = '1m'"), &Permission::default()).map(drop)
        };
        for (target, mode, is_fine) in [
            (&image, 0o755, true),
            (&image, 0o1777, true),
            (&image, 0o777, false),
            (&format!("{file}\nguest = {{}}"), 0o777, false),
            // The agent compares the inode before it reads or writes.
            (&file, 0o777, true),
        ] {
            let checked = checked(target, mode);
            assert_eq!(checked.is_ok(), is_fine, "{target} {mode:o}: {checked:?}");
            if let Err(refusal) = checked {
                assert!(refusal.to_string().contains("other users can rename"), "{refusal}");
            }
        }
    }

    #[test]
    fn a_network_needs_no_room() {
        let net = plan("network = { via = 'loopback' }", "net = { test = 'tcp' }");
        assert_eq!(check(&net, &Permission::default()).expect("fine").total(), 0);
    }

    #[test]
    fn a_neighbour_is_asked_for_its_own_work() {
        let temp = tempfile::tempdir().expect("temp dir");
        let file = temp.path().join("file");
        fs::write(&file, vec![1; 8192]).expect("written");
        let noisy = |measured: &str, noise: &str| {
            let dir = temp.path().display();
            let plan = Plan::from_toml(&format!(
                "[[target]]\nname = 't'\nneighbour = 'n'\nfile = {{ dir = '{dir}' }}\n\
                 [[workload]]\nsize = '8k'\nrw = '{measured}'\n\
                 [[neighbour]]\ntarget = {{ name = 'n', path = '{}' }}\nworkload = {{ rw = '{noise}' }}",
                file.display()
            ));
            check(&plan.expect("valid plan"), &Permission::default())
        };
        assert!(noisy("write", "read").is_ok());
        assert!(noisy("read", "write").expect_err("refused").to_string().contains("only read"));
    }

    #[test]
    fn what_can_be_done_says_what_it_needs() {
        let temp = tempfile::tempdir().expect("temp dir");
        let dir = temp.path();
        let file = dir.join("file");
        fs::write(&file, vec![1; 8192]).expect("written");
        let needs = |target: &str| {
            check(&plan(target, "rw = 'read'\nsize = '8k'"), &Permission::default()).expect("fine").total()
        };
        assert_eq!(needs(&format!("path = '{}'", file.display())), 0);
        assert_eq!(needs(&format!("path = '{}/new'", dir.display())), 8192);
        assert_eq!(needs(&format!("file = {{ dir = '{}' }}", dir.display())), 8192 + 163);
        let snapshot = format!(
            "file = {{ dir = '{}', format = 'qcow2', snapshot = 'external' }}\nguest = {{}}",
            dir.display()
        );
        assert_eq!(needs(&snapshot), 2 * (8192 + 163));
        // The workloads' files are next to the target, or on the disk of a guest with a filesystem.
        let with = |target: &str, name: &str| {
            let text = format!("name = '{name}'\n{target}\n[[target]]\nname = 'other'\n{target}");
            let work = "[defaults]\ndirect = false\nramp_time = '0s'\n[[workload]]\ntest = 'create'\nnrfiles = 100\n[[workload]]\ntest = 'stat'\nnrfiles = 10";
            let plan = Plan::from_toml(&format!("[[target]]\n{text}\n{work}")).expect("valid plan");
            check(&plan, &Permission::default()).expect("fine").total()
        };
        let (area, files) = ((1 << 20) + (1 << 20) / 50, 101 << 14);
        assert_eq!(with(&format!("file = {{ dir = '{}' }}", dir.display()), "host"), 2 * area + files);
        let guest = format!("file = {{ dir = '{}' }}\nguest = {{ filesystem = 'ext4' }}", dir.display());
        let disk: u64 = ((1 << 20) + files) * 17 / 16 + (128 << 20);
        let disk = disk.next_multiple_of(4096);
        assert_eq!(with(&guest, "guest"), 2 * (disk + disk / 50));
    }
}
