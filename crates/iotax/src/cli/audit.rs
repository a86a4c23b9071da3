//! `iotax audit`: detects a rate limit in front of storage, and checks a promised rate.

use std::str::FromStr;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::plan::{Demand, Keep, Plan, RateUnit};
use iotax_model::suite::{Suite, SuiteOptions};
use iotax_model::units::{Bytes, Nanos, human};
use iotax_model::workload::Workload;

use super::flags::OwnDefaults;
use super::number;
use super::print_plan::print_plan;
use super::session::RunArgs;
use super::target_args::TargetArgs;
use super::time::seconds;
use super::{Failure, OrExit};

/// Name of the suite whose workloads reveal a rate limit.
const SUITE: &str = "audit";

/// Shortest burst that can be promised.
const SHORTEST: Nanos = Nanos::from_secs(1);

/// Fraction of a promised rate that must be delivered: a limiter set to the rate delivers slightly less.
const KEPT: f64 = 0.99;

/// Flags of `iotax audit`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    /// Promised rates, such as iops=3000,burst=6000/30m,bytes=125MB/s: the rate after any burst must reach 99% of iops and bytes, and the
    /// mean rate over the length of the promised burst 99% of the burst's rate
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    promise: Vec<Promise>,
    /// Size of the area
    #[arg(long)]
    size: Option<Bytes>,
    /// Number of rounds
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(1..=1000))]
    repeat: Option<u32>,
    /// Length of each measurement, except those of promised bursts; a burst that lasts longer counts as the sustained rate
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    runtime: Option<Nanos>,
    /// Print the plan as a file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// A promise of the storage's provider, from `--promise`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Promise {
    /// A sustained rate in I/Os or bytes per second, such as `iops=3000`.
    Sustained { of: RateUnit, rate: u64 },
    /// I/Os per second for a time after a pause, such as `burst=6000/30m`.
    Burst { rate: u64, length: Nanos },
}

impl FromStr for Promise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse =
            |why: &str| format!("{text:?} {why}; accepted: iops=3000, burst=6000/30m, bytes=125MB/s");
        let (word, rate) = text.split_once('=').ok_or_else(|| refuse("has no ="))?;
        let ios = |rate: &str| {
            iotax_model::number::whole(rate, &(1..=u64::MAX))
                .map_err(|error| refuse(&format!("is no rate: {error}")))
        };
        match word.trim() {
            "iops" => Ok(Self::Sustained { of: RateUnit::Ios, rate: ios(rate)? }),
            "burst" => {
                let (rate, length) = rate.split_once('/').ok_or_else(|| refuse("has no length"))?;
                let length = seconds(length).map_err(|error| refuse(&format!("has no length: {error}")))?;
                if length < SHORTEST {
                    return Err(refuse("is too short to be measured: 1s and more"));
                }
                Ok(Self::Burst { rate: ios(rate)?, length })
            }
            "bytes" => {
                let rate = rate.trim();
                let Bytes(rate) = rate
                    .strip_suffix("/s")
                    .unwrap_or(rate)
                    .parse()
                    .map_err(|error| refuse(&format!("is no rate: {error}")))?;
                if rate == 0 {
                    return Err(refuse("promises nothing"));
                }
                Ok(Self::Sustained { of: RateUnit::Bytes, rate })
            }
            _ => Err(refuse("promises what is not known")),
        }
    }
}

/// Returns the defaults of the suite, for help.
pub(super) fn own_defaults() -> OwnDefaults {
    let Ok(suite) = Suite::named(SUITE) else { return Vec::new() };
    let all = (suite.workloads)(&SuiteOptions::default());
    let Some(first) = all.first() else { return Vec::new() };
    let size = first.size.map(|size| ("size", size.to_string()));
    let others = [("repeat", suite.repeat.to_string()), ("runtime", first.runtime.to_string())];
    size.into_iter().chain(others).collect()
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let permission = args.run.session.overwrite.permission()?;
    let targets = args.targets.read(&permission)?;
    let suite = Suite::named(SUITE).or_exit(Exit::Usage)?;
    let options = SuiteOptions { size: args.size, runtime: args.runtime, ..SuiteOptions::default() };
    let mut workloads = (suite.workloads)(&options);
    let mut require = Vec::new();
    for promise in &args.promise {
        let (demands, bursts) = match *promise {
            Promise::Sustained { of, rate } => (sustained(of, rate, &workloads), Vec::new()),
            Promise::Burst { rate, length } => {
                burst(rate, length, refill(&args.promise, rate, length).or_exit(Exit::Usage)?, &workloads)
            }
        };
        require.extend(demands);
        workloads.extend(bursts);
    }
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

/// Selects the workloads that only read or only write, without a start delay, with the block size that suits the unit of a rate: the
/// smallest for I/Os, the largest for bytes.
fn pure(of: RateUnit, workloads: &[Workload]) -> Vec<&Workload> {
    let pure =
        || workloads.iter().filter(|one| one.rw.reads() != one.rw.writes() && one.startdelay.is_none());
    let bs = match of {
        RateUnit::Ios => pure().map(|one| one.bs).min(),
        RateUnit::Bytes => pure().map(|one| one.bs).max(),
    };
    pure().filter(|one| Some(one.bs) == bs).collect()
}

/// Returns the lowest measured rate that still counts as keeping the promised `rate`: 99% of it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the promise")]
fn least(rate: u64) -> u64 {
    ((rate as f64 * KEPT).floor() as u64).max(1)
}

/// Turns a promised rate into demands on the workloads that [`pure`] selects.
fn sustained(of: RateUnit, rate: u64, workloads: &[Workload]) -> Vec<Demand> {
    let promised = match of {
        RateUnit::Ios => format!("iops={rate}"),
        RateUnit::Bytes => format!("bytes={}", human::rate(rate as f64)),
    };
    let demand = |one: &Workload| Demand {
        workload: Some(one.name.clone()),
        keep: Keep::Sustained { of, least: least(rate) },
        source: Some(format!("promised: {promised}, less 1%")),
    };
    pure(of, workloads).into_iter().map(demand).collect()
}

/// Turns a promised burst into demands and the workloads that test them. Each workload lasts as long as the burst and starts after a pause
/// of `refill`.
fn burst(rate: u64, length: Nanos, refill: Nanos, workloads: &[Workload]) -> (Vec<Demand>, Vec<Workload>) {
    let bursts: Vec<Workload> = pure(RateUnit::Ios, workloads)
        .into_iter()
        .map(|one| Workload {
            name: format!("burst-{}-{rate}", one.name),
            startdelay: Some(refill),
            runtime: length,
            ..one.clone()
        })
        .collect();
    let demand = |one: &Workload| Demand {
        workload: Some(one.name.clone()),
        keep: Keep::Iops(least(rate)),
        source: Some(format!("promised: burst={rate}/{length}, less 1%")),
    };
    (bursts.iter().map(demand).collect(), bursts)
}

/// Returns the pause after which a burst is possible again: the time in which a token bucket refills at the sustained rate, plus 10%,
/// because the limiter may count differently. Fails without a promised sustained rate in I/Os, and if the burst is not above it.
fn refill(promises: &[Promise], burst: u64, length: Nanos) -> anyhow::Result<Nanos> {
    let rates = promises.iter().filter_map(|promise| match promise {
        Promise::Sustained { of: RateUnit::Ios, rate } => Some(*rate),
        _ => None,
    });
    let refuse = |why: &str| anyhow::anyhow!("--promise burst={burst}/{length}: {why}");
    let Some(rate) = rates.min() else {
        return Err(refuse(
            "needs iops= beside it, the rate after the burst, by which the pause before it is chosen",
        ));
    };
    if burst <= rate {
        return Err(refuse(&format!("a burst is above the sustained rate, iops={rate}")));
    }
    let pause = length.0 as f64 * (burst - rate) as f64 / rate as f64 * 1.1;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    Ok(Nanos(pause as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_a_demand_on_each_direction() {
        let workloads = (Suite::named(SUITE).expect("known").workloads)(&SuiteOptions::default());
        let demanded = |text: &str| -> Vec<(String, String)> {
            let Ok(Promise::Sustained { of, rate }) = text.parse() else { panic!("{text}") };
            let all = sustained(of, rate, &workloads).into_iter();
            all.map(|demand| (demand.workload.expect("named"), demand.keep.to_string())).collect()
        };
        let both = |size: &str, keep: &str| {
            ["randread", "randwrite"].map(|rw| (format!("{rw}-{size}"), keep.to_owned())).to_vec()
        };
        assert_eq!(demanded("iops=3000"), both("4k", "sustained iops >= 2970"));
        assert_eq!(demanded("bytes=125MB/s"), both("1m", "sustained bytes >= 123750000"));
    }

    #[test]
    fn a_promised_burst_is_measured_after_a_pause_that_refills_it() {
        let workloads = (Suite::named(SUITE).expect("known").workloads)(&SuiteOptions::default());
        let promises: Vec<Promise> =
            ["iops=3000", "burst=6000/30m"].iter().map(|text| text.parse().expect(text)).collect();
        let length = Nanos::from_secs(1800);
        assert_eq!(promises[1], Promise::Burst { rate: 6000, length });
        let pause = refill(&promises, 6000, length).expect("a rate beside it");
        assert_eq!(pause, Nanos::from_secs(1980));
        let (demands, bursts) = burst(6000, length, pause, &workloads);
        let keeps = demands.iter().map(|demand| demand.keep.to_string());
        assert_eq!(keeps.collect::<Vec<_>>(), ["iops >= 5940"; 2]);
        let names = bursts.iter().map(|one| (one.name.as_str(), one.runtime, one.startdelay));
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["burst-randread-4k-6000", "burst-randwrite-4k-6000"].map(|name| (name, length, Some(pause)))
        );
        for alone in [&promises[1..], &["iops=6000".parse().expect("a rate")]] {
            assert!(refill(alone, 6000, length).is_err(), "{alone:?}");
        }
    }

    #[test]
    fn what_is_no_promise_is_refused_in_words() {
        for (text, reason) in [
            ("3000", "has no ="),
            ("iops=many", "not a whole number"),
            ("iops=0", "out of range"),
            ("bytes=0", "promises nothing"),
            ("bytes=fast", "a size"),
            ("burst=6000", "has no length"),
            ("burst=6000/soon", "has no length"),
            ("burst=6000/10ms", "1s and more"),
            ("bursts=6000/30m", "not known"),
        ] {
            let error = text.parse::<Promise>().expect_err(text);
            assert!(error.contains(reason) && error.contains("accepted: iops=3000"), "{error}");
        }
    }
}
