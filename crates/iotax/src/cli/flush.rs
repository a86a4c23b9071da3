//! `iotax flush`: measures the cost of a durable write by each method, and the flushes that each layer passes on.

use std::fmt::{self, Display};

use clap::Args as ClapArgs;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::plan::{MOST, MOST_MEASUREMENTS, Plan};
use iotax_model::suite::{METHODS, Suite, SuiteOptions};
use iotax_model::target::{LayerInterface, NinePSpec, VirtioSpec};
use iotax_model::units::human::listed;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::words::WordError;
use iotax_model::workload::{FileLayout, IoEngine, SyncMode, Workload};

use super::args::DesignArgs;
use super::flags::OwnDefaults;
use super::known_words::{known_words, text_of};
use super::print_plan::print_plan;
use super::say::note;
use super::session::RunArgs;
use super::target_args::TargetArgs;
use super::time::seconds;
use super::{Failure, OrExit, estimate, number, usage};

/// Name of the suite that has a workload for each method.
const SUITE: &str = "flush";

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
    /// Lengths of a write, such as 512,4k,64k: each method is measured with each
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    bs: Vec<Bytes>,
    /// Writes in flight, such as 1,8,32, each durable when it is acknowledged; above 1 only for open_datasync and open_sync
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = number::whole::<u32>(1..=4096))]
    iodepth: Vec<u32>,
    /// Jobs that commit at the same time, such as 1,4,16, each in its part of the file
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = number::whole::<u32>(1..=1024))]
    numjobs: Vec<u32>,
    /// States of the file before each measurement: filled (overwrite), allocated or keep (preallocated within its length, or beyond its end),
    /// sparse, empty (a new file that grows). With any but filled the area is written once, without a warm-up
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "filled", value_parser = known_words(str::parse::<FileLayout>, FileLayout::WORDS.iter().copied()))]
    layout: Vec<FileLayout>,
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
    args.check_lists()?;
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
    check_number(&plan)?;
    plan.check().or_exit(Exit::Usage)?;
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    args.run.session(plan, permission).carry_out()
}

impl Args {
    /// Refuses values that are listed twice, and more combinations of them than a plan may have workloads.
    fn check_lists(&self) -> Result<(), Failure> {
        no_duplicate("bs", &self.bs)?;
        no_duplicate("iodepth", &self.iodepth)?;
        no_duplicate("numjobs", &self.numjobs)?;
        no_duplicate("layout", &self.layout)?;
        let lists = [self.bs.len().max(1), self.iodepth.len(), self.numjobs.len(), self.layout.len()];
        let points = lists.iter().fold(1_usize, |product, values| product.saturating_mul(*values));
        if points > MOST {
            return Err(usage(format!(
                "--bs, --iodepth, --numjobs and --layout make {points} combinations for each method; accepted: up to {MOST} workloads in all"
            )));
        }
        Ok(())
    }
}

fn no_duplicate<T: PartialEq + Display>(flag: &str, values: &[T]) -> Result<(), Failure> {
    let again = values.iter().enumerate().find(|(index, value)| values[..*index].contains(value));
    again.map_or(Ok(()), |(_, value)| Err(usage(format!("--{flag} has {value} twice"))))
}

/// Refuses a sweep of more workloads than a plan may have, or of more measurements than a run, with its time.
fn check_number(plan: &Plan) -> Result<(), Failure> {
    let most = plan.cells() * plan.most_rounds() as usize;
    if plan.workloads.len() <= MOST && most <= MOST_MEASUREMENTS {
        return Ok(());
    }
    Err(usage(format!(
        "{} workloads on {} targets are {} measurements, {}; accepted: up to {MOST} workloads and {MOST_MEASUREMENTS} measurements. Give fewer \
         values, or --methods",
        plan.workloads.len(),
        plan.targets.len(),
        estimate::measurements(plan),
        estimate::time(plan, 0, None)
    )))
}

/// Returns a workload for each method of `--methods`, by default for all methods that every target supports, at each combination of sizes,
/// depths, jobs and layouts that it can be measured with.
fn workloads(args: &Args, suite: &Suite, targets: &[TargetSpec]) -> Result<Vec<Workload>, Failure> {
    let is_virtio = |target: &TargetSpec| target.stack.has::<VirtioSpec>();
    let is_direct = targets.iter().any(is_virtio);
    check_new_files(args, targets)?;
    let options = SuiteOptions {
        size: args.size,
        runtime: args.runtime,
        ramp_time: args.ramp_time,
        bs: args.bs.clone(),
        jobs: args.numjobs.clone(),
        depths: args.iodepth.clone(),
        layouts: args.layout.clone(),
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
    let known: Vec<&str> = suite.tests(&all).iter().map(|(method, _)| *method).collect();
    if let Some(unknown) = args.methods.iter().find(|method| !known.contains(&method.as_str())) {
        if METHODS.contains(&unknown.as_str()) {
            return Err(usage(format!(
                "{unknown} goes through the page cache, which a virtio device's driver has not; accepted with one among the targets: {}",
                known.join(", ")
            )));
        }
        return Err(WordError::new("method", unknown, &known)).or_exit(Exit::Usage);
    }
    if args.methods.is_empty() {
        all = without_refused(all, suite, targets);
    } else {
        all.retain(|workload| args.methods.iter().any(|method| method == suite.test(workload)));
    }
    possible(args, &all, suite)
}

/// Leaves out methods that a target refuses, and says so.
fn without_refused(all: Vec<Workload>, suite: &Suite, targets: &[TargetSpec]) -> Vec<Workload> {
    let refused = |workload: &Workload| {
        let refusal = |target: &TargetSpec| {
            Some((target.name.clone(), target.stack.find::<NinePSpec>()?.refusal(workload)?))
        };
        targets.iter().find_map(refusal)
    };
    for (method, workloads) in suite.tests(&all) {
        if let Some((name, why)) = workloads.first().and_then(|workload| refused(workload)) {
            note!("Without {method}: {name}: {why}");
        }
    }
    all.into_iter().filter(|workload| refused(workload).is_none()).collect()
}

/// Refuses unwritten layouts for targets that are no files, which would be overwritten all the same, and a warm-up, after which a file is no
/// longer new.
fn check_new_files(args: &Args, targets: &[TargetSpec]) -> Result<(), Failure> {
    let Some(layout) = args.layout.iter().find(|layout| **layout != FileLayout::Filled) else {
        return Ok(());
    };
    let is_file = |target: &TargetSpec| {
        use LayerInterface::{FileInGuest, Found, RawFile};
        matches!(target.stack.offers(), RawFile | FileInGuest | Found)
    };
    if let Some(target) = targets.iter().find(|target| !is_file(target)) {
        return Err(usage(format!(
            "--layout {layout}: {} is {}, which is always overwritten; accepted: files, or --layout filled",
            target.name,
            target.stack.offers().words()
        )));
    }
    match args.ramp_time {
        Some(ramp_time) if ramp_time.0 > 0 => Err(usage(format!(
            "--ramp-time {ramp_time} with --layout {layout}: after a warm-up the file would no longer be new; leave --ramp-time out"
        ))),
        _ => Ok(()),
    }
}

/// Returns the flag with the value that a workload's method cannot be measured with, and the reason; `None` if it can be measured.
fn impossible(workload: &Workload) -> Option<(String, &'static str)> {
    let is_deep = workload.iodepth > 1;
    if is_deep && matches!(workload.sync, SyncMode::None | SyncMode::RwfDSync) {
        return Some((
            format!("--iodepth {}", workload.iodepth),
            "a job waits until its write is durable before the next, so that one is in flight; use --numjobs for several, or open_datasync \
             and open_sync",
        ));
    }
    (workload.ioengine == IoEngine::Mmap && workload.layout != FileLayout::Filled).then(|| {
        (format!("--layout {}", workload.layout), "a mapping has no room to grow; use --layout filled")
    })
}

/// Methods that cannot be measured with some values, for one reason.
struct LeftOut<'a> {
    reason: &'static str,
    methods: Vec<&'a str>,
    values: Vec<String>,
}

impl Display for LeftOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<String> = self.methods.iter().map(|method| (*method).to_owned()).collect();
        write!(f, "{} with {}: {}", listed(&methods), listed(&self.values), self.reason)
    }
}

/// Returns the workloads that can be measured, and says which methods are left out with which values. Fails if nothing would be measured of
/// a method of `--methods`, or with a depth or a layout.
fn possible(args: &Args, all: &[Workload], suite: &Suite) -> Result<Vec<Workload>, Failure> {
    let (out, kept): (Vec<&Workload>, Vec<&Workload>) =
        all.iter().partition(|workload| impossible(workload).is_some());
    let mut left_out: Vec<LeftOut<'_>> = Vec::new();
    for workload in &out {
        let Some((value, reason)) = impossible(workload) else { continue };
        let index = left_out.iter().position(|one| one.reason == reason).unwrap_or_else(|| {
            left_out.push(LeftOut { reason, methods: Vec::new(), values: Vec::new() });
            left_out.len() - 1
        });
        let (one, method) = (&mut left_out[index], suite.test(workload));
        if !one.methods.contains(&method) {
            one.methods.push(method);
        }
        if !one.values.contains(&value) {
            one.values.push(value);
        }
    }
    let is_lost = |workload: &&Workload| {
        let method = suite.test(workload);
        let is_asked = args.methods.iter().any(|asked| asked == method);
        is_asked && !kept.iter().any(|one| suite.test(one) == method)
            || !kept.iter().any(|one| one.iodepth == workload.iodepth)
            || !kept.iter().any(|one| one.layout == workload.layout)
    };
    if out.iter().any(is_lost) {
        let reasons: Vec<String> = left_out.iter().map(ToString::to_string).collect();
        return Err(usage(reasons.join("; ")));
    }
    for one in &left_out {
        note!("Without {one}");
    }
    Ok(kept.into_iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_methods_is_that_of_the_suite() {
        let suite = Suite::named(SUITE).expect("known");
        let workloads = (suite.workloads)(&SuiteOptions::default());
        let names: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names, METHODS);
    }
}
