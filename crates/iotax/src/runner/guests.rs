//! Prepares guests of a plan, and boots them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::Plan;
use iotax_model::target::{Accel, GuestSpec, PlannedDevice, RequiredSpace, TargetSpec};
use iotax_model::wire::AgentHello;
use iotax_testbed::guest::capabilities::{Capabilities, Wanted};
use iotax_testbed::guest::directory::GuestDirectory;
use iotax_testbed::guest::image::DevicePart;
use iotax_testbed::guest::kernel::Kernel;
use iotax_testbed::guest::{
    self, Guest, GuestConfig, GuestDevice, GuestError, GuestFilesystem, GuestStorage, accel, initramfs,
    memory, mkfs, modules, vmlinux,
};
use iotax_testbed::host_info;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::target::Built;
use iotax_testbed::undo::{Effect, UndoLog};

use super::target::{GuestSlot, MeasuredDevice, RunningGuest, Target};
use super::{Interrupted, RunContext, own_program};

/// Time limit for a guest to boot while it shows signs of life: it may create a filesystem on a slow disk.
const BOOT_PATIENCE: Duration = Duration::from_mins(5);

/// The options for guests from the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuestOptions {
    pub(crate) accel: Option<Accel>,
    pub(crate) kernel: Option<PathBuf>,
    pub(crate) modules: Option<PathBuf>,
}

/// Kernels and initramfs images for the guests, and the accelerator that runs them.
pub(crate) struct Guests {
    /// Kernel and initramfs for each combination of kernel and modules.
    boots: BTreeMap<BootKey, Boot>,
    /// A private directory with a subdirectory for each guest.
    run_dir: PathBuf,
    accel: Accel,
    accel_reason: String,
    /// The disk space that the plan's workloads need.
    space: RequiredSpace,
    qemu_version: String,
    prepared_in: Duration,
}

/// Kernel and needed modules, including filesystems; guests with the same key boot the same files.
type BootKey = (Option<PathBuf>, Vec<&'static str>);

struct Boot {
    kernel: Kernel,
    initramfs: PathBuf,
}

fn boot_key((spec, device): Wanted<'_>) -> BootKey {
    (spec.kernel.clone(), modules::needed(spec, device))
}

/// Returns a target's guest, with the device through which its I/O is measured. `None` without a guest.
fn wanted(target: &TargetSpec) -> Option<Wanted<'_>> {
    Some((target.guest()?, target.planned_device()))
}

/// Checks that guests can be booted at all. The error names the missing part and the way to get it.
pub(crate) fn possible(options: &GuestOptions) -> anyhow::Result<()> {
    guest::find_qemu()?;
    guest::image::find_qemu_img()?;
    find_kernel(options, None, &[])?;
    Ok(())
}

/// Returns the reason why KVM cannot run a guest here; `None` if it can. Boots a guest to find out, and ends it.
pub(crate) fn obstacle_to_kvm(
    options: &GuestOptions,
    undo_dir: &Path,
    stop: &Interrupt,
) -> anyhow::Result<Option<String>> {
    if options.accel == Some(Accel::Tcg) {
        return Ok(Some("TCG (emulation) was asked for".into()));
    }
    if let Some(reason) = accel::no_device() {
        return Ok(Some(reason));
    }
    let tag = super::fresh_tag()?;
    let mut undo_log = UndoLog::create(undo_dir, &tag)?;
    let spec = GuestSpec::default();
    let kernel = find_kernel(options, None, &modules::needed(&spec, PlannedDevice::Disk))?;
    let run_dir = private_dir("run", &tag, &mut undo_log)?;
    let initramfs = run_dir.join("initramfs");
    let obstacle = initramfs::write(&initramfs, own_program(), &kernel, &spec, PlannedDevice::Disk)
        .map_err(anyhow::Error::from)
        .and_then(|()| {
            let marker = format!("iotax-{tag}-probe");
            undo_log.record(Effect::Guest { marker: marker.clone() })?;
            let lock = undo_log.lock();
            let (kernel, initramfs, run_dir) = (&kernel, initramfs.as_path(), run_dir.as_path());
            let probe = accel::Probe { marker: &marker, kernel, initramfs, run_dir, lock };
            Ok(accel::obstacle(probe, stop)?)
        });
    undo_log.undo_all();
    obstacle
}

/// Creates a directory for the files of guests (`run`) or domains (`xen`), and returns its path.
pub(super) fn private_dir(kind: &str, tag: &str, undo_log: &mut UndoLog) -> anyhow::Result<PathBuf> {
    let dir = std::path::absolute(std::env::temp_dir())?.join(format!("iotax-{kind}-{tag}"));
    undo_log.make_tree(&dir)?;
    Ok(dir)
}

/// Checks that a guest with this device can be booted. The error names the missing part.
pub(crate) fn possible_with(options: &GuestOptions, device: PlannedDevice<'_>) -> anyhow::Result<()> {
    guest::find_qemu()?;
    let needed = modules::needed(&GuestSpec::default(), device);
    let kernel = find_kernel(options, None, &needed)?;
    Ok(modules::check(&kernel.modules, &needed)?)
}

/// Finds the kernel that a guest names, otherwise the run's kernel, preferably one with the needed modules.
pub(super) fn find_kernel(
    options: &GuestOptions,
    named: Option<&Path>,
    needed: &[&'static str],
) -> anyhow::Result<Kernel> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let kernel = named.or(options.kernel.as_deref());
    // The user's module directory belongs to the run's kernel only.
    let modules = if named.is_some() { None } else { options.modules.as_deref() };
    Ok(Kernel::find_with(Path::new("/"), &release, kernel, modules, needed)?)
}

impl Guests {
    /// Finds QEMU and kernels, builds initramfs images and selects the accelerator. Fails for a guest that these cannot run.
    pub(crate) fn prepare(
        options: &GuestOptions,
        plan: &Plan,
        tag: &str,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let (capabilities, known) = known(options, plan, tag, undo_log)?;
        let kernels: BTreeMap<_, _> =
            known.into_iter().map(|(wanted, kernel)| (boot_key(wanted), (kernel, wanted))).collect();

        let run_dir = private_dir("run", tag, undo_log)?;
        let mut boots = BTreeMap::new();
        for (number, (key, (kernel, (spec, device)))) in kernels.into_iter().enumerate() {
            let initramfs = run_dir.join(format!("initramfs-{number}"));
            initramfs::write(&initramfs, own_program(), &kernel, spec, device)?;
            boots.insert(key, Boot { kernel, initramfs });
        }
        let probed = boots.values().next().context("no target has a guest")?;
        let marker = format!("iotax-{tag}-probe");
        undo_log.record(Effect::Guest { marker: marker.clone() })?;
        let wanted = options.accel.unwrap_or(Accel::Auto);
        let probe = accel::Probe {
            marker: &marker,
            kernel: &probed.kernel,
            initramfs: &probed.initramfs,
            run_dir: &run_dir,
            lock: undo_log.lock(),
        };
        let (accel, accel_reason) = accel::resolve(wanted, probe, stop).map_err(interrupted)?;
        if accel == Accel::Tcg {
            unpack_kernels(&mut boots, &run_dir)?;
        }
        for target in plan.everything() {
            let refused = target.guest().map(|spec| accel::parameters(spec, accel, Path::new("/")));
            refused.transpose().with_context(|| format!("target {:?}", target.name))?;
        }
        let qemu_version = capabilities.version().to_owned();
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

    /// Boots the guests of all groups concurrently and pauses each when its agent answers. Returns the index of each group with a guest
    /// that failed to boot, and the reason.
    pub(super) fn boot(
        &self,
        groups: &mut [Vec<Target>],
        context: &mut RunContext<'_>,
    ) -> Vec<(usize, anyhow::Error)> {
        let mut lost = Vec::new();
        let mut booting = Vec::new();
        for (group, targets) in groups.iter_mut().enumerate() {
            for slot in targets.iter_mut().filter_map(Target::guest) {
                match self.start(&slot, true, context) {
                    Ok(guest) => booting.push((group, slot, guest)),
                    Err(error) => lost.push((group, error)),
                }
            }
        }
        for (group, mut slot, guest) in booting {
            if let Err(error) = self.bring_up(&mut slot, guest, context) {
                lost.push((group, error));
            }
        }
        lost
    }

    /// Waits until a started guest has booted. If QEMU crashes while it boots, starts it once more.
    fn bring_up(
        &self,
        slot: &mut GuestSlot<'_>,
        mut guest: Guest,
        context: &mut RunContext<'_>,
    ) -> anyhow::Result<()> {
        let mut hello = guest.wait_ready(BOOT_PATIENCE);
        // QEMU 10.0.2 sometimes fails an assertion while it emulates several CPUs of a booting guest.
        if hello.is_err() && !context.is_stopped() && guest.has_crashed() {
            let name = &slot.target.name;
            context
                .progress
                .note(&format!("{name}: QEMU crashed while the guest booted; it is started again"));
            drop(guest);
            guest = self.start(slot, true, context)?;
            hello = guest.wait_ready(BOOT_PATIENCE);
        }
        self.settle(slot, guest, hello)
    }

    /// Boots a target's guest, if it has one, to replace a failed one.
    pub(super) fn reboot(&self, target: &mut Target, context: &mut RunContext<'_>) -> anyhow::Result<()> {
        target.kill_guest(context.undo_log);
        let Some(mut slot) = target.guest() else { return Ok(()) };
        let mut guest = self.start(&slot, false, context)?;
        let hello = guest.wait_ready(BOOT_PATIENCE);
        self.settle(&mut slot, guest, hello)
    }

    /// Starts a guest. `first` is false if it replaces an earlier guest of the target.
    fn start(
        &self,
        slot: &GuestSlot<'_>,
        first: bool,
        context: &mut RunContext<'_>,
    ) -> anyhow::Result<Guest> {
        let name = &slot.target.name;
        // A new tag per boot. The directory's name is short because a socket's path may have at most 107 bytes.
        let tag = super::fresh_tag()?;
        let marker = format!("iotax-{tag}-{name}");
        let run_dir = self.run_dir.join(format!("iotax-{tag}"));
        context.undo_log.make_tree(&run_dir)?;
        context.undo_log.record(Effect::Guest { marker: marker.clone() })?;
        let key = boot_key((slot.spec, slot.target.planned_device()));
        let boot = self.boots.get(&key).context("every guest of the plan was prepared for")?;
        let device = match slot.device {
            MeasuredDevice::Storage(built) => match directory(slot.target, built) {
                Some(directory) => GuestDevice::Directory(directory),
                None => GuestDevice::Disk(self.storage(slot, built, first)),
            },
            MeasuredDevice::Nic(nic) => GuestDevice::Nic(nic.clone()),
        };
        let config = GuestConfig {
            marker,
            device,
            spec: slot.spec.clone(),
            accel: self.accel,
            kernel: boot.kernel.clone(),
            initramfs: boot.initramfs.clone(),
            kernel_parameters: String::new(),
            run_dir,
            lock: context.undo_log.lock().clone(),
        };
        Guest::boot(&config, context.stop)
            .map_err(interrupted)
            .with_context(|| format!("the guest of target {name:?} could not be started"))
    }

    /// Describes a guest's disk for QEMU. With `first`, the guest creates the disk's filesystem; otherwise the guest mounts an existing
    /// one.
    fn storage(&self, slot: &GuestSlot<'_>, built: &Built, first: bool) -> GuestStorage {
        let filesystem = slot.spec.filesystem;
        let on_device = std::fs::metadata(&built.path).is_ok_and(|found| found.file_type().is_block_device());
        GuestStorage {
            image: built.path.clone(),
            format: built.format,
            part: on_device.then_some(DevicePart {
                offset: built.offset,
                size: slot.target.disk_size(RequiredSpace { area: built.size, ..self.space }),
                writable: built.writable,
            }),
            l2_cache_size: slot.target.file().and_then(|file| file.l2_cache_size),
            filesystem: filesystem.map(|_| GuestFilesystem { make: first, size: built.size }),
        }
    }

    /// Pauses a booted guest and stores it in its slot. Fails if the guest did not boot.
    fn settle(
        &self,
        slot: &mut GuestSlot<'_>,
        mut guest: Guest,
        hello: Result<AgentHello, GuestError>,
    ) -> anyhow::Result<()> {
        let name = &slot.target.name;
        let hello = hello
            .map_err(interrupted)
            .with_context(|| format!("the guest of target {name:?} did not come up"))?;
        guest.pause()?;
        let boot_ns = guest.boot_ns().context("a guest that answered has booted")?;
        *slot.running = Some(RunningGuest { guest, hello, accel: self.accel, boot_ns });
        Ok(())
    }
}

/// Returns the directory with the measured file, if the target's guest mounts it; `None` for a guest with a disk.
fn directory(target: &TargetSpec, built: &Built) -> Option<GuestDirectory> {
    GuestDirectory::of(target, built.path.parent()?)
}

/// Decompresses each kernel once. One that cannot be decompressed is booted as it is.
fn unpack_kernels(boots: &mut BTreeMap<BootKey, Boot>, run_dir: &Path) -> anyhow::Result<()> {
    let mut unpacked: BTreeMap<PathBuf, Option<PathBuf>> = BTreeMap::new();
    for boot in boots.values_mut() {
        let image = &boot.kernel.image;
        let path = run_dir.join(format!("vmlinux-{}", unpacked.len()));
        let written = match unpacked.entry(image.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let written = vmlinux::write(image, path);
                new.insert(written.with_context(|| format!("unpacking {} for its guests", image.display()))?)
            }
        };
        boot.kernel.image = written.clone().unwrap_or_else(|| image.clone());
    }
    Ok(())
}

/// Rejects a plan whose guests cannot be booted here. Creates nothing.
pub(crate) fn check_all(
    options: &GuestOptions,
    plan: &Plan,
    tag: &str,
    undo_log: &mut UndoLog,
) -> anyhow::Result<()> {
    known(options, plan, tag, undo_log).map(drop)
}

/// Returns QEMU's capabilities and the kernel of each guest in a plan. Fails if any guest cannot be booted.
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
    let capabilities =
        Capabilities::ask(specs().map(|(_, spec)| spec), &marker, undo_log.lock()).map_err(interrupted)?;
    undo_log.commit(asked)?;
    let alike = specs().filter(|(_, (spec, _))| spec.kernel.is_none());
    let needed: BTreeSet<&'static str> =
        alike.flat_map(|(_, (spec, device))| modules::needed(spec, device)).collect();
    let needed: Vec<&'static str> = needed.into_iter().collect();
    let kernel = |(name, wanted)| {
        let kernel =
            check(wanted, options, &needed, &capabilities).with_context(|| format!("target {name:?}"))?;
        Ok((wanted, kernel))
    };
    let kernels = specs().map(kernel).collect::<anyhow::Result<_>>()?;
    if let Some(available) = host_info::memory_available(Path::new("/")) {
        memory::check(plan, available)?;
    }
    Ok((capabilities, kernels))
}

/// Rejects a guest that this QEMU or its kernel cannot run, or whose filesystem cannot be created here. Returns the kernel.
fn check(
    wanted: Wanted<'_>,
    options: &GuestOptions,
    alike: &[&'static str],
    capabilities: &Capabilities,
) -> anyhow::Result<Kernel> {
    let (spec, device) = wanted;
    capabilities.check(wanted)?;
    let kernel = find_kernel(options, spec.kernel.as_deref(), alike)?;
    modules::check(&kernel.modules, &modules::needed(spec, device))?;
    if let Some(kind) = spec.filesystem.filter(|_| device == PlannedDevice::Disk) {
        mkfs::program(kind).find()?;
    }
    Ok(kernel)
}

/// Converts a guest's error. An interruption becomes the error of a run that the user stopped.
fn interrupted(error: GuestError) -> anyhow::Error {
    match error {
        GuestError::Interrupted => Interrupted.into(),
        GuestError::AgentClient(error) => super::interrupted(error),
        other => other.into(),
    }
}
