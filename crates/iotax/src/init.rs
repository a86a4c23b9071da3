//! PID 1 of a guest: mounts, loads modules, finds the disk and the port, makes a filesystem, mounts the host's directory or sets up the NIC on request,
//! runs the agent, powers off.
//!
//! Every failure ends in a message on the console and a power-off, because a guest that hangs gives no reason.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use iotax_model::guest_abi;
use iotax_model::threads;
use iotax_testbed::device;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process::{Pid, WaitOptions};
use rustix::system::RebootCommand;

use crate::agent;
use crate::causes::with_causes;
use crate::say::say;

mod directory;
mod disk;
mod net;
mod xen;

/// Time limit for a device to appear once its driver is loaded, and for the host to open its end of the virtio-serial port.
const APPEAR: Duration = Duration::from_secs(10);
/// Time limit for the kernel to settle on its final clocksource.
const SETTLE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(2);
/// Interval of the empty lines on the console that show progress during boot.
const BEAT: Duration = Duration::from_secs(2);

/// Prepares the guest, serves the agent on the virtio-serial port or a Xen domain's console, and powers off. If the kernel parameters ask
/// for a probe, only prints a marker and powers off.
pub(crate) fn main() -> ! {
    // A panic has already been printed to the console.
    if let Ok(Err(error)) = catch_unwind(run) {
        say!("iotax init: {}", with_causes(&error));
    }
    rustix::fs::sync();
    let refused = rustix::system::reboot(RebootCommand::PowerOff);
    // If PID 1 ends, the kernel panics, which ends the guest too.
    panic!("the guest could not be powered off: {refused:?}");
}

fn run() -> Result<()> {
    mount("proc", "/proc")?;
    let parameters = fs::read_to_string("/proc/cmdline").context("/proc/cmdline")?;
    let said = |wanted| parameters.split_whitespace().any(|word| word == wanted);
    if said(guest_abi::PROBE_PARAMETER) {
        say!("{}", guest_abi::PROBE_MARKER);
        return Ok(());
    }
    mount("sysfs", "/sys")?;
    mount("devtmpfs", "/dev")?;
    mount("tmpfs", "/tmp")?;
    let beat = Beat::begin();
    load_modules(Path::new(guest_abi::MODULES_DIR))?;
    if said(guest_abi::XEN_PARAMETER) {
        let disk = xen::find_disk()?;
        drop(beat);
        return serve(Some(&disk), &xen::open_console()?);
    }
    let disk = if said(guest_abi::DISKLESS_PARAMETER) { None } else { Some(find_disk()?) };
    let measured = match &disk {
        Some(disk) => Some(disk::measured(disk, &parameters)?),
        None => directory::measured(&parameters)?,
    };
    net::set_up(&parameters)?;
    let port = appearing(|| port_named(Path::new("/sys/class/virtio-ports"), guest_abi::AGENT_PORT))
        .with_context(|| format!("no virtio port is named {:?}", guest_abi::AGENT_PORT))?;
    let port = open_port(&port)?;
    await_clocksource();
    drop(beat);
    let served = serve(measured.as_deref(), &port);
    if measured != disk {
        disk::leave()?;
    }
    served
}

/// Thread that prints an empty line to the console every 2 s during boot, so that the host does not take the creation of a filesystem on a
/// slow disk for a hang. Ends when dropped.
struct Beat(Arc<AtomicBool>);

impl Beat {
    fn begin() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        // Without output, the host could take a slow boot for a hang.
        let _ = threads::spawn("beat", move || {
            while !seen.load(Ordering::Relaxed) {
                say!("");
                threads::sleep(BEAT);
            }
        });
        Self(over)
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn find_disk() -> Result<PathBuf> {
    let serial = guest_abi::DISK_SERIAL;
    appearing(|| device::with_serial(Path::new("/sys/block"), serial))
        .with_context(|| format!("no disk has the serial {serial:?}; {}", present("/sys/block")))
}

fn mount(kind: &str, at: &str) -> Result<()> {
    rustix::mount::mount(kind, at, kind, MountFlags::empty(), None::<&CStr>)
        .with_context(|| format!("{at}: {kind} could not be mounted"))
}

/// Loads the kernel modules that the list in `dir` names, in that order. A module that is already loaded is no error.
fn load_modules(dir: &Path) -> Result<()> {
    let list = dir.join(guest_abi::MODULES_LIST);
    for name in fs::read_to_string(&list).with_context(|| list.display().to_string())?.lines() {
        let path = dir.join(name);
        let module = File::open(&path).with_context(|| path.display().to_string())?;
        match rustix::system::finit_module(&module, c"", 0) {
            // The kernel may have loaded it already.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => bail!("{}: the kernel refused the module: {error}", path.display()),
        }
    }
    Ok(())
}

/// Returns the device node of the virtio port with this name; `None` if there is no such port yet.
fn port_named(ports: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(ports).ok()?.flatten().find_map(|entry| {
        let text = fs::read_to_string(entry.path().join("name")).ok()?;
        (text.trim_end() == name).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

fn appearing(mut find: impl FnMut() -> Option<PathBuf>) -> Option<PathBuf> {
    let end = Instant::now() + APPEAR;
    loop {
        // The attribute can be there before devtmpfs has the node.
        let found = find().filter(|path| path.exists());
        if found.is_some() || Instant::now() >= end {
            return found;
        }
        threads::sleep(POLL);
    }
}

fn present(dir: &str) -> String {
    let names: Vec<String> = fs::read_dir(dir)
        .map(|entries| entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    format!("{dir} has {names:?}")
}

/// Opens the port and waits until the host's end is open; before that, a read returns end of file. Fails after 10 s.
fn open_port(path: &Path) -> Result<File> {
    let port =
        File::options().read(true).write(true).open(path).with_context(|| path.display().to_string())?;
    let end = Instant::now() + APPEAR;
    loop {
        let mut wanted = [PollFd::new(&port, PollFlags::OUT)];
        poll(&mut wanted, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).context("poll on the port")?;
        let seen = wanted[0].revents();
        if seen.contains(PollFlags::OUT) && !seen.contains(PollFlags::HUP) {
            return Ok(port);
        }
        ensure!(Instant::now() < end, "{}: the host's end was not opened", path.display());
        threads::sleep(POLL);
    }
}

/// Waits, at most 3 s, until the kernel has calibrated the TSC, which takes about a second after boot. Otherwise the kernel could switch to
/// the final clocksource during the first measurement.
fn await_clocksource() {
    let end = Instant::now() + SETTLE;
    let provisional = || fs::read_to_string(agent::CLOCKSOURCE).is_ok_and(|name| name.trim() == "tsc-early");
    while provisional() && Instant::now() < end {
        threads::sleep(POLL);
    }
}

/// Runs the agent as a child process, so that its CPU time does not include PID 1's and a crash does not end PID 1. Reaps processes
/// until the agent ends.
fn serve(disk: Option<&Path>, port: &File) -> Result<()> {
    let stream = || port.try_clone().map(OwnedFd::from).map(Stdio::from).context("the port's descriptor");
    let agent = Command::new("/proc/self/exe")
        .arg("agent")
        .envs(disk.map(|disk| (agent::DISK_VARIABLE, disk)))
        .stdin(stream()?)
        .stdout(stream()?)
        .spawn()
        .context("the agent could not be started")?;
    let agent = i32::try_from(agent.id()).ok().and_then(Pid::from_raw);
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == agent => {
                ensure!(status.exit_status() == Some(0), "the agent ended with {status:?}");
                return Ok(());
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => bail!("waiting for the agent: {error}"),
        }
    }
}
