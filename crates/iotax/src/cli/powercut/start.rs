//! `iotax powercut start`: writes to a target until its power fails.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::units::{Bytes, Nanos};
use iotax_testbed::undo::UndoLog;
use rustix::fs::OFlags;
use rustix::termios::{OutputModes, tcgetattr};

use super::super::args::OverwriteArgs;
use super::super::cut_load::{self, SIZE};
use super::super::say::say;
use super::super::session::say_not_undone;
use super::super::signals::watch_signals;
use super::super::{Failure, OrExit, args, links, number, target_args, usage};
use super::{is_line, journal, target};
use crate::causes::with_causes;
use crate::runner;
use crate::runner::powercut::{self, JournalPlace, LoadEnd};

/// Time limit of the write load, in case the power does not fail: 24 h.
const LONGEST: Nanos = Nanos::from_secs(24 * 3600);

/// Flags of `iotax powercut start`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct Args {
    /// A new file, a directory for one, or a device that --overwrite names too
    target: PathBuf,
    /// Place of the journal, which must keep its power: ssh://user@host:port/path for a new file on another machine, /dev/ttyS0 for a
    /// serial line whose other end records it, or a new file on another disk
    #[arg(long, value_name = "PLACE")]
    journal: PathBuf,
    /// Size of the area that is written [default: 64m]
    #[arg(long)]
    size: Option<Bytes>,
    /// Flush after this many writes
    #[arg(long, value_name = "N", default_value = "16", value_parser = number::whole::<u32>(1..=1_000_000))]
    fdatasync: u32,
    /// Seed of offsets [default: random]
    #[arg(long, value_name = "N", value_parser = number::seed)]
    seed: Option<u64>,
    #[command(flatten)]
    overwrite: OverwriteArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let permission = args.overwrite.permission()?;
    let place = target(&args.target)?;
    let spec = target_args::target(&place, false, true, &permission)?;
    if spec.path().is_none() && spec.device().is_none() {
        return Err(usage(format!(
            "{}: accepted: a new file, a directory, or a device that --overwrite names too; iotax crash cuts stacks that it builds",
            args.target.display()
        )));
    }
    if spec.path().is_some_and(Path::exists) {
        return Err(usage(format!(
            "{}: it exists; accepted: a new file, a directory, or a device that --overwrite names too",
            place.display()
        )));
    }
    let journal = journal(&args.journal)?;
    if let JournalPlace::Here(path) = &journal {
        check_journal(path)?;
    }
    let load = cut_load::load(args.size.unwrap_or(SIZE), args.fdatasync, LONGEST);
    let mut plan = Plan::new("powercut".into(), vec![spec], vec![load]);
    let seed = cut_load::ready(&mut plan, &permission, args.seed)?;
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let tag = runner::fresh_tag().or_exit(Exit::Environment)?;
    let mut undo_log = UndoLog::create(&args::undo_dir()?, &tag).or_exit(Exit::Environment)?;
    undo_log.set_interrupt(&stop);
    let kept = match &journal {
        JournalPlace::Here(path) if is_line(path) => "RECORDED".into(),
        JournalPlace::Here(path) => path.display().to_string(),
        JournalPlace::There(_) => args.journal.display().to_string(),
    };
    let check = format!("iotax powercut check {} --journal {kept}", place.display());
    let ended =
        powercut::write(&plan, &permission, (&tag, seed), &journal, &mut undo_log, &stop, &mut || {
            say!("Writing to {}, seed {seed}. Pull the plug; then: {check}", place.display());
        });
    if let Ok(LoadEnd::Failed(error)) = &ended {
        // Keep the undo log, because the target holds the data to check.
        say!(
            "The load ended: {}. What is on record can be checked: {check}; iotax clean then removes what was made",
            with_causes(error)
        );
        return Ok(Exit::Measurement);
    }
    let (_, failures) = undo_log.undo_all();
    failures.iter().for_each(say_not_undone);
    ended.or_exit(Exit::Measurement)?;
    say!("Interrupted.");
    Ok(Exit::Interrupted)
}

/// Refuses a journal that exists, and a serial line whose terminal settings change the bytes that it sends.
fn check_journal(path: &Path) -> Result<(), Failure> {
    let name = path.display();
    let context = || format!("--journal {name}");
    if is_line(path) {
        let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits().cast_signed();
        let line = OpenOptions::new().write(true).custom_flags(flags).open(path);
        let line = line.with_context(context).or_exit(Exit::Environment)?;
        // Only terminals have such settings.
        if tcgetattr(&line).is_ok_and(|settings| settings.output_modes.contains(OutputModes::OPOST)) {
            return Err(usage(format!(
                "--journal {name}: the line changes bytes that it sends; make it raw: stty -F {name} raw -echo"
            )));
        }
        return Ok(());
    }
    if path.symlink_metadata().is_ok() {
        return Err(usage(format!(
            "--journal {name}: it exists, and a journal is a new file; remove it or choose another name"
        )));
    }
    links::check(path).with_context(context).or_exit(Exit::Environment)
}
