//! Checks that only this user and root can have written a file, so that its contents can be trusted.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

const ROOT: u32 = 0;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Checks that a directory belongs to this user, and that no other user can change it or any directory on its path.
/// Returns the path without symbolic links.
///
/// # Errors
/// The directory is missing or belongs to another user, or another user may write to it.
pub(crate) fn directory(path: &Path) -> io::Result<PathBuf> {
    walk(path, true)
}

/// Checks that other users cannot replace files that this user creates in a directory.
///
/// # Errors
/// The directory is missing, or another user may rename or remove files in it.
pub(crate) fn check_ancestors(path: &Path) -> io::Result<()> {
    walk(path, false).map(drop)
}

/// Checks a directory and all directories on its path. With `is_own`, other users must not be able to add files to the directory either,
/// because this user would trust them.
fn walk(path: &Path, is_own: bool) -> io::Result<PathBuf> {
    let resolved = fs::canonicalize(path)?;
    // Check from the root down: if others cannot change a directory, they cannot replace the entries that were checked in it.
    let mut path_steps: Vec<&Path> = resolved.ancestors().collect();
    path_steps.reverse();
    for step in &path_steps {
        let found = fs::symlink_metadata(step)?;
        if !found.is_dir() {
            return Err(io::Error::other(format!("{} is not a directory", step.display())));
        }
        let is_ancestor = !is_own || *step != resolved;
        check_owner(step, &found, is_ancestor)?;
        check_writers(step, &found, is_ancestor)?;
    }
    Ok(resolved)
}

/// Checks a directory as [`directory`] does; returns `None` if the directory is missing.
///
/// # Errors
/// The directory belongs to another user, or another user may write to it.
pub(crate) fn existing(path: &Path) -> io::Result<Option<PathBuf>> {
    match directory(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Opens a regular file of this user that no other user may write. Does not follow a symbolic link at the path, and does not block on a
/// FIFO.
///
/// # Errors
/// The file cannot be opened, is not a regular file, or another user may have written it.
pub(crate) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Even opening a device may have an effect.
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
        Ok(found) => check_file(path, &found)?,
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = options.custom_flags(flags.cast_signed()).open(path)?;
    check_file(path, &file.metadata()?)?;
    Ok(file)
}

fn check_file(path: &Path, found: &fs::Metadata) -> io::Result<()> {
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file; remove it"));
    }
    check_owner(path, found, false)?;
    check_writers(path, found, false)
}

/// Environment variable with the id of the user whose private directory holds an agent that runs under sudo(8). Root trusts that user here,
/// because the agent's program comes from that directory anyway.
const TEST_OWNER: &str = "IOTAX_PLACE_OWNER";

fn check_owner(path: &Path, found: &fs::Metadata, is_ancestor: bool) -> io::Result<()> {
    let own = geteuid().as_raw();
    let is_test_owner = || std::env::var(TEST_OWNER).is_ok_and(|owner| owner == found.uid().to_string());
    if found.uid() == own || (is_ancestor && (found.uid() == ROOT || is_test_owner())) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "{} belongs to user {} and this is user {own}, who obeys nothing written there; run iotax as its owner, or set HOME \
             (sudo -H) or XDG_STATE_HOME to a directory of user {own}",
            path.display(),
            found.uid()
        ),
    ))
}

/// Fails if other users may write a file or directory. A group whose id equals the owner's id is that user's private group, unless an ACL
/// adds members. A sticky directory on the path is accepted, because other users cannot replace files in it.
fn check_writers(path: &Path, found: &fs::Metadata, is_ancestor: bool) -> io::Result<()> {
    let others = found.mode() & OTHERS_WRITE != 0;
    let is_private = || found.gid() == found.uid() && !has_access_list(path);
    let group = found.mode() & GROUP_WRITES != 0 && !is_private();
    if !(others || group) || (is_ancestor && found.mode() & STICKY != 0) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "{0} can be written by other users (mode {1:o}), so others may have changed it; check its contents, then chmod go-w {0}",
            path.display(),
            found.mode() & 0o7777
        ),
    ))
}

/// Returns whether a file has an access control list. Its mask then appears in place of the group's permission bits (acl(5)).
fn has_access_list(path: &Path) -> bool {
    rustix::fs::lgetxattr(path, "system.posix_acl_access", &mut [0_u8; 0]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused_with_all_on_the_way() {
        let temp = tempfile::tempdir().expect("a directory");
        let (parent, end) = (temp.path().join("way"), temp.path().join("way/end"));
        fs::create_dir_all(&end).expect("made");
        assert_eq!(existing(&end.join("none")).expect("not there"), None);
        for (changed_path, changed, is_fine) in [
            (&end, 0o700, true),
            (&end, 0o755, true),
            (&end, 0o757, false),
            (&end, 0o1777, false),
            (&parent, 0o777, false),
            (&parent, 0o1777, true),
        ] {
            mode(&parent, 0o755);
            mode(&end, 0o755);
            mode(changed_path, changed);
            let found = directory(&end);
            assert_eq!(found.is_ok(), is_fine, "{} {changed:o}: {found:?}", changed_path.display());
            if let Err(error) = found {
                assert!(error.to_string().contains("chmod go-w"), "{error}");
            }
        }
        // In a sticky directory, only the owner of an entry can replace it.
        mode(&end, 0o1777);
        check_ancestors(&end).expect("nobody else can exchange it");
        mode(&end, 0o777);
        check_ancestors(&end).expect_err("others can");
        let link = temp.path().join("link");
        symlink(&end, &link).expect("linked");
        mode(&parent, 0o755);
        mode(&end, 0o755);
        assert_eq!(directory(&link).expect("ours"), fs::canonicalize(&end).expect("there"));
    }

    #[test]
    fn what_another_user_owns_is_refused() {
        iotax_testkit::require!(root);
        let temp = tempfile::tempdir().expect("a directory");
        let (home, state) = (temp.path().join("home"), temp.path().join("home/state"));
        fs::create_dir_all(&state).expect("made");
        let file = state.join("file");
        fs::write(&file, "x").expect("written");
        for owned in [&home, &state, &file] {
            chown(owned, Some(4711), Some(4711)).expect("given away");
            let found = directory(&state).and_then(|_| open(OpenOptions::new().read(true), &file));
            let said = found.expect_err("another's").to_string();
            assert!(said.contains("belongs to user 4711") && said.contains("sudo -H"), "{said}");
            chown(owned, Some(0), Some(4711)).expect("taken back");
        }
        open(OpenOptions::new().read(true), &file).expect("ours");
        mode(&file, 0o664);
        let said = open(OpenOptions::new().read(true), &file).expect_err("a group writes it").to_string();
        assert!(said.contains("mode 664"), "{said}");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let temp = tempfile::tempdir().expect("a directory");
        let entry = |name: &str| temp.path().join(name);
        fs::create_dir(entry("directory")).expect("made");
        fs::write(entry("file"), "x").expect("written");
        symlink(entry("file"), entry("link")).expect("linked");
        symlink("/dev/null", entry("device")).expect("linked");
        let fifo = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, entry("fifo"), fifo).expect("made");
        for name in ["directory", "link", "device", "fifo"] {
            let said = open(OpenOptions::new().read(true), &entry(name)).expect_err(name).to_string();
            assert!(said.contains("not a regular file"), "{name}: {said}");
        }
    }
}
