//! `iotax fit`: checks storage against the performance limits published for an application.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;

use iotax_model::plan::Plan;
use iotax_model::target::{PathSpec, VirtioSpec};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::words::WordError;
use iotax_model::{IoEngine, TargetSpec};

use super::known_words::text_of;
use super::print_plan::print_plan;
use super::say::{note, print_line};
use super::session::{RunArgs, Session};
use super::target_args;
use super::time::seconds;
use super::{Failure, OrExit, input, usage};

/// Built-in profiles of applications by name: plans without targets.
const PROFILES: [(&str, &str); 4] = [
    ("etcd", include_str!("../../profiles/etcd.toml")),
    ("exchange", include_str!("../../profiles/exchange.toml")),
    ("openshift", include_str!("../../profiles/openshift.toml")),
    ("sqlserver", include_str!("../../profiles/sqlserver.toml")),
];

/// Size of a page of the page cache, in bytes.
const PAGE: u64 = 4096;

/// Flags of `iotax fit`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The application: etcd, exchange, openshift, sqlserver; or a file with workloads and demands, without targets. Without it, all are
    /// listed
    #[arg(value_parser = text_of(PROFILES.map(|(name, _)| name)))]
    application: Option<String>,
    /// Targets: a file, directory or device as for iotax bench; RUNG:DIR for a rung of iotax ladder with its image in a directory, such as
    /// vm-qcow2:/srv/images; the line of a stack; PLAN.toml for all targets of a plan
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// List the applications with their limits
    #[arg(long)]
    list: bool,
    /// Number of rounds [default: the profile's own]
    #[arg(long, value_name = "N", value_parser = super::number::whole::<u32>(1..=1000))]
    repeat: Option<u32>,
    /// Length of each measurement [default: the profile's own]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    runtime: Option<Nanos>,
    /// Size of the area [default: the profile's own]
    #[arg(long)]
    size: Option<Bytes>,
    /// Run the agent under sudo on another machine
    #[arg(long)]
    sudo: bool,
    /// Print the plan as a file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    #[command(flatten)]
    run: RunArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let Some(application) = args.application.as_deref().filter(|_| !args.list) else {
        return list();
    };
    let text = profile(application)?;
    if args.targets.is_empty() {
        return Err(usage(format!(
            "no target: name a directory on the storage in question, such as iotax fit {application} ."
        )));
    }
    let permission = args.run.session.overwrite.permission()?;
    let targets = target_args::targets(&args.targets, args.sudo, &permission)?;
    // Read the profile with a placeholder, because its workloads may not fit these targets yet.
    let plan = Plan::of_profile(&text, vec![nowhere()]);
    let plan = plan.map_err(|error| usage(format!("{application}: {error}")))?;
    if plan.require.is_empty() {
        return Err(usage(format!("{application}: it demands nothing; add a [[require]] table")));
    }
    let baseline = targets[0].name.clone();
    let mut plan = Plan { seed: args.run.session.seed, targets, baseline, ..plan };
    plan.repeat = args.repeat.unwrap_or(plan.repeat);
    for workload in &mut plan.workloads {
        workload.runtime = args.runtime.unwrap_or(workload.runtime);
        workload.size = args.size.or(workload.size);
    }
    add_guest_filesystems(&mut plan);
    leave_out_page_cache(&mut plan);
    plan.check().map_err(|error| usage(format!("{application}: {error}")))?;
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    Session { output: &args.run.output, ..args.run.session(plan, permission) }.carry_out()
}

/// Adds a filesystem to guests without one if a workload is buffered or makes files: an application's files are on a filesystem there, as on
/// the host.
fn add_guest_filesystems(plan: &mut Plan) {
    if plan.workloads.iter().all(|workload| workload.direct && !workload.needs_directory()) {
        return;
    }
    for target in &mut plan.targets {
        if target.stack.add_guest_filesystem() {
            note!("{}: filesystem = ext4 in the guest, for the files of {}", target.name, plan.name);
        }
    }
}

/// Makes buffered workloads use direct I/O in whole pages if any target is a virtio device, whose driver has no page cache.
fn leave_out_page_cache(plan: &mut Plan) {
    let is_virtio = |target: &TargetSpec| target.stack.has::<VirtioSpec>();
    let Some(target) = plan.targets.iter().find(|target| is_virtio(target)) else { return };
    if plan.workloads.iter().all(|workload| workload.direct) {
        return;
    }
    note!(
        "{}: a virtio device's driver has no page cache; the work uses direct I/O in whole pages",
        target.name
    );
    let is_all = plan.targets.iter().all(is_virtio);
    for workload in plan.workloads.iter_mut().filter(|workload| !workload.direct) {
        workload.direct = true;
        workload.bs = Bytes(workload.bs.0.next_multiple_of(PAGE));
        if is_all {
            // The profile's engine is for files, but all targets are virtio devices.
            workload.ioengine = IoEngine::Auto;
        }
    }
}

/// Returns the text of a built-in profile, or of a file if `application` is a path. Fails for an unknown name.
fn profile(application: &str) -> Result<String, Failure> {
    if let Some((_, text)) = PROFILES.iter().find(|(name, _)| *name == application) {
        return Ok((*text).to_owned());
    }
    let path = Path::new(application);
    if path.extension().is_some() || path.components().count() > 1 {
        return input::text(&PathBuf::from(application), input::PLAN);
    }
    Err(WordError::new("application", application, &PROFILES.map(|(name, _)| name))).or_exit(Exit::Usage)
}

/// Lists all applications with their limits and sources.
fn list() -> Result<Exit, Failure> {
    for (name, text) in PROFILES {
        let plan = Plan::of_profile(text, vec![nowhere()]).or_exit(Exit::Usage)?;
        for demand in &plan.require {
            let on = demand.workload.as_ref().map(|workload| format!("{workload}: ")).unwrap_or_default();
            let source = demand.source.as_deref().unwrap_or("no source");
            print_line!("{name:<10} {on}{}  ({source})", demand.keep);
        }
    }
    Ok(Exit::Fine)
}

/// Returns a placeholder target, because a plan needs a target and a profile has none.
fn nowhere() -> TargetSpec {
    TargetSpec::new("any", PathSpec("/any".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_is_a_plan_whose_limits_have_sources() {
        for (name, text) in PROFILES {
            let plan =
                Plan::of_profile(text, vec![nowhere()]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(plan.name, name);
            assert!(
                !plan.require.is_empty() && plan.require.iter().all(|demand| demand.source.is_some()),
                "{name}"
            );
            assert!(text.starts_with("# "), "{name}: it says what it stands for");
        }
    }
}
