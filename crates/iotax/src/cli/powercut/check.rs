//! `iotax powercut check`: reports the acknowledged writes that a target has lost.

use std::path::PathBuf;

use iotax_analysis::crash::CrashVerdict;
use iotax_model::crash::{CRASH_FORMAT, CrashDocument, CrashedTarget, PowerCut};
use iotax_model::exit::Exit;
use iotax_report::document::{self, CRASH_MARK};

use super::super::json_args::JsonArgs;
use super::super::say::say;
use super::super::signals::watch_signals;
use super::super::terminal::PageArgs;
use super::super::{Failure, OrExit, usage, verify};
use super::{journal, refused_there, target};
use crate::runner::powercut::{self, JournalLocation};
use crate::runner::{self, Interrupted};

/// Flags of `iotax powercut check`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct Args {
    /// The file, directory or device that was written; it is only read now
    target: PathBuf,
    /// The journal: a file, or ssh://user@host:port/path; for a serial line, the file in which its other end was recorded
    #[arg(long, value_name = "PLACE")]
    journal: PathBuf,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    page: PageArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let json = args.json.open(CRASH_MARK)?;
    let target_path = target(&args.target)?;
    let name = target_path.display().to_string();
    if let Err(error) = target_path.metadata() {
        return Err(usage(format!(
            "{name}: {error}; mount its filesystem first, and check before iotax clean, which removes the file. If the cut took it, all \
             that was flushed is lost"
        )));
    }
    if powercut::is_written(&target_path) {
        let error = anyhow::anyhow!(
            "{name}: another process has it locked, as iotax powercut start does while it writes; check after the power was cut, or end that process \
             first"
        );
        return Err(Failure { exit: Exit::Environment, error });
    }
    let journal = journal(&args.journal)?;
    match &journal {
        JournalLocation::Here(path) => verify::check_journal(path)?,
        JournalLocation::Line(path) => {
            let path = path.display();
            return Err(usage(format!(
                "--journal {path}: a line keeps nothing; accepted: what its other end recorded"
            )));
        }
        JournalLocation::There(_) => {}
    }
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let tag = runner::fresh_tag().or_exit(Exit::Environment)?;
    let recovery = match powercut::check(&target_path, &journal, &tag, &stop) {
        Err(error) if error.is::<Interrupted>() => {
            say!("Interrupted.");
            return Ok(Exit::Interrupted);
        }
        Err(error) => return Err(refused_there(error, Exit::Environment)),
        Ok(recovery) => recovery,
    };
    let seconds = recovery.last_flush.map(|after| after.0 as f64 / 1e9);
    let crashed = CrashedTarget {
        name: target_path
            .file_name()
            .map_or_else(|| name.clone(), |name| name.to_string_lossy().into_owned()),
        stack: name,
        database: None,
        cuts: vec![PowerCut::found(seconds, &recovery)],
    };
    let document = CrashDocument {
        format: CRASH_FORMAT.into(),
        tool: crate::version().into(),
        seed: None,
        writes_per_flush: None,
        planned_cuts: None,
        targets: vec![crashed],
    };
    args.page.show(&document::crash(&document), json.is_on_stdout());
    let value = serde_json::to_value(&document).or_exit(Exit::Environment)?;
    json.write(|| value)?;
    if !json.is_on_stdout() {
        verify::tell(&recovery);
    }
    let verdict = CrashVerdict::of(&document.targets[0]);
    Ok(match () {
        () if verdict.breaks_promise() => Exit::Gate,
        () if recovery.incomplete().is_some() => Exit::Measurement,
        () if verdict.is_undecided() => Exit::Unjudged,
        () => Exit::Fine,
    })
}
