//! Verifies that the target holds what it acknowledged.
//!
//! Every sector that is written is stamped (`stamp`). A table says which write each block holds as far as the target has
//! acknowledged (`table`), a verifier in each worker keeps it and checks what is read (`verifier`). After the window everything
//! that was acknowledged is read back (`scan`) and judged (`judge`). A journal (`journal`) keeps the table's history where a
//! power cut does not reach it, and an audit (`audit`) compares the two afterwards.

mod audit;
mod journal;
mod judge;
mod scan;
mod stamp;
mod table;
mod verifier;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use iotax_model::verify_errors::{FaultKind, Findings};
use iotax_model::wire::Job;
use iotax_model::workload::{SyncMode, Verify};

pub use self::audit::audit;
use self::journal::{Header, Journal};
use self::judge::{Expected, judge};
pub(crate) use self::stamp::{Mark, write_stamps};
use self::table::{Known, Table};
pub(crate) use self::verifier::{Next, Verifier};
use crate::error::EngineError;
use crate::open::Target;
use crate::page_cache::drop_pages;
use crate::random::{Purpose, SplitMix64};

/// The verification state that the workers of one measurement share.
#[derive(Debug)]
pub(crate) struct Verification {
    /// The measurement's number: it distinguishes its writes from those of all others, even with the same seed.
    run: u64,
    verify: Verify,
    /// Absent if nothing is written: then each block is checked on its own.
    table: Option<Table>,
    /// The record of acknowledged writes.
    journal: Option<Journal>,
    /// A write is acknowledged when it is durable.
    safe: bool,
    /// The journal lies where the target does.
    together: bool,
    /// What was written is read back at the end.
    reads_back: bool,
}

impl Verification {
    /// Sets up a job's verification and begins its journal; `None` if the job does not verify.
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
        let journal = |path: &String| {
            let header = Header { run, block: unit };
            Journal::create(Path::new(path), header)
                .map_err(EngineError::system(format!("beginning the journal {path}")))
        };
        let journal = workload.write_journal.as_ref().map(journal).transpose()?;
        let together = journal.as_ref().is_some_and(|journal| journal.shares_filesystem(&target.file));
        let safe = workload.sync != SyncMode::None;
        let (verify, reads_back) = (workload.verify, workload.do_verify);
        Ok(Some(Self { run, verify, table, journal, safe, together, reads_back }))
    }

    /// Warns about a journal that shares the target's storage.
    pub(crate) fn note(&self) -> Option<String> {
        self.together.then(|| {
            "the journal lies on the target's own filesystem: what harms the one may harm the other".into()
        })
    }

    const fn mark(&self, generation: u64) -> Mark {
        Mark { run: self.run, generation }
    }

    /// Has the journal on disk, and reads back everything that was acknowledged: from the target, and not from the page
    /// cache.
    pub(crate) fn conclude(&self, target: &Target, findings: &mut Findings) -> Result<(), EngineError> {
        if let Some(journal) = &self.journal {
            journal.finish().map_err(EngineError::system("writing the journal of acknowledged writes"))?;
        }
        let Some(table) = self.table.as_ref().filter(|_| self.reads_back) else { return Ok(()) };
        drop_pages(&target.file)
            .map_err(EngineError::system("dropping cached pages before reading back what was written"))?;
        findings.uncertain += table.all().filter(|(_, known)| *known == Known::Uncertain).count() as u64;
        let written = table.all().filter(|(_, known)| matches!(known, Known::Holds(_)));
        scan::scan(target, table.block(), written.map(|(offset, _)| offset), &mut |offset, content| {
            let Known::Holds(generation) = table.at(offset) else { return };
            let expected = Expected::This(self.mark(generation));
            let result =
                content.map_or(Err(FaultKind::Unreadable), |content| judge(content, offset, expected));
            findings.add(result, offset);
        })
    }
}
