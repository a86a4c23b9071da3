//! Runs virtiofsd, the daemon that serves a directory of the host to a guest.
//!
//! There are two programs of this name: one in C, part of QEMU up to 7.2, and its successor in Rust.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iotax_model::target::{VirtiofsCache, VirtiofsSpec};

use super::GuestError;
use super::directory::VIRTIOFSD_SOCKET;
use crate::export::StorageDaemon;
use crate::lock::ProcessLock;
use crate::program;
use crate::refusal::Refusal;

const PROGRAM: &str = "virtiofsd";
/// Paths of virtiofsd, which no package puts into PATH: in Debian 13 and Fedora, and in Debian 12.
const ELSEWHERE: [&str; 2] = ["/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"];
/// File name of virtiofsd's log in the run directory.
pub(super) const LOG: &str = "virtiofsd.log";

/// The virtiofsd program of this machine.
#[derive(Debug)]
struct Installed {
    path: PathBuf,
    /// True for the program in C, which has other options and needs root.
    is_c: bool,
}

impl Installed {
    fn find() -> Result<Self, Refusal> {
        let directories = program::search_path();
        let in_path = std::env::split_paths(&directories).map(|directory| directory.join(PROGRAM));
        let Some(path) = in_path.chain(ELSEWHERE.map(PathBuf::from)).find(|path| path.is_file()) else {
            return Err(Refusal::environment(format!(
                "virtiofs: {PROGRAM} was not found in PATH, /usr/libexec or /usr/lib/qemu; install it (Debian 13: apt-get install virtiofsd; \
                 in Debian 12 qemu-system-common 7.2 has it)"
            )));
        };
        let help = Command::new(&path).arg("--help").stdin(Stdio::null()).output();
        let help = help.map_err(|error| Refusal::environment(format!("{}: {error}", path.display())))?;
        let is_c = !String::from_utf8_lossy(&help.stdout).contains("--shared-dir");
        Ok(Self { path, is_c })
    }

    /// Returns the daemon's arguments. It takes connections on its stdin.
    fn arguments(&self, spec: &VirtiofsSpec, directory: &Path, is_root: bool) -> Vec<String> {
        let source = directory.to_string_lossy();
        let mut arguments = vec!["--fd=0".to_owned()];
        if self.is_c {
            let cache = if spec.cache == VirtiofsCache::Never { "none" } else { spec.cache.word() };
            let xattr = if spec.xattr { "xattr" } else { "no_xattr" };
            let direct = if spec.allow_direct_io { "allow_direct_io" } else { "no_allow_direct_io" };
            // A comma would end the value.
            let source = source.replace('\\', "\\\\").replace(',', "\\,");
            let options = [format!("source={source}"), format!("cache={cache}"), xattr.into(), direct.into()];
            arguments.extend(options.into_iter().flat_map(|option| ["-o".to_owned(), option]));
        } else {
            arguments.extend([format!("--shared-dir={source}"), format!("--cache={}", spec.cache)]);
            let flags = [("--xattr", spec.xattr), ("--allow-direct-io", spec.allow_direct_io)];
            arguments
                .extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.to_owned()));
            if !is_root {
                // Its other sandboxes need root, or a range of subordinate user ids.
                arguments.push("--sandbox=none".into());
            }
        }
        arguments.extend(spec.thread_pool_size.map(|size| format!("--thread-pool-size={size}")));
        arguments
    }
}

/// Rejects a machine on which this user cannot run virtiofsd.
pub(crate) fn possible() -> Result<(), Refusal> {
    let installed = Installed::find()?;
    if installed.is_c && !is_root() {
        return Err(Refusal::environment(format!(
            "virtiofs: {}, the daemon of QEMU 7.2, runs as root alone; run iotax as root, install the newer virtiofsd, or use 9p",
            installed.path.display()
        )));
    }
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A virtiofsd process that serves one guest. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Virtiofsd(StorageDaemon);

impl Virtiofsd {
    /// Starts virtiofsd for a directory. It listens on its socket in the run directory immediately, and exits when QEMU closes the
    /// connection.
    pub(super) fn start(
        spec: &VirtiofsSpec,
        directory: &Path,
        run_dir: &Path,
        lock: &ProcessLock,
    ) -> Result<Self, GuestError> {
        let installed = Installed::find()?;
        let in_file = |path: PathBuf| move |source| GuestError::Io { path, source };
        let (socket, log) = (run_dir.join(VIRTIOFSD_SOCKET), run_dir.join(LOG));
        let listener = UnixListener::bind(&socket).map_err(in_file(socket.clone()))?;
        let log = File::create(&log).map_err(in_file(log.clone()))?;
        let in_program = in_file(installed.path.clone());
        let in_lock = in_file(installed.path.clone());
        let child = Command::new(&installed.path)
            .args(installed.arguments(spec, directory, is_root()))
            .stdin(OwnedFd::from(listener))
            .stdout(lock.stdio().map_err(in_lock)?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(in_program)?;
        Ok(Self(StorageDaemon::new(child, PROGRAM)))
    }

    pub(super) const fn daemon(&self) -> &StorageDaemon {
        &self.0
    }
}

impl Drop for Virtiofsd {
    fn drop(&mut self) {
        self.0.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(is_c: bool, is_root: bool, spec: &VirtiofsSpec) -> String {
        let installed = Installed { path: "/usr/libexec/virtiofsd".into(), is_c };
        installed.arguments(spec, Path::new("/srv/a,b/t.shared"), is_root).join(" ")
    }

    #[test]
    fn each_program_gets_its_own_options() {
        let all = VirtiofsSpec {
            cache: VirtiofsCache::Never,
            allow_direct_io: true,
            xattr: true,
            thread_pool_size: Some(4),
            ..VirtiofsSpec::default()
        };
        let usual = VirtiofsSpec::default();
        for (is_c, is_root, spec, expected) in [
            (false, true, &usual, "--fd=0 --shared-dir=/srv/a,b/t.shared --cache=auto"),
            (
                false,
                false,
                &all,
                "--fd=0 --shared-dir=/srv/a,b/t.shared --cache=never --xattr --allow-direct-io --sandbox=none --thread-pool-size=4",
            ),
            (
                true,
                true,
                &usual,
                r"--fd=0 -o source=/srv/a\,b/t.shared -o cache=auto -o no_xattr -o no_allow_direct_io",
            ),
            (
                true,
                true,
                &all,
                r"--fd=0 -o source=/srv/a\,b/t.shared -o cache=none -o xattr -o allow_direct_io --thread-pool-size=4",
            ),
        ] {
            assert_eq!(arguments(is_c, is_root, spec), expected);
        }
    }
}
