//! Creates copies of workloads at rates that are chosen during a run.

use super::Plan;
use crate::units::Nanos;
use crate::workload::{Kind, RateProcess, Workload};

/// Minimum expected number of I/Os in a window at a given rate. Windows that would see fewer are lengthened, to at most [`LONGEST`].
const IOS: u64 = 25;
const LONGEST: Nanos = Nanos::from_secs(5);

/// Returns a copy of the workload with Poisson arrivals of `rate` I/Os per second, over all its jobs together.
pub(super) fn at_rate(work: &Workload, rate: u64) -> Workload {
    Workload {
        name: format!("{}@{rate}", work.name),
        rate_iops: Some(rate.div_ceil(u64::from(work.numjobs))),
        rate_process: RateProcess::Poisson,
        runtime: work.runtime.max(Nanos(IOS * 1_000_000_000 / rate).min(LONGEST)),
        ..work.clone()
    }
}

/// Rounds a rate to three significant digits, for readability; at least 1.
#[must_use]
pub fn rounded(rate: f64) -> u64 {
    let unit = 10_f64.powf((rate.log10().floor() - 2.0).max(0.0));
    whole(((rate / unit).round() * unit).max(1.0))
}

/// Rounds a rate up to a whole number.
pub(super) fn whole(rate: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive and small"
    )]
    let whole = rate.ceil() as u64;
    whole
}

/// Returns the reason why a block I/O workload cannot run in an open loop; `None` if it can.
fn without_rate(work: &Workload) -> Option<String> {
    if work.steadystate.is_some() {
        return Some(
            "steadystate ends a window early; at a rate it lasts for its runtime: leave it out".into(),
        );
    }
    if work.io_size.is_some() || work.loops.is_some() {
        return Some("io_size and loops end a window after so much I/O; at a rate it lasts for its runtime: leave them out".into());
    }
    let at_rate = (!work.is_open_loop()).then(|| at_rate(work, 1000))?;
    at_rate.check().err().map(|error| error.to_string())
}

impl Plan {
    /// Rejects plans with a workload that cannot get a rate: a network workload, a test, several jobs, or keys that exclude an open loop.
    pub(super) fn check_can_have_rates(&self) -> Result<(), String> {
        let cannot = |workload: &&Workload| workload.kind != Kind::Block || !workload.beside.is_empty();
        match self.workloads.iter().find(cannot) {
            Some(other) => Err(format!(
                "workload {:?} ({}): accepted: block I/O of one job section, which can be given a rate",
                other.name,
                other.doing()
            )),
            None => match self.workloads.iter().find_map(|work| Some((work, without_rate(work)?))) {
                Some((work, why)) => Err(format!("workload {:?}: {why}", work.name)),
                None => Ok(()),
            },
        }
    }
}
