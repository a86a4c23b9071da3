//! Runs system tools such as qemu-img, lvm, mkfs and losetup.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::host_info::text;
use crate::interrupt::{Interrupt, POLL};
use iotax_model::threads;

/// Directory in a recorded tree with the output of programs. Each file is named after a command line, with `!` instead of slashes.
const RECORDED: &str = "commands";
/// Timeout of a tool in normal use, far longer than any tool needs.
pub(crate) const PATIENCE: Duration = Duration::from_mins(10);
/// Time for a tool to exit after an interrupt, before it is killed.
const ASKED: Duration = Duration::from_secs(10);

/// An error while running a system tool.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The program is not installed.
    #[error("{program} was not found in PATH; install it (Debian: apt-get install {package})")]
    NotFound {
        /// Name of the missing tool.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// The tool failed, could not be run or did not end in time, or its output is not as expected.
    #[error("{command}: {reason}")]
    Failed {
        /// The command line, for messages.
        command: String,
        /// The tool's stderr or, if it is empty, its exit status. Otherwise the reason why the tool could not be run or why its output
        /// cannot be used.
        reason: String,
    },
}

/// A system tool and the Debian package that contains it.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The program's name in PATH.
    pub name: &'static str,
    /// The Debian package that contains it.
    pub package: &'static str,
}

impl Program {
    /// Fails if the tool is not installed.
    pub fn find(self) -> Result<(), ProgramError> {
        self.path().map(drop)
    }

    /// Returns the path of the tool, found in PATH, an sbin directory or /lib/udev.
    pub fn path(self) -> Result<PathBuf, ProgramError> {
        std::env::split_paths(&search_path())
            .map(|directory| directory.join(self.name))
            .find(|path| path.is_file())
            .ok_or(ProgramError::NotFound { program: self.name, package: self.package })
    }

    /// Runs the tool without input and returns its stdout. Its process group is separate, so that Ctrl-C reaches only the runner, and its
    /// locale is English. Kills the tool after 10 minutes.
    pub fn run<S: AsRef<OsStr>>(
        self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Vec<u8>, ProgramError> {
        self.run_with(Stdio::null(), arguments, &Interrupt::default())
    }

    /// Runs a read-only tool and returns its stdout. Kills the tool after `patience`, because it may hang. Ignores the exit status if there
    /// is output: smartctl, for example, exits with a non-zero status for a failing disk.
    pub(crate) fn query<S: AsRef<OsStr>>(
        self,
        arguments: impl IntoIterator<Item = S>,
        patience: Duration,
    ) -> Result<Vec<u8>, ProgramError> {
        let (shown, output) = self.output(Stdio::null(), arguments, &Interrupt::default(), patience)?;
        if output.stdout.is_empty() { succeeded(shown, output) } else { Ok(output.stdout) }
    }

    /// Returns the stdout of a read-only tool without surrounding white space or, if `root` is not `/`, the output recorded in that tree.
    /// `None` if the tool fails or nothing is recorded.
    pub(crate) fn query_at(self, root: &Path, arguments: &[&str], patience: Duration) -> Option<String> {
        if root != Path::new("/") {
            return self.recorded(root, arguments);
        }
        let output = self.query(arguments, patience).ok()?;
        Some(String::from_utf8_lossy(&output).trim().to_owned())
    }

    /// Returns the output of the tool that is recorded in the tree at `root`; `None` if none is recorded.
    pub(crate) fn recorded(self, root: &Path, arguments: &[&str]) -> Option<String> {
        text(&root.join(RECORDED).join(self.line(arguments).replace('/', "!")))
    }

    /// Returns the tool's command line, for messages and for the names of recorded outputs.
    pub(crate) fn line(self, arguments: &[&str]) -> String {
        std::iter::once(self.name).chain(arguments.iter().copied()).collect::<Vec<_>>().join(" ")
    }

    /// Runs the tool as [`Self::run`] does, with a given stdin and an interrupt flag that ends the tool.
    pub(crate) fn run_with<S: AsRef<OsStr>>(
        self,
        stdin: Stdio,
        arguments: impl IntoIterator<Item = S>,
        interrupt: &Interrupt,
    ) -> Result<Vec<u8>, ProgramError> {
        let (shown, output) = self.output(stdin, arguments, interrupt, PATIENCE)?;
        succeeded(shown, output)
    }

    /// Runs the tool. Returns its command line, for errors, and its output.
    fn output<S: AsRef<OsStr>>(
        self,
        stdin: Stdio,
        arguments: impl IntoIterator<Item = S>,
        interrupt: &Interrupt,
        patience: Duration,
    ) -> Result<(String, Output), ProgramError> {
        let mut command = Command::new(self.name);
        command.args(arguments).env("LC_ALL", "C").env("PATH", search_path()).stdin(stdin).process_group(0);
        let shown = || {
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
        };
        let shown = shown();
        let output =
            output_within(&mut command, interrupt, patience).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    ProgramError::NotFound { program: self.name, package: self.package }
                }
                _ => ProgramError::Failed { command: shown.clone(), reason: error.to_string() },
            })?;
        Ok((shown, output))
    }
}

/// Returns the stdout of a tool that succeeded; otherwise an error with its stderr.
fn succeeded(command: String, output: Output) -> Result<Vec<u8>, ProgramError> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ProgramError::Failed {
        command,
        reason: if said.is_empty() { output.status.to_string() } else { said },
    })
}

/// Runs a program and collects its output. After `patience`, kills its process group. On an interrupt, sends SIGINT first and kills the
/// group 10 s later, so that LVM does not leave half-written metadata.
pub(crate) fn output_within(
    command: &mut Command,
    interrupt: &Interrupt,
    patience: Duration,
) -> io::Result<Output> {
    let (sender, ended) = mpsc::channel();
    let (give, given) = mpsc::channel::<Child>();
    // Start the waiting thread first, so that every program is waited for. A program that is blocked in the kernel
    // survives SIGKILL; its thread then remains.
    threads::spawn("program", move || {
        given.into_iter().for_each(|child| drop(sender.send(child.wait_with_output())));
    })?;
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let group = Pid::from_child(&child);
    // The thread waits for this child.
    let _ = give.send(child);
    drop(give);
    let (mut end, mut asked) = (Instant::now() + patience, false);
    loop {
        if let Ok(output) = ended.recv_timeout(POLL) {
            return if asked { Err(io::ErrorKind::Interrupted.into()) } else { output };
        }
        if !asked && interrupt.load(Ordering::Relaxed) {
            let _ = kill_process_group(group, Signal::INT);
            (end, asked) = (Instant::now() + ASKED, true);
        }
        if Instant::now() >= end {
            let _ = kill_process_group(group, Signal::KILL);
            let late =
                format!("it did not end within {} s; does a device or a server hang?", patience.as_secs());
            return Err(if asked { io::ErrorKind::Interrupted.into() } else { io::Error::other(late) });
        }
    }
}

/// Returns the user's PATH with /usr/sbin, /sbin and /lib/udev added: an unprivileged user's PATH may lack the first two, and the tools of
/// udev's rules are in /lib/udev.
pub(crate) fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin:/lib/udev");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_quoted_and_a_missing_tool_says_where_to_get_it() {
        let ls = Program { name: "ls", package: "coreutils" };
        assert!(ls.find().is_ok());
        let error = ls.run(["--nonsense"]).expect_err("refused").to_string();
        assert!(error.starts_with("ls --nonsense: ") && error.contains("unrecognized option"), "{error}");
        let none = Program { name: "iotax-no-such-tool", package: "nothing" };
        for error in [none.find().expect_err("absent"), none.run(["x"]).expect_err("absent")] {
            assert!(error.to_string().contains("apt-get install nothing"), "{error}");
        }
    }

    #[test]
    fn a_look_takes_what_was_printed_and_ends_in_time() {
        let sh = Program { name: "sh", package: "dash" };
        let query = |line: &str, patience| sh.query(["-c", line], patience);
        let long = Duration::from_mins(1);
        assert_eq!(query("echo seen; exit 4", long).expect("printed"), b"seen\n");
        let error = query("echo broken >&2; exit 1", long).expect_err("failed").to_string();
        assert!(error.ends_with("broken"), "{error}");
        let error = query("sleep 60", Duration::from_millis(100)).expect_err("late").to_string();
        assert!(error.contains("did not end within") && error.contains("hang"), "{error}");
    }
}
