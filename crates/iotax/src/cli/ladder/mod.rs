//! `iotax ladder`: builds the same storage in several ways and runs the same work on each.

mod rungs;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::Args as ClapArgs;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::plan::{CurveSpec, Design, Plan};
use iotax_model::suite::{APPLICATIONS, SuiteOptions};
use iotax_model::target::PlannedDevice;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::words::WordError;
use iotax_model::workload::{Kind, STANDARD, Workload};
use iotax_testbed::refusal::Refusal;
use iotax_testbed::target::{preflight, virtio};

use super::args::{DesignArgs, LengthArgs, tell_apart, undo_dir};
use super::from_libvirt::{self, LadderTargets};
use super::guest_filesystem::add_filesystem;
use super::known_words::text_of;
use super::print_plan::print_plan;
use super::say::note;
use super::session::RunArgs;
use super::signals::watch_signals;
use super::{Failure, OrExit, usage};
use crate::causes::with_causes;
use crate::runner::{self, Interrupted};
use rungs::{Base, Rung};

pub(super) use rungs::{is_rung, rung_in};

/// Flags of `iotax ladder`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A directory on the storage to measure; optional with --device
    #[arg(required_unless_present = "device")]
    dir: Option<PathBuf>,
    /// Add rungs on this block device, raw and with LVM; name it with --overwrite too
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
    /// Size of each rung's disk [default: 1GiB, 4GiB with a --time of an hour or more, 256MiB with --everything]
    #[arg(long)]
    size: Option<Bytes>,
    #[command(flatten)]
    length: LengthArgs,
    #[command(flatten)]
    design: DesignArgs,
    /// Rungs to build, the first is the baseline: host-file, virtio-raw, virtio-qcow2, virtio-qcow2-snapshot, vm-raw, vm-qcow2,
    /// vm-qcow2-snapshot, with --device also host-device, host-lvm, host-lvm-file, vm-device, vm-lvm; host-overlay as in a container,
    /// host-ext4, host-nfs, host-smb, host-loop, host-luks, host-integrity, host-dm-cache, host-dm-writecache, host-raid1, host-zvol, host-zfs,
    /// host-nvme-tcp, fuse-raw, nbd-raw, nbd-kernel, iscsi-raw, nfs-raw, rbd-raw, in a Xen domain xen-pv-loop, xen-pv-raw, xen-pv-qcow2,
    /// xen-pvh-loop; virtio-vmdk, vm-vhdx and so on for other formats; or the layers of one, such as "raw file > loop direct_io=true"
    /// [default: the first seven on DIR, and those of --device; host-ext4 too if workloads make files]
    #[arg(long, value_name = "LIST", value_parser = text_of(rungs::names()))]
    rungs: Vec<String>,
    /// Measure new images set up like the disk of this libvirt domain, and alternatives to it: a file with its XML, or its
    /// name for virsh dumpxml
    #[arg(long, value_name = "DOMAIN", conflicts_with_all = ["rungs", "device"])]
    like: Option<String>,
    /// The domain's disk, such as vda [default: the first]
    #[arg(long, value_name = "TARGET", requires = "like")]
    like_disk: Option<String>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = text_of(names(&known_workloads(&SuiteOptions::default()))), help = help_of_workloads())]
    workloads: Vec<String>,
    /// Measure latency against load on each rung, from idle to beyond its capacity; with randread-4k-qd32 unless --workloads names others
    #[arg(long, conflicts_with_all = ["repeat", "until_decided", "until_steady"])]
    curve: bool,
    /// Run this many guests at once on each rung with guests, each with its own disk; a list makes a rung for each number
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    guests: Vec<u32>,
    /// Build every image format that iotax makes, through QEMU's block layer, and a plain file as the baseline
    #[arg(long, conflicts_with_all = ["rungs", "device", "like", "emulated", "guests"])]
    formats: bool,
    /// Build every rung that this machine can build; a note names the others, with the reason
    #[arg(long, conflicts_with_all = ["rungs", "formats", "like", "guests"])]
    everything: bool,
    /// Build the rungs with guests also where they would be emulated; their figures do not apply to a real machine
    #[arg(long, conflicts_with = "rungs")]
    emulated: bool,
    /// Print the ladder as a plan file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// Default workload of `--curve`, with enough I/Os in flight to reach a rung's capacity.
const CURVED: &str = "randread-4k-qd32";

/// Minimum length of a measurement that is derived from the total time. Most noise lasts longer, so many short measurements are better than
/// a few long ones.
const SHORTEST: Nanos = Nanos::from_millis(250);

/// Splits a list at commas, except within double quotes.
fn items(list: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let at_comma = |c: char| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    };
    list.split(at_comma).map(str::trim).collect()
}

/// Returns the workloads that `--workloads` takes: the standard ones, and those of the suite `applications` with these options.
fn known_workloads(options: &SuiteOptions) -> Vec<Workload> {
    let standard = STANDARD.iter().filter_map(|(name, ..)| name.parse().ok());
    standard.chain((APPLICATIONS.workloads)(options)).collect()
}

fn names(workloads: &[Workload]) -> Vec<&str> {
    workloads.iter().map(|workload| workload.name.as_str()).collect()
}

fn help_of_workloads() -> String {
    let known = known_workloads(&SuiteOptions::default());
    let (standard, applications) = known.split_at(STANDARD.len());
    format!(
        "Workloads to run: {}, or those of iotax suite applications: {} [default: the first five]",
        names(standard).join(", "),
        names(applications).join(", ")
    )
}

/// Rungs that are left out, by the reason.
#[derive(Default)]
struct LeftOut(Vec<(String, Vec<String>)>);

impl LeftOut {
    fn add(&mut self, rung: &Rung, reason: String) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(rung.name.clone()),
            None => self.0.push((reason, vec![rung.name.clone()])),
        }
    }

    fn tell(&self) {
        for (reason, names) in &self.0 {
            note!("Without {}: {reason}", names.join(", "));
        }
    }
}

/// Leaves out rungs that cannot carry the workloads, such as raw disks for workloads that make files. Fails for a rung that the user named.
fn carrying(args: &Args, mut rungs: Vec<Rung>, workloads: &[Workload]) -> Result<Vec<Rung>, Failure> {
    let work: Vec<&Workload> = workloads.iter().collect();
    let target = |rung: &Rung| rung.target(rung.name.clone(), 1, args.dir.as_deref(), args.device.as_deref());
    let check = |target: &TargetSpec| target.check().and_then(|()| target.check_work(&work));
    if !args.rungs.is_empty() {
        rungs.iter().try_for_each(|rung| check(&target(rung)?).or_exit(Exit::Usage))?;
        return Ok(rungs);
    }
    let mut left_out = LeftOut::default();
    rungs.retain(|rung| {
        // What cannot be built by any means is reported when the run is refused.
        let Ok(target) = target(rung) else { return true };
        check(&target).map_err(|error| left_out.add(rung, error.reason().to_owned())).is_ok()
    });
    left_out.tell();
    Ok(rungs)
}

/// Returns the rungs that the options select; by default the usual ones that the given directory and device allow.
fn wanted(args: &Args, workloads: &[Workload]) -> Result<Vec<Rung>, Failure> {
    let is_there = |rung: &Rung| match rung.base {
        Base::Device => args.device.is_some(),
        Base::Directory => args.dir.is_some(),
        Base::Own => true,
    };
    if args.formats {
        return Ok(rungs::formats());
    }
    if args.rungs.is_empty() {
        let makes_files = || workloads.iter().any(Workload::needs_directory);
        let all = if args.everything { rungs::everything() } else { rungs::usual(makes_files()) };
        return Ok(all.into_iter().filter(is_there).collect());
    }
    let find = |text: &str| {
        let rung = Rung::parse(text)?;
        match rung.base {
            _ if is_there(&rung) => Ok(rung),
            Base::Device => Err(usage(format!("rung {text} needs --device DEVICE --overwrite DEVICE"))),
            Base::Directory | Base::Own => {
                Err(usage(format!("rung {text} needs a directory: iotax ladder DIR")))
            }
        }
    };
    let mut rungs: Vec<Rung> =
        args.rungs.iter().flat_map(|list| items(list)).map(find).collect::<Result<_, _>>()?;
    tell_apart(rungs.iter_mut().map(|rung| &mut rung.name));
    Ok(rungs)
}

/// Leaves out rungs that this machine cannot build, except rungs that the user named. Rungs with guests are left out first, for the reason
/// of [`no_guests`]. Keeps the other rungs if none of them would be left, or none on the device that the user named: the run then reports
/// the reason. Fails if guests that the user asked for cannot boot.
fn possible(args: &Args, mut rungs: Vec<Rung>, workloads: &[Workload]) -> Result<Vec<Rung>, Failure> {
    let asked = !args.rungs.is_empty();
    if rungs.iter().any(Rung::has_guest)
        && let Some(reason) = no_guests(args, asked)?
    {
        rungs.retain(|rung| !rung.has_guest());
        note!("Without guests: {reason}");
    }
    if asked {
        return Ok(rungs);
    }
    let permission = args.run.session.overwrite.permission()?;
    let mut left_out = LeftOut::default();
    let is_possible = |rung: &Rung| {
        // What cannot be built by any means is reported when the run is refused.
        let Ok(target) = rung.target(rung.name.clone(), 1, args.dir.as_deref(), args.device.as_deref())
        else {
            return true;
        };
        let plan = Plan::new(rung.name.clone(), vec![target], workloads.to_vec());
        let device = plan.targets[0].planned_device();
        let bootable = match device {
            PlannedDevice::Directory(_) => runner::guests_possible_with(&args.run.guest.options(), device),
            _ => Ok(()),
        };
        let checked = preflight::check(&plan, &permission).map(drop);
        match checked.and(bootable.map_err(|error| Refusal::environment(with_causes(&error)))) {
            Err(refusal) if refusal.exit == Exit::Environment => {
                left_out.add(rung, refusal.to_string());
                false
            }
            // Errors that the user can fix are reported when the run is refused.
            _ => true,
        }
    };
    let mut there = rungs.clone();
    there.retain(is_possible);
    // If nothing can be built, or nothing on the device that the user named, the directory or device is wrong, and the run reports that.
    let on_device = |rungs: &[Rung]| rungs.iter().any(|rung| rung.base == Base::Device);
    if there.is_empty() || on_device(&rungs) && !on_device(&there) {
        return Ok(rungs);
    }
    left_out.tell();
    Ok(there)
}

/// Returns the reason to leave out rungs with guests: this machine cannot boot guests, or cannot run them with KVM. `None` to include the
/// rungs. If the user asked for guests, only checks that they can boot, and fails if not.
fn no_guests(args: &Args, asked: bool) -> Result<Option<String>, Failure> {
    let options = args.run.guest.options();
    let is_wanted = asked || args.emulated || args.guests != [1] || args.run.guest.is_specific();
    match runner::guests_possible(&options) {
        Err(missing) if is_wanted => Err(Failure { exit: Exit::Environment, error: missing }),
        Err(missing) => Ok(Some(with_causes(&missing))),
        Ok(()) if is_wanted => Ok(None),
        // If the run will be refused anyway, do not wait for a test guest.
        Ok(()) if is_refused(args) => Ok(None),
        Ok(()) => {
            let stop = watch_signals().or_exit(Exit::Environment)?;
            let obstacle = runner::obstacle_to_kvm(&options, &undo_dir()?, &stop);
            if stop.load(Ordering::Relaxed) {
                return Err(Interrupted).or_exit(Exit::Interrupted);
            }
            let obstacle = obstacle.or_exit(Exit::Environment)?;
            Ok(obstacle.map(|reason| {
                format!("{reason}; emulated, they would say nothing about a real machine (--emulated)")
            }))
        }
    }
}

/// Returns whether a run would be refused because the directory does not exist.
fn is_refused(args: &Args) -> bool {
    !args.print_plan && args.dir.as_ref().is_some_and(|dir| !dir.is_dir())
}

/// Returns the targets of a rung: one, or for a rung with guests one for each number in `--guests`.
fn targets(rung: &Rung, args: &Args) -> Result<Vec<TargetSpec>, Failure> {
    let numbers = if rung.has_guest() { args.guests.as_slice() } else { &[1] };
    let many = numbers.len() > 1;
    let named = |count: &u32| if many { format!("{}-{count}", rung.name) } else { rung.name.clone() };
    let (dir, device) = (args.dir.as_deref(), args.device.as_deref());
    numbers.iter().map(|count| rung.target(named(count), *count, dir, device)).collect()
}

/// Returns the targets of all rungs with notes on them; with `--like`, targets modelled on a libvirt domain's disk.
fn ladder_targets(args: &Args, workloads: &[Workload]) -> Result<LadderTargets, Failure> {
    if let (Some(domain), Some(dir)) = (&args.like, &args.dir) {
        let mut ladder = from_libvirt::targets(domain, args.like_disk.as_deref(), dir)?;
        if let Some(reason) = no_guests(args, false)? {
            virtio::possible().map_err(|missing| Failure { exit: missing.exit, error: missing.into() })?;
            note!("Its disk without a guest: {reason}");
            return Ok(from_libvirt::without_guests(ladder));
        }
        let add =
            |target: &mut TargetSpec| add_filesystem(&target.name.clone(), &mut target.stack, workloads);
        ladder.notes.extend(ladder.targets.iter_mut().filter_map(add));
        return Ok(ladder);
    }
    let mut rungs = wanted(args, workloads)?;
    let add =
        |rung: &mut Rung| Some((rung.name.clone(), add_filesystem(&rung.name, &mut rung.layers, workloads)?));
    let notes: Vec<(String, String)> = rungs.iter_mut().filter_map(add).collect();
    rungs = carrying(args, rungs, workloads)?;
    // Rungs that the user named for a printed plan may be for another machine.
    if !args.print_plan || args.rungs.is_empty() {
        rungs = possible(args, rungs, workloads)?;
    }
    let is_built = |name: &str| rungs.iter().any(|rung| rung.name == name);
    Ok(LadderTargets {
        notes: notes.into_iter().filter(|(name, _)| is_built(name)).map(|(_, note)| note).collect(),
        targets: rungs.iter().map(|rung| targets(rung, args)).collect::<Result<Vec<_>, _>>()?.concat(),
    })
}

/// Returns the requested workloads, or the usual ones. The standard ones use the whole disk of a rung; applications have sizes and lengths of
/// their own, of which `--runtime` and `--ramp-time` change the lengths.
fn workloads(args: &Args) -> Result<Vec<Workload>, Failure> {
    let LengthArgs { runtime, ramp_time, .. } = args.length;
    let known = known_workloads(&SuiteOptions { runtime, ramp_time, ..SuiteOptions::default() });
    let usual: &[&str] = if args.curve { &[CURVED] } else { &STANDARD.map(|(name, ..)| name) };
    let asked: Vec<&str> = args.workloads.iter().map(String::as_str).collect();
    let find = |name: &&str| {
        let found = known.iter().find(|workload| workload.name == *name).cloned();
        found.ok_or_else(|| WordError::new("workload", name, &names(&known)))
    };
    let asked = if asked.is_empty() { usual } else { &asked };
    let mut workloads: Vec<Workload> =
        asked.iter().map(find).collect::<Result<_, _>>().or_exit(Exit::Usage)?;
    let usual = match (args.everything, args.length.is_long()) {
        (true, _) => 256 << 20,
        (false, true) => 4 << 30,
        (false, false) => 1 << 30,
    };
    let size = args.size.unwrap_or(Bytes(usual));
    standard(&mut workloads).for_each(|workload| workload.size = Some(size));
    Ok(workloads)
}

/// Iterates over the workloads that are no application.
fn standard(workloads: &mut [Workload]) -> impl Iterator<Item = &mut Workload> {
    workloads.iter_mut().filter(|workload| workload.kind == Kind::Block)
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let mut workloads = workloads(args)?;
    let LadderTargets { targets, notes } = ladder_targets(args, &workloads)?;
    let cells = targets.len()
        * workloads.len()
        * if args.curve { CurveSpec::default().points_of(1) as usize } else { 1 };
    let (runtime, ramp_time) = args.length.window(cells, SHORTEST);
    for workload in standard(&mut workloads) {
        workload.runtime = runtime;
        workload.ramp_time = ramp_time;
    }
    if targets.is_empty() {
        return Err(usage("no rung is left; give --rungs host-file"));
    }
    let paths = [&args.device, &args.dir].into_iter().flatten().map(|path| path.display().to_string());
    let path_list = paths.collect::<Vec<_>>().join(" and ");
    let seed = args.run.session.seed;
    // A rung without a guest serves as the control, which shows changes of the machine itself.
    let control = targets.iter().find(|target| !target.is_in_guest() && targets.len() > 1);
    let control = control.map(|target| target.name.clone());
    let plan = Plan { seed, control, ..Plan::new(format!("ladder {path_list}"), targets, workloads) };
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
    use super::items;

    #[test]
    fn a_comma_in_quotes_separates_nothing() {
        assert_eq!(
            items("host-file, \"/a,b\" > raw file,luks"),
            ["host-file", "\"/a,b\" > raw file", "luks"]
        );
    }
}
