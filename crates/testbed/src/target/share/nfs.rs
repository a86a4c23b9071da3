//! Exports a directory with the kernel's NFS server.

use std::fmt::Write;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iotax_model::target::{ShareProtocol, ShareSpec};
use iotax_model::threads;
use rustix::mount::{MountFlags, mount};

use super::check_kernel;
use crate::build_error::BuildError;
use crate::filesystem::Mounted;
use crate::netns::{self, IP, Namespace};
use crate::program::Program;
use crate::refusal::Refusal;
use crate::share::{NFSD, THREADS, client};
use crate::undo::{Effect, UndoLog};

/// The tool that hides /run from the server.
const MOUNT: Program = Program { name: "mount", package: "mount" };
/// TCP port of NFS.
const PORT: u16 = 2049;
/// Threads of the server: the default of rpc.nfsd(8).
const SERVERS: u32 = 8;
/// The server's grace period in seconds, in which clients may reclaim state from before a restart: the shortest that
/// the kernel accepts. No file can be opened until the period ends.
const GRACE: u64 = 10;
/// Maximum time for the server to end its grace period.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(100);
/// Timeout of a request on a lost connection, in tenths of a second. The client repeats the request once, and fails it after a second
/// timeout.
const TIMEOUT: u32 = 50;
/// Expiry time of entries in the kernel's export caches, in seconds since 1970: the latest that all kernels accept.
const NEVER: i32 = i32::MAX;
/// Options of an export, as in the kernel's `NFSEXP_*`: no subtree check, and a number for the filesystem in place of its UUID.
const FLAGS: u32 = 0x0400 | 0x2000;
/// The option `async` of an export.
const ASYNC: u32 = 0x0010;
/// User and group id for requests without one: nobody.
const NOBODY: u32 = 65534;

/// Shell script that makes the server listen. ip(8) runs it in a separate mount namespace that hides /run: through a
/// socket in /run, the kernel would register the server with the machine's rpcbind, whatever the network namespace.
const LISTEN: &str = r#"
set -e
exec 3>"$1"
for run in /run /var/run; do [ ! -d "$run" ] || "$2" -t tmpfs tmpfs "$run"; done
echo "tcp $3" >&3
"#;

/// Rejects a machine without the kernel's NFS server and client, or without mount(8). `filesystems` is the content of /proc/filesystems.
pub(super) fn check(filesystems: &str) -> Result<(), Refusal> {
    check_kernel(filesystems, &[NFSD, client(ShareProtocol::Nfs)], "nfsd nfsv4")?;
    MOUNT.find().map_err(|error| Refusal::environment(error.to_string()))
}

/// Exports the directory `served` in a network namespace. `tag` distinguishes the server's control filesystem from all others. Returns the
/// client's mount options.
pub(super) fn serve(
    share: &ShareSpec,
    served: &Path,
    namespace: &Namespace,
    tag: &str,
    undo_log: &mut UndoLog,
) -> Result<String, BuildError> {
    let point = served.with_extension(NFSD);
    let source = format!("{tag}-{NFSD}");
    undo_log.make_directory(&point)?;
    undo_log.record(Effect::Mount(Mounted { point: point.clone(), source: source.clone() }))?;
    let server = Server { namespace, served, point };
    server.mount(&source)?;
    server.export(if share.sync { FLAGS } else { FLAGS | ASYNC })?;
    server.start(undo_log)?;
    Ok(options(share.nconnect))
}

/// Returns the client's mount options. On a lost connection, a request fails after twice the timeout. On an intact
/// connection, it waits for as long as the server takes.
fn options(nconnect: u8) -> String {
    let ip = Ipv4Addr::LOCALHOST;
    format!(
        "vers=4.2,proto=tcp,port={PORT},addr={ip},clientaddr={ip},sec=sys,nconnect={nconnect},softerr,timeo={TIMEOUT},retrans=1"
    )
}

/// The kernel's NFS server in a separate network namespace.
struct Server<'a> {
    namespace: &'a Namespace,
    /// The exported directory.
    served: &'a Path,
    /// Mount point of the server's control filesystem.
    point: PathBuf,
}

impl Server<'_> {
    /// Mounts the control filesystem, which belongs to the network namespace in which it is mounted.
    fn mount(&self, source: &str) -> Result<(), BuildError> {
        let mounted = netns::within(&self.namespace.path(), || {
            mount(source, &self.point, NFSD, MountFlags::empty(), None).map_err(Into::into)
        });
        mounted.map_err(BuildError::file(&self.point))
    }

    /// Fills the kernel's export caches, which define the exported directory and the client that may mount it. Usually rpc.mountd(8) fills
    /// them at the kernel's request.
    fn export(&self, flags: u32) -> Result<(), BuildError> {
        // A path in hexadecimal needs no quotes.
        let mut path = "\\x".to_owned();
        for byte in self.served.as_os_str().as_bytes() {
            let _ = write!(path, "{byte:02x}");
        }
        let client = &self.namespace.name;
        let told = netns::within(&self.namespace.path(), || {
            for (cache, line) in [
                ("auth.unix.ip", format!("nfsd {} {NEVER} {client}\n", Ipv4Addr::LOCALHOST)),
                ("nfsd.export", format!("{client} {path} {NEVER} {flags} {NOBODY} {NOBODY} 0\n")),
                // The export with number 0 is the root of NFS 4's directory tree.
                ("nfsd.fh", format!("{client} 1 \\x00000000 {NEVER} {path}\n")),
            ] {
                fs::write(format!("/proc/thread-self/net/rpc/{cache}/channel"), line)?;
            }
            Ok(())
        });
        told.map_err(|error| {
            Refusal::environment(format!(
                "share: the kernel does not export {}: {error}; its filesystem must be one that NFS can serve (ext4, XFS, btrfs, tmpfs), and no overlay",
                self.served.display()
            ))
            .into()
        })
    }

    /// Starts the server's threads, and waits until its grace period has ended.
    fn start(&self, undo_log: &UndoLog) -> Result<(), BuildError> {
        self.set("nfsv4gracetime", &GRACE.to_string())?;
        self.set("versions", "-2 -3 -4.0 -4.1 +4 +4.2")?;
        let mount = MOUNT.path()?.into_os_string();
        let words = ["netns", "exec", &self.namespace.name, "/bin/sh", "-c", LISTEN, "sh"].map(Into::into);
        let port = self.point.join("portlist").into_os_string();
        undo_log.run(IP, words.into_iter().chain([port, mount, PORT.to_string().into()]))?;
        self.set(THREADS, &SERVERS.to_string())?;
        // No client has state to reclaim. Newer kernels end the period early only if a daemon keeps a list of clients.
        let _ = self.set("v4_end_grace", "Y");
        self.await_grace(undo_log)
    }

    fn await_grace(&self, undo_log: &UndoLog) -> Result<(), BuildError> {
        let state = self.point.join("v4_end_grace");
        let in_state = |error| BuildError::file(&state)(error);
        let end = Instant::now() + PATIENCE;
        while fs::read_to_string(&state).map_err(in_state)?.trim() != "Y" {
            if undo_log.lock().stop().load(Ordering::Relaxed) {
                return Err(in_state(io::ErrorKind::Interrupted.into()));
            }
            if Instant::now() > end {
                let words = format!("the server's grace period has not ended in {} s", PATIENCE.as_secs());
                return Err(in_state(io::Error::other(words)));
            }
            threads::sleep(POLL);
        }
        Ok(())
    }

    /// Writes a value to one of the control files.
    fn set(&self, name: &str, value: &str) -> Result<(), BuildError> {
        let path = self.point.join(name);
        // Some of these files require the newline.
        fs::write(&path, format!("{value}\n")).map_err(BuildError::file(&path))
    }
}
