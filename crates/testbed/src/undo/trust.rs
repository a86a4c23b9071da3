//! What an undo log must be to be carried out: written by this user, and by nobody else.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path};

use rustix::fs::OFlags;

use super::Effect;
use crate::settings;

/// Write permission of group and others.
const OTHERS_WRITE: u32 = 0o022;
/// The beginning of every guest's marker; the run's tag follows.
const MARKER: &str = "iotax-";

/// Fails if others can put logs into a directory: what they wrote would be carried out with this user's rights.
pub(super) fn check_directory(dir: &Path) -> io::Result<()> {
    check_owner(&fs::metadata(dir)?)
}

/// Opens a log to read and to add to it. Fails at once if it is no file, or not this user's own.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).append(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a file; remove it"));
    }
    check_owner(&found)?;
    Ok(file)
}

fn check_owner(found: &fs::Metadata) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user {
        return Err(io::Error::other(format!(
            "it belongs to user {}, and this is user {user}, who does not carry out what others wrote; run iotax as that user, or with a \
             home of your own (sudo -H, or XDG_STATE_HOME)",
            found.uid()
        )));
    }
    if found.mode() & OTHERS_WRITE != 0 {
        return Err(io::Error::other(format!(
            "others can write to it (mode {:o}); take that from them (chmod go-w) once you know what is in it",
            found.mode() & 0o7777
        )));
    }
    Ok(())
}

/// Fails for an effect that iotax cannot have recorded.
pub(super) fn check_effect(effect: &Effect) -> Result<(), String> {
    let refused = |what: &str, value: &str| Err(format!("{what} {value:?} is none of iotax's"));
    if let Some(path) = effect.path()
        && !is_plain(path)
    {
        return refused("the path", &path.to_string_lossy());
    }
    match effect {
        Effect::Guest { marker } if !is_marker(marker) => refused("the guest's marker", marker),
        // Tests have a tree of their own in place of /sys.
        Effect::Setting(file) if !(cfg!(test) || settings::is_setting(&file.path)) => {
            refused("the setting", &file.path.to_string_lossy())
        }
        _ => Ok(()),
    }
}

/// Absolute, and without `..`.
fn is_plain(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
}

fn is_marker(marker: &str) -> bool {
    let tag = marker.strip_prefix(MARKER).and_then(|rest| rest.split_once('-')).map(|(tag, _)| tag);
    tag.is_some_and(|tag| tag.len() >= 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_names_the_run() {
        for (marker, is) in
            [("iotax-d5h2k-vm", true), ("", false), ("iotax-", false), ("iotax--vm", false), ("qemu", false)]
        {
            assert_eq!(is_marker(marker), is, "{marker:?}");
            assert_eq!(check_effect(&Effect::Guest { marker: marker.into() }).is_ok(), is, "{marker:?}");
        }
    }

    #[test]
    fn a_path_leads_where_it_seems_to() {
        for (path, is) in [("/srv/a", true), ("srv/a", false), ("/srv/../etc/passwd", false)] {
            let effect = Effect::File { path: path.into(), identity: None };
            assert_eq!(check_effect(&effect).is_ok(), is, "{path}");
        }
    }
}
