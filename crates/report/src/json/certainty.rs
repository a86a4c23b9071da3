//! JSON of percentiles, drift over the run, and statistics on series of intervals.

use iotax_analysis::percentile::{name, needed};
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::stats::series::Series;
use iotax_analysis::{Drift, Effects, Metric, Percentile};
use schemars::JsonSchema;
use serde::Serialize;

/// A percentile over all rounds and directions; with too few I/Os, the number needed instead of the value.
#[derive(Serialize, JsonSchema)]
#[schemars(extend("oneOf" = [{ "required": ["ns", "of_ios_ns"] }, { "required": ["needed_ios"] }]))]
pub(super) struct PercentileEntry {
    /// Name of the percentile, such as p99.9.
    name: String,
    q: f64,
    /// Number of I/Os in all rounds.
    ios: u64,
    /// Number of I/Os needed for ten of them to lie beyond the percentile; present only if there were fewer.
    needed_ios: Option<u64>,
    ns: Option<f64>,
    /// 95% interval by order statistics, as if all I/Os were independent: a lower bound of the uncertainty. Absent without `ns`.
    of_ios_ns: Option<Interval>,
    /// 95% interval by Student's t on the logarithms of the rounds' percentiles; it includes the variation between rounds. Absent for fewer
    /// than two rounds, or if a round has too few I/Os.
    over_rounds_ns: Option<Interval>,
    /// Geometric mean of the rounds' percentiles; `over_rounds_ns` is its interval, and is absent together with it.
    mean_of_rounds_ns: Option<f64>,
}

/// Changes of a workload's mean latency from round to round that all targets have in common, as fractions: 0.05 is 5% slower.
#[derive(Serialize, JsonSchema)]
pub(super) struct EffectsEntry<'a> {
    workload: &'a str,
    /// The metric that changed: latency_mean, or bytes_per_s for streams, whose changes then refer to the time per byte.
    metric: Metric,
    rounds: u32,
    /// Standard deviation of the rounds' effects on the metric's natural logarithm: 0.05 is about 5%.
    round_sd: f64,
    /// P-value of the F test of the round effects against the residual; absent if `rest_sd` is absent or 0.
    round_p: Option<f64>,
    /// The round that deviates most from the mean of the rounds.
    furthest: FurthestRound,
    /// Standard deviation of the residuals of the metric's natural logarithm, after target and round effects: 0.05 is about 5%. Absent for
    /// a single target or too few measurements.
    rest_sd: Option<f64>,
    drift: Option<Drift>,
}

#[derive(Serialize, JsonSchema)]
struct FurthestRound {
    round: u32,
    change: f64,
}

/// Statistics of a measurement's intervals, for information: no interval is left out because of them.
#[derive(Serialize, JsonSchema)]
pub(super) struct SeriesEntry {
    /// Number of intervals, without those shorter than half of the median interval.
    intervals: usize,
    /// Correlation of the rates of adjacent intervals.
    autocorrelation: f64,
    /// Number of independent intervals that would estimate the mean rate equally well (Geyer, 1992: initial positive sequence).
    effective: f64,
    /// Warm-up that the MSER-5 rule (White, Cobb and Spratt, 2000) would cut off; absent if none is visible.
    warm_up: Option<WarmUpEntry>,
}

#[derive(Serialize, JsonSchema)]
struct WarmUpEntry {
    duration_s: f64,
    /// Mean rate of the warm-up divided by that of the rest.
    ratio: f64,
    /// True if the warm-up extends to the middle of the measurement, the last position that is searched.
    unsettled: bool,
}

pub(super) fn percentile(percentile: &Percentile) -> PercentileEntry {
    let value = percentile.value;
    PercentileEntry {
        name: name(percentile.q),
        q: percentile.q,
        ios: percentile.ios,
        needed_ios: value.is_none().then(|| needed(percentile.q)),
        ns: value.map(|value| value.ns),
        of_ios_ns: value.map(|value| value.of_ios),
        over_rounds_ns: value.and_then(|value| value.over_rounds),
        mean_of_rounds_ns: value.and_then(|value| value.mean_of_rounds),
    }
}

pub(super) fn effects(effects: &Effects) -> EffectsEntry<'_> {
    EffectsEntry {
        workload: &effects.workload,
        metric: effects.metric,
        rounds: effects.rounds,
        round_sd: effects.spread,
        round_p: effects.rounds_p,
        furthest: FurthestRound { round: effects.furthest, change: effects.furthest_by },
        rest_sd: effects.rest,
        drift: effects.drift,
    }
}

pub(super) fn series(series: &Series) -> SeriesEntry {
    SeriesEntry {
        intervals: series.intervals,
        autocorrelation: series.autocorrelation,
        effective: series.effective,
        warm_up: series.warm_up.map(|warm_up| WarmUpEntry {
            duration_s: warm_up.ns as f64 / 1e9,
            ratio: warm_up.ratio,
            unsettled: warm_up.unsettled,
        }),
    }
}
