//! `iotax suite`: runs the workloads of a classic benchmark on one or more targets.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::suite::{SUITES, SuiteOptions, SuiteShape};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::words::WordError;
use iotax_model::workload::Workload;
use iotax_model::{Suite, TargetSpec};
use iotax_testbed::postgresql::Programs;

use super::args::DesignArgs;
use super::guest_filesystem::add_filesystem;
use super::known_words::text_of;
use super::number;
use super::output::OutputArgs;
use super::print_plan::print_plan;
use super::say::{note, print_line};
use super::session::{RunArgs, Session};
use super::target_args;
use super::time::seconds;
use super::{Failure, OrExit, usage};

/// Flags of `iotax suite`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Name of the suite; without it, all are listed
    #[arg(value_parser = text_of(SUITES.iter().map(|suite| suite.name)))]
    name: Option<String>,
    /// Targets, the first is the baseline: a file, directory or device, ssh://user@host:port/path or podman://container/path, as for iotax
    /// bench; RUNG:DIR for a rung of iotax ladder with its image in a directory, such as vm-qcow2:/srv/images; PLAN.toml for all targets of
    /// a plan
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// List the suites
    #[arg(long)]
    list: bool,
    /// Run only these tests, such as randread,read [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    tests: Vec<String>,
    /// Size of the test area, for records of the largest file [default: the suite's own]
    #[arg(long)]
    size: Option<Bytes>,
    /// Number of files in tests of files; the largest number if a test has several [default: the suite's own]
    #[arg(long, value_name = "N", value_parser = number::whole::<u64>(1..=1_000_000))]
    nrfiles: Option<u64>,
    /// For records: test small records on files above 32m too
    #[arg(long)]
    all_records: bool,
    /// Number of rounds [default: the suite's own]
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(1..=1000))]
    repeat: Option<u32>,
    /// Length of each measurement; tests that end by themselves take at most this long [default: the suite's own]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    runtime: Option<Nanos>,
    /// Warm-up before each measurement that does not end by itself, not counted [default: the suite's own]
    #[arg(long, alias = "ramp_time", value_name = "TIME", value_parser = seconds)]
    ramp_time: Option<Nanos>,
    #[command(flatten)]
    design: DesignArgs,
    /// Run the agent under sudo on another machine
    #[arg(long)]
    sudo: bool,
    /// Print the suite as a plan file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    /// For bonnie: write the figures as bonnie++'s CSV; - (or no value) is stdout, with nothing else on it
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    csv: Option<PathBuf>,
    /// For records on one target: write the figures in the layout of iozone -R; - (or no value) is stdout
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    excel: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
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
    let permission = args.run.session.overwrite.permission()?;
    let mut workloads = workloads(args, suite)?;
    let mut targets = target_args::targets(&args.targets, args.sudo, &permission)?;
    if let (true, Some(reason)) = (args.tests.is_empty(), without_pgbench(&targets)) {
        for left_out in workloads.extract_if(.., |workload| workload.is_pgbench()) {
            note!("{} is left out: {reason}", left_out.name);
        }
    }
    for target in &mut targets {
        if let Some(words) = add_filesystem(&target.name, &mut target.stack, &workloads) {
            note!("{words}");
        }
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
    let formats = args.run.output.formats.clone().with(classic).or_exit(Exit::Usage)?;
    let output = OutputArgs { formats, ..args.run.output.clone() };
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    Session { output: &output, ..args.run.session(plan, permission) }.carry_out()
}

/// Returns the suite's workloads, or only those of `--tests`.
fn workloads(args: &Args, suite: &Suite) -> Result<Vec<Workload>, Failure> {
    let options = SuiteOptions {
        size: args.size,
        runtime: args.runtime,
        ramp_time: args.ramp_time,
        files: args.nrfiles,
        all_records: args.all_records,
        ..SuiteOptions::default()
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

/// Returns the reason why pgbench cannot run on every target, or is not known to before the run; `None` if it can.
fn without_pgbench(targets: &[TargetSpec]) -> Option<String> {
    if let Some(target) = targets.iter().find(|target| target.is_in_guest()) {
        return Some(format!("{} is a guest, which has no PostgreSQL", target.name));
    }
    if let Some(target) = targets.iter().find(|target| target.remote().is_some()) {
        return Some(format!("{} is on another machine; --tests pgbench uses its PostgreSQL", target.name));
    }
    Programs::find_pgbench().err().map(|error| error.to_string())
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
        seed: args.run.session.seed,
        ..Plan::new(name, targets, workloads)
    };
    args.design.apply(&mut plan).or_exit(Exit::Usage)?;
    plan.check().or_exit(Exit::Usage)?;
    Ok(plan)
}
