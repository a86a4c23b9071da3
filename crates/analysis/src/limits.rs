//! Detects rate limits in front of a storage device: rates that do not depend on the block size and hardly vary, unlike
//! those of any device.
//!
//! A limit on I/Os (QEMU's throttle groups, blkio of control groups, cloud disks) shows as equal IOPS at two small
//! block sizes. A limit on bytes shows as equal throughput at two large ones. A device's own rate depends on the size,
//! or varies, or differs between reads and writes. If only one direction has a constant rate, or if the load
//! generator's CPU was the limit, rates alone cannot tell a rate limit from the device's own rate.

use iotax_model::plan::RateUnit;
use iotax_model::record::Measurement;
use iotax_model::suite::SuiteShape;
use iotax_model::units::Bytes;
use iotax_model::workload::Workload;
use iotax_model::{CellKey, Run};

use crate::cells::by_cell;
use crate::checks::generator;
use crate::levels::{self, BurstLevel, Levels};
use crate::stats::{geometric_mean, median};

/// Largest scatter of the rate within a measurement (the median over the measurements), as a share of the rate, at which the rate counts as
/// limited.
const HELD: f64 = 0.015;

/// Largest relative difference of rates that count as the same limit.
const SAME: f64 = 0.03;

/// The I/Os that a limit applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitScope {
    /// Reads and writes share the limit.
    Together,
    /// Reads and writes have separate, equal limits.
    Each,
    /// The limit applies to reads only: writes have another limit or none, or mixed I/O was not measured.
    Reads,
    /// The limit applies to writes only: reads have another limit or none, or mixed I/O was not measured.
    Writes,
}

impl LimitScope {
    /// Returns whether the rate is certainly a limit and not the device's own rate, because reads and writes have the same rate.
    #[must_use]
    pub const fn is_certain(self) -> bool {
        matches!(self, Self::Together | Self::Each)
    }
}

/// A rate that does not depend on the block size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// The limited unit: I/Os or bytes.
    pub unit: RateUnit,
    /// The I/Os that the limit applies to.
    pub scope: LimitScope,
    /// The limit per second: geometric mean over sizes and rounds.
    pub rate: f64,
    /// The largest deviation of a round from the mean rate of its direction, as a natural logarithm: 0.05 is about 5%.
    pub spread: f64,
    /// The two block sizes at which the rates are equal.
    pub sizes: [Bytes; 2],
    /// The longest burst above the limit; absent if none was seen.
    pub burst: Option<BurstLevel>,
}

/// The rates of a direction without a limit, at the sizes at which a limit would show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FreeRate {
    /// The unit of the rates.
    pub unit: RateUnit,
    /// True for writes, false for reads.
    pub is_write: bool,
    /// The two block sizes and the rate per second at each: geometric mean over rounds.
    pub rates: [(Bytes, f64); 2],
    /// True if the load generator's CPU was the limit in a measurement; a limit above these rates is then unknown.
    pub is_generator_bound: bool,
}

/// A workload's rate after any burst.
#[derive(Debug, Clone, PartialEq)]
pub struct SustainedRate<'a> {
    /// The measured workload.
    pub workload: &'a Workload,
    /// Geometric mean over rounds, in I/Os per second.
    pub ios: f64,
    /// The largest scatter within a round, as a share of the rate.
    pub scatter: f64,
    /// The longest burst, with its rate in I/Os per second; absent if the rate fell in no round.
    pub burst: Option<BurstLevel>,
}

/// The limits found on a target.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitsOnTarget<'a> {
    /// The target's name.
    pub target: &'a str,
    /// The sustained rate of every workload that has one in each of its rounds on the target.
    pub rates: Vec<SustainedRate<'a>>,
    /// The limits on I/Os or bytes that were found; empty if none was.
    pub limits: Vec<RateLimit>,
    /// Rates of reads or writes that showed no limit.
    pub free: Vec<FreeRate>,
    /// The rate over time in the measurement with the longest burst; without a burst, in the first measurement with a sustained rate.
    /// Absent if no measurement has one.
    pub course: Option<RateCourse<'a>>,
}

/// The rate over time of one measurement, and the levels found in it.
#[derive(Debug, Clone, PartialEq)]
pub struct RateCourse<'a> {
    /// The measured workload.
    pub workload: &'a Workload,
    /// The measurement's round.
    pub round: u32,
    /// The end of each interval in seconds from the start of the measured window, and the rate in it in I/Os per second.
    pub rates: Vec<(f64, f64)>,
    /// Burst and sustained rate of this measurement, in I/Os per second.
    pub levels: Levels,
}

/// Sustained rates of reads or of writes at the two block sizes at which a limit would show.
#[derive(Clone, Copy)]
struct Direction {
    sizes: [Bytes; 2],
    rates: [f64; 2],
    /// The largest deviation of a round from the mean rate of all rounds and both sizes, as a natural logarithm.
    spread: f64,
    is_held: bool,
    is_generator_bound: bool,
    burst: Option<BurstLevel>,
}

/// Burst and sustained rate of a workload on a target in each round, in I/Os or in bytes per second.
struct Measured {
    rounds: Vec<Levels>,
    is_generator_bound: bool,
}

/// Finds the limits on each target of a run of the suite `audit`; empty for other runs.
#[must_use]
pub fn limits<'a>(run: &'a Run) -> Vec<LimitsOnTarget<'a>> {
    if run.plan.known_suite().is_none_or(|suite| suite.shape != SuiteShape::Limits) {
        return Vec::new();
    }
    let cells = by_cell(run);
    let of_target = |target: &'a str| {
        let cells = &cells;
        let measured = |workload: &Workload, unit| {
            let all: &Vec<&Measurement> = cells.get(&CellKey { workload: &workload.name, target })?;
            let rounds = all.iter().map(|m| Levels::of(m, unit)).collect::<Option<Vec<_>>>()?;
            let is_generator_bound = all.iter().any(|m| generator::saturation(workload, m).is_some());
            Some(Measured { rounds, is_generator_bound })
        };
        let (mut limits, mut free) = (Vec::new(), Vec::new());
        for unit in [RateUnit::Ios, RateUnit::Bytes] {
            let direction = |is_write| direction(&run.plan.workloads, unit, is_write, &measured);
            let mixed = mixed(&run.plan.workloads, unit, &measured);
            let (reads, writes) = (direction(false), direction(true));
            let held = |one: Option<Direction>| one.filter(|one| one.is_held);
            limits.extend(found(unit, held(reads), held(writes), mixed));
            let open = [(reads, false), (writes, true)].into_iter().filter_map(|(one, is_write)| {
                let one = one.filter(|one| !one.is_held)?;
                let rates = [(one.sizes[0], one.rates[0]), (one.sizes[1], one.rates[1])];
                Some(FreeRate { unit, is_write, rates, is_generator_bound: one.is_generator_bound })
            });
            free.extend(open);
        }
        let rates = run.plan.workloads.iter().filter_map(|workload| {
            let Measured { rounds, .. } = measured(workload, RateUnit::Ios)?;
            Some(SustainedRate {
                workload,
                ios: sustained(&rounds),
                scatter: rounds.iter().map(|one| one.scatter).fold(0.0, f64::max),
                burst: longest(rounds.iter().filter_map(|one| one.burst)),
            })
        });
        let course = run.plan.workloads.iter().flat_map(|workload| {
            let all = cells.get(&CellKey { workload: &workload.name, target }).into_iter().flatten();
            all.filter_map(move |m| Some((workload, m.round, Levels::of(m, RateUnit::Ios)?, *m)))
        });
        // The first of equally long bursts wins.
        let length = |levels: &Levels| levels.burst.map_or(0.0, |burst| burst.seconds);
        let course =
            course.reduce(|known, next| if length(&next.2) > length(&known.2) { next } else { known });
        let course = course.map(|(workload, round, levels, m)| RateCourse {
            workload,
            round,
            rates: levels::rates(m, RateUnit::Ios),
            levels,
        });
        LimitsOnTarget { target, rates: rates.collect(), limits, free, course }
    };
    let all = run.plan.targets.iter().map(|target| of_target(&target.name));
    all.filter(|one| !one.rates.is_empty()).collect()
}

/// Derives the limits: a common one if reads and writes have the same rate and mixed I/O was measured, else one for each limited direction.
fn found(
    unit: RateUnit,
    reads: Option<Direction>,
    writes: Option<Direction>,
    mixed: Option<f64>,
) -> Vec<RateLimit> {
    let limit = |scope, directions: &[Direction]| {
        let rates: Vec<f64> = directions.iter().flat_map(|one| one.rates).collect();
        RateLimit {
            unit,
            scope,
            rate: geometric_mean(&rates),
            spread: directions.iter().map(|one| one.spread).fold(0.0, f64::max),
            sizes: directions[0].sizes,
            burst: longest(directions.iter().filter_map(|one| one.burst)),
        }
    };
    match (reads, writes, mixed) {
        (Some(reads), Some(writes), Some(mixed))
            if is_same(geometric_mean(&reads.rates), geometric_mean(&writes.rates)) =>
        {
            let both = limit(LimitScope::Each, &[reads, writes]);
            let shares = is_same(mixed, both.rate);
            vec![RateLimit { scope: if shares { LimitScope::Together } else { LimitScope::Each }, ..both }]
        }
        (reads, writes, _) => {
            let reads = reads.map(|reads| limit(LimitScope::Reads, &[reads]));
            reads.into_iter().chain(writes.map(|writes| limit(LimitScope::Writes, &[writes]))).collect()
        }
    }
}

/// Computes a direction's rates at the two smallest block sizes for I/Os, at the two largest for bytes; `None` if there is no sustained
/// rate at one of them.
fn direction(
    workloads: &[Workload],
    unit: RateUnit,
    is_write: bool,
    measured: &impl Fn(&Workload, RateUnit) -> Option<Measured>,
) -> Option<Direction> {
    // A workload with a start delay measures a promised burst after a pause, not the sustained rate.
    let pure = workloads.iter().filter(|one| one.startdelay.is_none());
    let pure = pure.filter(|one| one.rw.writes() == is_write && one.rw.reads() != is_write);
    let [first, second] = at_sizes(pure, unit)?;
    let measured = [measured(first, unit)?, measured(second, unit)?];
    let rates = measured.each_ref().map(|one| sustained(&one.rounds));
    let all = || measured.iter().flat_map(|one| &one.rounds);
    let is_generator_bound = measured.iter().any(|one| one.is_generator_bound);
    let mean = geometric_mean(&rates);
    let spread = all().map(|one| (one.sustained / mean).ln().abs()).fold(0.0, f64::max);
    // The median keeps a single disturbed measurement from hiding the limit.
    let scatter = median(&all().map(|one| one.scatter).collect::<Vec<_>>())?;
    let is_held = spread <= SAME && scatter <= HELD && !is_generator_bound;
    let burst = longest(all().filter_map(|one| one.burst));
    Some(Direction { sizes: [first.bs, second.bs], rates, spread, is_held, is_generator_bound, burst })
}

/// Returns the sustained rate of mixed reads and writes: I/Os per second at the smallest block size, or bytes per second at the largest.
/// `None` if mixed I/O has no sustained rate, or if the load generator's CPU was the limit.
fn mixed(
    workloads: &[Workload],
    unit: RateUnit,
    measured: &impl Fn(&Workload, RateUnit) -> Option<Measured>,
) -> Option<f64> {
    let both = workloads.iter().filter(|one| one.rw.reads() && one.rw.writes());
    let one = match unit {
        RateUnit::Ios => both.min_by_key(|one| one.bs),
        RateUnit::Bytes => both.max_by_key(|one| one.bs),
    }?;
    let measured = measured(one, unit)?;
    (!measured.is_generator_bound).then(|| sustained(&measured.rounds))
}

fn at_sizes<'a>(pure: impl Iterator<Item = &'a Workload>, unit: RateUnit) -> Option<[&'a Workload; 2]> {
    let mut sorted: Vec<&Workload> = pure.collect();
    sorted.sort_by_key(|one| one.bs);
    match (unit, &sorted[..]) {
        (RateUnit::Ios, [first, second, ..]) | (RateUnit::Bytes, [.., first, second]) => {
            Some([first, second])
        }
        _ => None,
    }
}

fn is_same(one: f64, other: f64) -> bool {
    (one / other).ln().abs() <= SAME
}

fn sustained(rounds: &[Levels]) -> f64 {
    geometric_mean(&rounds.iter().map(|one| one.sustained).collect::<Vec<_>>())
}

fn longest(bursts: impl Iterator<Item = BurstLevel>) -> Option<BurstLevel> {
    bursts.max_by(|one, other| one.seconds.total_cmp(&other.seconds))
}
