//! `iotax ladder`: builds the same storage in several ways and runs the same work on each.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::Args as ClapArgs;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::plan::{CurveSpec, Design, Plan};
use iotax_model::target::{DeviceSpec, Format, GuestSpec, LvmSpec, PlannedLayer, Stack, VirtioSpec};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::words::WordError;
use iotax_model::workload::{STANDARD, Workload};
use iotax_testbed::target::{lvm, virtio};

use super::args::{DesignArgs, LengthArgs, target_name, undo_dir};
use super::from_libvirt::{self, LadderTargets};
use super::known_words::{known_words, text_of};
use super::print_plan::print_plan;
use super::say::note;
use super::session::{RunArgs, watch_signals};
use super::{Failure, OrExit, usage};
use crate::runner::{self, Interrupted};

/// Flags of `iotax ladder`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A directory on the storage to measure; optional with --device
    #[arg(required_unless_present = "device")]
    dir: Option<PathBuf>,
    /// Add rungs on this block device, raw and with LVM; name it with --overwrite too
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
    /// Size of each rung's disk [default: 1GiB, 4GiB with a --time of an hour or more]
    #[arg(long)]
    size: Option<Bytes>,
    #[command(flatten)]
    length: LengthArgs,
    #[command(flatten)]
    design: DesignArgs,
    /// Rungs to build, the first is the baseline: host-file, virtio-raw, virtio-qcow2, virtio-qcow2-snapshot, vm-raw, vm-qcow2, vm-qcow2-snapshot, with --device also
    /// host-device, host-lvm, host-lvm-file, vm-device, vm-lvm; host-overlay as in a container; virtio-vmdk, vm-vhdx and so on for other formats; or the layers of
    /// one, such as "raw file > loop direct_io=true" [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = text_of(RUNGS.map(|(name, ..)| name)))]
    rungs: Vec<String>,
    /// Measure new images set up like the disk of this libvirt domain, and alternatives to it: a file with its XML, or its
    /// name for virsh dumpxml
    #[arg(long, value_name = "DOMAIN", conflicts_with_all = ["rungs", "device"])]
    like: Option<String>,
    /// The domain's disk, such as vda [default: the first]
    #[arg(long, value_name = "TARGET", requires = "like")]
    like_disk: Option<String>,
    /// Workloads to run: randread-4k-qd1, randread-4k-qd32, randwrite-4k-qd32, seqread-1m, seqwrite-1m [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = known_words(str::parse::<Workload>, STANDARD.map(|(name, ..)| name)))]
    workloads: Vec<Workload>,
    /// Latency against load on each rung, from idle to beyond what it can do; of randread-4k-qd32 unless --workloads names others
    #[arg(long, conflicts_with_all = ["repeat", "until_decided"])]
    curve: bool,
    /// Run this many guests at once on each rung with guests, each with its own disk; a list makes a rung for each number
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    guests: Vec<u32>,
    /// Every image format that QEMU writes, through its own block layer
    #[arg(long, conflicts_with_all = ["rungs", "device", "like", "emulated", "guests"])]
    formats: bool,
    /// Build the rungs with guests also where they would be emulated; their figures say nothing of a real machine
    #[arg(long, conflicts_with = "rungs")]
    emulated: bool,
    /// Print the ladder as a plan file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// The workload of a curve: with many I/Os outstanding, so that it shows what a rung can do.
const CURVED: &str = "randread-4k-qd32";

/// The shortest measurement. Most noise lasts longer than one, so many short measurements are worth more than a few long ones.
const SHORTEST: Nanos = Nanos::from_millis(250);

/// The storage below a rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    /// `--device`.
    Device,
    /// The directory.
    Directory,
}

/// A rung: its name, what it stands on, and its layers on that.
#[derive(Debug, Clone)]
struct Rung {
    name: String,
    base: Base,
    layers: Stack,
}

/// A file in a container's writable layer.
const CONTAINER: &str = "host-overlay";

/// The rungs from the lowest up.
const RUNGS: [(&str, Base, &str); 12] = [
    ("host-device", Base::Device, ""),
    ("host-lvm", Base::Device, "thick LVM volume"),
    ("host-lvm-file", Base::Device, "thick LVM volume > ext4 > raw file"),
    ("host-file", Base::Directory, "raw file"),
    ("virtio-raw", Base::Directory, "raw file > virtio"),
    ("virtio-qcow2", Base::Directory, "qcow2 file preallocation=metadata > virtio"),
    (
        "virtio-qcow2-snapshot",
        Base::Directory,
        "qcow2 file + external snapshot preallocation=metadata > virtio",
    ),
    ("vm-device", Base::Device, "virtio-blk > guest"),
    ("vm-lvm", Base::Device, "thick LVM volume > virtio-blk > guest"),
    ("vm-raw", Base::Directory, "raw file > virtio-blk > guest"),
    ("vm-qcow2", Base::Directory, "qcow2 file preallocation=metadata > virtio-blk > guest"),
    (
        "vm-qcow2-snapshot",
        Base::Directory,
        "qcow2 file + external snapshot preallocation=metadata > virtio-blk > guest",
    ),
];

impl Rung {
    /// One of the rungs above, `host-overlay`, or one of another format: `virtio-vmdk`, `vm-vmdk`.
    fn known(name: &str) -> Option<Self> {
        let (base, line) = match RUNGS.into_iter().find(|(known, ..)| *known == name) {
            Some((_, base, line)) => (base, line.to_owned()),
            None => (Base::Directory, line_by_name(name)?),
        };
        let layers = if line.is_empty() { Stack::default() } else { Stack::parse(&line).ok()? };
        Some(Self { name: name.to_owned(), base, layers })
    }

    /// A rung by its name, or by the line of its layers on the directory or, if they begin with a volume or a filesystem, the device.
    fn parse(text: &str) -> Result<Self, Failure> {
        if !text.contains(' ') {
            let formats: Vec<String> = Format::WORDS.iter().map(|format| of_format(format)).collect();
            let mut names: Vec<&str> = RUNGS.map(|(known, ..)| known).to_vec();
            names.push(CONTAINER);
            names.extend(
                formats
                    .iter()
                    .map(String::as_str)
                    .filter(|name| !RUNGS.iter().any(|(known, ..)| known == name)),
            );
            return Self::known(text)
                .ok_or_else(|| WordError::new("rung", text, &names))
                .or_exit(Exit::Usage);
        }
        let layers = Stack::parse(text).map_err(usage)?;
        let base = match layers.layers().first() {
            Some(PlannedLayer::File(_) | PlannedLayer::Overlay(_)) => Base::Directory,
            _ => Base::Device,
        };
        Ok(Self { name: target_name(&text.replace(" > ", "-")), base, layers })
    }

    fn has_guest(&self) -> bool {
        self.layers.has::<GuestSpec>()
    }
}

/// The requested rungs, or all that the directory and the device allow.
fn wanted(args: &Args) -> Result<Vec<Rung>, Failure> {
    let is_there = |rung: &Rung| match rung.base {
        Base::Device => args.device.is_some(),
        Base::Directory => args.dir.is_some(),
    };
    if args.formats {
        return Ok(formats());
    }
    if args.rungs.is_empty() {
        return Ok(RUNGS.iter().filter_map(|(name, ..)| Rung::known(name)).filter(is_there).collect());
    }
    let find = |text: &String| {
        let rung = Rung::parse(text)?;
        match rung.base {
            _ if is_there(&rung) => Ok(rung),
            Base::Device => Err(usage(format!("rung {text} needs --device DEVICE --overwrite DEVICE"))),
            Base::Directory => Err(usage(format!("rung {text} needs a directory: iotax ladder DIR"))),
        }
    };
    args.rungs.iter().map(find).collect()
}

/// The rung of a format without a guest.
fn of_format(format: &str) -> String {
    format!("virtio-{format}")
}

/// The layers of a rung that is built only where it is named: of a container, or of another format.
fn line_by_name(name: &str) -> Option<String> {
    if name == CONTAINER {
        return Some("overlay > raw file".into());
    }
    let (above, format) = name.split_once('-')?;
    let format: Format = format.parse().ok()?;
    match above {
        "virtio" => Some(format!("{format} file > virtio")),
        "vm" => Some(format!("{format} file > virtio-blk > guest")),
        _ => None,
    }
}

/// A rung for each format, on a plain file.
fn formats() -> Vec<Rung> {
    let all = Format::WORDS.iter().map(|format| of_format(format));
    ["host-file".to_owned()].into_iter().chain(all).filter_map(|name| Rung::known(&name)).collect()
}

/// Leaves out rungs that this machine cannot build, unless they were asked for by name.
fn possible(args: &Args, mut rungs: Vec<Rung>) -> Result<Vec<Rung>, Failure> {
    let asked = !args.rungs.is_empty();
    if rungs.iter().any(Rung::has_guest)
        && let Some(reason) = no_guests(args, asked)?
    {
        rungs.retain(|rung| !rung.has_guest());
        note!("Without guests: {reason}");
    }
    let has_export = |rung: &Rung| rung.layers.has::<VirtioSpec>();
    if rungs.iter().any(has_export)
        && let Err(missing) = virtio::possible()
    {
        if asked {
            return Err(Failure { exit: missing.exit, error: missing.into() });
        }
        rungs.retain(|rung| !has_export(rung));
        note!("Without QEMU's block layer: {missing}");
    }
    let has_volume = |rung: &Rung| rung.layers.has::<LvmSpec>();
    if rungs.iter().any(has_volume)
        && let Err(missing) = lvm::possible()
    {
        if asked {
            return Err(Failure { exit: missing.exit, error: missing.into() });
        }
        rungs.retain(|rung| !has_volume(rung));
        note!("Without LVM's rungs: {missing}");
    }
    Ok(rungs)
}

/// The reason to build no rungs with guests; an error if they were asked for.
fn no_guests(args: &Args, asked: bool) -> Result<Option<String>, Failure> {
    let options = args.run.guest.options();
    let is_wanted = asked || args.emulated || args.guests != [1] || args.run.guest.is_specific();
    match runner::guests_possible(&options) {
        Err(missing) if is_wanted => Err(Failure { exit: Exit::Environment, error: missing }),
        Err(missing) => Ok(Some(format!("{missing:#}"))),
        Ok(()) if is_wanted => Ok(None),
        // What is refused anyway is refused at once: a guest that does not start is waited for.
        Ok(()) if is_refused(args) => Ok(None),
        Ok(()) => {
            let stop = watch_signals().or_exit(Exit::Environment)?;
            let obstacle = runner::obstacle_to_kvm(&options, &undo_dir()?, &stop);
            if stop.load(Ordering::Relaxed) {
                return Err(Interrupted).or_exit(Exit::Interrupted);
            }
            let obstacle = obstacle.or_exit(Exit::Environment)?;
            Ok(obstacle.map(|reason| {
                format!("{reason}; emulated, they would say nothing of a real machine (--emulated)")
            }))
        }
    }
}

/// Returns whether the session refuses to begin: there is no such directory.
fn is_refused(args: &Args) -> bool {
    !args.print_plan && args.dir.as_ref().is_some_and(|dir| !dir.is_dir())
}

/// The targets of a rung: one, or one for each number of guests.
fn targets(rung: &Rung, args: &Args) -> Vec<TargetSpec> {
    let numbers = if rung.has_guest() { args.guests.as_slice() } else { &[1] };
    let many = numbers.len() > 1;
    let named = |count: &u32| if many { format!("{}-{count}", rung.name) } else { rung.name.clone() };
    let (dir, device) = (args.dir.as_deref(), args.device.as_deref());
    numbers.iter().map(|count| target(rung, named(count), *count, dir, device)).collect()
}

/// The rung of this name with its image in a directory.
pub(super) fn rung_in(name: &str, dir: &Path) -> Result<TargetSpec, Failure> {
    let rung = Rung::parse(name)?;
    if rung.base == Base::Device {
        return Err(usage(format!(
            "rung {name} stands on a device: iotax ladder --device DEVICE --rungs {name}"
        )));
    }
    Ok(target(&rung, name.to_owned(), 1, Some(dir), None))
}

fn target(rung: &Rung, name: String, count: u32, dir: Option<&Path>, device: Option<&Path>) -> TargetSpec {
    let mut stack = match rung.base {
        Base::Device => {
            let device = DeviceSpec(device.map(Path::to_path_buf).unwrap_or_default());
            rung.layers.layers().iter().cloned().fold(Stack::from(device), Stack::with)
        }
        Base::Directory => rung.layers.clone(),
    };
    if rung.base == Base::Directory {
        match stack.layers_mut().first_mut() {
            Some(PlannedLayer::File(file)) => file.dir = dir.map(Path::to_path_buf),
            Some(PlannedLayer::Overlay(overlay)) => overlay.dir = dir.map(Path::to_path_buf),
            _ => {}
        }
    }
    if let Some(guest) = stack.find_mut::<GuestSpec>().filter(|_| count != 1) {
        guest.count = count;
    }
    TargetSpec::new(name, stack)
}

/// The targets, with notes on them.
fn rungs(args: &Args) -> Result<LadderTargets, Failure> {
    if let (Some(domain), Some(dir)) = (&args.like, &args.dir) {
        let ladder = from_libvirt::targets(domain, args.like_disk.as_deref(), dir)?;
        if let Some(reason) = no_guests(args, false)? {
            virtio::possible().map_err(|missing| Failure { exit: missing.exit, error: missing.into() })?;
            note!("Its disk without a guest: {reason}");
            return Ok(from_libvirt::without_guests(ladder));
        }
        return Ok(ladder);
    }
    // What is named may be for another machine.
    let is_for_here = !args.print_plan || args.rungs.is_empty();
    let rungs = if is_for_here { possible(args, wanted(args)?)? } else { wanted(args)? };
    Ok(LadderTargets {
        targets: rungs.iter().flat_map(|rung| targets(rung, args)).collect(),
        notes: Vec::new(),
    })
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let LadderTargets { targets, notes } = rungs(args)?;
    let size = args.size.unwrap_or(Bytes(if args.length.is_long() { 4 << 30 } else { 1 << 30 }));
    let mut workloads = args.workloads.clone();
    if workloads.is_empty() && args.curve {
        workloads = vec![CURVED.parse().or_exit(Exit::Usage)?];
    }
    if workloads.is_empty() {
        workloads =
            STANDARD.iter().map(|(name, ..)| name.parse()).collect::<Result<_, _>>().or_exit(Exit::Usage)?;
    }
    let cells = targets.len()
        * workloads.len()
        * if args.curve { CurveSpec::default().points_of(1) as usize } else { 1 };
    let (runtime, ramp_time) = args.length.window(cells, SHORTEST);
    for workload in &mut workloads {
        workload.runtime = runtime;
        workload.ramp_time = ramp_time;
        workload.size = Some(size);
    }
    if targets.is_empty() {
        return Err(usage("no rung is left; give --rungs host-file"));
    }
    let places = [&args.device, &args.dir].into_iter().flatten().map(|path| path.display().to_string());
    let place = places.collect::<Vec<_>>().join(" and ");
    let seed = args.run.session.seed;
    // The bare rung shows the machine itself.
    let control = targets.iter().find(|target| target.guest().is_none() && targets.len() > 1);
    let control = control.map(|target| target.name.clone());
    let plan = Plan { seed, control, ..Plan::new(format!("ladder {place}"), targets, workloads) };
    let plan = if args.curve {
        let curve = CurveSpec { time: Some(args.length.time()), ..CurveSpec::default() };
        let mut plan = Plan { design: Design::Curve(curve), ..plan };
        args.design.apply(&mut plan).and_then(|()| plan.check()).or_exit(Exit::Usage)?;
        plan
    } else {
        args.length.apply(plan, &args.design).or_exit(Exit::Usage)?
    };
    if args.print_plan {
        return print_plan(&plan, &notes);
    }
    notes.iter().for_each(|note| note!("{note}"));
    let permission = args.run.session.overwrite.permission()?;
    args.run.session(plan, permission).carry_out()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_rungs_by_its_name() {
        assert_eq!(formats().len(), 1 + Format::WORDS.len());
        for format in Format::WORDS {
            let rung = Rung::parse(&of_format(format)).unwrap_or_else(|_| panic!("{format}"));
            assert_eq!((rung.base, rung.has_guest()), (Base::Directory, false), "{format}");
            assert!(Rung::parse(&format!("vm-{format}")).is_ok_and(|rung| rung.has_guest()), "{format}");
        }
        for unknown in ["virtio-png", "lxc-vmdk", "vmdk"] {
            assert!(Rung::known(unknown).is_none(), "{unknown}");
        }
    }
}
