//! Occurrences during a watch: runs the planned events, takes marks, and records events of the machine.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use iotax_model::plan::{Action, PlannedEvent};
use iotax_model::record::{Happened, Occurrence, Source};
use iotax_model::threads;
use iotax_model::units::{Nanos, human};
use iotax_testbed::guest::QmpEvent;
use iotax_testbed::interrupt::{Interrupt, POLL};
use iotax_testbed::monitor::device_states::DeviceStates;
use iotax_testbed::monitor::kernel_log::{KernelLine, KernelLog};
use iotax_testbed::monitor::links::Links;
use iotax_testbed::monitor::uevents::Uevents;
use iotax_testbed::undo::EVENT_OF;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::marks::MarkSocket;
use super::operations::Operations;
use super::target::Target;

/// Longest time between two checks for the end of the load, and interval between readings of device states.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of events kept per source, such as the kernel's log.
const MOST_LINES: usize = 500;
/// Maximum number of lines that a watch shows while it measures; the report has all occurrences.
const MOST_NEWS: usize = 100;
/// Maximum number of bytes kept of a command's stderr.
const MOST_ERROR: u64 = 400;

/// The events to carry out in the window of a watch.
pub(super) struct PlannedEvents<'a> {
    /// Events with their start times in the window, in ascending order.
    pub(super) events: Vec<(Nanos, &'a PlannedEvent)>,
    /// Disk operations for the events that need one, such as a snapshot; `None` if there are no such events.
    pub(super) operations: Option<&'a Operations>,
    /// The length of the window.
    pub(super) window: Duration,
    /// True for a control measurement, which has no events and takes no marks.
    pub(super) is_control: bool,
    /// Path of the socket that takes marks.
    pub(super) socket: PathBuf,
    /// The run and its targets, as answers to `iotax mark` name them.
    pub(super) name: String,
    /// Marker in the environment of commands, which identifies them for the undo log.
    pub(super) marker: String,
    /// Flag that is set when the user or a fleet's coordinator stops the run: no further event begins.
    pub(super) stop: &'a Interrupt,
}

impl PlannedEvents<'_> {
    /// Returns whether the user or a fleet's coordinator has stopped the run.
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns whether an event is a command.
    pub(super) fn has_commands(&self) -> bool {
        self.events.iter().any(|(_, event)| matches!(event.action, Action::Command(_)))
    }
}

/// The occurrences that a watch has recorded, and its other results.
pub(super) struct WatchResult {
    /// Occurrences in order of time.
    pub(super) occurrences: Vec<Occurrence>,
    /// The reasons why sources were not read, or not completely.
    pub(super) remarks: Vec<String>,
    /// The start of the window; `None` if it did not begin.
    pub(super) began: Option<Instant>,
    /// Lines for the user that were not shown yet.
    pub(super) news: Vec<String>,
}

/// The connection from the thread of the load to a watch: signals the beginning and end of the window, and fetches lines for the user.
pub(super) struct WatchedWindow<'a> {
    stage: &'a Stage,
    events: Sender<Instant>,
}

impl WatchedWindow<'_> {
    /// Signals that the window began at this time.
    pub(super) fn begin(&self, at: Instant) {
        // Only the first call has an effect.
        let _ = self.stage.began.set(at);
        // The receiver may have ended already.
        let _ = self.events.send(at);
    }

    /// Returns the lines for the user about occurrences since the last call.
    pub(super) fn news(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.stage.news).1)
    }

    /// Signals the end of the load: no further event starts.
    pub(super) fn end(&self) {
        self.stage.over.store(true, Ordering::Relaxed);
    }

    /// Returns the events whose commands are still running, each with its process id.
    pub(super) fn running(&self) -> Vec<String> {
        locked(&self.stage.running).clone()
    }

    /// Stops waiting for the commands that still run, and leaves them running.
    pub(super) fn leave(&self) {
        self.stage.left.store(true, Ordering::Relaxed);
    }
}

/// Runs `load` and, in its window, the planned events; records marks and events of the machine meanwhile. `disks` are the devices below
/// the targets.
///
/// Waits for commands that have begun, because stopping them halfway may do harm.
///
/// # Errors
/// Fails if the thread for the events cannot be started.
pub(super) fn during(
    planned: &PlannedEvents<'_>,
    disks: &[String],
    load: impl FnOnce(&WatchedWindow<'_>),
) -> io::Result<WatchResult> {
    let stage = Stage::default();
    let observed = |source: Source| move |text: String| Happened::Observed { source, text };
    let logged = |line: KernelLine| Happened::Kernel { level: line.level, text: line.text };
    let mut states = DeviceStates::new(Path::new("/"), disks);
    let log = stage.open("the kernel's log", KernelLog::open());
    let uevents = stage.open("events of devices", Uevents::open());
    let links = stage.open("states of network interfaces", Links::open());
    let marks = stage.open("iotax mark", MarkSocket::open(&planned.socket));
    let all = &stage;
    thread::scope(|scope| {
        // Dropping this at any exit tells the threads to end; otherwise the scope would wait for them forever.
        let _over = Over(all);
        let (for_events, events_begin) = mpsc::channel();
        threads::spawn_scoped(scope, "events", move || all.carry_out(planned, &events_begin))?;
        if let Some(mut log) = log {
            let name = "the kernel's log";
            all.begin(scope, name, move || all.read(name, || log.next(POLL_EVERY).into_iter().map(logged)));
        }
        if let Some(uevents) = uevents {
            let name = "events of devices";
            let next = move || uevents.next(POLL_EVERY).into_iter().map(observed(Source::Device));
            all.begin(scope, name, move || all.read(name, next));
        }
        if let Some(mut links) = links {
            let name = "states of network interfaces";
            let next = move || links.next(POLL_EVERY).into_iter().map(observed(Source::Link));
            all.begin(scope, name, move || all.read(name, next));
        }
        let name = "states of devices";
        all.begin(scope, name, move || {
            all.read(name, || {
                threads::sleep(POLL_EVERY);
                states.changes().into_iter().map(observed(Source::State))
            });
        });
        if let Some(marks) = &marks {
            all.begin(scope, "iotax mark", move || all.take_marks(marks, planned));
        }
        load(&WatchedWindow { stage: all, events: for_events });
        io::Result::Ok(())
    })?;
    Ok(stage.end())
}

/// Guard that signals the end of the load when dropped.
struct Over<'a>(&'a Stage);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Returns the events that the guests' QEMU reported since the last call, timed from `began`. Drops events before `began`.
pub(super) fn of_guests(targets: &mut [Target], began: Instant) -> Vec<Occurrence> {
    let several = targets.len() > 1;
    let (now, clock) = (Instant::now(), SystemTime::now());
    let mut found = Vec::new();
    for (number, target) in (1..).zip(targets) {
        let events = target.running_guest().map(|running| running.guest.events());
        // A guest that does not answer makes its measurement fail anyway.
        for QmpEvent { at, text } in events.into_iter().flatten().flatten() {
            let ago = clock.duration_since(at).unwrap_or_default();
            let Some(at) = now.checked_sub(ago).and_then(|at| at.checked_duration_since(began)) else {
                continue;
            };
            let text = if several { format!("guest {number}: {text}") } else { text };
            found.push(Occurrence {
                at_ns: nanos(at),
                what: Happened::Observed { source: Source::Qemu, text },
            });
        }
    }
    found
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// State that the threads of a watch share.
#[derive(Default)]
struct Stage {
    /// The start of the window.
    began: OnceLock<Instant>,
    /// True once the load is over.
    over: AtomicBool,
    found: Mutex<Vec<Occurrence>>,
    remarks: Mutex<Vec<String>>,
    /// The number of lines for the user so far, and the lines not shown yet.
    news: Mutex<(usize, Vec<String>)>,
    /// Events whose commands are running, each with its process id.
    running: Mutex<Vec<String>>,
    /// True once commands are no longer waited for.
    left: AtomicBool,
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    fn put(&self, began: Instant, at: Instant, what: Happened) {
        let at_ns = nanos(at.saturating_duration_since(began));
        if let Some(line) = news_of(&what) {
            // An event is recorded at its start time, but the user sees it when it ends.
            self.tell(nanos(began.elapsed()), &line);
        }
        locked(&self.found).push(Occurrence { at_ns, what });
    }

    fn tell(&self, at_ns: u64, line: &str) {
        let mut news = locked(&self.news);
        news.0 += 1;
        match news.0 {
            ..=MOST_NEWS => news.1.push(news_line(at_ns, line)),
            count if count == MOST_NEWS + 1 => news.1.push("more happens: the report has it".into()),
            _ => {}
        }
    }

    fn remark(&self, remark: String) {
        locked(&self.remarks).push(remark);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Unwraps the result of opening the source `name`. On failure, adds a remark and returns `None`.
    fn open<T>(&self, name: &str, opened: io::Result<T>) -> Option<T> {
        opened.map_err(|error| self.remark(format!("{name}: not read: {error}"))).ok()
    }

    /// Starts a thread that reads a source. If it cannot be started, adds a remark.
    fn begin<'scope>(
        &self,
        scope: &'scope thread::Scope<'scope, '_>,
        name: &str,
        work: impl FnOnce() + Send + 'scope,
    ) {
        self.open(name, threads::spawn_scoped(scope, name, work));
    }

    /// Reads a source until the load is over. `next` returns within [`POLL_EVERY`]. Drops events before the window, and those beyond
    /// [`MOST_LINES`].
    fn read<I: Iterator<Item = Happened>>(&self, name: &str, mut next: impl FnMut() -> I) {
        let (mut count, mut over) = (0, false);
        while !over {
            // Read once more after the end, for events that came with it.
            over = self.is_over();
            let lines = next();
            let at = Instant::now();
            let Some(began) = self.began.get().filter(|began| **began <= at) else { continue };
            for line in lines {
                count += 1;
                if count <= MOST_LINES {
                    self.put(*began, at, line);
                }
            }
        }
        if count > MOST_LINES {
            self.remark(format!("{name}: the first {MOST_LINES} of {count} lines are kept"));
        }
    }

    /// Takes marks during the window, and answers their senders.
    fn take_marks(&self, marks: &MarkSocket, planned: &PlannedEvents<'_>) {
        let PlannedEvents { name, window, .. } = planned;
        while !self.is_over() {
            marks.answer(POLL_EVERY, |text| {
                let at = Instant::now();
                let Some(began) = self.began.get() else {
                    return Err(format!("{name}: its window has not begun"));
                };
                if planned.is_control {
                    return Err(format!("{name}: this is the window without events"));
                }
                let since = at.saturating_duration_since(*began);
                if since >= *window {
                    return Err(format!("{name}: its window is over"));
                }
                self.put(*began, at, Happened::Observed { source: Source::Mark, text: text.to_owned() });
                Ok(format!("{name}: marked at {}", human::time(nanos(since) as f64)))
            });
        }
    }

    fn end(self) -> WatchResult {
        let mut occurrences = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        occurrences.sort_by_key(|occurrence| occurrence.at_ns);
        let remarks = self.remarks.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (_, news) = self.news.into_inner().unwrap_or_else(PoisonError::into_inner);
        WatchResult { occurrences, remarks, began: self.began.into_inner(), news }
    }

    /// Starts each planned event at its time in the window.
    fn carry_out(&self, planned: &PlannedEvents<'_>, begins: &Receiver<Instant>) {
        let Ok(began) = begins.recv() else { return };
        thread::scope(|scope| {
            for (at, event) in &planned.events {
                let due = began + Duration::from_nanos(at.0);
                while let Some(left) =
                    due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
                {
                    if self.is_over() || planned.is_stopped() {
                        break;
                    }
                    threads::sleep(left.min(POLL_EVERY));
                }
                let (over, stopped) = (self.is_over(), planned.is_stopped());
                if over || stopped {
                    let what = if stopped { "run was interrupted" } else { "load had ended" };
                    let failure = Some(format!("the {what} before it"));
                    let what = Happened::Event { name: event.name.clone(), duration_ns: None, failure };
                    self.put(began, due, what);
                    continue;
                }
                // A long event does not delay the next one.
                let carry_out = move || {
                    let begun = Instant::now();
                    self.tell(
                        nanos(begun.saturating_duration_since(began)),
                        &format!("{} begins", event.name),
                    );
                    let done = match &event.action {
                        Action::Command(command) => self.run(&event.name, command, &planned.marker),
                        Action::Operation(operation) => {
                            Ok(planned.operations.and_then(|operations| operations.perform(*operation)))
                        }
                    };
                    let (duration_ns, failure) = match done {
                        Ok(failure) => (Some(begun.elapsed()), failure),
                        Err(error) => (None, Some(format!("sh could not be started: {error}"))),
                    };
                    let duration_ns = duration_ns.map(nanos);
                    let what = Happened::Event { name: event.name.clone(), duration_ns, failure };
                    self.put(began, begun, what);
                };
                if let Err(error) = threads::spawn_scoped(scope, "event", carry_out) {
                    let failure = Some(error.to_string());
                    let what = Happened::Event { name: event.name.clone(), duration_ns: None, failure };
                    self.put(began, due, what);
                }
            }
        });
    }

    /// Runs a command until it ends or the user stops waiting for it. Returns the reason if it failed or was left running, else `None`.
    fn run(&self, name: &str, command: &str, marker: &str) -> io::Result<Option<String>> {
        // A memory file, not a pipe: processes that the command leaves running would keep a pipe open. If a sandbox has no memory files,
        // the command's output is discarded.
        let said = rustix::fs::memfd_create("event", MemfdFlags::CLOEXEC).ok().map(File::from);
        let stderr = || match &said {
            Some(said) => Ok(Stdio::from(said.try_clone()?)),
            None => Ok(Stdio::null()),
        };
        let mut child = begin(command, marker, stderr)?;
        let line = format!("event {name} (process {})", child.id());
        locked(&self.running).push(line.clone());
        let ended = loop {
            match child.try_wait()? {
                None if self.left.load(Ordering::Relaxed) => break None,
                None => await_end(&child),
                ended => break ended,
            }
        };
        locked(&self.running).retain(|one| *one != line);
        let Some(status) = ended else {
            return Ok(Some(format!("process {} was left running", child.id())));
        };
        if status.success() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        if let Some(mut said) = said {
            said.seek(SeekFrom::Start(0))?;
            said.take(MOST_ERROR).read_to_end(&mut bytes)?;
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        Ok(Some(if lines.is_empty() {
            status.to_string()
        } else {
            format!("{status}: {}", lines.join("; "))
        }))
    }
}

/// Waits until a child has ended, for at most [`POLL`].
fn await_end(child: &Child) {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).and_then(|ended| {
        let most = Timespec::try_from(POLL).ok();
        poll(&mut [PollFd::new(&ended, PollFlags::IN)], most.as_ref())
    });
    // A sandbox may forbid pidfds.
    if ended.is_err() {
        threads::sleep(POLL);
    }
}

/// Starts a command in a new session, or without setsid(1) in a new process group: Ctrl-C does not reach it, and a password prompt fails at
/// once instead of waiting for a terminal.
fn begin(command: &str, marker: &str, stderr: impl Fn() -> io::Result<Stdio>) -> io::Result<Child> {
    let start = |shell: &mut Command| {
        shell
            .args(["-c", command])
            .env(EVENT_OF, marker)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr()?)
            .spawn()
    };
    match start(Command::new("setsid").arg("sh")) {
        // A small system may lack setsid.
        Err(error) if error.kind() == io::ErrorKind::NotFound => start(Command::new("sh").process_group(0)),
        started => started,
    }
}

/// Formats a line for the user, with its time in the window.
pub(super) fn news_line(at_ns: u64, text: &str) -> String {
    format!("{:>8}  {text}", human::time(at_ns as f64))
}

/// Formats an occurrence as a line for the user; `None` for occurrences that only the report shows, such as lines of the kernel's log.
fn news_of(what: &Happened) -> Option<String> {
    match what {
        Happened::Event { name, failure: Some(failure), duration_ns } => {
            let what = if duration_ns.is_some() { "failed" } else { "did not begin" };
            Some(format!("{name} {what}: {failure}"))
        }
        Happened::Event { name, duration_ns, .. } => {
            duration_ns.map(|ns| format!("{name} took {}", human::time(ns as f64)))
        }
        Happened::Observed { source: source @ (Source::Mark | Source::Link | Source::State), text } => {
            Some(format!("{source}: {text}"))
        }
        Happened::Observed { .. } | Happened::Kernel { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_testbed::interrupt::PRESSED;

    fn planned<'a>(
        events: Vec<(Nanos, &'a PlannedEvent)>,
        window: Duration,
        dir: &Path,
    ) -> PlannedEvents<'a> {
        let (socket, name) = (dir.join("socket"), "run 1".into());
        let marker = "iotax-test-event-0".into();
        let stop = &PRESSED;
        PlannedEvents { events, operations: None, window, is_control: false, socket, name, marker, stop }
    }

    #[test]
    fn no_event_begins_once_the_user_stops_the_run_while_its_load_still_waits() {
        let event = PlannedEvent { name: "late".into(), action: Action::Command("true".into()), at: None };
        let dir = tempfile::tempdir().expect("a directory");
        let stop = Interrupt::default();
        let events = vec![(Nanos::from_millis(100), &event)];
        let planned = PlannedEvents { stop: &stop, ..planned(events, Duration::from_secs(1), dir.path()) };
        let result = during(&planned, &[], |watched| {
            watched.begin(Instant::now());
            stop.store(true, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(300));
        })
        .expect("threads");
        let failures: Vec<&str> = result
            .occurrences
            .iter()
            .filter_map(|one| match &one.what {
                Happened::Event { failure, .. } => failure.as_deref(),
                _ => None,
            })
            .collect();
        assert_eq!(failures, ["the run was interrupted before it"]);
    }

    #[test]
    fn a_load_that_panics_leaves_no_thread_that_waits_for_its_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let planned = planned(Vec::new(), Duration::from_mins(1), dir.path());
        let begun = Instant::now();
        let load = || during(&planned, &[], |_| panic!("no thread for an agent"));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(load));
        assert!(ended.is_err() && begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }

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
        let dir = tempfile::tempdir().expect("a directory");
        let events = times.into_iter().zip(&all).collect();
        let planned = planned(events, Duration::from_millis(250), dir.path());
        let mut answers = Vec::new();
        let mut shown = Vec::new();
        let result = during(&planned, &[], |watched| {
            answers.push(super::super::marks::send(&planned.socket, "too early"));
            watched.begin(Instant::now());
            answers.push(super::super::marks::send(&planned.socket, "cable pulled"));
            thread::sleep(Duration::from_millis(250));
            answers.push(super::super::marks::send(&planned.socket, "too late"));
            shown = watched.news();
        })
        .expect("threads");
        let answers: Vec<String> = answers.into_iter().map(|answer| answer.expect("answered").text).collect();
        assert_eq!(answers[0], "run 1: its window has not begun");
        assert!(answers[1].starts_with("run 1: marked at "), "{answers:?}");
        let shown: Vec<&str> = shown
            .iter()
            .chain(&result.news)
            .filter_map(|line| line.trim_start().split_once("  ")?.1.split(" took ").next())
            .collect();
        for line in
            ["mark: cable pulled", "slow begins", "slow", "wrong failed: exit status: 3: no such path"]
        {
            assert!(shown.contains(&line), "{line}: {shown:?}");
        }
        assert_eq!(answers[2], "run 1: its window is over");
        assert!(!planned.socket.exists(), "the socket stays");
        let found = result.occurrences;
        let marks: Vec<&Happened> = found
            .iter()
            .map(|one| &one.what)
            .filter(|what| matches!(what, Happened::Observed { source: Source::Mark, .. }))
            .collect();
        assert_eq!(marks, [&Happened::Observed { source: Source::Mark, text: "cable pulled".into() }]);
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
