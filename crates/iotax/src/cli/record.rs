//! `iotax record`: records the requests of a block device as a trace.

use std::fs::{self, File, OpenOptions};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

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
use iotax_testbed::issuers::{IssuedBy, Issuer, Issuers};
use iotax_testbed::undo::UndoLog;

use super::say::note;
use super::session::say_not_undone;
use super::signals::watch_signals;
use super::time::seconds;
use super::{Failure, OrExit, args, links, usage};
use crate::runner;

const SECTOR: u64 = 512;
/// Time between two looks at the events, if the processes of their threads are looked up.
const SOON: Duration = Duration::from_millis(5);
/// Nanoseconds after which the process or cgroup of a thread is read again.
const KNOWN_FOR: u64 = 1_000_000_000;

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
    /// Record only what the threads of this process issue, until it ends; not what the kernel writes back for it
    #[arg(long, conflicts_with = "cgroup")]
    pid: Option<u32>,
    /// Record only what processes of this cgroup issue, or of one below it: a directory below /sys/fs/cgroup
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
}

/// The threads whose I/O is recorded, and the number of the other requests.
struct Chosen {
    issuers: Issuers,
    /// Description for the trace and for messages, such as `process 123 (fio)`.
    name: String,
    /// Time by the monotonic clock at which the verdicts on threads are forgotten, in nanoseconds.
    known_until: u64,
    /// Requests that other processes issued.
    of_others: u64,
    /// Requests that the kernel's threads issued.
    of_kernel: u64,
    /// Requests of threads that had ended when they were looked up.
    of_ended: u64,
}

impl Chosen {
    /// Finds the process or cgroup that the flags name; `None` if all I/O is recorded.
    fn find(args: &Args, root: &Path) -> Result<Option<Self>, Failure> {
        let (issuer, name) = match (args.pid, &args.cgroup) {
            (Some(id), _) => {
                let (issuer, program) =
                    Issuer::process(root, id).map_err(|reason| usage(format!("--pid {id}: {reason}")))?;
                (issuer, format!("process {id} ({program})"))
            }
            (None, Some(path)) => {
                let shown = path.display();
                let issuer =
                    Issuer::cgroup(path).map_err(|reason| usage(format!("--cgroup {shown}: {reason}")))?;
                (issuer, format!("cgroup {shown}"))
            }
            (None, None) => return Ok(None),
        };
        let issuers = Issuers::new(root, issuer);
        Ok(Some(Self { issuers, name, known_until: 0, of_others: 0, of_kernel: 0, of_ended: 0 }))
    }

    /// Forgets the verdicts on threads after `KNOWN_FOR`.
    fn refresh(&mut self) {
        let now = monotonic_ns();
        if now >= self.known_until {
            self.issuers.forget();
            self.known_until = now + KNOWN_FOR;
        }
    }

    /// Returns whether a request is to be recorded, and counts those that are not. A completion has no issuer: it is ignored later if its
    /// issue was left out.
    fn takes(&mut self, request: &DiskRequest) -> bool {
        if request.is_completed {
            return true;
        }
        let left_out = match self.issuers.of(request.process) {
            IssuedBy::Issuer => return true,
            IssuedBy::Other => &mut self.of_others,
            IssuedBy::Kernel => &mut self.of_kernel,
            IssuedBy::Ended => &mut self.of_ended,
        };
        *left_out += 1;
        false
    }

    /// Says how many requests were left out, and whose.
    fn left_out(&self) -> String {
        format!(
            "left out: {} I/Os of other processes, {} of kernel threads (whose buffered writes these are is not known), {} of threads that \
             had ended before their process was looked up",
            self.of_others, self.of_kernel, self.of_ended
        )
    }
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    if args.time.0 == 0 {
        return Err(usage("--time 0s: nothing would be recorded; accepted: more than 0, such as 10s"));
    }
    let root = Path::new("/");
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let disk = TracedDisk::of(root, &args.path).or_exit(Exit::Environment)?;
    let mut chosen = Chosen::find(args, root)?;
    let named = || args.output.display().to_string();
    links::check(&args.output).with_context(named).or_exit(Exit::Environment)?;
    let file = OpenOptions::new().write(true).create_new(true).open(&args.output);
    let file = file
        .with_context(|| format!("{}: a trace is written to a new file", named()))
        .or_exit(Exit::Usage)?;
    if TracedDisk::of(root, &args.output).is_ok_and(|own| own == disk) {
        note!("note: {} is on {} too, so that its own writes are recorded", named(), disk.name);
    }
    let recorded = recorded(args, &disk, chosen.as_mut(), file, &stop);
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
        source(&disk, chosen.as_ref()),
        human::duration(facts.recorded_ns.unwrap_or(0) as f64 / 1e9)
    );
    if let Some(chosen) = &chosen {
        note!("{}", chosen.left_out());
    }
    note!("Show it: iotax trace {}", quoted(&named()));
    Ok(Exit::Fine)
}

/// Names the disk, and the process or cgroup whose I/O was recorded: `vda, process 123 (fio)`.
fn source(disk: &TracedDisk, chosen: Option<&Chosen>) -> String {
    chosen.map_or_else(|| disk.name.clone(), |chosen| format!("{}, {}", disk.name, chosen.name))
}

/// Records the trace, then undoes the changes to the kernel's tracing. Returns the number of I/Os, and facts about the recording.
fn recorded(
    args: &Args,
    disk: &TracedDisk,
    chosen: Option<&mut Chosen>,
    file: File,
    stop: &Interrupt,
) -> Result<(u64, TraceFacts), Failure> {
    let tag = runner::fresh_tag().or_exit(Exit::Environment)?;
    let mut undo_log = UndoLog::create(&args::undo_dir()?, &tag).or_exit(Exit::Environment)?;
    let written = BlockTrace::start(disk, &tag, &mut undo_log)
        .or_exit(Exit::Environment)
        .and_then(|trace| follow(trace, args.time, disk, chosen, file, stop));
    let (_, failures) = undo_log.undo_all();
    failures.iter().for_each(say_not_undone);
    written
}

/// Writes the kernel's trace events to `file` until `time` has passed, the process to record has ended or `stop` is set. Returns the number of I/Os, and facts about the
/// recording.
fn follow(
    mut trace: BlockTrace,
    time: Nanos,
    disk: &TracedDisk,
    mut chosen: Option<&mut Chosen>,
    file: File,
    stop: &Interrupt,
) -> Result<(u64, TraceFacts), Failure> {
    let began_at_ms =
        SystemTime::UNIX_EPOCH.elapsed().ok().and_then(|now| u64::try_from(now.as_millis()).ok());
    let begin = monotonic_ns();
    let mut writer = TraceWriter::new(BufWriter::new(file)).map_err(failed)?;
    let mut matcher = Matcher::default();
    note!("recording the requests of {}; Ctrl-C ends it", source(disk, chosen.as_deref()));
    loop {
        let has_ended = chosen.as_ref().is_some_and(|chosen| chosen.issuers.has_ended());
        let is_over =
            has_ended || monotonic_ns().saturating_sub(begin) >= time.0 || stop.load(Ordering::Relaxed);
        if let Some(chosen) = &mut chosen {
            chosen.refresh();
        }
        if is_over {
            trace.stop().or_exit(Exit::Environment)?;
        }
        for request in trace.read(is_over).or_exit(Exit::Environment)? {
            if chosen.as_mut().is_none_or(|chosen| chosen.takes(&request)) {
                take(&mut matcher, &request, begin);
            }
        }
        while let Some(event) = matcher.next(is_over) {
            writer.add(event).map_err(failed)?;
        }
        if is_over {
            break;
        }
        // Of a thread that has ended the process is not known any more.
        threads::sleep(if chosen.is_some() { SOON } else { POLL });
    }
    let facts = TraceFacts {
        source: Some(source(disk, chosen.as_deref())),
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
