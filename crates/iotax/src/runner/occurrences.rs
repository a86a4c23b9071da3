//! What happens beside the load of a watch: its events are made to happen, and the kernel's log is read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use iotax_model::plan::{Action, PlannedEvent};
use iotax_model::record::{Happened, Occurrence};
use iotax_model::units::Nanos;
use iotax_testbed::monitor::kernel_log::KernelLog;
use rustix::fs::MemfdFlags;

use super::operations::Operations;

/// The longest time in which nobody looks whether the load is over.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of the kernel that are kept.
const MOST_LINES: usize = 500;
/// Characters that are kept of what a command writes to stderr.
const MOST_ERROR: u64 = 400;

/// Carries out `load`, which says when its window began, and has the events happen in it. Returns what happened in its order, and a remark if the
/// kernel's log cannot be read. `operations` is there if one of the events is an operation.
///
/// A command that has begun is waited for: what it does may have to be done to its end.
pub(super) fn during(
    events: &[(Nanos, &PlannedEvent)],
    operations: Option<&Operations>,
    load: impl FnOnce(&mut dyn FnMut(Instant)),
) -> (Vec<Occurrence>, Option<String>) {
    let (found, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let (log, remark) = match KernelLog::open() {
        Ok(log) => (Some(log), None),
        Err(error) => (None, Some(format!("the kernel's log was not read: {error}"))),
    };
    let (happened, is_over) = (&found, &over);
    thread::scope(|scope| {
        let (for_events, events_begin) = mpsc::channel();
        let (for_log, log_begins) = mpsc::channel();
        scope.spawn(move || carry_out(events, operations, &events_begin, is_over, happened));
        if let Some(log) = log {
            scope.spawn(move || read(log, &log_begins, is_over, happened));
        }
        load(&mut |at| {
            // Nobody listens to what has ended.
            let _ = for_events.send(at);
            let _ = for_log.send(at);
        });
        over.store(true, Ordering::Relaxed);
        drop((for_events, for_log));
    });
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.sort_by_key(|occurrence| occurrence.at_ns);
    (found, remark)
}

fn put(found: &Mutex<Vec<Occurrence>>, began: Instant, at: Instant, what: Happened) {
    let at_ns = u64::try_from(at.saturating_duration_since(began).as_nanos()).unwrap_or(u64::MAX);
    found.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(Occurrence { at_ns, what });
}

/// Begins each event at its time.
fn carry_out(
    events: &[(Nanos, &PlannedEvent)],
    operations: Option<&Operations>,
    begins: &Receiver<Instant>,
    over: &AtomicBool,
    found: &Mutex<Vec<Occurrence>>,
) {
    let Ok(began) = begins.recv() else { return };
    thread::scope(|scope| {
        for (at, event) in events {
            let due = began + Duration::from_nanos(at.0);
            while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(left.min(LOOK));
            }
            if over.load(Ordering::Relaxed) {
                let failure = Some("the load had ended before it".to_owned());
                let what = Happened::Event { name: event.name.clone(), duration_ns: None, failure };
                put(found, began, due, what);
                continue;
            }
            // One that takes long does not delay the next.
            scope.spawn(move || {
                let begun = Instant::now();
                let done = match &event.action {
                    Action::Command(command) => run(command),
                    Action::Operation(operation) => {
                        Ok(operations.and_then(|operations| operations.perform(*operation)))
                    }
                };
                let (duration_ns, failure) = match done {
                    Ok(failure) => (Some(begun.elapsed()), failure),
                    Err(error) => (None, Some(format!("sh could not be begun: {error}"))),
                };
                let duration_ns = duration_ns.and_then(|time| u64::try_from(time.as_nanos()).ok());
                let what = Happened::Event { name: event.name.clone(), duration_ns, failure };
                put(found, began, begun, what);
            });
        }
    });
}

/// Runs a command to its end: `None`, or how it failed.
fn run(command: &str) -> std::io::Result<Option<String>> {
    // A file, not a pipe, which what the command leaves running would keep open.
    let mut said = File::from(rustix::fs::memfd_create("event", MemfdFlags::CLOEXEC)?);
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone()?);
    // Ctrl-C is for this program: the command is done to its end.
    let status = shell.process_group(0).status()?;
    if status.success() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    said.seek(SeekFrom::Start(0))?;
    said.take(MOST_ERROR).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Ok(Some(if lines.is_empty() { status.to_string() } else { format!("{status}: {}", lines.join("; ")) }))
}

/// Reads the kernel's log until the load is over.
fn read(mut log: KernelLog, begins: &Receiver<Instant>, over: &AtomicBool, found: &Mutex<Vec<Occurrence>>) {
    let Ok(began) = begins.recv() else { return };
    let mut left = MOST_LINES;
    while !over.load(Ordering::Relaxed) {
        let lines = log.next(LOOK);
        let at = Instant::now();
        for line in lines.into_iter().take(left) {
            left -= 1;
            put(found, began, at, Happened::Kernel { level: line.level, text: line.text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_at_their_times_and_say_how_they_failed() {
        let event = |name: &str, command: &str| PlannedEvent {
            name: name.into(),
            action: Action::Command(command.into()),
            at: None,
        };
        let all = [
            event("slow", "sleep 0.3"),
            event("wrong", "echo no such path >&2; exit 3"),
            event("never", "true"),
        ];
        let times = [Nanos::from_millis(50), Nanos::from_millis(100), Nanos::from_secs(60)];
        let scheduled: Vec<(Nanos, &PlannedEvent)> = times.into_iter().zip(&all).collect();
        let (found, _) = during(&scheduled, None, |begin| {
            begin(Instant::now());
            thread::sleep(Duration::from_millis(250));
        });
        let events: Vec<&Occurrence> =
            found.iter().filter(|one| matches!(one.what, Happened::Event { .. })).collect();
        let [slow, wrong, never] = events[..] else { panic!("{events:?}") };
        let Happened::Event { failure, .. } = &never.what else { unreachable!() };
        assert_eq!(failure.as_deref(), Some("the load had ended before it"));
        let Happened::Event { name, duration_ns, failure } = &slow.what else { unreachable!() };
        assert_eq!((name.as_str(), failure), ("slow", &None));
        assert!(slow.at_ns >= 50_000_000 && *duration_ns >= Some(300_000_000), "{slow:?}");
        let Happened::Event { name, failure, .. } = &wrong.what else { unreachable!() };
        assert_eq!((name.as_str(), failure.as_deref()), ("wrong", Some("exit status: 3: no such path")));
    }
}
