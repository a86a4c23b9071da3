//! `iotax flush`: measures the cost of a durable write by each method, and the flushes that each layer passes on.

use clap::Args as ClapArgs;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::suite::{Suite, SuiteOptions};
use iotax_model::target::{NinePSpec, VirtioSpec};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::words::WordError;
use iotax_model::workload::{IoEngine, Workload};

use super::args::DesignArgs;
use super::flags::OwnDefaults;
use super::known_words::text_of;
use super::number;
use super::print_plan::print_plan;
use super::say::note;
use super::session::RunArgs;
use super::target_args::TargetArgs;
use super::time::seconds;
use super::{Failure, OrExit, usage};

/// Name of the suite that has a workload for each method.
const SUITE: &str = "flush";

/// Names of the methods, for shell completion.
const METHODS: [&str; 8] =
    ["open_datasync", "fdatasync", "fsync", "open_sync", "rwf_dsync", "msync", "sync_file_range", "write"];

/// Flags of `iotax flush`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    /// Methods to measure, by pg_test_fsync's names where it has one: open_datasync (O_DIRECT and O_DSYNC), fdatasync, fsync, open_sync
    /// (O_DIRECT and O_SYNC), rwf_dsync (RWF_DSYNC with each write), msync (a copy into a mapping and MS_SYNC), and for comparison
    /// sync_file_range and write, which make nothing durable [default: all that every target takes]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = text_of(METHODS))]
    methods: Vec<String>,
    /// Length of a write
    #[arg(long)]
    bs: Option<Bytes>,
    /// Jobs that commit at the same time, each in its part of the file
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::whole::<u32>(1..=1024))]
    numjobs: u32,
    /// Size of the area, which is laid out first and then overwritten from start to end
    #[arg(long)]
    size: Option<Bytes>,
    /// Number of rounds
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(1..=1000))]
    repeat: Option<u32>,
    /// Length of each measurement
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    runtime: Option<Nanos>,
    /// Warm-up before each measurement, not counted
    #[arg(long, alias = "ramp_time", value_name = "TIME", value_parser = seconds)]
    ramp_time: Option<Nanos>,
    #[command(flatten)]
    design: DesignArgs,
    /// Print the plan as a file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// Returns the defaults of the suite, for help.
pub(super) fn own_defaults() -> OwnDefaults {
    let Ok(suite) = Suite::named(SUITE) else { return Vec::new() };
    let all = (suite.workloads)(&SuiteOptions::default());
    let Some(first) = all.first() else { return Vec::new() };
    let size = first.size.map(|size| ("size", size.to_string()));
    let others = [
        ("bs", first.bs.to_string()),
        ("repeat", suite.repeat.to_string()),
        ("runtime", first.runtime.to_string()),
        ("ramp_time", first.ramp_time.to_string()),
    ];
    size.into_iter().chain(others).collect()
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let permission = args.run.session.overwrite.permission()?;
    let targets = args.targets.read(&permission)?;
    let suite = Suite::named(SUITE).or_exit(Exit::Usage)?;
    let workloads = workloads(args, suite, &targets)?;
    let mut plan = Plan {
        suite: Some(SUITE.into()),
        repeat: args.repeat.unwrap_or(suite.repeat),
        seed: args.run.session.seed,
        ..Plan::new(format!("flush {}", args.targets.paths.join(" ")), targets, workloads)
    };
    args.design.apply(&mut plan).or_exit(Exit::Usage)?;
    plan.check().or_exit(Exit::Usage)?;
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    args.run.session(plan, permission).carry_out()
}

/// Returns a workload for each method of `--methods`; by default for all methods that every target supports.
fn workloads(args: &Args, suite: &Suite, targets: &[TargetSpec]) -> Result<Vec<Workload>, Failure> {
    let is_virtio = |target: &TargetSpec| target.stack.has::<VirtioSpec>();
    let is_direct = targets.iter().any(is_virtio);
    let options = SuiteOptions {
        size: args.size,
        runtime: args.runtime,
        ramp_time: args.ramp_time,
        bs: args.bs,
        jobs: Some(args.numjobs),
        is_direct,
        ..SuiteOptions::default()
    };
    let mut all = (suite.workloads)(&options);
    if let Some(target) = targets.iter().find(|target| is_virtio(target)) {
        note!("{}: a virtio device's driver has no page cache; every method uses direct I/O", target.name);
    }
    if targets.iter().all(is_virtio) {
        // The suite's engine is for files, but all targets are virtio devices.
        all.iter_mut().for_each(|workload| workload.ioengine = IoEngine::Auto);
    }
    if args.methods.is_empty() {
        let refused = |workload: &Workload| {
            let refusal = |target: &TargetSpec| {
                Some((target.name.clone(), target.stack.find::<NinePSpec>()?.refusal(workload)?))
            };
            targets.iter().find_map(refusal)
        };
        for (workload, (name, why)) in all.iter().filter_map(|workload| Some((workload, refused(workload)?)))
        {
            note!("Without {}: {name}: {why}", workload.name);
        }
        all.retain(|workload| refused(workload).is_none());
        return Ok(all);
    }
    let known: Vec<&str> = all.iter().map(|workload| workload.name.as_str()).collect();
    if let Some(unknown) = args.methods.iter().find(|method| !known.contains(&method.as_str())) {
        if METHODS.contains(&unknown.as_str()) {
            return Err(usage(format!(
                "{unknown} goes through the page cache, which a virtio device's driver has not; accepted with one among the targets: {}",
                known.join(", ")
            )));
        }
        return Err(WordError::new("method", unknown, &known)).or_exit(Exit::Usage);
    }
    Ok(all.iter().filter(|workload| args.methods.contains(&workload.name)).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_name_every_method_of_the_suite() {
        let suite = Suite::named(SUITE).expect("known");
        let workloads = (suite.workloads)(&SuiteOptions::default());
        let names: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names, METHODS);
    }
}
