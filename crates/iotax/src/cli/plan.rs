//! `iotax plan`: checks or shows a plan without running it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use iotax_interop::jobs::vdbench;
use iotax_model::exit::Exit;
use iotax_model::plan::{self, FleetSpec, LeftOut, Plan, PlanAxis, PlanFile};
use iotax_model::target::Accel;
use iotax_model::units::human;
use iotax_model::visible;
use iotax_model::workload::{Kind, Workload};
use iotax_report::counted;
use iotax_testbed::device::Permission;
use iotax_testbed::target::preflight::{self, Needs};
use iotax_testbed::undo::UndoLog;
use serde_json::{Value, json};

use super::args::{self, GuestArgs, OverwriteArgs, PlanOverrides};
use super::confine::Directories;
use super::estimate;
use super::jobs::{self, JobFlags};
use super::json_args::{JsonArgs, JsonOutput};
use super::say::{self, print_line, say};
use super::session::make_absolute;
use super::signals::watch_signals;
use super::{Failure, OrExit, confirm, input, replay};
use crate::runner;

/// A plan file, a job file or a trace, with overrides from the command line.
#[derive(Debug, Args)]
pub(super) struct PlanInput {
    /// The plan (TOML), a job file of fio, a parameter file of vdbench, or a trace to replay
    plan: PathBuf,
    #[command(flatten)]
    jobs: JobFlags,
    #[command(flatten)]
    overrides: PlanOverrides,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Check a plan and this machine's ability to run it: directories and devices, QEMU and guests' kernels
    Check {
        #[command(flatten)]
        input: PlanInput,
        #[command(flatten)]
        overwrite: OverwriteArgs,
        #[command(flatten)]
        guest: GuestArgs,
    },
    /// Show what a plan would measure, and the time and space that it needs
    Show {
        #[command(flatten)]
        json: JsonArgs,
        /// Print as a plan file, such as to convert a job file
        #[arg(long, conflicts_with = "json")]
        toml: bool,
        #[command(flatten)]
        input: PlanInput,
    },
    /// Print the JSON schema of plans, for editors
    Schema,
}

pub(super) fn main(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Check { input, overwrite, guest } => {
            let permission = overwrite.permission()?;
            check(&input.read(&permission)?, &permission, guest)?;
        }
        Command::Show { json, toml, input } => {
            let json = json.open_without_mark("a plan shown")?;
            let reading = input.read(&Permission::default())?;
            if *toml {
                say::document(&(reading.plan.to_toml().or_exit(Exit::Usage)?.trim_end().to_owned() + "\n"));
            } else {
                show(&reading, &json)?;
            }
        }
        Command::Schema => say::print_json(&plan::schema()),
    }
    Ok(Exit::Fine)
}

impl PlanInput {
    /// Reads a plan file, a job file of fio or vdbench, or a trace, and applies the overrides of the command line.
    pub(super) fn read(&self, permission: &Permission) -> Result<PlanFile, Failure> {
        self.parse(&self.text()?, permission, None)
    }

    /// Reads the plan's text; empty for a trace.
    pub(super) fn text(&self) -> Result<String, Failure> {
        if replay::is_meant(&self.plan) { Ok(String::new()) } else { input::text(&self.plan, input::PLAN) }
    }

    /// Like [`Self::read`], for text that was read before. Refuses included files and traces outside of the directories `confined`, if
    /// given.
    pub(super) fn parse(
        &self,
        text: &str,
        permission: &Permission,
        confined: Option<&Directories>,
    ) -> Result<PlanFile, Failure> {
        let Self { plan: path, jobs, overrides } = self;
        let file_name = path.display();
        let mut overrides = overrides.clone();
        let mut reading = if replay::is_meant(path) {
            let plan = jobs.replay(path, permission)?;
            PlanFile { plan, time: None, axes: Vec::new(), left_out: Vec::new(), fleet: FleetSpec::default() }
        } else if jobs::is_meant(path, text) {
            let is_fios = !vdbench::is_meant(text);
            let size = overrides.size.take_if(|_| is_fios);
            let plan = jobs.plan(path, text, size, permission, confined)?;
            PlanFile { plan, time: None, axes: Vec::new(), left_out: Vec::new(), fleet: FleetSpec::default() }
        } else {
            jobs.refuse_for_plan(path)?;
            Plan::read(text).with_context(|| format!("{file_name} is not a plan")).or_exit(Exit::Usage)?
        };
        overrides.apply(&mut reading).with_context(|| file_name.to_string()).or_exit(Exit::Usage)?;
        if let Some(area) = confined {
            area.check_traces(&reading.plan)?;
        }
        replay::take_over(&mut reading.plan)?;
        Ok(reading)
    }
}

/// Prints which combinations of a plan's axes are left out because they cannot be built, and why.
pub(super) fn say_left_out(left_out: &[LeftOut]) {
    for LeftOut { name, reason } in left_out {
        say!("left out: {name}: {reason}");
    }
}

fn check(reading: &PlanFile, permission: &Permission, guest: &GuestArgs) -> Result<(), Failure> {
    let mut plan = reading.plan.clone();
    make_absolute(&mut plan)?;
    let needs = preflight::check(&plan, permission)
        .map_err(|refusal| Failure { exit: refusal.exit, error: refusal.into() })?;
    if plan.everything().any(|target| target.guest().is_some()) {
        let tag = runner::fresh_tag().or_exit(Exit::Environment)?;
        let mut undo_log = UndoLog::create(&args::undo_dir()?, &tag).or_exit(Exit::Environment)?;
        let checked = runner::check_guests(&guest.options(), &plan, &tag, &mut undo_log);
        undo_log.undo_all();
        checked.or_exit(Exit::Environment)?;
        let stop = watch_signals().or_exit(Exit::Environment)?;
        let obstacle = runner::obstacle_to_kvm(&guest.options(), &args::undo_dir()?, &stop);
        if let Some(reason) = obstacle.or_exit(Exit::Environment)? {
            print_line!(
                "Guests are EMULATED here ({reason}): their figures would say nothing about a real machine."
            );
        }
    }
    say_left_out(&reading.left_out);
    print_line!("{}", totals(&plan, &space(&needs)));
    print_line!("It can be carried out here.");
    Ok(())
}

fn show(reading: &PlanFile, json: &JsonOutput) -> Result<(), Failure> {
    let mut plan = reading.plan.clone();
    make_absolute(&mut plan)?;
    // A plan may be meant for another machine, with other directories and devices.
    let permission = Permission::new(devices(&plan), true);
    let needs = preflight::check(&plan, &permission);
    json.write(|| document(reading, needs.as_ref().map_err(ToString::to_string)))?;
    if json.is_on_stdout() {
        return Ok(());
    }
    let PlanFile { plan, axes, left_out, .. } = reading;
    print_line!("{}", visible::line(&plan.name));
    print_line!("{}", totals(plan, &needs.as_ref().map_or_else(|_| Vec::new(), space)));
    confirm::events(plan).iter().for_each(|event| print_line!("  {event}"));
    confirm::slow_fills(plan).iter().for_each(|fill| print_line!("  {fill}"));
    if let Some(design) = estimate::design(plan) {
        print_line!("{design}");
    }
    if let Err(refusal) = &needs {
        print_line!("Not on this machine: {refusal}");
    }
    if !axes.is_empty() {
        print_line!("\nAxes");
        for PlanAxis { of, key, values } in axes {
            print_line!("  {of:<24} {key} = {}", values.join(", "));
        }
    }
    print_line!("\nTargets");
    for (index, target) in plan.targets.iter().enumerate() {
        let baseline = if target.name == plan.baseline { "; baseline" } else { "" };
        print_line!("  {:<24} {}{baseline}", target.name, target.description());
        if let Some(like) = like(plan, index) {
            print_line!("  {:<24} {like}", "");
        }
    }
    print_line!("\nWorkloads");
    for workload in &plan.workloads {
        print_line!("  {:<24} {}", visible::line(&workload.name), work(workload));
    }
    if !plan.require.is_empty() {
        print_line!("\nDemands");
    }
    for demand in &plan.require {
        let workload = demand.workload.as_deref().unwrap_or(&plan.workloads[0].name);
        print_line!("  {:<24} {}", visible::line(workload), demand.keep);
    }
    if !plan.neighbours.is_empty() {
        print_line!("\nNeighbours");
    }
    for neighbour in &plan.neighbours {
        let (name, description) = (&neighbour.target.name, neighbour.target.description());
        print_line!("  {name:<24} {description}: {}", work(&neighbour.workload));
    }
    if !left_out.is_empty() {
        print_line!("\nLeft out");
    }
    for LeftOut { name, reason } in left_out {
        print_line!("  {name:<24} {reason}");
    }
    Ok(())
}

fn devices(plan: &Plan) -> Vec<PathBuf> {
    plan.everything().filter_map(|target| target.device().map(Path::to_owned)).collect()
}

/// Formats the numbers of targets, workloads and measurements, the time and the space in one line.
fn totals(plan: &Plan, space: &[String]) -> String {
    // For curves and searches, the number of measurements depends on the targets' capacity.
    let of_rounds = if plan.finds_rates() {
        String::new()
    } else {
        format!(" x {} rounds = {} measurements", estimate::rounds(plan), estimate::measurements(plan))
    };
    format!(
        "{} x {}{of_rounds}, {}{}",
        counted(plan.targets.len() as u64, "target"),
        counted(plan.workloads.len() as u64, "workload"),
        estimate::time(plan, 0, Some(Accel::Auto)),
        if space.is_empty() { String::new() } else { format!(", {}", space.join(", ")) }
    )
}

fn seconds(plan: &Plan) -> f64 {
    runner::estimate_seconds(plan, plan.repeat, 0, Some(Accel::Auto))
}

fn space(needs: &Needs) -> Vec<String> {
    let space_line =
        |(dir, bytes): (&PathBuf, &u64)| format!("{} in {}", human::bytes(*bytes), dir.display());
    needs.space.iter().map(space_line).collect()
}

/// Describes how a target differs from the most similar earlier one: `like host-file, but ...`. `None` without an earlier target.
fn like(plan: &Plan, target: usize) -> Option<String> {
    let (other, differences) = plan.most_like(target)?;
    if differences.is_empty() {
        return Some(format!("the same as {}", other.name));
    }
    let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
    Some(format!("like {}, but {}", other.name, differences.join(", ")))
}

/// Describes the concurrent jobs of a workload, joined by ` + `.
fn work(workload: &Workload) -> String {
    workload.jobs().map(job).collect::<Vec<_>>().join(" + ")
}

fn job(workload: &Workload) -> String {
    let jobs = if workload.numjobs == 1 { String::new() } else { format!(", {} jobs", workload.numjobs) };
    let rate = workload.rate_iops.map(|rate| format!(", {rate} IOPS")).unwrap_or_default();
    if let Some(trace) = &workload.read_iolog {
        let (scale, depth, pace) = (workload.replay_time_scale, workload.iodepth, workload.replay_pace);
        return format!(
            "replay of {trace} ({pace}, {}) at {scale}% of its speed, iodepth {depth}, at most {}",
            workload.replay_offsets, workload.runtime
        );
    }
    let work = match workload.kind {
        Kind::Block => format!("{} {}, iodepth {}", workload.rw, workload.lengths(), workload.iodepth),
        Kind::Files(_) | Kind::Foreign | Kind::Streams(_) | Kind::RoundTrips(_) => workload.doing(),
    };
    format!("{work}{jobs}{rate}, {} after {}", workload.runtime, workload.ramp_time)
}

fn document(reading: &PlanFile, needs: Result<&Needs, String>) -> Value {
    let PlanFile { plan, axes, left_out, .. } = reading;
    let targets = plan.targets.iter().enumerate().map(|(index, target)| {
        let mut value = json!({ "name": target.name, "description": target.description() });
        if let Some((other, differences)) = plan.most_like(index) {
            value["like"] = json!({ "name": other.name, "differences": differences });
        }
        value
    });
    let mut document = json!({
        "name": plan.name,
        "baseline": plan.baseline,
        "rounds": plan.repeat,
        "targets": targets.collect::<Vec<_>>(),
        "workloads": plan.workloads,
        "neighbours": plan.neighbours,
        "require": plan.require,
        "looks": plan.looks(),
        "margin": plan.margin,
        "measurements": plan.cells() * plan.repeat as usize,
        "seconds": seconds(plan).round(),
        "axes": axes,
        "left_out": left_out,
    });
    if let Some(most) = estimate::most_seconds(plan, 0, Some(Accel::Auto)) {
        document["most_measurements"] = json!(plan.cells() * plan.most_rounds() as usize);
        document["most_seconds"] = json!(most.round());
    }
    match needs {
        Ok(needs) => document["space_bytes"] = json!(needs.space),
        Err(refusal) => document["refused"] = json!(refusal),
    }
    document
}
