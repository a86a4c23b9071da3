//! What guests are booted with, and booting them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::Plan;
use iotax_model::target::RequiredSpace;
use iotax_model::target::{Accel, GuestSpec, NetworkSpec, TargetSpec};
use iotax_model::wire::AgentHello;
use iotax_testbed::guest::capabilities::{Capabilities, Wanted};
use iotax_testbed::guest::image::DevicePart;
use iotax_testbed::guest::kernel::Kernel;
use iotax_testbed::guest::{
    self, Guest, GuestConfig, GuestError, GuestFilesystem, GuestStorage, accel, initramfs, memory, mkfs,
    modules,
};
use iotax_testbed::host_info;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::undo::{Effect, UndoLog};

use super::network::Way;
use super::target::{Machine, Target};
use super::{Interrupted, Progress, own_program};

/// Until the agent answers, of a guest that shows signs of life all along: it may make a filesystem on a slow disk.
const BOOT_PATIENCE: Duration = Duration::from_mins(5);

/// What the user says about guests.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuestOptions {
    pub(crate) accel: Option<Accel>,
    pub(crate) kernel: Option<PathBuf>,
    pub(crate) modules: Option<PathBuf>,
}

/// What guests are booted with.
pub(crate) struct Guests {
    /// What each kind of guest boots.
    boots: BTreeMap<BootKey, Boot>,
    /// Private; holds a directory for each guest.
    run_dir: PathBuf,
    accel: Accel,
    accel_reason: String,
    /// What the plan's work takes.
    space: RequiredSpace,
    qemu_version: String,
    /// What it took to learn all that.
    prepared_in: Duration,
}

/// Guests boot the same if they have the same kernel and need the same modules; a filesystem is one of these.
type BootKey = (Option<PathBuf>, Vec<&'static str>);

struct Boot {
    kernel: Kernel,
    initramfs: PathBuf,
}

fn boot_key((spec, network): Wanted<'_>) -> BootKey {
    (spec.kernel.clone(), modules::needed(spec, network))
}

/// The guest of a target, and its network if it has that in place of a disk.
fn wanted(target: &TargetSpec) -> Option<Wanted<'_>> {
    Some((target.guest.as_ref()?, target.network.as_ref()))
}

/// Whether guests can be booted at all, or what is missing and how to get it.
pub(crate) fn possible(options: &GuestOptions) -> anyhow::Result<()> {
    guest::find_qemu()?;
    guest::image::find_qemu_img()?;
    find_kernel(options, None, &[])?;
    Ok(())
}

/// Whether a guest with such a network can be booted, or what is missing.
pub(crate) fn possible_on(options: &GuestOptions, network: &NetworkSpec) -> anyhow::Result<()> {
    guest::find_qemu()?;
    let needed = modules::needed(&GuestSpec::default(), Some(network));
    let kernel = find_kernel(options, None, &needed)?;
    Ok(modules::check(&kernel.modules, &needed)?)
}

/// The kernel that a guest names, or else the run's, which has what its guests need if one has.
fn find_kernel(
    options: &GuestOptions,
    named: Option<&Path>,
    needed: &[&'static str],
) -> anyhow::Result<Kernel> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let kernel = named.or(options.kernel.as_deref());
    // The modules that the user names are those of the run's kernel.
    let modules = if named.is_some() { None } else { options.modules.as_deref() };
    Ok(Kernel::find_with(Path::new("/"), &release, kernel, modules, needed)?)
}

impl Guests {
    /// Finds QEMU and kernels, refuses guests that cannot be had with them, builds what guests boot and learns what runs
    /// them here.
    pub(crate) fn prepare(
        options: &GuestOptions,
        plan: &Plan,
        tag: &str,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let (able, known) = known(options, plan, tag, undo_log)?;
        let kernels: BTreeMap<_, _> =
            known.into_iter().map(|(wanted, kernel)| (boot_key(wanted), (kernel, wanted))).collect();

        let run_dir = std::path::absolute(std::env::temp_dir())?.join(format!("iotax-run-{tag}"));
        undo_log.make_tree(&run_dir)?;
        let mut boots = BTreeMap::new();
        for (number, (key, (kernel, (spec, network)))) in kernels.into_iter().enumerate() {
            let initramfs = run_dir.join(format!("initramfs-{number}"));
            initramfs::write(&initramfs, own_program(), &kernel, spec, network)?;
            boots.insert(key, Boot { kernel, initramfs });
        }
        let probed = boots.values().next().context("no target has a guest")?;
        let marker = format!("iotax-{tag}-probe");
        undo_log.record(Effect::Guest { marker: marker.clone() })?;
        let wanted = options.accel.unwrap_or(Accel::Auto);
        let (accel, accel_reason) = accel::resolve(
            wanted,
            &probed.kernel,
            &probed.initramfs,
            &run_dir,
            &marker,
            undo_log.lock(),
            stop,
        )
        .map_err(interrupted)?;
        for target in plan.everything() {
            let refused = target.guest.as_ref().map(|spec| accel::parameters(spec, accel, Path::new("/")));
            refused.transpose().with_context(|| format!("target {:?}", target.name))?;
        }
        let qemu_version = able.version().to_owned();
        let (space, prepared_in) = (plan.space(), begun.elapsed());
        Ok(Self { boots, run_dir, accel, accel_reason, space, qemu_version, prepared_in })
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

    /// Boots the guests of all groups side by side and pauses each as soon as its agent answers. Returns the groups that have a guest
    /// which does not come up, and why.
    pub(super) fn boot(
        &self,
        groups: &mut [Vec<Target>],
        undo_log: &mut UndoLog,
        progress: &mut dyn Progress,
        stop: &Interrupt,
    ) -> Vec<(usize, anyhow::Error)> {
        let mut lost = Vec::new();
        let mut booting = Vec::new();
        for (group, targets) in groups.iter_mut().enumerate() {
            for target in targets.iter_mut().filter(|target| target.is_guest()) {
                match self.start(target, true, undo_log, stop) {
                    Ok(guest) => booting.push((group, target, guest)),
                    Err(error) => lost.push((group, error)),
                }
            }
        }
        for (group, target, guest) in booting {
            if let Err(error) = self.bring_up(target, guest, undo_log, progress, stop) {
                lost.push((group, error));
            }
        }
        lost
    }

    /// Waits until a guest that was started has booted.
    fn bring_up(
        &self,
        target: &mut Target,
        mut guest: Guest,
        undo_log: &mut UndoLog,
        progress: &mut dyn Progress,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        let mut hello = guest.wait_ready(BOOT_PATIENCE);
        // Emulating several CPUs, QEMU 10.0.2 now and then fails an assertion of its own while a guest boots.
        if hello.is_err() && !stop.load(Ordering::Relaxed) && guest.has_crashed() {
            let name = &target.spec.name;
            progress.note(&format!("{name}: QEMU crashed while the guest booted; it is started again"));
            drop(guest);
            guest = self.start(target, true, undo_log, stop)?;
            hello = guest.wait_ready(BOOT_PATIENCE);
        }
        self.settle(target, guest, hello)
    }

    /// Boots a target's guest anew in place of one that failed.
    pub(super) fn reboot(
        &self,
        target: &mut Target,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        // Its process is killed with it.
        target.machine = None;
        target.forget_overlay(undo_log);
        let mut guest = self.start(target, false, undo_log, stop)?;
        let hello = guest.wait_ready(BOOT_PATIENCE);
        self.settle(target, guest, hello)
    }

    /// Starts a target's guest, for the first time or again.
    fn start(
        &self,
        target: &Target,
        first: bool,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<Guest> {
        let name = &target.spec.name;
        let spec = target.spec.guest.clone().context("only guests are booted")?;
        // Another one at each boot. The directory's name is short: the path of a socket in it may have 107 bytes.
        let tag = super::fresh_tag()?;
        let marker = format!("iotax-{tag}-{name}");
        let run_dir = self.run_dir.join(format!("iotax-{tag}"));
        undo_log.make_tree(&run_dir)?;
        undo_log.record(Effect::Guest { marker: marker.clone() })?;
        let key = boot_key((&spec, target.spec.network.as_ref()));
        let boot = self.boots.get(&key).context("every guest of the plan was prepared for")?;
        let card = target.way.as_ref().and_then(Way::card).cloned();
        let config = GuestConfig {
            marker,
            storage: card.is_none().then(|| self.storage(target, first)),
            card,
            spec,
            accel: self.accel,
            kernel: boot.kernel.clone(),
            initramfs: boot.initramfs.clone(),
            kernel_parameters: String::new(),
            run_dir,
            lock: undo_log.lock().clone(),
        };
        Guest::boot(&config, stop)
            .map_err(interrupted)
            .with_context(|| format!("the guest of target {name:?} could not be started"))
    }

    /// What the guest's disk is made of.
    fn storage(&self, target: &Target, first: bool) -> GuestStorage {
        let (built, filesystem) = (&target.built, target.spec.filesystem_in_guest());
        let on_device = std::fs::metadata(&built.path).is_ok_and(|found| found.file_type().is_block_device());
        GuestStorage {
            image: built.path.clone(),
            format: built.format,
            part: on_device.then_some(DevicePart {
                offset: built.offset,
                size: target.spec.disk_size(RequiredSpace { area: built.size, ..self.space }),
                writable: built.writable,
            }),
            l2_cache_size: target.spec.file.as_ref().and_then(|file| file.l2_cache_size),
            filesystem: filesystem.map(|_| GuestFilesystem { make: first, size: built.size }),
        }
    }

    fn settle(
        &self,
        target: &mut Target,
        mut guest: Guest,
        hello: Result<AgentHello, GuestError>,
    ) -> anyhow::Result<()> {
        let name = &target.spec.name;
        let hello = hello
            .map_err(interrupted)
            .with_context(|| format!("the guest of target {name:?} did not come up"))?;
        guest.pause()?;
        let boot_ns = guest.boot_ns().context("a guest that answered has booted")?;
        target.machine = Some(Machine { guest, hello, accel: self.accel, boot_ns });
        Ok(())
    }
}

/// Refuses a plan whose guests cannot be booted here; nothing is left behind.
pub(crate) fn check_all(
    options: &GuestOptions,
    plan: &Plan,
    tag: &str,
    undo_log: &mut UndoLog,
) -> anyhow::Result<()> {
    known(options, plan, tag, undo_log).map(drop)
}

/// What QEMU says of itself, and the kernel of each of a plan's guests, all of which can be booted.
fn known<'a>(
    options: &GuestOptions,
    plan: &'a Plan,
    tag: &str,
    undo_log: &mut UndoLog,
) -> anyhow::Result<(Capabilities, Vec<(Wanted<'a>, Kernel)>)> {
    possible(options)?;
    let specs = || plan.everything().filter_map(|target| Some((&target.name, wanted(target)?)));
    let marker = format!("iotax-{tag}-able");
    let asked = undo_log.record(Effect::Guest { marker: marker.clone() })?;
    let able =
        Capabilities::ask(specs().map(|(_, spec)| spec), &marker, undo_log.lock()).map_err(interrupted)?;
    undo_log.commit(asked)?;
    let alike = specs().filter(|(_, (spec, _))| spec.kernel.is_none());
    let needed: BTreeSet<&'static str> =
        alike.flat_map(|(_, (spec, network))| modules::needed(spec, network)).collect();
    let needed: Vec<&'static str> = needed.into_iter().collect();
    let kernel = |(name, wanted)| {
        let kernel = check(wanted, options, &needed, &able).with_context(|| format!("target {name:?}"))?;
        Ok((wanted, kernel))
    };
    let kernels = specs().map(kernel).collect::<anyhow::Result<_>>()?;
    if let Some(available) = host_info::memory_available(Path::new("/")) {
        memory::check(plan, available)?;
    }
    Ok((able, kernels))
}

/// Refuses a guest that this QEMU or its kernel cannot carry; returns the kernel.
fn check(
    wanted: Wanted<'_>,
    options: &GuestOptions,
    alike: &[&'static str],
    able: &Capabilities,
) -> anyhow::Result<Kernel> {
    let (spec, network) = wanted;
    able.check(wanted)?;
    let kernel = find_kernel(options, spec.kernel.as_deref(), alike)?;
    modules::check(&kernel.modules, &modules::needed(spec, network))?;
    if let Some(kind) = spec.filesystem.filter(|_| network.is_none()) {
        mkfs::program(kind).find()?;
    }
    Ok(kernel)
}

/// A guest's interruption becomes the run's.
fn interrupted(error: GuestError) -> anyhow::Error {
    match error {
        GuestError::Interrupted => Interrupted.into(),
        GuestError::AgentClient(error) => super::interrupted(error),
        other => other.into(),
    }
}
