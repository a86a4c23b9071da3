//! The writes during which the power goes.

use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{Rw, Verify, Workload, WorkloadKeys};

/// Size of the area that is written.
pub(super) const SIZE: Bytes = Bytes(64 << 20);
/// Writes in flight.
const DEPTH: u32 = 8;

/// Stamped writes of 4 KiB at random places, with a flush after a number of them.
pub(super) fn load(size: Bytes, writes_per_flush: u32, longest: Nanos) -> Workload {
    let keys = WorkloadKeys { size: Some(size), runtime: Some(longest), ..WorkloadKeys::default() };
    Workload {
        name: "crash".into(),
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
