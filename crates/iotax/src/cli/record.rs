//! `iotax record`: records the requests of a block device as a trace.

use std::fs::{self, File, OpenOptions};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_interop::trace::{Matcher, TraceFacts, TraceWriter, operation};
use iotax_model::exit::Exit;
use iotax_model::run::quoted;
use iotax_model::threads;
use iotax_model::trace::{TracedIo, TracedOperation};
use iotax_model::units::{Nanos, human};
use iotax_testbed::block_trace::{BlockTrace, DiskRequest, TracedDisk};
use iotax_testbed::host_info::monotonic_ns;
use iotax_testbed::interrupt::{Interrupt, POLL};
use iotax_testbed::undo::UndoLog;

use super::say::note;
use super::session::say_not_undone;
use super::signals::watch_signals;
use super::time::seconds;
use super::{Failure, OrExit, args, links, usage};
use crate::runner;

const SECTOR: u64 = 512;

/// Flags of `iotax record`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A block device, or a file or directory on one
    path: PathBuf,
    /// Write the trace to this new file, best on another device
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Record this long, or until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "10m")]
    time: Nanos,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    if args.time.0 == 0 {
        return Err(usage("--time 0s: nothing would be recorded; accepted: more than 0, such as 10s"));
    }
    let root = Path::new("/");
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let disk = TracedDisk::of(root, &args.path).or_exit(Exit::Environment)?;
    let named = || args.output.display().to_string();
    links::check(&args.output).with_context(named).or_exit(Exit::Environment)?;
    let file = OpenOptions::new().write(true).create_new(true).open(&args.output);
    let file = file
        .with_context(|| format!("{}: a trace is written to a new file", named()))
        .or_exit(Exit::Usage)?;
    if TracedDisk::of(root, &args.output).is_ok_and(|own| own == disk) {
        note!("note: {} is on {} too, so that its own writes are recorded", named(), disk.name);
    }
    let recorded = recorded(args, &disk, file, &stop);
    if recorded.is_err() {
        // This command created the file, and it holds only part of the trace.
        let _ = fs::remove_file(&args.output);
    }
    let (ios, facts) = recorded?;
    let lost = match facts.lost {
        Some(0) => "no event was lost".to_owned(),
        Some(lost) => format!("{lost} events found no room in the kernel's buffers and are lost"),
        None => "lost events are not counted here".to_owned(),
    };
    note!(
        "{ios} I/Os of {} in {}; {lost}",
        disk.name,
        human::duration(facts.recorded_ns.unwrap_or(0) as f64 / 1e9)
    );
    note!("Show it: iotax trace {}", quoted(&named()));
    Ok(Exit::Fine)
}

/// Records the trace, then undoes the changes to the kernel's tracing. Returns the number of I/Os, and facts about the recording.
fn recorded(
    args: &Args,
    disk: &TracedDisk,
    file: File,
    stop: &Interrupt,
) -> Result<(u64, TraceFacts), Failure> {
    let tag = runner::fresh_tag().or_exit(Exit::Environment)?;
    let mut undo_log = UndoLog::create(&args::undo_dir()?, &tag).or_exit(Exit::Environment)?;
    let written = BlockTrace::start(disk, &tag, &mut undo_log)
        .or_exit(Exit::Environment)
        .and_then(|trace| follow(trace, args.time, disk, file, stop));
    let (_, failures) = undo_log.undo_all();
    failures.iter().for_each(say_not_undone);
    written
}

/// Writes the kernel's trace events to `file` until `time` has passed or `stop` is set. Returns the number of I/Os, and facts about the
/// recording.
fn follow(
    mut trace: BlockTrace,
    time: Nanos,
    disk: &TracedDisk,
    file: File,
    stop: &Interrupt,
) -> Result<(u64, TraceFacts), Failure> {
    let began_at_ms =
        SystemTime::UNIX_EPOCH.elapsed().ok().and_then(|now| u64::try_from(now.as_millis()).ok());
    let begin = monotonic_ns();
    let mut writer = TraceWriter::new(BufWriter::new(file)).map_err(failed)?;
    let mut matcher = Matcher::default();
    note!("recording the requests of {}; Ctrl-C ends it", disk.name);
    loop {
        let is_over = monotonic_ns().saturating_sub(begin) >= time.0 || stop.load(Ordering::Relaxed);
        if is_over {
            trace.stop().or_exit(Exit::Environment)?;
        }
        for request in trace.read(is_over).or_exit(Exit::Environment)? {
            take(&mut matcher, &request, begin);
        }
        while let Some(event) = matcher.next(is_over) {
            writer.add(event).map_err(failed)?;
        }
        if is_over {
            break;
        }
        threads::sleep(POLL);
    }
    let facts = TraceFacts {
        source: Some(disk.name.clone()),
        began_at_ms,
        recorded_ns: Some(monotonic_ns() - begin),
        size: disk.size,
        lost: trace.lost(),
    };
    let (file, ios) = writer.finish(&facts).map_err(failed)?;
    let file = file.into_inner().map_err(|error| failed(error.to_string()))?;
    file.sync_all().or_exit(Exit::Environment)?;
    Ok((ios, facts))
}

fn failed(reason: String) -> Failure {
    Failure {
        exit: Exit::Environment,
        error: anyhow::Error::msg(reason).context("the trace cannot be written"),
    }
}

/// Passes a request's issue or completion to the matcher, which pairs the two. Ignores requests issued before `begin`, a time in
/// nanoseconds of the monotonic clock.
fn take(matcher: &mut Matcher, request: &DiskRequest, begin: u64) {
    let DiskRequest { at_ns, is_completed, sector, sectors, kind, process } = *request;
    let Some((operation, fua)) = operation(&kind) else { return };
    // A flush has no offset.
    let is_flush = sectors == 0;
    let operation = if is_flush { TracedOperation::Flush } else { operation };
    let offset = if is_flush { 0 } else { sector.saturating_mul(SECTOR) };
    if is_completed {
        matcher.complete(0, offset, operation, at_ns.saturating_sub(begin));
    } else if at_ns >= begin {
        let length = u64::from(sectors) * SECTOR;
        let (process, queue, latency_ns) = (Some(process), None, None);
        let at_ns = at_ns - begin;
        matcher.issue(0, TracedIo { at_ns, latency_ns, operation, offset, length, fua, process, queue });
    }
}
