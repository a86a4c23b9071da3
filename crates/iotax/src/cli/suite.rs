//! `iotax suite`: workloads that belong together, on one target or several.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::suite::{SUITES, SuiteOptions, SuiteShape};
use iotax_model::target::GuestFs;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::words::WordError;
use iotax_model::workload::{Test, Workload};
use iotax_model::{Suite, TargetSpec};

use super::args::{Design, Guest, SessionArgs};
use super::output::Output;
use super::print_plan::print_plan;
use super::say::{print_line, say};
use super::session::Session;
use super::target_args;
use super::{Failure, OrExit, usage};

/// Flags of `iotax suite`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The suite; without one, all are listed
    name: Option<String>,
    /// Where: a file, directory or device as for iotax bench, here or as ssh://user@host:port/path; RUNG:DIR for a rung of iotax
    /// ladder with its image in a directory, such as vm-qcow2:/srv/images; PLAN.toml for all targets of a plan. The first is the
    /// baseline
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// List the suites
    #[arg(long)]
    list: bool,
    /// Only these tests of it, such as randread,read [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    tests: Vec<String>,
    /// Length of the area; of records the largest file [default: the suite's own]
    #[arg(long)]
    size: Option<Bytes>,
    /// How many files a test of files makes; of several numbers the largest
    #[arg(long, value_name = "N")]
    nrfiles: Option<u64>,
    /// Of records: small records for files above 32m too
    #[arg(long)]
    all_records: bool,
    /// Number of rounds [default: the suite's own]
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// How long each measurement is that has no end of its own; for those that have one, how long at most
    #[arg(long, value_name = "TIME")]
    runtime: Option<Nanos>,
    /// Warm-up before each measurement that has no end of its own, not counted
    #[arg(long, alias = "ramp_time", value_name = "TIME")]
    ramp_time: Option<Nanos>,
    #[command(flatten)]
    design: Design,
    /// On another machine, run the agent under sudo
    #[arg(long)]
    sudo: bool,
    /// Print the suite as a plan file, to be edited and carried out with iotax run
    #[arg(long)]
    print_plan: bool,
    /// Of bonnie: write the figures as bonnie++'s CSV; - (or no value) is stdout, which then carries nothing else
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    csv: Option<PathBuf>,
    /// Of records, on one target: write the figures as iozone -R lays them out; - (or no value) is stdout
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    excel: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    guest: Guest,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let Some(name) = args.name.as_deref().filter(|_| !args.list) else {
        SUITES.iter().for_each(|suite| print_line!("{:<9} {}", suite.name, suite.help));
        return Ok(Exit::Fine);
    };
    let suite = Suite::named(name).or_exit(Exit::Usage)?;
    if args.targets.is_empty() {
        return Err(usage(format!(
            "no target: name a directory on the storage in question, such as iotax suite {name} ."
        )));
    }
    let permission = args.session.overwrite.permission().or_exit(Exit::Environment)?;
    let workloads = workloads(args, suite)?;
    let mut targets = target_args::targets(&args.targets, args.sudo, &permission)?;
    for note in with_filesystems(&mut targets, &workloads)? {
        say!("{note}");
    }
    let plan = plan_of(args, suite, targets, workloads)?;
    if args.excel.is_some() && (suite.shape != SuiteShape::Files || plan.targets.len() > 1) {
        return Err(usage("--excel: iozone's layout is for suite records on one target"));
    }
    if args.csv.is_some() && suite.name != "bonnie" {
        return Err(usage(
            "--csv: bonnie++'s CSV is for suite bonnie; for tables of any run: iotax export RUN --format csv",
        ));
    }
    let classic = args.csv.clone().map(|path| ("bonnie-csv", path));
    let classic = classic.or_else(|| args.excel.clone().map(|path| ("iozone-excel", path)));
    let foreign = args.output.foreign.clone().with(classic).or_exit(Exit::Usage)?;
    let output = Output { foreign, ..args.output.clone() };
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    let session = Session::new(plan, &output, &args.session, permission);
    Session { guests: args.guest.options(), report: true, ..session }.carry_out()
}

/// The suite's workloads, or those of the tests that were asked for.
fn workloads(args: &Args, suite: &Suite) -> Result<Vec<Workload>, Failure> {
    let options = SuiteOptions {
        size: args.size,
        runtime: args.runtime,
        ramp_time: args.ramp_time,
        files: args.nrfiles,
        all_records: args.all_records,
    };
    let all = (suite.workloads)(&options);
    if all.is_empty() {
        return Err(usage(format!(
            "--size {}: too small for suite {}",
            args.size.unwrap_or_default(),
            suite.name
        )));
    }
    if args.tests.is_empty() {
        return Ok(all);
    }
    let known: Vec<&str> = suite.tests(&all).iter().map(|(test, _)| *test).collect();
    if let Some(unknown) = args.tests.iter().find(|test| !known.contains(&test.as_str())) {
        return Err(WordError::new("test", unknown, &known)).or_exit(Exit::Usage);
    }
    Ok(all.iter().filter(|w| args.tests.iter().any(|test| test == suite.test(w))).cloned().collect())
}

fn plan_of(
    args: &Args,
    suite: &Suite,
    targets: Vec<TargetSpec>,
    workloads: Vec<Workload>,
) -> Result<Plan, Failure> {
    let name = format!("suite {} {}", suite.name, args.targets.join(" "));
    let mut plan = Plan {
        suite: Some(suite.name.into()),
        repeat: args.repeat.unwrap_or(suite.repeat),
        seed: args.session.seed,
        ..Plan::new(name, targets, workloads)
    };
    args.design.apply(&mut plan).or_exit(Exit::Usage)?;
    plan.check().or_exit(Exit::Usage)?;
    Ok(plan)
}

/// Gives guests a filesystem where the workloads make files, and refuses what cannot have one. What was done, in words.
fn with_filesystems(targets: &mut [TargetSpec], workloads: &[Workload]) -> Result<Vec<String>, Failure> {
    let files =
        workloads.iter().find_map(|w| Some((w, w.test.filter(|test: &Test| test.needs_directory())?)));
    let Some((workload, _)) = files else { return Ok(Vec::new()) };
    let mut notes = Vec::new();
    for target in targets {
        let name = target.name.clone();
        if let Some(guest) = &mut target.guest {
            if guest.filesystem.is_none() {
                guest.filesystem = Some(GuestFs::Ext4);
                notes.push(format!(
                    "{name}: filesystem = ext4 in the guest, for {} makes files",
                    workload.name
                ));
            }
        } else if target.file.is_none() && target.path.as_ref().is_none_or(|path| path.exists()) {
            return Err(usage(format!(
                "{name}: {} makes files, which needs a directory; name one on that storage, or leave such tests out with --tests",
                workload.name
            )));
        }
    }
    Ok(notes)
}
