//! The write load during which the power fails.

use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{Rw, Verify, Workload, WorkloadKeys};
use iotax_testbed::device::Permission;
use iotax_testbed::target::preflight;

use super::session::make_absolute;
use super::{Failure, OrExit};
use crate::runner;

/// Default size of the area that the load writes.
pub(super) const SIZE: Bytes = Bytes(64 << 20);
/// Queue depth: the number of writes in flight.
const DEPTH: u32 = 8;

/// Returns a command's workload of stamped 4 KiB writes at random offsets, with a flush after every `writes_per_flush` writes.
pub(super) fn load(command: &str, size: Bytes, writes_per_flush: u32, longest: Nanos) -> Workload {
    let keys = WorkloadKeys { size: Some(size), runtime: Some(longest), ..WorkloadKeys::default() };
    Workload {
        name: command.into(),
        rw: Rw::RandWrite,
        ramp_time: Nanos(0),
        iodepth: DEPTH,
        fdatasync: Some(writes_per_flush.into()),
        verify: Verify::Xxh3,
        do_verify: false,
        direct: true,
        ..keys.complete(&WorkloadKeys::default())
    }
}

/// Checks the plan of a power-cut load before anything is created, and makes its paths absolute. Returns the given seed, or a random one
/// below 1,000,000.
pub(super) fn ready(plan: &mut Plan, permission: &Permission, seed: Option<u64>) -> Result<u64, Failure> {
    plan.check().or_exit(Exit::Usage)?;
    make_absolute(plan)?;
    preflight::check(plan, permission)
        .map_err(|refusal| Failure { exit: refusal.exit, error: refusal.into() })?;
    match seed {
        Some(seed) => Ok(seed),
        None => Ok(runner::fresh_seed().or_exit(Exit::Environment)? % 1_000_000),
    }
}
