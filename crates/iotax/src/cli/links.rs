//! Checks symbolic links on the way to an output. In a world-writable directory another user's link could redirect the output; the kernel
//! refuses to follow it only if fs.protected_symlinks is set.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use rustix::process::geteuid;

/// Maximum number of symbolic links to follow, as in the kernel.
const MOST_LINKS: u32 = 40;
const OTHERS_WRITE: u32 = 0o002;

/// Resolves all symbolic links in a path whose last component need not exist.
///
/// # Errors
/// Fails if a directory on the way is missing or is not a directory, if there are too many links, or if a link belongs to another user
/// in a directory that others can write.
pub(super) fn resolved(name: &Path) -> io::Result<PathBuf> {
    walk(name, false)
}

/// Refuses a path through another user's link in a directory that others can write. The path's directories need not exist yet.
pub(super) fn check(name: &Path) -> io::Result<()> {
    walk(name, true).map(drop)
}

fn walk(name: &Path, may_be_missing: bool) -> io::Result<PathBuf> {
    let mut so_far = PathBuf::new();
    let absolute = std::path::absolute(name)?;
    let mut ahead: VecDeque<OsString> = parts(&absolute);
    let mut links = 0;
    while let Some(part) = ahead.pop_front() {
        match part.to_str() {
            Some("/") => so_far = PathBuf::from("/"),
            Some("..") => drop(so_far.pop()),
            _ => {
                let next = so_far.join(part);
                match fs::symlink_metadata(&next) {
                    Ok(found) if found.is_symlink() => {
                        links += 1;
                        if links > MOST_LINKS {
                            return Err(Errno::LOOP.into());
                        }
                        check_owner(&next, &found, &fs::symlink_metadata(&so_far)?)?;
                        let mut target = parts(&fs::read_link(&next)?);
                        target.append(&mut ahead);
                        ahead = target;
                    }
                    Err(error)
                        if error.kind() == ErrorKind::NotFound && (may_be_missing || ahead.is_empty()) =>
                    {
                        so_far = next;
                    }
                    found => {
                        found?;
                        so_far = next;
                    }
                }
            }
        }
    }
    Ok(so_far)
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter(|part| !matches!(part, Component::CurDir));
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

/// Refuses another user's link in a world-writable directory unless the directory's owner owns the link: the kernel's rule of
/// fs.protected_symlinks, also without the sticky bit.
fn check_owner(link: &Path, found: &fs::Metadata, directory: &fs::Metadata) -> io::Result<()> {
    let is_open = directory.mode() & OTHERS_WRITE != 0;
    if !is_open || [geteuid().as_raw(), directory.uid()].contains(&found.uid()) {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::PermissionDenied,
        format!(
            "{} is a link of user {} in a directory that everybody can write, so it is not followed; remove it or name another file",
            link.display(),
            found.uid()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    #[test]
    fn links_lead_where_the_kernel_goes() {
        let temp = tempfile::tempdir().expect("directory");
        let root = fs::canonicalize(temp.path()).expect("there");
        fs::create_dir_all(root.join("a/b")).expect("made");
        symlink("a/b", root.join("in")).expect("linked");
        symlink("../../new", root.join("a/b/out")).expect("linked");
        symlink("loop", root.join("loop")).expect("linked");
        symlink(root.join("none/new"), root.join("nowhere")).expect("linked");
        fs::write(root.join("file"), "x").expect("written");
        for (name, leads_to) in
            [("file", "file"), ("none", "none"), ("in/./x", "a/b/x"), ("in/../x", "a/x"), ("in/out", "new")]
        {
            assert_eq!(resolved(&root.join(name)).expect(name), root.join(leads_to), "{name}");
        }
        for name in ["loop", "nowhere", "none/x", "file/x"] {
            resolved(&root.join(name)).expect_err(name);
        }
        check(&root.join("none/x/y")).expect("can be made");
    }

    #[test]
    fn where_everybody_writes_only_links_of_who_could_anyway_are_followed() {
        iotax_testkit::require!(root);
        let temp = tempfile::tempdir().expect("directory");
        let (open, link) = (temp.path().join("open"), temp.path().join("open/link"));
        fs::create_dir(&open).expect("made");
        symlink(temp.path(), &link).expect("linked");
        for (mode, owner, is_followed) in
            [(0o1777, 4711, false), (0o777, 4711, false), (0o1777, 0, true), (0o755, 4711, true)]
        {
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).expect("changed");
            lchown(&link, Some(owner), None).expect("given");
            for name in [link.clone(), link.join("new")] {
                let found = resolved(&name);
                assert_eq!(found.is_ok(), is_followed, "{mode:o} {owner}: {found:?}");
                assert_eq!(check(&name).is_ok(), is_followed, "{mode:o} {owner}");
            }
        }
    }
}
