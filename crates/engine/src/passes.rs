//! Drops the page cache between the passes of a worker over its area.

use std::fs::File;

use iotax_load::error::EngineError;
use iotax_load::request::Io;
use iotax_model::wire::Job;
use iotax_model::workload::IoEngine;

use crate::open::Target;
use crate::page_cache::drop_range;

/// Dropper of the page cache of one worker's area before each further pass, like fio's `invalidate`. The drop happens during the load,
/// possibly with other I/O in flight.
#[derive(Debug)]
pub(crate) struct Passes {
    file: File,
    is_device: bool,
    start: u64,
    length: u64,
    /// Bytes that one pass moves; `left` are the bytes left in the current pass.
    pass: u64,
    left: u64,
}

impl Passes {
    /// Creates the dropper of worker number `number`, whose passes move `pass` bytes; `None` if the cache is not dropped between passes.
    pub(crate) fn new(
        job: &Job,
        target: &Target,
        number: u32,
        pass: u64,
    ) -> Result<Option<Self>, EngineError> {
        let workload = &job.workload;
        if !workload.invalidate_each_pass || workload.ioengine == IoEngine::Null {
            return Ok(None);
        }
        let step = workload.offset_increment.map_or(0, |increment| increment.0 * u64::from(number));
        Ok(Some(Self {
            file: target.reopen_for(number)?,
            is_device: target.is_device,
            start: workload.offset.0 + step,
            length: job.size.0,
            pass,
            left: pass,
        }))
    }

    /// Counts an I/O that is about to start; drops the pages first if this I/O begins another pass.
    #[inline(never)]
    pub(crate) fn count(&mut self, io: Io) {
        if self.left == 0 {
            self.begin();
        }
        self.left = self.left.saturating_sub(io.length.into());
    }

    #[cold]
    fn begin(&mut self) {
        drop_range(&self.file, self.is_device, self.start, self.length);
        self.left = self.pass;
    }
}
