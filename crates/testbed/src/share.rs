//! Directories that a server on this machine exports by NFS or SMB to this machine's own client: their paths, and the detection of mounts
//! whose server has ended.
//!
//! Server and client share a separate network namespace, whose name is in the source of the client's mount. The kernel's NFS server runs as
//! long as its control filesystem (nfsd) is mounted; Samba's server is a daemon. Three directories are next to each other: `NAME.share`,
//! which is exported, `NAME.mount` with the client's mount, and for NFS `NAME.nfsd` with the control filesystem.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use iotax_model::target::ShareProtocol;

use crate::host_info::text;
use crate::netns::{self, NAMES};

/// Filesystem type of the NFS server's control files.
pub(crate) const NFSD: &str = "nfsd";
/// Extension of the exported directory.
pub(crate) const SERVED: &str = "share";
/// Extension of the client's mount point.
pub(crate) const POINT: &str = "mount";
/// Control file with the number of the NFS server's threads; 0 ends the server.
pub(crate) const THREADS: &str = "threads";
/// TCP port of SMB.
pub(crate) const SMB_PORT: u16 = 445;
/// Suffix of an NFS mount's source: the root of what the server exports.
const NFS_ROOT: &str = ":/";
/// Prefix of an SMB mount's source. The name of the share follows, which equals the namespace's name.
const SMB_SERVER: &str = "//127.0.0.1/";
/// Maximum time for an SMB server to take a connection over loopback.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the filesystem type of the client's mount.
pub(crate) const fn client(protocol: ShareProtocol) -> &'static str {
    match protocol {
        ShareProtocol::Nfs => "nfs4",
        ShareProtocol::Smb => "cifs",
    }
}

/// Returns the mount source by which the client mounts the directory that a server exports in the network namespace `namespace`.
pub(crate) fn source(protocol: ShareProtocol, namespace: &str) -> String {
    match protocol {
        ShareProtocol::Nfs => format!("{namespace}{NFS_ROOT}"),
        ShareProtocol::Smb => format!("{SMB_SERVER}{namespace}"),
    }
}

/// Returns the protocol and network namespace of a mount that iotax made, from its source; `None` for other mounts.
pub(crate) fn of_source(source: &str) -> Option<(ShareProtocol, &str)> {
    let nfs = source.strip_suffix(NFS_ROOT).map(|name| (ShareProtocol::Nfs, name));
    let smb = source.strip_prefix(SMB_SERVER).map(|name| (ShareProtocol::Smb, name));
    nfs.or(smb).filter(|(_, name)| name.starts_with("iotax-"))
}

/// Returns the protocol and exported directory of a mount that iotax made; `None` for other mounts. `kind` is the filesystem's type.
pub(crate) fn served(kind: &str, source: &str, point: &Path) -> Option<(ShareProtocol, PathBuf)> {
    let (protocol, _) = of_source(source)?;
    let is_own = kind == client(protocol) && point.extension().is_some_and(|extension| extension == POINT);
    is_own.then(|| (protocol, point.with_extension(SERVED)))
}

/// Returns whether a mount is of an iotax share whose server has ended. Every access to it would block.
pub(crate) fn is_lost(source: &str, point: &Path) -> bool {
    match of_source(source) {
        Some((ShareProtocol::Nfs, _)) => {
            text(&point.with_extension(NFSD).join(THREADS)).is_none_or(|threads| threads == "0")
        }
        Some((ShareProtocol::Smb, namespace)) => !is_listening(namespace),
        None => false,
    }
}

/// Returns whether an SMB server accepts connections in a network namespace.
pub(crate) fn is_listening(namespace: &str) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, SMB_PORT));
    netns::within(&Path::new(NAMES).join(namespace), || TcpStream::connect_timeout(&address, PATIENCE))
        .is_ok()
}

/// Ends the NFS server whose control filesystem is mounted at `point`; does nothing if `kind` is another filesystem
/// type. Unmounting alone would not end the server while another mount namespace has a copy of the mount.
pub(crate) fn end_server(kind: &str, point: &Path) {
    if kind == NFSD {
        // If the server never had threads, there is nothing to end, so errors are ignored.
        let _ = fs::write(point.join(THREADS), "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NFS: &str = "iotax-1a2b3c4d-vm.2-share:/";
    const SMB: &str = "//127.0.0.1/iotax-1a2b3c4d-vm.2-share";

    #[test]
    fn only_a_mount_of_a_run_leads_to_a_directory() {
        let point = Path::new("/srv/iotax-1a2b3c4d/vm.2.mount");
        for (source, protocol) in [(NFS, ShareProtocol::Nfs), (SMB, ShareProtocol::Smb)] {
            let directory = "/srv/iotax-1a2b3c4d/vm.2.share".into();
            assert_eq!(served(client(protocol), source, point), Some((protocol, directory)));
            let namespace = "iotax-1a2b3c4d-vm.2-share";
            assert_eq!(of_source(source), Some((protocol, namespace)));
            assert_eq!(super::source(protocol, namespace), source);
            assert_eq!(served(client(protocol), source, Path::new("/srv/a")), None);
            assert_eq!(served("ext4", source, point), None);
        }
        assert_eq!(served("nfs4", "box:/srv", Path::new("/srv/a.mount")), None);
        assert_eq!(served("cifs", "//127.0.0.1/home", Path::new("/srv/a.mount")), None);
        assert_eq!(served(NFSD, "iotax-1a2b3c4d-t-nfsd", Path::new("/srv/iotax-1a2b3c4d/t.nfsd")), None);
    }

    #[test]
    fn a_mount_without_a_server_is_lost() {
        let temp = tempfile::tempdir().expect("temp dir");
        let point = temp.path().join("t.mount");
        assert!(is_lost(NFS, &point) && is_lost(SMB, &point));
        assert!(!is_lost("box:/", &point) && !is_lost("//127.0.0.1/home", &point));
        let server = temp.path().join("t.nfsd");
        fs::create_dir(&server).expect("made");
        for (threads, lost) in [("8\n", false), ("0\n", true)] {
            fs::write(server.join(THREADS), threads).expect("written");
            assert_eq!(is_lost(NFS, &point), lost, "{threads}");
        }
    }
}
