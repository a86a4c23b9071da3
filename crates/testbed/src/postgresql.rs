//! PostgreSQL servers for measurements: each has a cluster in a given directory, and a socket that only this user can reach.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iotax_model::postgresql::{INITDB, SETTINGS, SOCKET, UNPRIVILEGED};
use iotax_model::threads;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::program::{Program, ProgramError, search_path};
use crate::undo::{Effect, UndoLog, UndoLogError};

/// Directory of the installed PostgreSQL versions. Debian does not add their programs to PATH.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The tool that starts PostgreSQL's programs, in a user namespace if this user is root.
const UNSHARE: Program = Program { name: "unshare", package: "util-linux" };
/// Maximum time for a server to listen. After a crash, it first syncs all files of the cluster.
const PATIENCE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(10);

/// Directory of PostgreSQL's programs.
#[derive(Debug, Clone)]
pub struct Programs(PathBuf);

impl Programs {
    /// Finds a server's programs in PATH, or those of the newest installed version.
    ///
    /// # Errors
    /// PostgreSQL is not installed.
    pub fn find() -> Result<Self, ProgramError> {
        Self::with(&["initdb", "postgres"])
            .ok_or(ProgramError::NotFound { program: "postgres", package: "postgresql" })
    }

    /// Finds the programs of `test = pgbench` as [`Self::find`] does.
    ///
    /// # Errors
    /// PostgreSQL or pgbench is not installed.
    pub fn find_pgbench() -> Result<Self, ProgramError> {
        Self::with(&["initdb", "postgres", "pgbench"])
            .ok_or(ProgramError::NotFound { program: "pgbench", package: "postgresql" })
    }

    /// Returns the directory of the programs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0
    }

    fn with(names: &[&str]) -> Option<Self> {
        let in_path: Vec<PathBuf> = std::env::split_paths(&search_path()).collect();
        let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(VERSIONS)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
            .collect();
        versions.sort_unstable_by(|one, other| other.cmp(one));
        in_path
            .into_iter()
            .chain(versions.into_iter().map(|(_, path)| path))
            .find(|path| names.iter().all(|name| path.join(name).is_file()))
            .map(Self)
    }

    /// Creates a cluster in a new directory with initdb, which syncs it to disk.
    ///
    /// # Errors
    /// initdb failed.
    pub fn make_cluster(&self, cluster: &Path, undo_log: &UndoLog) -> Result<(), ProgramError> {
        let mut arguments: Vec<PathBuf> = namespace().map(PathBuf::from).collect();
        arguments.extend([self.0.join("initdb"), "-D".into(), cluster.to_owned()]);
        arguments.extend(INITDB.map(PathBuf::from));
        undo_log.lock().run(UNSHARE, arguments).map(drop)
    }

    /// Prepares a server for a cluster, without starting it. `marker` must be unique: it is part of the names of the server's processes.
    ///
    /// # Errors
    /// The undo log or the socket's directory cannot be written.
    pub fn server(
        &self,
        cluster: &Path,
        marker: &str,
        undo_log: &mut UndoLog,
    ) -> Result<PostgresqlCluster, UndoLogError> {
        let sockets = std::env::temp_dir().join(marker);
        undo_log.make_tree(&sockets)?;
        undo_log.record(Effect::Daemon { marker: marker.to_owned() })?;
        Ok(PostgresqlCluster {
            program: self.0.join("postgres"),
            cluster: cluster.to_owned(),
            marker: marker.to_owned(),
            sockets,
            running: None,
        })
    }
}

/// Returns the flags for unshare(1) by which root appears as an unprivileged user; none for other users. PostgreSQL refuses to run as root.
fn namespace() -> impl Iterator<Item = &'static str> {
    UNPRIVILEGED.into_iter().filter(|_| rustix::process::geteuid().is_root())
}

/// A PostgreSQL server for a cluster. Dropping it kills the main process of a running server; its undo log entry kills the others.
#[derive(Debug)]
pub struct PostgresqlCluster {
    program: PathBuf,
    cluster: PathBuf,
    marker: String,
    sockets: PathBuf,
    running: Option<(Child, File)>,
}

impl PostgresqlCluster {
    /// Returns the directory of the server's Unix socket.
    #[must_use]
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// Starts the server with additional settings in the form `name=value`, and waits until it listens. It may still reject clients while
    /// it recovers the cluster.
    ///
    /// # Errors
    /// The server cannot be started, exits, or does not listen within 2 minutes. The error is text for the user.
    pub fn start(&mut self, settings: &[&str], undo_log: &UndoLog) -> Result<(), String> {
        let spawn = || -> std::io::Result<(Child, File)> {
            let said = File::from(memfd_create("postgres", MemfdFlags::CLOEXEC)?);
            let mut command = Command::new(UNSHARE.name);
            command.args(namespace()).arg(&self.program).arg("-D").arg(&self.cluster);
            let sockets = format!("unix_socket_directories={}", self.sockets.display());
            let name = format!("cluster_name={}", self.marker);
            for setting in SETTINGS.into_iter().chain([sockets.as_str(), &name]) {
                command.args(["-c", setting]);
            }
            command.args(settings.iter().flat_map(|setting| ["-c", setting]));
            command.env("LC_ALL", "C").env("PATH", search_path()).process_group(0);
            command.stdin(undo_log.lock().stdio()?).stdout(Stdio::null()).stderr(said.try_clone()?);
            Ok((command.spawn()?, said))
        };
        self.running = Some(spawn().map_err(|error| format!("{}: {error}", self.program.display()))?);
        let deadline = Instant::now() + PATIENCE;
        while !self.sockets.join(SOCKET).exists() {
            if self.has_ended() {
                return Err(self.reason().unwrap_or_else(|| "the server ended".into()));
            }
            if Instant::now() > deadline {
                return Err(format!("the server did not listen within {} s", PATIENCE.as_secs()));
            }
            threads::sleep(POLL);
        }
        Ok(())
    }

    fn has_ended(&mut self) -> bool {
        self.running.as_mut().is_some_and(|(child, _)| !matches!(child.try_wait(), Ok(None)))
    }

    /// Returns the error that ended the server, from its log; `None` if the log has none or cannot be read.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let (_, said) = self.running.as_ref()?;
        let mut bytes = vec![0; usize::try_from(said.metadata().ok()?.len()).ok()?];
        said.read_exact_at(&mut bytes, 0).ok()?;
        reason(&String::from_utf8_lossy(&bytes))
    }
}

/// Finds the error that ended the server: the last PANIC, else the last FATAL; `None` if there is none. Ignores rejections of clients while
/// the server is starting.
fn reason(log: &str) -> Option<String> {
    let last = |word: &str| {
        let mut said = log.lines().rev().filter_map(|line| Some(line.split_once(word)?.1));
        said.find(|said| !said.starts_with("the database system is ")).map(str::to_owned)
    };
    last("PANIC:  ").or_else(|| last("FATAL:  "))
}

impl Drop for PostgresqlCluster {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_servers_and_not_an_answer_to_a_client() {
        let started = "LOG:  starting PostgreSQL\n2026-11-28 07:10:31 UTC [7] FATAL:  the database system is starting up\n";
        assert_eq!(reason(started), None);
        let fatal = format!("{started}FATAL:  lock file \"postmaster.pid\" already exists\n");
        assert_eq!(reason(&fatal).as_deref(), Some("lock file \"postmaster.pid\" already exists"));
        let panic = format!("PANIC:  could not locate a valid checkpoint record\n{fatal}");
        assert_eq!(reason(&panic).as_deref(), Some("could not locate a valid checkpoint record"));
    }
}
