//! Finds the mount of a path in /proc/self/mountinfo (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use iotax_model::target::{ShareProtocol, VolatileSpec};

use crate::share;

/// File name of the mount table in a process's directory in /proc.
const TABLE: &str = "mountinfo";

/// A line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    id: u64,
    parent: u64,
    /// Device number as `major:minor`; the major number is 0 for a filesystem without a block device.
    pub(crate) number: String,
    /// Path of the mount point.
    pub(crate) point: PathBuf,
    /// The filesystem's type, such as `ext4`.
    pub(crate) kind: String,
    /// The mounted device, export or other source, as the mount table shows it.
    pub(crate) source: String,
    /// Comma-separated options of the mount and of the filesystem, without duplicates.
    pub(crate) options: String,
}

/// Prefix of a volatile directory's mount source. The path of the directory with its flushed data follows.
pub(crate) const VOLATILE_SOURCE: &str = "iotax-volatile:";

impl Mount {
    /// Returns the directory that receives data written to an overlay, a volatile directory or an iotax share; `None` for other
    /// filesystems.
    pub(super) fn upper_directory(&self) -> Option<PathBuf> {
        if let Some(below) = self.volatile_source() {
            return Some(below.into());
        }
        if let Some((_, served)) = self.served_directory() {
            return Some(served);
        }
        let is_overlay = self.kind == "overlay";
        let mut options = self.options.split(',').filter(|_| is_overlay);
        options.find_map(|option| option.strip_prefix("upperdir=")).map(PathBuf::from)
    }

    /// Returns the protocol and the exported directory of an iotax share; `None` for other filesystems.
    pub(super) fn served_directory(&self) -> Option<(ShareProtocol, PathBuf)> {
        share::served(&self.kind, &self.source, &self.point)
    }

    /// Returns the filesystem's type; `volatile` for a volatile directory.
    pub(super) fn name(&self) -> &str {
        self.volatile_source().map_or(&self.kind, |_| VolatileSpec::NAME)
    }

    fn volatile_source(&self) -> Option<&str> {
        self.source.strip_prefix(VOLATILE_SOURCE).filter(|_| self.kind == "fuse")
    }
}

/// Returns the mount that holds an absolute path without symbolic links. The error is the path of the mount table and a reason.
pub(crate) fn of(root: &Path, path: &Path) -> Result<Mount, (PathBuf, String)> {
    let own = root.join("proc/self");
    match table(&own) {
        Ok(mounts) => find(&mounts, path).cloned().ok_or_else(|| "no mount holds this path".to_owned()),
        Err(error) => Err(error.to_string()),
    }
    .map_err(|reason| (own.join(TABLE), reason))
}

/// Reads all mounts that a process sees, in mount order. `process` is its directory in /proc.
pub(crate) fn table(process: &Path) -> io::Result<Vec<Mount>> {
    let text = fs::read(process.join(TABLE))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Finds the mount of a path by walking down the mount tree, as a path lookup does; `None` if the table has none. The longest matching
/// mount point would be wrong: a later mount may cover it.
fn find<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let top = |mount: &&Mount| !mounts.iter().any(|other| other.id == mount.parent && other.id != mount.id);
    let mut current = mounts.iter().filter(top).find(|mount| path.starts_with(&mount.point))?;
    // Each step goes one mount deeper; bounds the walk on a malformed table.
    for _ in mounts {
        let next = mounts
            .iter()
            .filter(|mount| {
                mount.parent == current.id && mount.id != current.id && path.starts_with(&mount.point)
            })
            .min_by_key(|mount| mount.point.components().count());
        match next {
            Some(next) => current = next,
            None => return Some(current),
        }
    }
    None
}

/// Parses a line such as `27 1 254:0 / /srv rw,relatime shared:1 - ext4 /dev/vda rw,discard`. The number of fields before the dash varies.
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |index: usize| Some(unescape(fields.get(index)?).to_string_lossy().into_owned());
    let mut options: Vec<String> = Vec::new();
    for option in [text(5)?, text(dash + 3)?].iter().flat_map(|list| list.split(',')) {
        if !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    Some(Mount {
        id: text(0)?.parse().ok()?,
        parent: text(1)?.parse().ok()?,
        number: text(2)?,
        point: unescape(fields.get(4)?).into(),
        kind: text(dash + 1)?,
        source: text(dash + 2)?,
        options: options.join(","),
    })
}

/// Decodes octal escapes, by which the kernel writes space, tab, newline and backslash.
pub(crate) fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal =
            tail.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
1 1 0:1 / / rw - rootfs none rw
20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
21 20 8:2 / /srv rw,relatime - xfs /dev/sda2 rw,noquota
22 20 8:3 / /srv/my\\040images rw,relatime - xfs /dev/sda3 rw
23 20 0:40 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1k
24 23 8:4 / /tmp rw - ext2 /dev/sda4 rw
25 21 8:5 / /srv/deep rw - ext2 /dev/sda5 rw
a line that is none
";

    fn number(path: &str) -> Option<String> {
        let mounts: Vec<Mount> = TABLE.lines().filter_map(|line| parse(line.as_bytes())).collect();
        assert_eq!(mounts.len(), 7);
        find(&mounts, Path::new(path)).map(|mount| mount.number.clone())
    }

    #[test]
    fn the_mount_is_found_as_a_lookup_finds_it() {
        for (path, expected) in [
            ("/etc/fstab", "8:1"),
            ("/srv", "8:2"),
            ("/srvx/a", "8:1"),
            ("/srv/deep/a", "8:5"),
            // Mounted before /srv, which covers it.
            ("/srv/my images/a", "8:2"),
            // The upper of two mounts at one point.
            ("/tmp/a", "8:4"),
        ] {
            assert_eq!(number(path).as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn a_table_that_is_no_tree_ends_the_walk() {
        let circle = "1 9 8:1 / / rw - a a rw\n2 3 8:1 / / rw - a a rw\n3 2 8:1 / / rw - a a rw\n4 4 8:1 / / rw - a a rw";
        let mut mounts: Vec<Mount> = circle.lines().filter_map(|line| parse(line.as_bytes())).collect();
        mounts[0].id = 3;
        assert_eq!(find(&mounts, Path::new("/a")), None);
        assert_eq!(find(&[], Path::new("/a")), None);
    }

    #[test]
    fn a_line_is_read_with_its_escapes_and_each_option_once() {
        let line =
            br"22 20 8:3 /sub /srv/my\040im\134ages rw,relatime shared:7 master:1 - xfs /dev/sda3 rw,noquota";
        let mount = parse(line).expect("a mount");
        assert_eq!(mount.point, Path::new(r"/srv/my im\ages"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("xfs", "/dev/sda3"));
        assert_eq!(mount.options, "rw,relatime,noquota");
        for bad in ["", "1 2 8:1 / / rw", "x 2 8:1 / / rw - ext4 a rw", "1 2 8:1 / / rw - ext4"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
