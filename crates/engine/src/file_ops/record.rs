//! The buffer in which one worker of a test keeps a record.

use iotax_load::buffers::{Buffers, Slot};
use iotax_load::error::EngineError;
use iotax_load::random::{Purpose, SplitMix64};
use iotax_model::units::Bytes;

use super::setup::WorkerSetup;
use crate::payload::{Payload, SECTOR};

/// A buffer of `bs` bytes, aligned for direct I/O, with generated content.
pub(super) struct Record {
    buffers: Buffers,
    slot: Slot,
    length: usize,
    payload: Payload,
}

impl Record {
    /// Allocates the buffer and fills it with the first content.
    pub(super) fn new(setup: &WorkerSetup) -> Result<Self, EngineError> {
        let bytes = setup.workload.bs;
        let length = usize::try_from(bytes.0).unwrap_or(usize::MAX);
        let sectors = usize::try_from(bytes.0.next_multiple_of(SECTOR.into())).unwrap_or(usize::MAX);
        let (buffers, mut slots) =
            Buffers::new(1, sectors).map_err(EngineError::system(format!("mapping a buffer of {bytes}")))?;
        let slot = slots.pop().ok_or(EngineError::Memory { asked: bytes, memory: Bytes(0) })?;
        let random = SplitMix64::new(setup.seed, Purpose::Payload, setup.number.into());
        let payload = Payload::new(&setup.workload.content(), 1, setup.workload.reads(), random);
        let mut record = Self { buffers, slot, length, payload };
        record.refresh();
        Ok(record)
    }

    /// Returns the bytes of the buffer.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffers.slice(&mut self.slot)[..self.length]
    }

    /// Fills the buffer with the next content.
    pub(super) fn refresh(&mut self) {
        let whole = self.buffers.slice(&mut self.slot);
        self.payload.refresh(0, whole);
    }
}
