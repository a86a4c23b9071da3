//! Chooses the accelerator of guests: KVM if it can run a guest on this machine, otherwise TCG.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iotax_model::target::{Accel, GuestSpec, MachineType};
use iotax_model::threads;

use super::GuestError;
use super::command::{self, QemuMachine};
use super::kernel::Kernel;
use super::process::QemuProcess;
use crate::host_info;
use crate::interrupt::Interrupt;
use crate::lock::ProcessLock;
use crate::refusal::Refusal;
use iotax_model::guest_abi::{PROBE_MARKER, PROBE_PARAMETER};

const DEVICE: &str = "/dev/kvm";
/// Maximum time for the guest that tests KVM to boot. On an idle host it takes about 1 s.
const PROBE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// The guest that is booted to test whether KVM works.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'a> {
    /// A unique string for QEMU's command line, by which the process can be found.
    pub marker: &'a str,
    /// Kernel image and modules of the guest.
    pub kernel: &'a Kernel,
    /// The initramfs from [`super::initramfs::write`] for this kernel.
    pub initramfs: &'a Path,
    /// An existing private directory for the guest's files, which are removed after the probe.
    pub run_dir: &'a Path,
    /// The run's process lock, which QEMU holds while it runs.
    pub lock: &'a ProcessLock,
}

/// Chooses KVM or TCG and returns the reason in words. Never returns [`Accel::Auto`].
///
/// For [`Accel::Auto`] and [`Accel::Kvm`], boots a guest under KVM for at most 5 s, because /dev/kvm can exist without working. Fails if
/// the user requests KVM and it does not work, if the test cannot be prepared, or on an interrupt.
pub fn resolve(
    wanted: Accel,
    probe: Probe<'_>,
    interrupt: &Interrupt,
) -> Result<(Accel, String), GuestError> {
    if wanted == Accel::Tcg {
        return Ok((Accel::Tcg, "TCG (emulation) was asked for".into()));
    }
    decide(wanted, obstacle(probe, interrupt)?)
}

/// Returns the kernel parameters that the guest needs for its CPU; usually empty. `root` is `/` outside of tests.
///
/// An emulated microvm gets the frequency of the host's time stamp counter, because it has no timer to measure the frequency with. Fails if
/// the frequency is unknown. KVM reports the frequency to its guests itself.
pub fn parameters(spec: &GuestSpec, accel: Accel, root: &Path) -> Result<String, Refusal> {
    if spec.machine_type() != MachineType::Microvm || accel != Accel::Tcg {
        return Ok(String::new());
    }
    host_info::tsc_khz(root).map(|khz| format!("tsc_early_khz={khz}")).ok_or_else(|| {
        Refusal::environment(
            "machine = \"microvm\" is not emulated here: it has no timer to learn the CPU's frequency from, and this \
             machine's is not known; use it with KVM, or machine = \"q35\"",
        )
    })
}

/// Chooses between KVM and TCG; `obstacle` is the reason why KVM cannot run a guest, `None` if it can. Fails if the user requests KVM and
/// there is an obstacle.
fn decide(wanted: Accel, obstacle: Option<String>) -> Result<(Accel, String), GuestError> {
    match obstacle {
        None => Ok((Accel::Kvm, "KVM runs guests here".into())),
        Some(reason) if wanted == Accel::Kvm => Err(GuestError::NoKvm { reason }),
        Some(reason) => Ok((Accel::Tcg, format!("{reason}; using TCG (emulation)"))),
    }
}

/// Returns the reason why this user cannot open /dev/kvm; `None` if it can be opened, which does not prove that guests run.
#[must_use]
pub fn no_device() -> Option<String> {
    let error = File::options().read(true).write(true).open(DEVICE).err()?;
    Some(match error.kind() {
        std::io::ErrorKind::NotFound => format!("this machine has no {DEVICE}"),
        std::io::ErrorKind::PermissionDenied => {
            format!("{DEVICE} may not be opened by this user (join the group kvm)")
        }
        _ => format!("{DEVICE} cannot be opened: {error}"),
    })
}

/// Tests whether KVM can run a guest, by booting one for at most 5 s. Returns the reason why it cannot; `None` if the guest ran.
pub fn obstacle(probe: Probe<'_>, interrupt: &Interrupt) -> Result<Option<String>, GuestError> {
    let Probe { marker, kernel, initramfs, run_dir, lock } = probe;
    if let Some(reason) = no_device() {
        return Ok(Some(reason));
    }
    let scratch = ScratchDirectory::make(run_dir.join("kvm-probe"))?;
    let arguments = command::arguments(&QemuMachine {
        marker,
        spec: &GuestSpec::default(),
        accel: Accel::Kvm,
        kernel: &kernel.image,
        initramfs,
        parameters: PROBE_PARAMETER,
        disk: None,
        nic: None,
        directory: None,
        run_dir: &scratch.0,
    });
    let process = QemuProcess::spawn(&arguments, &scratch.0, None, lock)?;
    let end = Instant::now() + PROBE;
    loop {
        // Read the status first: once QEMU has exited, its output is complete.
        let ended = process.status();
        if process.console_says(PROBE_MARKER) {
            return Ok(None);
        }
        if let Some(status) = ended {
            let said = process.qemu_said().unwrap_or_else(|| status.to_string());
            return Ok(Some(format!("{DEVICE} exists but QEMU could not run a guest on it: {said}")));
        }
        if Instant::now() > end {
            let seconds = PROBE.as_secs();
            return Ok(Some(format!("{DEVICE} exists but a guest on it did not start within {seconds} s")));
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(GuestError::Interrupted);
        }
        threads::sleep(POLL);
    }
}

/// A temporary directory. Dropping it removes it with its contents.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn make(path: PathBuf) -> Result<Self, GuestError> {
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(GuestError::Io { path, source }),
        }
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // The caller removes the parent directory anyway.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_microvm_is_told_the_hosts_frequency_or_refused() {
        let clock_parameter = |cpuinfo: &str, machine, accel| {
            let root = tempfile::tempdir().expect("a directory");
            fs::create_dir(root.path().join("proc")).expect("made");
            fs::write(root.path().join("proc/cpuinfo"), cpuinfo).expect("written");
            let spec = GuestSpec { machine: Some(machine), ..GuestSpec::default() };
            parameters(&spec, accel, root.path()).map_err(|refusal| refusal.to_string())
        };
        let virtual_machine = "cpu MHz\t\t: 2596.132\nflags\t\t: fpu tsc hypervisor\n";
        let microvm = MachineType::Microvm;
        assert_eq!(clock_parameter(virtual_machine, microvm, Accel::Tcg), Ok("tsc_early_khz=2596132".into()));
        assert_eq!(clock_parameter(virtual_machine, microvm, Accel::Kvm), Ok(String::new()));
        assert_eq!(clock_parameter("", MachineType::Q35, Accel::Tcg), Ok(String::new()));
        for unknown in ["cpu MHz\t\t: 800.012\nflags\t\t: fpu tsc\n", "flags\t\t: hypervisor\n"] {
            let refusal = clock_parameter(unknown, microvm, Accel::Tcg).expect_err("not known");
            assert!(refusal.contains("use it with KVM, or machine = \"q35\""), "{refusal}");
        }
    }

    #[test]
    fn kvm_that_does_not_work_is_an_error_only_if_it_was_asked_for() {
        let obstacle = || Some("this machine has no /dev/kvm".to_owned());
        assert_eq!(
            decide(Accel::Auto, obstacle()).expect("TCG"),
            (Accel::Tcg, "this machine has no /dev/kvm; using TCG (emulation)".into())
        );
        let error = decide(Accel::Kvm, obstacle()).expect_err("refused").to_string();
        assert!(error.contains("no /dev/kvm") && error.contains("--accel tcg"), "{error}");
        assert_eq!(decide(Accel::Auto, None).expect("KVM").0, Accel::Kvm);
    }
}
