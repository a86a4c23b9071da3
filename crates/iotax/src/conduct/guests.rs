//! What guests are booted with, and booting them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::target::Accel;
use iotax_rig::guest::kernel::Kernel;
use iotax_rig::guest::{self, Guest, GuestConfig, GuestError, accel, initramfs};
use iotax_rig::ledger::{Effect, Ledger};
use iotax_rig::link::Interrupt;

use super::target::{Machine, Target};
use super::{Interrupted, own_program};

/// Until the agent answers. Emulated, several at once, on a loaded host.
const BOOT_PATIENCE: Duration = Duration::from_secs(90);

/// What the user says about guests.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuestOptions {
    pub(crate) accel: Option<Accel>,
    pub(crate) kernel: Option<PathBuf>,
    pub(crate) modules: Option<PathBuf>,
}

/// What guests are booted with.
pub(crate) struct Guests {
    kernel: Kernel,
    initramfs: PathBuf,
    /// Private; holds a directory for each guest.
    run_dir: PathBuf,
    accel: Accel,
    accel_reason: String,
    qemu_version: String,
    /// What it took to learn all that.
    prepared_in: Duration,
}

/// Whether guests can be booted at all, or what is missing and how to get it.
pub(crate) fn possible(options: &GuestOptions) -> anyhow::Result<()> {
    guest::find_qemu()?;
    guest::image::find_qemu_img()?;
    find_kernel(options)?;
    Ok(())
}

fn find_kernel(options: &GuestOptions) -> anyhow::Result<Kernel> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    Ok(Kernel::find(Path::new("/"), &release, options.kernel.as_deref(), options.modules.as_deref())?)
}

impl Guests {
    /// Finds QEMU and a kernel, builds the initramfs and learns what runs guests here.
    pub(crate) fn prepare(
        options: &GuestOptions,
        tag: &str,
        ledger: &mut Ledger,
        stop: &Interrupt,
    ) -> anyhow::Result<Self> {
        let begun = Instant::now();
        possible(options)?;
        let qemu_version = guest::qemu_version()?;
        let kernel = find_kernel(options)?;
        let run_dir = std::path::absolute(std::env::temp_dir())?.join(format!("iotax-{tag}"));
        ledger.make_private_directory(&run_dir)?;
        let initramfs = run_dir.join("initramfs");
        initramfs::write(&initramfs, own_program(), &kernel)?;
        let marker = format!("iotax-{tag}-probe");
        ledger.will(Effect::Guest { marker: marker.clone() })?;
        let wanted = options.accel.unwrap_or(Accel::Auto);
        let (accel, accel_reason) =
            accel::resolve(wanted, &kernel, &initramfs, &run_dir, &marker, stop).map_err(interrupted)?;
        Ok(Self {
            kernel,
            initramfs,
            run_dir,
            accel,
            accel_reason,
            qemu_version,
            prepared_in: begun.elapsed(),
        })
    }

    pub(super) fn prepared_in(&self) -> Duration {
        self.prepared_in
    }

    pub(crate) fn accel(&self) -> Accel {
        self.accel
    }

    pub(crate) fn accel_reason(&self) -> &str {
        &self.accel_reason
    }

    pub(crate) fn qemu_version(&self) -> &str {
        &self.qemu_version
    }

    /// Boots the guests of all targets side by side and pauses each as soon as its agent answers.
    pub(super) fn boot<'t>(
        &self,
        targets: impl Iterator<Item = &'t mut Target>,
        ledger: &mut Ledger,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        let mut booting = Vec::new();
        for target in targets.filter(|target| target.is_guest()) {
            let guest = self.start(target, ledger, stop)?;
            booting.push((target, guest));
        }
        for (target, guest) in booting {
            self.settle(target, guest)?;
        }
        Ok(())
    }

    /// Boots a target's guest anew in place of one that failed.
    pub(super) fn reboot(
        &self,
        target: &mut Target,
        ledger: &mut Ledger,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        // Its process is killed with it.
        target.machine = None;
        target.forget_overlay(ledger);
        let guest = self.start(target, ledger, stop)?;
        self.settle(target, guest)
    }

    fn start(&self, target: &Target, ledger: &mut Ledger, stop: &Interrupt) -> anyhow::Result<Guest> {
        let name = &target.spec.name;
        let spec = target.spec.guest.clone().context("only guests are booted")?;
        // Another one at each boot. The directory's name is short: the path of a socket in it may have 107 bytes.
        let tag = super::fresh_tag()?;
        let marker = format!("iotax-{tag}-{name}");
        let run_dir = self.run_dir.join(format!("iotax-{tag}"));
        ledger.make_private_directory(&run_dir)?;
        ledger.will(Effect::Guest { marker: marker.clone() })?;
        let config = GuestConfig {
            marker,
            spec,
            accel: self.accel,
            kernel: self.kernel.clone(),
            initramfs: self.initramfs.clone(),
            image: target.built.path.clone(),
            format: target.built.format,
            kernel_parameters: String::new(),
            run_dir,
        };
        Guest::boot(&config, stop)
            .map_err(interrupted)
            .with_context(|| format!("the guest of target {name:?} could not be started"))
    }

    fn settle(&self, target: &mut Target, mut guest: Guest) -> anyhow::Result<()> {
        let name = &target.spec.name;
        let hello = guest
            .wait_ready(BOOT_PATIENCE)
            .map_err(interrupted)
            .with_context(|| format!("the guest of target {name:?} did not come up"))?;
        guest.pause()?;
        let boot_ns = guest.boot_ns().context("a guest that answered has booted")?;
        target.machine = Some(Machine { guest, hello, accel: self.accel, boot_ns });
        Ok(())
    }
}

/// A guest's interruption becomes the run's.
fn interrupted(error: GuestError) -> anyhow::Error {
    match error {
        GuestError::Interrupted => Interrupted.into(),
        GuestError::Link(error) => super::interrupted(error),
        other => other.into(),
    }
}
