//! QEMU's process: start, sockets, signs of life, exit diagnostics.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::command::{CONSOLE, QEMU_LOG};
use super::{GuestError, virtiofsd};
use crate::interrupt::SILENCE;
use crate::lock::ProcessLock;
use crate::netns;
use iotax_model::threads;

const PROGRAM: &str = "qemu-system-x86_64";
/// Path of QEMU in Red Hat's packages, which is not in PATH.
const ELSEWHERE: &str = "/usr/libexec/qemu-kvm";
/// Maximum time for QEMU to create its sockets.
const SOCKETS: Duration = SILENCE;
/// CPU time that counts as a sign of life: 1% of the 15 s after which a silent guest is given up.
const LIVELY: Duration = Duration::from_millis(150);
/// CPU time per virtual CPU without console output after which a booting guest is considered stuck in a loop. An emulated boot needs a
/// fifth of this time.
const CIRCLES: Duration = Duration::from_secs(20);
/// Interval at which a booting guest is checked for signs of life.
const CHECK_EVERY: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(10);
/// Maximum time for QEMU to exit after its socket closed.
const LAST_BREATH: Duration = Duration::from_millis(500);
/// Maximum time for a killed QEMU to exit.
const REAPED: Duration = Duration::from_secs(5);
const TAIL_LINES: usize = 15;

/// Finds QEMU's program in PATH or at Red Hat's location.
pub fn find_qemu() -> Result<PathBuf, GuestError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(PROGRAM))
        .chain([PathBuf::from(ELSEWHERE)])
        .find(|program| program.is_file())
        .ok_or(GuestError::NoQemu { program: PROGRAM })
}

/// Runs QEMU and returns its version, such as `10.0.2`.
pub fn qemu_version() -> Result<String, GuestError> {
    let program = find_qemu()?;
    let failed = |source| GuestError::Io { path: program.clone(), source };
    let output = Command::new(&program).arg("--version").output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace().skip_while(|word| *word != "version").skip(1);
    let version = words.next().map(str::to_owned);
    version.ok_or_else(|| failed(io::Error::other(format!("--version said {text:?}"))))
}

/// A running QEMU process. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct QemuProcess {
    child: Mutex<Child>,
    pid: u32,
    run_dir: PathBuf,
    command_line: String,
}

impl QemuProcess {
    /// Starts QEMU, which writes its log to the run directory and holds the run's lock. Runs it in the network namespace `namespace` if
    /// given.
    pub(super) fn spawn(
        arguments: &[String],
        run_dir: &Path,
        namespace: Option<&str>,
        lock: &ProcessLock,
    ) -> Result<Self, GuestError> {
        let program = find_qemu()?;
        let log_path = run_dir.join(QEMU_LOG);
        let log = File::create(&log_path).map_err(|source| GuestError::Io { path: log_path, source })?;
        let in_program = |source| GuestError::Io { path: program.clone(), source };
        let child = netns::command_in(namespace, &program)
            .args(arguments)
            .stdin(lock.stdio().map_err(in_program)?)
            .stdout(Stdio::null())
            .stderr(log)
            // The runner handles Ctrl-C; QEMU would exit on it at once.
            .process_group(0)
            .spawn()
            .map_err(in_program)?;
        let words = std::iter::once(program.to_string_lossy().into_owned()).chain(arguments.iter().cloned());
        let command_line = words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ");
        let pid = child.id();
        Ok(Self { child: Mutex::new(child), pid, run_dir: run_dir.to_owned(), command_line })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn command_line(&self) -> &str {
        &self.command_line
    }

    /// Lists the files and block devices that QEMU has open, except those in its run directory.
    pub(super) fn open_files(&self) -> Vec<PathBuf> {
        let links = fs::read_dir(format!("/proc/{}/fd", self.pid)).into_iter().flatten().flatten();
        let opened = links.filter_map(|link| fs::read_link(link.path()).ok());
        let holds_data = |path: &PathBuf| {
            !path.starts_with(&self.run_dir)
                && fs::metadata(path)
                    .is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
        };
        opened.filter(holds_data).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Connects to one of QEMU's sockets. Waits up to 15 s until the socket exists.
    pub(super) fn connect(&self, socket: &str, interrupt: &AtomicBool) -> Result<UnixStream, GuestError> {
        let path = self.run_dir.join(socket);
        let end = Instant::now() + SOCKETS;
        loop {
            match UnixStream::connect(&path) {
                Ok(stream) => return Ok(stream),
                Err(_) if self.status().is_some() => {
                    return Err(GuestError::Died { exit_diagnostics: self.exit_diagnostics() });
                }
                Err(source) if Instant::now() > end => return Err(GuestError::Io { path, source }),
                Err(_) if interrupt.load(Ordering::Relaxed) => return Err(GuestError::Interrupted),
                Err(_) => threads::sleep(POLL),
            }
        }
    }

    /// Returns the CPU time of all of QEMU's threads so far; `None` if QEMU has exited.
    fn cpu(&self) -> Option<Duration> {
        let fields = stat(self.pid)?;
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Some(Duration::from_millis((ticks(11)? + ticks(12)?) * 1000 / per_second))
    }

    /// Returns the exit status of QEMU; `None` while it is running.
    pub(super) fn status(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Waits for QEMU to exit. Returns its exit status; `None` if it is still running after `deadline`.
    pub(super) fn wait(&self, deadline: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + deadline;
        loop {
            let status = self.status();
            if status.is_some() || Instant::now() >= end {
                return status;
            }
            threads::sleep(POLL);
        }
    }

    /// Kills QEMU and waits up to 5 s for its exit.
    pub(super) fn kill(&self) {
        // An error means that it has exited already.
        let _ = self.child().kill();
        // A process with I/O on a hung disk cannot be reaped.
        self.wait(REAPED);
    }

    /// Describes QEMU's exit status, its last output and the console's last lines, for error messages.
    pub(super) fn exit_diagnostics(&self) -> String {
        let mut words = Vec::new();
        if let Some(status) = self.wait(LAST_BREATH) {
            words.push(format!("QEMU ended with {status}"));
        }
        words.extend(self.qemu_said());
        let daemon = tail(&self.run_dir.join(virtiofsd::LOG), TAIL_LINES);
        words.extend(daemon.lines().last().map(|line| format!("virtiofsd's last line is {line:?}")));
        let console = self.console_tail();
        if !console.is_empty() {
            words.push(format!("the guest's console ends with:\n{console}"));
        }
        words.join("; ")
    }

    /// Returns the last line that QEMU wrote to its log; `None` if there is none.
    pub(super) fn qemu_said(&self) -> Option<String> {
        let log = tail(&self.run_dir.join(QEMU_LOG), TAIL_LINES);
        log.lines().last().map(str::to_owned)
    }

    /// Returns the last 15 lines of the guest's console; empty if there is no output.
    pub(super) fn console_tail(&self) -> String {
        tail(&self.run_dir.join(CONSOLE), TAIL_LINES)
    }

    /// Returns whether the console output contains `text`.
    pub(super) fn console_says(&self, text: &str) -> bool {
        fs::read(self.run_dir.join(CONSOLE)).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QemuProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A watch on a booting guest for signs of life: console output or CPU time.
pub(super) struct Signs {
    process: Arc<QemuProcess>,
    vcpus: u32,
    checked: Instant,
    /// Length of the console log, and QEMU's CPU time when the log last grew.
    console: (u64, Duration),
    /// QEMU's CPU time at the last sign of life.
    cpu: Duration,
}

impl Signs {
    pub(super) fn of(process: &Arc<QemuProcess>, vcpus: u32) -> Self {
        let (process, cpu) = (Arc::clone(process), process.cpu().unwrap_or_default());
        Self { process, vcpus, checked: Instant::now(), console: (0, cpu), cpu }
    }

    /// Returns whether the guest showed a sign of life since the last check. CPU time stops counting once the guest has used 20 s per
    /// virtual CPU without console output. Checks at most once per [`CHECK_EVERY`] and returns false in between. Also returns true once
    /// QEMU has exited, which the caller detects by the closed socket.
    pub(super) fn is_alive(&mut self) -> bool {
        if self.checked.elapsed() < CHECK_EVERY {
            return false;
        }
        self.checked = Instant::now();
        let console = fs::metadata(self.process.run_dir.join(CONSOLE)).map_or(0, |found| found.len());
        // A process without counters has exited; the caller notices that by itself.
        let Some(cpu) = self.process.cpu() else { return true };
        if console > self.console.0 {
            (self.console, self.cpu) = ((console, cpu), cpu);
            return true;
        }
        let computes = cpu.saturating_sub(self.cpu) >= LIVELY;
        if computes {
            self.cpu = cpu;
        }
        computes && cpu.saturating_sub(self.console.1) < CIRCLES * self.vcpus
    }
}

/// Returns whether a process is stopped by a signal or a debugger.
pub(super) fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| matches!(fields.first().map(String::as_str), Some("T" | "t")))
}

/// Describes in words what a process is doing, such as `it waits for a disk`, from the states of its threads.
pub(crate) fn state(pid: u32) -> &'static str {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let states: Vec<char> =
        texts.filter_map(|text| text.rsplit_once(')')?.1.trim_start().chars().next()).collect();
    let words =
        [("tT", "it is stopped"), ("D", "it waits for a disk"), ("R", "it computes"), ("S", "it waits")];
    let of = |(all, words): &(&str, &'static str)| {
        states.iter().any(|state| all.contains(*state)).then_some(*words)
    };
    words.iter().find_map(of).unwrap_or("it is gone")
}

/// Returns the fields of /proc/PID/stat after the process name (proc_pid_stat(5)); `None` if the process is gone.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Returns the last `lines` non-empty lines of a file, without control characters; empty if the file cannot be read.
fn tail(path: &Path, lines: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let clean: Vec<String> = text
        .lines()
        .map(|line| line.chars().filter(|c| !c.is_control()).collect::<String>().trim_end().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    clean[clean.len().saturating_sub(lines)..].join("\n")
}

/// Quotes a word for a shell, if it contains special characters.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./,:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_clean_and_short() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("console");
        fs::write(&file, b"first\r\n\r\n\x1b[2Jsecond \xff\r\nthird\r\n").expect("written");
        assert_eq!(tail(&file, 2), "[2Jsecond \u{fffd}\nthird");
        assert_eq!(tail(&file, 9).lines().count(), 3);
        assert_eq!(tail(&dir.path().join("absent"), 9), "");
    }

    #[test]
    fn a_command_line_can_be_pasted() {
        assert_eq!(quoted("q35,i8042=off"), "q35,i8042=off");
        assert_eq!(quoted("console=ttyS0 quiet"), "'console=ttyS0 quiet'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_process_that_is_stopped_or_gone_is_said_to_be() {
        let mut child = std::process::Command::new("sh").args(["-c", "exec sleep 60"]).spawn().expect("sh");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED).expect("waited");
        assert_eq!(state(child.id()), "it is stopped");
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert_eq!(state(child.id()), "it is gone");
    }
}
