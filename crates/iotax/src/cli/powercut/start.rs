//! `iotax powercut start`: writes to a target until its power fails.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::Workload;
use iotax_testbed::device::ZEROED_END;
use iotax_testbed::stack::physical_disks;
use iotax_testbed::undo::UndoLog;
use rustix::fs::OFlags;
use rustix::termios::{OutputModes, tcgetattr};

use super::super::args::OverwriteArgs;
use super::super::cut_load::{self, SIZE};
use super::super::say::say;
use super::super::session::say_not_undone;
use super::super::signals::watch_signals;
use super::super::{Failure, OrExit, args, links, number, target_args, usage};
use super::{journal, refused_there, target};
use crate::causes::with_causes;
use crate::runner;
use crate::runner::powercut::{self, JournalLocation, LoadEnd};

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
    let target_path = target(&args.target)?;
    let spec = target_args::target(&target_path, false, true, &permission)?;
    if spec.path().is_none() && spec.device().is_none() {
        return Err(usage(format!(
            "{}: accepted: a new file, a directory, or a device that --overwrite names too; iotax crash cuts stacks that it builds",
            args.target.display()
        )));
    }
    if spec.path().is_some_and(Path::exists) {
        return Err(usage(format!(
            "{}: it exists; accepted: a new file, a directory, or a device that --overwrite names too",
            target_path.display()
        )));
    }
    let journal = journal(&args.journal)?;
    match &journal {
        JournalLocation::Here(path) => check_file(path, &target_path)?,
        JournalLocation::Line(path) => check_line(path)?,
        JournalLocation::There(_) => {}
    }
    powercut::check_space(&journal).or_exit(Exit::Environment)?;
    let size = args.size.unwrap_or(SIZE);
    let load = Workload {
        offset: if spec.device().is_some() { inner_area(&target_path, size)? } else { Bytes(0) },
        // A target that fails has lost its power, and a journal that takes no more records shows nothing from then on.
        max_errors: Some(1),
        ..cut_load::load("powercut", size, args.fdatasync, LONGEST)
    };
    let mut plan = Plan::new("powercut".into(), vec![spec], vec![load]);
    let seed = cut_load::ready(&mut plan, &permission, args.seed)?;
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let tag = runner::fresh_tag().or_exit(Exit::Environment)?;
    let mut undo_log = UndoLog::create(&args::undo_dir()?, &tag).or_exit(Exit::Environment)?;
    undo_log.set_interrupt(&stop);
    let kept = match &journal {
        JournalLocation::Line(_) => "RECORDED".into(),
        JournalLocation::Here(path) => path.display().to_string(),
        JournalLocation::There(_) => args.journal.display().to_string(),
    };
    let check = format!("iotax powercut check {} --journal {kept}", target_path.display());
    let mut has_begun = false;
    let ended =
        powercut::write(&plan, &permission, (&tag, seed), &journal, &mut undo_log, &stop, &mut || {
            has_begun = true;
            say!("Writing to {}, seed {seed}. Pull the plug; then: {check}", target_path.display());
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
    let stays = match &journal {
        // Before that it may be another program's.
        JournalLocation::Here(path) if has_begun => {
            fs::remove_file(path).with_context(|| path.display().to_string()).or_exit(Exit::Environment)?;
            String::new()
        }
        JournalLocation::Here(_) | JournalLocation::Line(_) => String::new(),
        JournalLocation::There(_) => format!(" The journal stays at {kept}."),
    };
    ended.map_err(|error| refused_there(error, Exit::Measurement))?;
    say!("Interrupted.{stays}");
    Ok(Exit::Interrupted)
}

/// Refuses a serial line whose terminal settings change the bytes that it sends.
fn check_line(path: &Path) -> Result<(), Failure> {
    let name = path.display();
    let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits().cast_signed();
    let line = OpenOptions::new().write(true).custom_flags(flags).open(path);
    let line = line.with_context(|| format!("--journal {name}")).or_exit(Exit::Environment)?;
    // Only terminals have such settings.
    if tcgetattr(&line).is_ok_and(|settings| settings.output_modes.contains(OutputModes::OPOST)) {
        return Err(usage(format!(
            "--journal {name}: the line changes bytes that it sends; make it raw: stty -F {name} raw -echo"
        )));
    }
    Ok(())
}

/// Refuses a journal that exists, and one on the disk that is tested.
fn check_file(path: &Path, target: &Path) -> Result<(), Failure> {
    let name = path.display();
    if path.symlink_metadata().is_ok() {
        return Err(usage(format!(
            "--journal {name}: it exists, and a journal is a new file; remove it or choose another name"
        )));
    }
    links::check(path).with_context(|| format!("--journal {name}")).or_exit(Exit::Environment)?;
    let tested = physical_disks(Path::new("/"), target);
    let shared = physical_disks(Path::new("/"), path).into_iter().find(|disk| tested.contains(disk));
    let is_same = device_of(path).is_some_and(|journal| device_of(target) == Some(journal));
    let disk = match shared {
        Some(disk) => disk,
        // A filesystem without a disk of this machine.
        None if is_same => "the storage".into(),
        None => return Ok(()),
    };
    Err(usage(format!(
        "--journal {name}: it would lie on {disk}, which is tested, and go with it; accepted: a new file on another disk, \
         ssh://[user@]host[:port]/path or a serial line"
    )))
}

/// Returns the number of the block device at `path`, or that of the filesystem on which a file is there or would be made; `None` if
/// unknown.
fn device_of(path: &Path) -> Option<u64> {
    match path.metadata() {
        Ok(found) if found.file_type().is_block_device() => Some(found.rdev()),
        _ => Some(path.parent()?.metadata().ok()?.dev()),
    }
}

/// Returns the offset of the written area of a device. The area excludes both ends, which a clean-up zeroes, so that it can be checked
/// afterwards too. Rejects an area that does not fit in between.
fn inner_area(device: &Path, size: Bytes) -> Result<Bytes, Failure> {
    let length = File::open(device).and_then(|mut file| file.seek(SeekFrom::End(0)));
    let length = length.with_context(|| device.display().to_string()).or_exit(Exit::Environment)?;
    let room = length.saturating_sub(2 * ZEROED_END);
    if size.0 <= room {
        return Ok(Bytes(ZEROED_END));
    }
    Err(usage(format!(
        "{}: {size} are to be written; accepted: --size up to {}, the device's {} less 1 MiB at each end, which iotax clean zeroes",
        device.display(),
        Bytes(room - room % 4096),
        Bytes(length)
    )))
}
