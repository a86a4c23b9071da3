//! Describes rate limits in front of a storage target, such as a cloud volume's IOPS limit.

use iotax_analysis::levels::BurstLevel;
use iotax_analysis::limits::{FreeRate, LimitScope, LimitsOnTarget, RateLimit};
use iotax_model::Run;
use iotax_model::plan::RateUnit;
use iotax_model::units::human;

use crate::figure::share;
use crate::marks::is_emulated;

/// Smallest deviation that is reported; a smaller one is shown as 0.10%.
const LEAST: f64 = 0.001;

/// Returns a sentence per rate limit of a target. If no limit on I/Os or no limit on bytes was found, a sentence states this, or gives the
/// reason why a limit is unknown.
pub(crate) fn sentences(run: &Run, found: &LimitsOnTarget<'_>) -> Vec<String> {
    let emulated = if is_emulated(run, found.target) { " (emulated: no word on a real machine)" } else { "" };
    let of_unit = |unit: RateUnit| -> Vec<String> {
        let limits: Vec<&RateLimit> = found.limits.iter().filter(|limit| limit.unit == unit).collect();
        let mut all: Vec<String> = limits.iter().map(|limit| held(limit)).collect();
        let free = found.free.iter().filter(|free| free.unit == unit);
        let (bound, open): (Vec<&FreeRate>, Vec<&FreeRate>) = free.partition(|free| free.is_generator_bound);
        let rates =
            |free: &[&FreeRate]| free.iter().map(|free| not_held(free)).collect::<Vec<_>>().join(", ");
        let unit = counted(unit);
        if limits.is_empty() && !open.is_empty() {
            all.push(format!("no limit on {unit} found: {}", rates(&open)));
        }
        if !bound.is_empty() {
            all.push(format!(
                "a limit on {unit} is unknown where the load's own CPU was the bound: {}",
                rates(&bound)
            ));
        }
        if all.is_empty() {
            all.push(format!("a limit on {unit} is unknown: too few measurements with I/O"));
        }
        all
    };
    let all = [RateUnit::Ios, RateUnit::Bytes].into_iter().flat_map(of_unit);
    all.map(|sentence| format!("{}{emulated}: {sentence}.", found.target)).collect()
}

/// Describes a rate limit: `limited to 500 I/Os a second, reads and writes together: the same at 4k and 16k, within 0.40%; before that 2.00k I/Os a
/// second for 5.00 s`.
fn held(limit: &RateLimit) -> String {
    let rate = per_second(limit.rate, limit.unit);
    let bound = match limit.scope {
        LimitScope::Together => format!("limited to {rate}, reads and writes together"),
        LimitScope::Each => format!("limited to {rate} for reads and as much for writes"),
        LimitScope::Reads => format!("reads do not exceed {rate}"),
        LimitScope::Writes => format!("writes do not exceed {rate}"),
    };
    let whose = if limit.scope.is_certain() { "" } else { "; a limit, or what the device itself does" };
    let [first, second] = limit.sizes;
    format!(
        "{bound}: the same at {first} and {second}, within {}{}{whose}",
        share(limit.spread.max(LEAST)),
        limit.burst.map(|burst| before(burst, limit.unit)).unwrap_or_default()
    )
}

fn before(burst: BurstLevel, unit: RateUnit) -> String {
    format!("; before that {} for {}", per_second(burst.rate, unit), human::time(burst.seconds * 1e9))
}

/// Describes the rates of a direction without a limit, at two block sizes: `reads 43.0k I/Os a second at 4k and 31.0k I/Os a second at 16k`.
fn not_held(free: &FreeRate) -> String {
    let direction = if free.is_write { "writes" } else { "reads" };
    let [(first, one), (second, other)] = free.rates;
    format!(
        "{direction} {} at {first} and {} at {second}",
        per_second(one, free.unit),
        per_second(other, free.unit)
    )
}

/// Formats a rate with its unit: `500 I/Os a second`, `125 MB/s`.
pub(crate) fn per_second(rate: f64, unit: RateUnit) -> String {
    match unit {
        RateUnit::Ios => format!("{} I/Os a second", human::count(rate)),
        RateUnit::Bytes => human::rate(rate),
    }
}

const fn counted(unit: RateUnit) -> &'static str {
    match unit {
        RateUnit::Ios => "I/Os",
        RateUnit::Bytes => "bytes",
    }
}
