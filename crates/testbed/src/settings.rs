//! Applies the kernel settings of a plan's targets, and restores the former values.
//!
//! Before the first change, the undo log records every file that the run changes, with its former value and the values that the run writes.
//! The process may therefore be killed at any later moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::target::{
    BottomLocation, FuseSpec, LayerInterface, LayerKind, LvmSpec, Setting, SettingScope, TargetSpec,
};
use rustix::fs::{Access, FlockOperation, flock};
use rustix::io::Errno;

use crate::kernel_file::{self, KernelFile, ORDER};
use crate::own_file;
use crate::refusal::Refusal;
use crate::stack::{self, LayerStack};
use crate::undo::{Effect, UndoEntry, UndoLog, UndoLogError};

/// Files whose values the kernel changes as a side effect of a setting. A new scheduler resets the queue depth and
/// writeback throttling; a dirty limit in percent clears the limit in bytes.
const FOLLOWING: [(Setting, &[&str]); 3] = [
    (Setting::Scheduler, &["nr_requests", "wbt_lat_usec"]),
    (Setting::DirtyRatio, &["dirty_bytes"]),
    (Setting::DirtyBackgroundRatio, &["dirty_background_bytes"]),
];

/// The error of a kernel setting that could not be applied or restored.
#[derive(Debug, thiserror::Error)]
#[error("{path}")]
pub struct SettingFailure {
    path: PathBuf,
    source: io::Error,
}

/// The files in /sys and /proc/sys that a plan's kernel settings change.
#[derive(Debug, Default)]
pub struct KernelSettings {
    /// All files that any target's settings change, in the order of [`ORDER`].
    files: Vec<KernelFile>,
    /// The files that the settings of each target change, with the value to write; `None` for a file that the kernel
    /// changes as a side effect.
    touched: Vec<BTreeMap<PathBuf, Option<String>>>,
    /// The undo log's entries for `files`, in the same order.
    entries: Vec<UndoEntry>,
    /// The value of each file right after the current target's settings were applied, by index in `files`. Empty while no target's settings
    /// are applied.
    applied: BTreeMap<usize, String>,
    /// Indices in `files` of files that someone else changed during the run. They are neither changed nor restored any more.
    foreign: BTreeSet<usize>,
    /// Open handles that lock the files during the run: a second run would otherwise take the first run's values for the original ones.
    locked: Vec<fs::File>,
}

impl KernelSettings {
    /// Finds the files of a plan's kernel settings below `root` and reads their values. Rejects settings that cannot be applied, such as
    /// one whose file is missing or read-only, a scheduler that the kernel does not offer, or a request size above the hardware's limit.
    pub fn find(root: &Path, plan: &Plan) -> Result<Self, Refusal> {
        let touched = plan.targets.iter().map(|target| of_target(root, target));
        let touched = touched.collect::<Result<Vec<_>, Refusal>>()?;
        let mut files: BTreeMap<&PathBuf, KernelFile> = BTreeMap::new();
        for (path, new) in touched.iter().flatten() {
            let known = match files.remove(path) {
                Some(known) => known,
                None => KernelFile::read(path)
                    .map_err(|error| Refusal::environment(format!("{}: {error}", path.display())))?,
            };
            let (mut values, follows) = (known.values, known.follows || new.is_none());
            values.extend(new.iter().filter(|new| !values.contains(new)).cloned().collect::<Vec<_>>());
            files.insert(path, KernelFile { values, follows, ..known });
        }
        let mut files: Vec<KernelFile> = files.into_values().collect();
        files.sort_by_key(|file| ORDER.iter().position(|name| file.path.ends_with(name)));
        Ok(Self { files, touched, ..Self::default() })
    }

    /// Locks every file against other runs until dropped. Fails if another run has locked a file, or if a value has changed since it was
    /// read.
    pub fn claim(&mut self) -> Result<(), SettingFailure> {
        for file in &self.files {
            self.locked.extend(lock(&file.path).map_err(failed(file))?);
            file.check_former().map_err(failed(file))?;
        }
        Ok(())
    }

    /// Records every file in the undo log. Call this before the first change.
    pub fn record(&mut self, undo_log: &mut UndoLog) -> Result<(), UndoLogError> {
        for file in &self.files {
            self.entries.push(undo_log.record(Effect::Setting(Box::new(file.clone())))?);
        }
        Ok(())
    }

    /// Applies a target's settings and restores the former values at once, to find values that the kernel rejects before anything is
    /// measured.
    pub fn try_out(&mut self, target: usize, undo_log: &mut UndoLog) -> Result<(), SettingFailure> {
        let applied = self.apply(target, undo_log);
        self.restore(undo_log).and(applied)
    }

    /// Applies a target's settings, after they were recorded in the undo log. Fails at the first value that the kernel rejects, and before
    /// any change if someone else has changed one of the files.
    pub fn apply(&mut self, target: usize, undo_log: &mut UndoLog) -> Result<(), SettingFailure> {
        let indices: Vec<usize> = self.files_of(target).map(|(index, _)| index).collect();
        for index in &indices {
            let file = &self.files[*index];
            if self.foreign.contains(index) {
                let changed = io::Error::other("somebody else changed it during this run");
                return Err(failed(file)(changed));
            }
            if let Err(error) = file.check_former() {
                let failure = failed(file)(error);
                return self.leave(*index, undo_log).and(Err(failure));
            }
        }
        let written = self.write(target);
        // Includes the files that the kernel changed as a side effect.
        let now = |index: usize| Some((index, kernel_file::value(&self.files[index].path).ok()?));
        self.applied = indices.into_iter().filter_map(now).collect();
        written
    }

    /// Applies a target's settings without restoring them later.
    pub fn apply_for_good(&self, target: usize) -> Result<(), SettingFailure> {
        self.write(target)
    }

    fn write(&self, target: usize) -> Result<(), SettingFailure> {
        let mut written = self.files_of(target).filter_map(|(index, new)| Some((&self.files[index], new?)));
        written.try_for_each(|(file, new)| file.set(new).map_err(failed(file)))
    }

    /// Restores the values from before the last [`Self::apply`], except those that someone else has changed since. Continues after a
    /// failure and returns the first one.
    pub fn restore(&mut self, undo_log: &mut UndoLog) -> Result<(), SettingFailure> {
        let (mut goals, mut results) = (Vec::new(), Vec::new());
        // Read all values first: restoring a scheduler changes the queue depth.
        for (index, applied) in std::mem::take(&mut self.applied).into_iter().rev() {
            let file = &self.files[index];
            match kernel_file::value(&file.path) {
                Ok(now) if now == applied || now == file.was => goals.push((index, file.was.clone())),
                Ok(now) => {
                    let words =
                        format!("somebody else set it to {now}, so it is left alone; it was {}", file.was);
                    results.push(Err(failed(file)(io::Error::other(words))));
                    goals.push((index, now));
                    results.push(self.leave(index, undo_log));
                }
                Err(error) => results.push(Err(failed(file)(error))),
            }
        }
        for (index, goal) in goals {
            let file = &self.files[index];
            let is_there = kernel_file::value(&file.path).is_ok_and(|now| now == goal);
            let put = if is_there { Ok(()) } else { file.set(&goal) };
            results.push(put.map_err(failed(file)));
        }
        results.into_iter().collect()
    }

    /// Stops managing a file that someone else changed: removes it from the undo log, so that it is not restored.
    fn leave(&mut self, index: usize, undo_log: &mut UndoLog) -> Result<(), SettingFailure> {
        if self.foreign.insert(index)
            && let Some(entry) = self.entries.get(index)
        {
            let left = undo_log.commit(*entry);
            return left.map_err(|error| failed(&self.files[index])(io::Error::other(error)));
        }
        Ok(())
    }

    /// Returns the files that a target's settings change, as indices in `files` in the order of writing, each with the value to write.
    fn files_of(&self, target: usize) -> impl Iterator<Item = (usize, Option<&str>)> {
        let touched = self.touched.get(target);
        let files = self.files.iter().enumerate().rev();
        files.filter_map(move |(index, file)| Some((index, touched?.get(&file.path)?.as_deref())))
    }
}

/// Directory of lock files for settings below /sys. Needed because each network namespace has its own mount of /sys, with other inodes.
const LOCKS: &str = "/run/iotax";

/// Locks a kernel file against other runs: the file itself and, below /sys, a lock file. Fails if another run holds a lock.
fn lock(path: &Path) -> io::Result<Vec<fs::File>> {
    let mut locked = vec![fs::File::open(path)?];
    if let Ok(below) = path.strip_prefix("/sys") {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(LOCKS)?;
        let name = below.to_string_lossy().replace('/', "-");
        let lock_path = own_file::directory(Path::new(LOCKS))?.join(name);
        locked
            .push(own_file::open(fs::OpenOptions::new().create(true).append(true).mode(0o600), &lock_path)?);
    }
    for file in &locked {
        flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => {
                io::Error::other("another iotax is trying values of it; wait until that ends")
            }
            errno => errno.into(),
        })?;
    }
    Ok(locked)
}

fn failed(file: &KernelFile) -> impl FnOnce(io::Error) -> SettingFailure + '_ {
    |source| SettingFailure { path: file.path.clone(), source }
}

/// Returns the files that a target's settings change, each with the value to write; `None` for a file that the kernel changes as a side
/// effect.
fn of_target(root: &Path, target: &TargetSpec) -> Result<BTreeMap<PathBuf, Option<String>>, Refusal> {
    let mut touched = BTreeMap::new();
    for (setting, value) in target.setting_values() {
        for setting_dir in setting_dirs(root, target, setting)? {
            let path = setting_dir.join(setting.word());
            check(&path, setting, &value)?;
            touched.insert(path, Some(value.clone()));
            if setting == Setting::Scheduler {
                // Another scheduler removes the current one's tunables, which return with default values.
                let tunables = stack::device::sorted(&setting_dir.join("iosched"));
                touched.extend(
                    tunables
                        .into_iter()
                        .filter(|path| kernel_file::value(path).is_ok())
                        .map(|path| (path, None)),
                );
            }
            let following = FOLLOWING.iter().filter(|(of, _)| *of == setting).flat_map(|(_, names)| *names);
            for path in following.map(|name| setting_dir.join(name)) {
                // A queue without writeback throttling has a file that cannot be read.
                if kernel_file::value(&path).is_ok() {
                    touched.entry(path).or_insert(None);
                }
            }
        }
    }
    Ok(touched)
}

/// Rejects a file that is missing or read-only, a scheduler that the file does not list, and a request size above the hardware's limit.
fn check(path: &Path, setting: Setting, value: &str) -> Result<(), Refusal> {
    let shown = path.display();
    let now = kernel_file::value(path).map_err(|error| {
        Refusal::environment(format!(
            "{setting}: {shown}: {error}; this kernel or device has no such setting"
        ))
    })?;
    rustix::fs::access(path, Access::WRITE_OK).map_err(|errno| {
        let reason = io::Error::from(errno);
        Refusal::environment(format!("{setting}: {shown} is {now} and cannot be changed ({reason}); run as root, where /sys is writable"))
    })?;
    if setting == Setting::Scheduler {
        let offered = kernel_file::offered(path).unwrap_or_default();
        if !offered.iter().any(|known| known == value) {
            return Err(Refusal::input(format!(
                "{setting} = {value}: {shown} offers {}; load the scheduler's module (modprobe {value}) or choose one of these",
                offered.join(", ")
            )));
        }
    }
    let limit = path.with_file_name("max_hw_sectors_kb");
    if setting == Setting::MaxSectorsKb
        && let (Ok(most), Ok(asked)) =
            (kernel_file::value(&limit).unwrap_or_default().parse::<u64>(), value.parse::<u64>())
        && asked > most
    {
        return Err(Refusal::input(format!(
            "{setting} = {value}: {} is {most}; accepted: up to that",
            limit.display()
        )));
    }
    Ok(())
}

/// Returns the directories that contain a setting's file: `queue` of each device, or /proc/sys/vm.
fn setting_dirs(root: &Path, target: &TargetSpec, setting: Setting) -> Result<Vec<PathBuf>, Refusal> {
    let refused = |words: String| Refusal::input(format!("target {:?}: {setting}: {words}", target.name));
    let scope = setting.scope();
    if scope == SettingScope::Memory {
        return Ok(vec![root.join("proc/sys/vm")]);
    }
    let beneath =
        beneath(target).ok_or_else(|| refused("name the device or the directory below it".into()))?;
    let found = stack::of_path(root, &beneath).map_err(|error| refused(error.to_string()))?;
    // The device or directory of the user is at the bottom.
    let mut above = target.stack.layers().iter().skip(1).map(|layer| layer.kind().offers());
    let is_built = target.stack.has::<LvmSpec>()
        || target.stack.has::<FuseSpec>()
        || above.any(|offered| matches!(offered, LayerInterface::Block | LayerInterface::VirtioQueue));
    let devices = match scope {
        SettingScope::ReadAhead if target.guest().is_some() => {
            return Err(refused("a file keeps the read-ahead with which it was opened, and QEMU opens its image once; leave it out".into()));
        }
        SettingScope::ReadAhead if is_built => {
            return Err(refused(
                "iotax makes the device or export that is read ahead from; leave it out, or the layers above the device or directory".into(),
            ));
        }
        SettingScope::ReadAhead => top(root, &found),
        _ => queues(root, &found),
    };
    if devices.is_empty() {
        return Err(refused(format!("no block device is known below {}", beneath.display())));
    }
    Ok(devices.iter().map(|name| directory(root, name).join("queue")).collect())
}

/// Returns the existing file, directory or device that holds a target's data; `None` for a target on a volume group or without any of
/// these.
fn beneath(target: &TargetSpec) -> Option<PathBuf> {
    match target.stack.location()? {
        BottomLocation::Path(path) if !path.exists() => {
            std::path::absolute(path).ok()?.parent().map(Path::to_owned)
        }
        BottomLocation::Path(path) | BottomLocation::Directory(path) | BottomLocation::Device(path) => {
            Some(path.to_owned())
        }
        BottomLocation::Group(_) => None,
    }
}

fn directory(root: &Path, name: &str) -> PathBuf {
    root.join("sys/class/block").join(name.replace('/', "!"))
}

/// Returns the devices directly below a device: its members, its disk if it is a partition, or the devices below its backing file if it is
/// a loop device.
fn below(root: &Path, name: &str) -> Vec<String> {
    let here = directory(root, name);
    let is_name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().replace('!', "/"));
    if here.join("partition").exists() {
        let whole = fs::canonicalize(&here).ok();
        return whole.as_deref().and_then(Path::parent).and_then(is_name).into_iter().collect();
    }
    if let Some(file) = crate::host_info::text(&here.join("loop/backing_file")) {
        return stack::of_path(root, Path::new(&file)).map(|found| found.disks).unwrap_or_default();
    }
    let entries = fs::read_dir(here.join("slaves")).into_iter().flatten().flatten();
    entries.filter_map(|entry| is_name(&entry.path())).collect()
}

/// Finds the devices whose queue settings apply. On each branch of the stack, that is the uppermost device with a
/// request queue (a directory `mq`), or the lowest device if none has a queue. Layers above a queue only remap
/// (partitions, LVM, RAID). Devices below a multipath map or loop device are left out.
fn queues(root: &Path, found: &LayerStack) -> Vec<String> {
    let (mut chosen, mut covered): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for name in found.disks.iter().rev() {
        let beneath = below(root, name);
        if covered.contains(name) {
            covered.extend(beneath);
        } else if directory(root, name).join("mq").exists() || beneath.is_empty() {
            covered.extend(beneath);
            chosen.push(name.clone());
        }
    }
    chosen
}

/// Returns the kernel name of the device whose read-ahead applies to files on the uppermost filesystem: for a partition, its disk. Empty
/// for btrfs, or if no device is known.
fn top(root: &Path, found: &LayerStack) -> Vec<String> {
    let own = found.layers.iter().rev().find(|layer| layer.kind == LayerKind::Filesystem);
    let Some(name) = found.disks.last().filter(|_| own.is_none_or(|own| own.name != "btrfs")) else {
        return Vec::new();
    };
    let is_partition = directory(root, name).join("partition").exists();
    if is_partition { below(root, name) } else { vec![name.clone()] }
}

/// Returns the settings of a target's storage that this user can change on this machine, each with the current value of its first device.
#[must_use]
pub fn changeable(root: &Path, target: &TargetSpec) -> Vec<(Setting, String)> {
    let now = |setting: Setting| {
        let path = setting_dirs(root, target, setting).ok()?.first()?.join(setting.word());
        let value = kernel_file::value(&path).ok()?;
        rustix::fs::access(&path, Access::WRITE_OK).ok()?;
        Some((setting, value))
    };
    Setting::ALL.iter().copied().filter_map(now).collect()
}

/// Returns the values that the kernel accepts for a setting of a target; empty for a numeric setting, or if the kernel lists none.
#[must_use]
pub fn offered(root: &Path, target: &TargetSpec, setting: Setting) -> Vec<String> {
    let first_path = setting_dirs(root, target, setting)
        .ok()
        .and_then(|setting_dirs| Some(setting_dirs.first()?.join(setting.word())));
    let listed = first_path.filter(|_| setting.range().is_none()).map(|path| kernel_file::offered(&path));
    listed.and_then(Result::ok).unwrap_or_default()
}

/// Returns the kernel names of the devices to which a setting of a target applies; empty for dirty-page limits.
#[must_use]
pub fn devices(root: &Path, target: &TargetSpec, setting: Setting) -> Vec<String> {
    let name = |queue: PathBuf| Some(queue.parent()?.file_name()?.to_string_lossy().into_owned());
    match setting.scope() {
        SettingScope::Memory => Vec::new(),
        _ => setting_dirs(root, target, setting).unwrap_or_default().into_iter().filter_map(name).collect(),
    }
}
