//! `iotax audit`: detects a rate limit in front of storage, and checks a promised rate.

use std::str::FromStr;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::plan::{Demand, Keep, Plan, RateUnit};
use iotax_model::suite::{Suite, SuiteOptions};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::Workload;

use super::number;
use super::print_plan::print_plan;
use super::session::RunArgs;
use super::target_args::TargetArgs;
use super::time::seconds;
use super::{Failure, OrExit};

/// Name of the suite whose workloads reveal a rate limit.
const SUITE: &str = "audit";

/// Fraction of a promised rate that must be delivered: a limiter set to the rate delivers slightly less.
const KEPT: f64 = 0.99;

/// Flags of `iotax audit`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    /// Promised rates, such as iops=3000,bytes=125MB/s: the rate after any burst must reach 99% of each
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    promise: Vec<Promise>,
    /// Size of the area [default: 1g]
    #[arg(long)]
    size: Option<Bytes>,
    /// Number of rounds [default: 3]
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(1..=1000))]
    repeat: Option<u32>,
    /// Length of each measurement; a burst that lasts longer counts as the sustained rate [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    runtime: Option<Nanos>,
    /// Print the plan as a file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// A rate promised by the storage's provider, from `--promise`, such as `iops=3000`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Promise {
    of: RateUnit,
    /// The promised rate in I/Os or bytes per second.
    rate: u64,
}

impl FromStr for Promise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| format!("{text:?} {why}; accepted: iops=3000, bytes=125MB/s");
        let (word, rate) = text.split_once('=').ok_or_else(|| refuse("has no ="))?;
        let (of, rate) = match word.trim() {
            "iops" => {
                let rate = iotax_model::number::whole(rate, &(1..=u64::MAX))
                    .map_err(|error| refuse(&format!("is no rate: {error}")))?;
                (RateUnit::Ios, rate)
            }
            "bytes" => {
                let rate = rate.trim();
                let Bytes(rate) = rate
                    .strip_suffix("/s")
                    .unwrap_or(rate)
                    .parse()
                    .map_err(|error| refuse(&format!("is no rate: {error}")))?;
                (RateUnit::Bytes, rate)
            }
            _ => return Err(refuse("promises what is not known")),
        };
        if rate == 0 { Err(refuse("promises nothing")) } else { Ok(Self { of, rate }) }
    }
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let permission = args.run.session.overwrite.permission()?;
    let targets = args.targets.read(&permission)?;
    let suite = Suite::named(SUITE).or_exit(Exit::Usage)?;
    let options = SuiteOptions { size: args.size, runtime: args.runtime, ..SuiteOptions::default() };
    let workloads = (suite.workloads)(&options);
    let require = args.promise.iter().flat_map(|promise| demands(*promise, &workloads)).collect();
    let plan = Plan {
        suite: Some(SUITE.into()),
        repeat: args.repeat.unwrap_or(suite.repeat),
        seed: args.run.session.seed,
        require,
        ..Plan::new(format!("audit {}", args.targets.paths.join(" ")), targets, workloads)
    };
    plan.check().or_exit(Exit::Usage)?;
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    args.run.session(plan, permission).carry_out()
}

/// Turns a promise into demands on the pure read and pure write workloads: a promise in I/Os on those with the smallest block size, one in
/// bytes on those with the largest.
fn demands(promise: Promise, workloads: &[Workload]) -> Vec<Demand> {
    let pure = || workloads.iter().filter(|one| one.rw.reads() != one.rw.writes());
    let bs = match promise.of {
        RateUnit::Ios => pure().map(|one| one.bs).min(),
        RateUnit::Bytes => pure().map(|one| one.bs).max(),
    };
    let rate = match promise.of {
        RateUnit::Ios => format!("iops={}", promise.rate),
        RateUnit::Bytes => format!("bytes={}", iotax_model::units::human::rate(promise.rate as f64)),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the promise")]
    let least = ((promise.rate as f64 * KEPT).floor() as u64).max(1);
    pure()
        .filter(|one| Some(one.bs) == bs)
        .map(|one| Demand {
            workload: Some(one.name.clone()),
            keep: Keep::Sustained { of: promise.of, least },
            source: Some(format!("promised: {rate}, less 1%")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_a_demand_on_each_direction() {
        let workloads = (Suite::named(SUITE).expect("known").workloads)(&SuiteOptions::default());
        let demanded = |text: &str| -> Vec<(String, String)> {
            let promise: Promise = text.parse().expect(text);
            let all = demands(promise, &workloads).into_iter();
            all.map(|demand| (demand.workload.expect("named"), demand.keep.to_string())).collect()
        };
        let both = |size: &str, keep: &str| {
            ["randread", "randwrite"].map(|rw| (format!("{rw}-{size}"), keep.to_owned())).to_vec()
        };
        assert_eq!(demanded("iops=3000"), both("4k", "sustained iops >= 2970"));
        assert_eq!(demanded("bytes=125MB/s"), both("1m", "sustained bytes >= 123750000"));
    }

    #[test]
    fn what_is_no_promise_is_refused_in_words() {
        for (text, reason) in [
            ("3000", "has no ="),
            ("iops=many", "not a whole number"),
            ("iops=0", "out of range"),
            ("bytes=0", "promises nothing"),
            ("bytes=fast", "a size"),
            ("burst=6000/30m", "not known"),
        ] {
            let error = text.parse::<Promise>().expect_err(text);
            assert!(error.contains(reason) && error.contains("accepted: iops=3000"), "{error}");
        }
    }
}
