//! Runs the load of a window, and watches the machine meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::record::Occurrence;
use iotax_model::threads;
use iotax_model::units::{Nanos, human};
use iotax_model::wire::Job;
use iotax_model::workload::{Verify, Workload};
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::interrupt::{self, POLL};
use iotax_testbed::monitor::fua_writes::FuaWrites;

use super::Progress;
use super::common_window;
use super::gate::Entry;
use super::occurrences::{self, PlannedEvents, WatchResult, WatchedWindow};
use super::start_barrier::{self, AgentEvent, Participant};
use super::target::{OwnAgent, Target};
use super::watch::{Host, Watch, Watched};

/// Time limit for an agent before and after the load: emulated guests are slow to answer.
const SLACK: Duration = Duration::from_secs(30);
/// Assumed minimum throughput of storage in bytes per second, for time limits.
const SLOWEST: u64 = 10_000_000;
/// Minimum age in nanoseconds at which an I/O in flight is reported as hanging.
const HUNG_NS: u64 = 1_000_000_000;

/// The load on one target and on its neighbour in a window.
pub(super) struct Part<'a> {
    pub(super) workload: &'a Workload,
    /// The workload of the neighbour, which competes with the target; `None` without a neighbour.
    pub(super) neighbour: Option<Workload>,
    pub(super) seed: u64,
    /// The length of sampling intervals.
    pub(super) interval: Nanos,
    /// The target's instances: one, or one for each guest or server.
    pub(super) targets: &'a mut [Target],
    pub(super) neighbours: &'a mut [Target],
    /// The count of this machine's writes with FUA; `None` if they are not counted.
    pub(super) fua_writes: Option<&'a Arc<FuaWrites>>,
}

impl Part<'_> {
    pub(super) fn everything(&mut self) -> impl Iterator<Item = &mut Target> {
        self.targets.iter_mut().chain(self.neighbours.iter_mut())
    }
}

/// The result of one part: a target with its neighbour.
pub(super) struct Performed {
    pub(super) watched: Watched,
    /// Occurrences, timed from the start of this part's own window.
    pub(super) occurrences: Vec<Occurrence>,
}

/// Runs the workloads of all parts concurrently and monitors the machine. With `planned` the measurement is a watch, which keeps an agent's
/// results even if the agent is lost.
pub(super) fn perform(
    parts: &mut [Part<'_>],
    entry: Entry<'_>,
    planned: Option<&PlannedEvents<'_>>,
    run_agent: &mut AgentClient,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<anyhow::Result<Performed>>> {
    let (mut participants, mut watches, mut disks) = (Vec::new(), Vec::new(), Vec::new());
    let mut run_agent = Some(run_agent);
    for part in parts.iter_mut() {
        let first = participants.len();
        let name = part.targets.first().map(|target| target.spec.name.clone()).unwrap_or_default();
        let host = Host::new(part.targets, part.workload, part.fua_writes)?;
        disks.extend(host.iter().flat_map(|host| host.disks.clone()));
        let mut layers = Vec::new();
        for (number, target) in (0..).zip(part.targets.iter_mut()) {
            let job = target.job(part.workload, part.seed.wrapping_add(number), part.interval);
            let name = target.name_among(number);
            let mut shares_clock = false;
            let agent = if let Some(OwnAgent { client, blocks }) = target.own_agent()? {
                layers.extend(blocks);
                client
            } else {
                shares_clock = true;
                run_agent.take().context("this host's agent measures one target at a time")?
            };
            participants.push(Participant {
                name,
                agent,
                slack: slack(&job),
                job,
                shares_clock,
                is_neighbour: false,
            });
        }
        for (number, target) in (0..).zip(part.neighbours.iter_mut()) {
            let workload = part.neighbour.as_ref().context("noise has a workload")?;
            // Use other offsets than the measured targets do.
            let seed = !part.seed.wrapping_add(number);
            let job = target.job(workload, seed, common_window::fine(workload));
            let name = target.spec.name.clone();
            let agent = target.own_agent()?.context("a neighbour has an agent of its own")?.client;
            participants.push(Participant {
                name,
                agent,
                slack: slack(&job),
                job,
                shares_clock: false,
                is_neighbour: true,
            });
        }
        let watch = Watch::new(host, layers, &participants[first..], part.workload);
        let watch = if planned.is_some() { watch.keeping() } else { watch };
        watches.push(PartWatch { first, name, hung: None, watch });
    }
    disks.sort();
    disks.dedup();
    let mut all = Watches(watches);
    let Some(planned) = planned else {
        start_barrier::run(participants, entry, &mut |event| drop(all.see(event, progress)));
        let watched =
            all.finish().map(|watched| Ok(Performed { watched: watched?, occurrences: Vec::new() }));
        return Ok(watched.collect());
    };
    let WatchResult { occurrences, remarks, began, news } = occurrences::during(planned, &disks, |window| {
        let mut has_begun = false;
        start_barrier::run(participants, entry, &mut |event| {
            let goes_on = all.see(event, progress);
            window.news().iter().chain(&goes_on).for_each(|line| progress.note(line));
            if let (Some(at), false) = (all.began(), has_begun) {
                has_begun = true;
                window.begin(at);
            }
        });
        window.end();
        wait_for_commands(window, progress);
    })?;
    news.iter().chain(&remarks).for_each(|line| progress.note(line));
    let watched: Vec<anyhow::Result<Watched>> = all.finish().collect();
    let performed = watched.into_iter().zip(parts).map(|(watched, part)| {
        let watched = watched?;
        let mut occurrences = occurrences.clone();
        if let Some(began) = began {
            let since = began.saturating_duration_since(watched.began());
            occurrences.iter_mut().for_each(|one| one.at_ns += nanos(since));
            occurrences.extend(occurrences::of_guests(part.targets, watched.began()));
            occurrences.sort_by_key(|occurrence| occurrence.at_ns);
        }
        Ok(Performed { watched, occurrences })
    });
    Ok(performed.collect())
}

/// Waits for commands that run longer than the load, until Ctrl-C, because stopping them halfway may do harm.
fn wait_for_commands(window: &WatchedWindow<'_>, progress: &mut dyn Progress) {
    let mut reported = Vec::new();
    let mut again = None;
    loop {
        let running = window.running();
        if running.is_empty() {
            return;
        }
        // From now on, Ctrl-C ends this wait instead of the process.
        let again = again.get_or_insert_with(interrupt::ask_again);
        if reported != running {
            progress.note(&format!("waiting for {} to end; Ctrl-C leaves it running", running.join(", ")));
            reported = running;
        }
        window.news().iter().for_each(|line| progress.note(line));
        if again.is_asked() {
            return window.leave();
        }
        threads::sleep(POLL);
    }
}

/// The monitoring of one part: a target with its neighbour.
struct PartWatch<'a> {
    /// The index of the part's first participant.
    first: usize,
    /// The name of the part's target.
    name: String,
    /// The greatest age in nanoseconds of an I/O that hangs; `None` if no I/O hangs.
    hung: Option<u64>,
    watch: Watch<'a>,
}

/// The monitoring of all parts of a window.
struct Watches<'a>(Vec<PartWatch<'a>>);

impl<'a> Watches<'a> {
    /// Processes an event of an agent. Returns a line for the user once I/Os that hung complete again, else `None`.
    fn see(&mut self, event: AgentEvent, progress: &mut dyn Progress) -> Option<String> {
        let index = self.0.partition_point(|part| part.first <= event.participant).saturating_sub(1);
        let part = self.0.get_mut(index)?;
        let participant = event.participant - part.first;
        let is_beat = part.watch.see(AgentEvent { participant, ..event }, progress);
        let news = if is_beat { part.goes_on() } else { None };
        // Report once for all parts, at the intervals of the first part.
        if is_beat && index == 0 {
            let iops = self.all().map(Watch::iops).sum();
            let lengths = self.all().flat_map(Watch::latest).map(|sample| sample.duration_ns);
            let length = Nanos(lengths.max().unwrap_or(0));
            progress.interval(length, iops, self.all().filter_map(Watch::oldest_ns).max());
        }
        news
    }

    fn all(&self) -> impl Iterator<Item = &Watch<'a>> {
        self.0.iter().map(|part| &part.watch)
    }

    /// Returns the start of the last window to begin. `None` until all measured agents of every part have begun, or one of them has ended
    /// or failed; also `None` if no window has begun.
    fn began(&self) -> Option<Instant> {
        self.all().all(Watch::is_settled).then(|| self.all().filter_map(Watch::began).max()).flatten()
    }

    fn finish(self) -> impl Iterator<Item = anyhow::Result<Watched>> {
        self.0.into_iter().map(|part| part.watch.finish())
    }
}

impl PartWatch<'_> {
    /// Returns a line for the user once I/Os that hung at the end of an earlier interval complete again; `None` otherwise.
    fn goes_on(&mut self) -> Option<String> {
        let oldest = self.watch.oldest_ns().filter(|age| *age >= HUNG_NS);
        if let Some(age) = oldest {
            self.hung = self.hung.max(Some(age));
            return None;
        }
        let age = self.hung.take()?;
        let at = nanos(self.watch.began()?.elapsed());
        let text =
            format!("{}: I/Os complete again, which hung for {} or more", self.name, human::time(age as f64));
        Some(occurrences::news_line(at, &text))
    }
}

/// Returns the time that a measurement may take beyond its warm-up and window: for flushing a cache that may hold the whole area, reading
/// the area back for verification, and creating or removing a test's files.
fn slack(job: &Job) -> Duration {
    let bytes = job.workload.jobs().map(|one| {
        let passes = u64::from(one.writes()) + u64::from(one.verify != Verify::None);
        passes * one.span(one.size.unwrap_or(job.size)).unwrap_or(job.size).0
    });
    let files = Duration::from(job.workload.set_up_at_most());
    SLACK + Duration::from_secs(bytes.sum::<u64>() / SLOWEST) + files
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
