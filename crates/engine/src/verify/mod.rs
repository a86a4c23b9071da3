//! Proves that what the target acknowledged is what it holds.
//!
//! Every sector that is written is stamped (`stamp`). A table says which write each block holds as far as the target has
//! acknowledged (`table`), a witness in each worker keeps it and checks what is read (`witness`). After the window everything
//! that was acknowledged is read back (`scan`) and judged (`judge`). A journal (`journal`) keeps the table's history where a
//! power cut does not reach it, and an audit (`audit`) compares the two afterwards.

mod audit;
mod journal;
mod judge;
mod scan;
mod stamp;
mod table;
mod witness;

use std::time::{SystemTime, UNIX_EPOCH};

use iotax_model::content::Verify;
use iotax_model::findings::{FaultKind, Findings};
use iotax_model::units::Bytes;

pub(crate) use self::audit::audit;
use self::journal::Journal;
use self::judge::{Expected, judge};
pub(crate) use self::stamp::{Mark, seal};
use self::table::{Known, Table};
pub(crate) use self::witness::Witness;
use crate::error::EngineError;
use crate::open::Target;
use crate::prepare::drop_pages;
use crate::random::{Purpose, SplitMix64};

/// What the workers of one measurement prove together.
#[derive(Debug)]
pub(crate) struct Proof {
    /// Tells its writes from those of every other measurement, one with the same seed included.
    run: u64,
    verify: Verify,
    /// Absent if nothing is written: then each block is checked on its own.
    table: Option<Table>,
    /// Where acknowledged writes are put on record.
    journal: Option<Journal>,
}

impl Proof {
    /// For the first `size` bytes. `block`: what all offsets and lengths of writes are multiples of; absent: there are none.
    pub(crate) fn new(
        verify: Verify,
        size: Bytes,
        block: Option<u64>,
        seed: u64,
    ) -> Result<Self, EngineError> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        #[expect(clippy::cast_possible_truncation, reason = "the low bits tell times apart")]
        let run = SplitMix64::new(seed, Purpose::Run, started as u64).next();
        Ok(Self {
            run,
            verify,
            table: block.map(|block| Table::new(size, block)).transpose()?,
            journal: None,
        })
    }

    const fn mark(&self, generation: u64) -> Mark {
        Mark { run: self.run, generation }
    }

    /// Reads back everything that was acknowledged: from the target, and not from the page cache.
    pub(crate) fn read_back(&self, target: &Target) -> Result<Findings, EngineError> {
        let mut findings = Findings::default();
        let Some(table) = &self.table else { return Ok(findings) };
        drop_pages(&target.file).map_err(|error| EngineError::System {
            doing: "dropping cached pages before reading back what was written".into(),
            error,
        })?;
        findings.uncertain = table.all().filter(|(_, known)| *known == Known::Uncertain).count() as u64;
        let written = table.all().filter(|(_, known)| matches!(known, Known::Holds(_)));
        scan::scan(target, table.block(), written.map(|(offset, _)| offset), &mut |offset, content| {
            let Known::Holds(generation) = table.at(offset) else { return };
            let expected = Expected::This(self.mark(generation));
            let result =
                content.map_or(Err(FaultKind::Unreadable), |content| judge(content, offset, expected));
            findings.add(result, offset);
        })?;
        Ok(findings)
    }
}
