//! Verifies that the target holds all writes that it has acknowledged.
//!
//! Every written sector gets a stamp (`stamp`), also in the fill. A table (`table`) has the last acknowledged write of each block; a verifier
//! in each worker (`verifier`) updates the table and checks reads. After the window, all acknowledged data, including the fill, is read back
//! (`scan`) and checked (`judge`). A journal (`journal`) stores the table's history where a power cut of the target cannot reach it, and an
//! audit (`audit`) compares the target with the journal afterwards.

mod audit;
mod journal;
mod judge;
mod scan;
mod stamp;
mod table;
mod verifier;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use iotax_load::error::EngineError;
use iotax_load::random::{Purpose, SplitMix64};
use iotax_model::verify_errors::{FaultKind, Findings};
use iotax_model::wire::Job;
use iotax_model::workload::{SyncMode, Verify};

pub use self::audit::audit;
use self::journal::{Header, Journal};
use self::judge::{Expected, judge};
pub(crate) use self::stamp::{Mark, write_stamps};
use self::table::{Known, Table};
pub(crate) use self::verifier::{Next, Verifier};
use crate::open::Target;
use crate::page_cache::drop_pages_of;

/// The state of the verification that the workers of a measurement share.
#[derive(Debug)]
pub(crate) struct Verification {
    /// Number of the measurement. It differs for every measurement, even with the same seed, so that older writes are recognized.
    run: u64,
    verify: Verify,
    /// Last acknowledged write of each block; `None` if the workload does not write: then only the consistency of each block, or the fill, is
    /// checked.
    table: Option<Table>,
    /// The journal of acknowledged writes; `None` if the workload has no `write_journal`.
    journal: Option<Journal>,
    /// True if a write is durable when it is acknowledged (the workload's `sync`).
    safe: bool,
    /// True if the journal lies on the target's filesystem or device.
    together: bool,
    /// True if everything that was written is read back after the window (`do_verify`).
    reads_back: bool,
    area: Area,
    /// Mark of the fill, and the offset at which the filled area ends; `None` if the area was not filled.
    filled: Option<(Mark, u64)>,
}

/// Number of blocks in which stamps are searched before a workload that does not write verifies a target that iotax did not fill.
const SAMPLES: u64 = 64;

/// The area that is verified, in blocks.
#[derive(Debug, Clone, Copy)]
struct Area {
    start: u64,
    end: u64,
    block: u64,
}

impl Area {
    /// Returns whether any of up to 64 blocks spread over the area holds a stamp, or cannot be read.
    fn has_stamps(self, target: &Target) -> Result<bool, EngineError> {
        let Self { start, end, block } = self;
        let blocks = ((end - start) / block).max(1);
        let step = blocks.div_ceil(SAMPLES) * block;
        let offsets = (start..end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        let mut found = false;
        scan::scan(target, block, offsets, &mut |offset, content| {
            let is_bare = content.map(|content| judge(content, offset, Expected::Anything));
            found |= !matches!(is_bare, Some(Err(FaultKind::Foreign)));
        })?;
        Ok(found)
    }
}

impl Verification {
    /// Sets up a job's verification and creates its journal; `None` if the job does not verify.
    pub(crate) fn new(job: &Job, target: &Target) -> Result<Option<Self>, EngineError> {
        let workload = &job.workload;
        if workload.verify == Verify::None {
            return Ok(None);
        }
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        #[expect(clippy::cast_possible_truncation, reason = "the low bits tell times apart")]
        let run = SplitMix64::new(job.seed, Purpose::Run, started as u64).next();
        let unit = workload.unit().0;
        let table = workload.rw.writes().then(|| Table::new(workload.offset, job.size, unit)).transpose()?;
        let start = workload.offset.0;
        let area = Area { start, end: start.saturating_add(job.size.0), block: unit };
        let filled = job.filled.map(|filled| (Mark::of_fill(filled.seed), filled.end.0));
        if table.is_none() && filled.is_none() && !area.has_stamps(target)? {
            return Err(EngineError::NothingToVerify(workload.verify));
        }
        let journal = |path: &String| {
            let header = Header { run, block: unit };
            Journal::create(Path::new(path), header)
                .map_err(EngineError::system(format!("beginning the journal {path}")))
        };
        let journal = workload.write_journal.as_ref().map(journal).transpose()?;
        let together = journal.as_ref().is_some_and(|journal| journal.shares_filesystem(&target.file));
        let safe = workload.sync != SyncMode::None;
        let (verify, reads_back) = (workload.verify, workload.do_verify);
        Ok(Some(Self { run, verify, table, journal, safe, together, reads_back, area, filled }))
    }

    /// Returns a warning if the journal lies on the target's storage, else `None`.
    pub(crate) fn note(&self) -> Option<String> {
        self.together.then(|| {
            "the journal lies on the target's own filesystem: what harms the one may harm the other".into()
        })
    }

    const fn mark(&self, generation: u64) -> Mark {
        Mark { run: self.run, generation }
    }

    /// Completes the journal. Then, if the job asks for it, drops the page cache and reads all acknowledged data back from the target.
    pub(crate) fn conclude(&self, target: &Target, findings: &mut Findings) -> Result<(), EngineError> {
        if let Some(Err(incomplete)) = self.journal.as_ref().map(Journal::finish) {
            findings.journal = Some(incomplete);
        }
        if !self.reads_back || (self.table.is_none() && self.filled.is_none()) {
            return Ok(());
        }
        drop_pages_of(target)
            .map_err(EngineError::system("dropping cached pages before reading back what was written"))?;
        let Area { start, end, block } = self.area;
        let known = |offset| self.table.as_ref().map_or(Known::Unwritten, |table| table.at(offset));
        let blocks = || (start..end).step_by(usize::try_from(block).unwrap_or(usize::MAX));
        findings.uncertain += blocks().filter(|offset| known(*offset) == Known::Uncertain).count() as u64;
        let expected = |offset| self.expected(offset, block, known(offset));
        let acknowledged = blocks().filter(|offset| expected(*offset).is_some());
        scan::scan(target, block, acknowledged, &mut |offset, content| {
            let Some(expected) = expected(offset) else { return };
            let result =
                content.map_or(Err(FaultKind::Unreadable), |content| judge(content, offset, expected));
            findings.add(result, offset);
        })
    }

    /// Returns the expected content of `length` bytes at `offset`; `None` if it is not known.
    fn expected(&self, offset: u64, length: u64, known: Known) -> Option<Expected> {
        match known {
            Known::Holds(generation) => Some(Expected::This(self.mark(generation))),
            Known::Unwritten => {
                let (mark, _) = self.filled.filter(|(_, end)| offset.saturating_add(length) <= *end)?;
                Some(Expected::SinceFill(mark))
            }
            Known::Uncertain => None,
        }
    }
}
