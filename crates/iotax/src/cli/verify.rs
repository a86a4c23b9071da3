//! `iotax verify`: checks which acknowledged writes a target still holds.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::verify_errors::{Findings, JOURNAL_BATCH, JOURNAL_MAGIC, JournalState, Recovery};

use super::say::{print_line, say};
use super::{Failure, OrExit, signals, usage};
use crate::runner::{self, Interrupted};

/// Flags of `iotax verify`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The file or block device that was written; it is only read now
    target: PathBuf,
    /// The journal of the writes, such as from iotax bench --write-journal
    #[arg(long, value_name = "FILE")]
    journal: PathBuf,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    args.target.metadata().map_err(|error| usage(format!("{}: {error}", args.target.display())))?;
    check_journal(&args.journal)?;
    let stop = signals::watch_signals().or_exit(Exit::Environment)?;
    let recovery = match runner::audit(&args.target, &args.journal, &stop) {
        Err(error) if error.is::<Interrupted>() => {
            say!("Interrupted.");
            return Ok(Exit::Interrupted);
        }
        recovery => recovery.or_exit(Exit::Environment)?,
    };
    tell(&recovery);
    Ok(if recovery.findings.faulty() > 0 {
        Exit::Gate
    } else if recovery.incomplete().is_some() {
        Exit::Measurement
    } else {
        Exit::Fine
    })
}

/// Refuses a file that is not a journal.
pub(super) fn check_journal(path: &Path) -> Result<(), Failure> {
    let name = path.display();
    let found = path.metadata().map_err(|error| usage(format!("{name}: {error}")))?;
    if found.is_dir() {
        return Err(usage(format!("{name}: it is a directory; accepted: the file of a journal")));
    }
    if is_journal(path).with_context(|| name.to_string()).or_exit(Exit::Environment)? {
        return Ok(());
    }
    Err(usage(format!(
        "{name}: it is no journal; iotax bench --write-journal FILE and iotax powercut start write one"
    )))
}

/// Returns whether the beginning of the file has the magic number of a batch header. Two batches are searched, because the first header may
/// be damaged.
fn is_journal(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(2 * JOURNAL_BATCH as u64).read_to_end(&mut head)?;
    Ok(head.windows(JOURNAL_MAGIC.len()).any(|bytes| bytes == JOURNAL_MAGIC))
}

/// Prints which blocks hold the acknowledged data, and the condition of the journal.
pub(super) fn tell(recovery: &Recovery) {
    if let Some(reason) = recovery.incomplete() {
        print_line!("INCOMPLETE: {reason}");
        print_line!("  what is on record was verified; a write that has no record may be missing");
    }
    let Recovery {
        writes,
        durable_writes,
        journal,
        findings,
        durable,
        lost_from: _,
        last_flush: _,
        reordered: _,
    } = recovery;
    print_line!("{writes} writes were acknowledged, {durable_writes} of them durable by a flush after them");
    tell_of("blocks hold their last acknowledged write, or a later one", findings);
    if durable.checked > 0 {
        tell_of("blocks hold their last durable write, or a later one", durable);
    }
    tell_of_journal(journal);
}

/// Prints whether the journal was closed, and the length of its torn tail.
fn tell_of_journal(JournalState { closed, torn_tail, .. }: &JournalState) {
    if torn_tail.0 > 0 {
        let bytes = torn_tail.0;
        print_line!(
            "the last {bytes} bytes of the journal were not safe when the machine stopped, and tell nothing"
        );
    }
    if !closed {
        print_line!(
            "the journal was not closed: what was acknowledged right before the end may not be on record"
        );
    }
}

fn tell_of(what: &str, findings: &Findings) {
    print_line!("{} of {} {what}", findings.checked - findings.faulty(), findings.checked);
    findings.faults.iter().for_each(|fault| print_line!("  {fault}"));
}
