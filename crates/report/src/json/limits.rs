//! JSON of rate limits in front of a storage target.

use iotax_analysis::levels::BurstLevel;
use iotax_analysis::limits::{FreeRate, LimitScope, LimitsOnTarget, RateLimit, SustainedRate};
use iotax_model::plan::RateUnit;
use schemars::JsonSchema;
use serde::Serialize;

/// Rate limits in front of a target, as found in a run of the suite `audit`.
#[derive(Serialize, JsonSchema)]
pub(super) struct LimitsEntry<'a> {
    target: &'a str,
    limits: Vec<LimitEntry>,
    without_limit: Vec<FreeEntry>,
    rates: Vec<SustainedRateEntry<'a>>,
}

/// A rate limit: a rate that is the same at different block sizes.
#[derive(Serialize, JsonSchema)]
struct LimitEntry {
    unit: RateUnit,
    scope: ScopeWord,
    /// The limit in I/Os or bytes per second; geometric mean over block sizes and rounds.
    rate: f64,
    /// Largest deviation of a round from the mean rate of its direction, as a natural logarithm: 0.05 is about 5%.
    spread: f64,
    /// The two block sizes at which the rates are equal.
    sizes_bytes: [u64; 2],
    burst: Option<BurstEntry>,
}

/// The I/Os that a limit applies to. `together` (one limit for reads and writes) and `each` cannot be the device's own speed; `reads` or `writes`
/// alone can be.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ScopeWord {
    Together,
    Each,
    Reads,
    Writes,
}

/// Reads or writes that no limit was found for.
#[derive(Serialize, JsonSchema)]
struct FreeEntry {
    unit: RateUnit,
    direction: DirectionWord,
    /// True if the load generator's CPU was the bottleneck: limits above these rates remain unknown.
    is_load_the_limit: bool,
    /// Rates at the two block sizes that would reveal a limit.
    rates: [RateAtSize; 2],
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DirectionWord {
    Reads,
    Writes,
}

/// The rate at one block size.
#[derive(Serialize, JsonSchema)]
struct RateAtSize {
    size_bytes: u64,
    /// I/Os or bytes per second; geometric mean over the rounds.
    rate: f64,
}

/// A higher rate at the beginning of a measurement.
#[derive(Serialize, JsonSchema)]
struct BurstEntry {
    /// I/Os or bytes per second during the burst.
    rate: f64,
    seconds: f64,
}

/// Sustained rate of a workload, after any initial burst.
#[derive(Serialize, JsonSchema)]
struct SustainedRateEntry<'a> {
    workload: &'a str,
    iops: f64,
    /// Largest scatter within a round, as a share of the sustained rate.
    scatter: f64,
    burst: Option<BurstEntry>,
}

pub(super) fn entry<'a>(found: &LimitsOnTarget<'a>) -> LimitsEntry<'a> {
    LimitsEntry {
        target: found.target,
        limits: found.limits.iter().map(limit).collect(),
        without_limit: found.free.iter().map(free).collect(),
        rates: found.rates.iter().map(rate).collect(),
    }
}

fn limit(limit: &RateLimit) -> LimitEntry {
    LimitEntry {
        unit: limit.unit,
        scope: match limit.scope {
            LimitScope::Together => ScopeWord::Together,
            LimitScope::Each => ScopeWord::Each,
            LimitScope::Reads => ScopeWord::Reads,
            LimitScope::Writes => ScopeWord::Writes,
        },
        rate: limit.rate,
        spread: limit.spread,
        sizes_bytes: limit.sizes.map(|size| size.0),
        burst: limit.burst.map(burst),
    }
}

fn free(free: &FreeRate) -> FreeEntry {
    FreeEntry {
        unit: free.unit,
        direction: if free.is_write { DirectionWord::Writes } else { DirectionWord::Reads },
        is_load_the_limit: free.is_generator_bound,
        rates: free.rates.map(|(size, rate)| RateAtSize { size_bytes: size.0, rate }),
    }
}

fn rate<'a>(rate: &SustainedRate<'a>) -> SustainedRateEntry<'a> {
    SustainedRateEntry {
        workload: &rate.workload.name,
        iops: rate.ios,
        scatter: rate.scatter,
        burst: rate.burst.map(burst),
    }
}

fn burst(burst: BurstLevel) -> BurstEntry {
    BurstEntry { rate: burst.rate, seconds: burst.seconds }
}
