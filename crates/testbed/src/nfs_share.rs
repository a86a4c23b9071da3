//! Directories that the kernel's NFS server exports to this machine's own client: their paths, and what is left of one that was lost.
//!
//! The server lives as long as its control filesystem (nfsd) is mounted, and stands in a network namespace of its own. Three directories
//! lie side by side: `NAME.share`, which is exported, `NAME.nfsd` with the control filesystem, and `NAME.mount` with the client's mount.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host_info::text;

/// Filesystem type of the server's control files.
pub(crate) const SERVER: &str = "nfsd";
/// Filesystem type of the client's mount.
pub(crate) const CLIENT: &str = "nfs4";
/// Extension of the exported directory.
pub(crate) const SERVED: &str = "share";
/// Extension of the client's mount point.
pub(crate) const POINT: &str = "mount";
/// Suffix of the client's mount source: the root of what the server exports.
pub(crate) const ROOT: &str = ":/";
/// Control file with the number of the server's threads; 0 ends the server.
pub(crate) const THREADS: &str = "threads";

/// The exported directory of a mount that iotax made; `None` for other mounts. `kind` is the filesystem's type.
pub(crate) fn served(kind: &str, source: &str, point: &Path) -> Option<PathBuf> {
    let is_own = is_client(kind, source) && point.extension().is_some_and(|extension| extension == POINT);
    is_own.then(|| point.with_extension(SERVED))
}

/// Returns whether a mount is one of iotax's for which no server is left, so that every access waits in vain.
pub(crate) fn is_lost(kind: &str, source: &str, point: &Path) -> bool {
    is_client(kind, source)
        && text(&point.with_extension(SERVER).join(THREADS)).is_none_or(|threads| threads == "0")
}

fn is_client(kind: &str, source: &str) -> bool {
    kind == CLIENT && source.starts_with("iotax-") && source.ends_with(ROOT)
}

/// Ends the server whose control filesystem is mounted at `point`, if it is one. Where another mount namespace has a copy of the mount,
/// unmounting alone would not.
pub(crate) fn end_server(kind: &str, point: &Path) {
    if kind == SERVER {
        // If it never had threads, there is nothing to end.
        let _ = fs::write(point.join(THREADS), "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "iotax-1a2b3c4d-vm.2-share:/";

    #[test]
    fn only_a_mount_of_a_run_leads_to_a_directory() {
        let point = Path::new("/srv/iotax-1a2b3c4d/vm.2.mount");
        assert_eq!(served(CLIENT, SOURCE, point), Some("/srv/iotax-1a2b3c4d/vm.2.share".into()));
        assert_eq!(served(CLIENT, "box:/srv", Path::new("/srv/a.mount")), None);
        assert_eq!(served(CLIENT, SOURCE, Path::new("/srv/a")), None);
        assert_eq!(served(SERVER, "iotax-1a2b3c4d-t-nfsd", Path::new("/srv/iotax-1a2b3c4d/t.nfsd")), None);
    }

    #[test]
    fn a_mount_without_threads_that_serve_it_is_lost() {
        let temp = tempfile::tempdir().expect("temp dir");
        let point = temp.path().join("t.mount");
        assert!(is_lost(CLIENT, SOURCE, &point));
        assert!(!is_lost(CLIENT, "box:/", &point));
        let server = temp.path().join("t.nfsd");
        fs::create_dir(&server).expect("made");
        for (threads, lost) in [("8\n", false), ("0\n", true)] {
            fs::write(server.join(THREADS), threads).expect("written");
            assert_eq!(is_lost(CLIENT, SOURCE, &point), lost, "{threads}");
        }
    }
}
