//! The test that reads records at random offsets and updates some of them.

use std::io::Read;
use std::ops::ControlFlow;

use iotax_load::error::EngineError;
use iotax_load::random::{Purpose, SplitMix64};
use iotax_load::request::{Io, IoKind};

use super::Routine;
use super::meter::{Meter, Over};
use super::output::Output;
use super::record::Record;
use super::setup::WorkerSetup;

/// Number of records read per record that is modified and written back.
const UPDATE_EVERY: u64 = 10;

/// The test that reads random records of the whole area and rewrites every tenth, like one of bonnie++'s seekers.
struct Seeks {
    output: Output,
    record: Record,
    random: SplitMix64,
    begin: u64,
    /// Number of records in the area.
    blocks: u64,
    /// Number of records that this worker reads, over all passes.
    each: u64,
}

pub(super) fn seeks(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let record = Record::new(setup)?;
    // Each worker seeks in the whole area, not in a slice of it.
    let each = setup.workload.io_size.map_or(setup.records(), |bytes| bytes.0 / setup.workload.bs.0);
    let output = Output::over(setup.target()?, &setup.workload);
    Ok(Box::new(Seeks {
        output,
        record,
        random: SplitMix64::new(setup.seed, Purpose::Offsets, setup.number.into()),
        begin: setup.workload.offset.0,
        blocks: setup.size / setup.workload.bs.0,
        each: each.saturating_mul(setup.passes()),
    }))
}

impl Routine for Seeks {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        for number in 1..=self.each {
            let bytes = self.record.bytes();
            let offset = self.begin + self.random.below(self.blocks) * bytes.len() as u64;
            // A record is at most 64 MiB long.
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            self.output.rewind(meter, offset)?;
            let io = Io { direction: IoKind::Read, offset, length };
            let is_read = meter.io(io, || self.output.file().read(bytes))?;
            if is_read && number % UPDATE_EVERY == 0 {
                bytes[0] = bytes[0].wrapping_sub(1);
                self.output.rewind(meter, offset)?;
                self.output.write(meter, bytes)?;
            }
        }
        self.output.end(meter)
    }
}
