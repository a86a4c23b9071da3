//! Shows a plan and asks for confirmation.

use std::io::{self, BufRead};
use std::sync::atomic::Ordering;

use iotax_model::plan::{Action, Plan};
use iotax_model::target::{Accel, ImageSpec, TargetSpec};
use iotax_model::units::human;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::target::existing_image;

use super::estimate;
use super::say::{Stream, say};
use crate::runner::{self, Guests};

/// Shows the plan, its estimated time and the disk space that it needs, which is `space` bytes. `done` is the number of measurements that
/// exist already. `seed` is `None` if it is not known yet.
pub(super) fn show_plan(plan: &Plan, seed: Option<u64>, done: usize, space: u64, guests: Option<&Guests>) {
    let time = estimate::time(plan, done, guests.map(Guests::accel));
    let dirs: Vec<String> = plan.directories().iter().map(|dir| dir.display().to_string()).collect();
    let space = match dirs.as_slice() {
        [] => String::new(),
        dirs => format!(", {} in {}", human::bytes(space), dirs.join(" and ")),
    };
    let done = match done {
        0 => String::new(),
        1 => "; 1 measurement is there already".to_owned(),
        done => format!("; {done} measurements are there already"),
    };
    let (workloads, rounds) = if plan.finds_rates() {
        (plan.asked().count(), String::new())
    } else {
        (plan.workloads.len(), format!(" x {}", many(&estimate::rounds(plan), "round")))
    };
    let seed = seed.map_or(String::new(), |seed| format!(" Seed {seed}."));
    let together = if plan.is_together() { " at the same time" } else { "" };
    let (targets, workloads) = (plan.targets.len().to_string(), workloads.to_string());
    say!(
        "{}{together} x {}{rounds}, {time}{space}{done}.{seed}",
        many(&targets, "target"),
        many(&workloads, "workload")
    );
    if let Some(design) = estimate::design(plan) {
        say!("{design}");
    }
    let width = plan.targets.iter().map(|target| target.name.len()).max().unwrap_or_default();
    for target in &plan.targets {
        say!("  {:<width$}  {}", target.name, target.description());
        let others = target.stack.find::<ImageSpec>().map(|image| existing_image::others(&image.path));
        others.iter().flatten().for_each(|other| say!("  {:<width$}  reads {other} too", ""));
    }
    if let Some(caches) = machine_caches(plan) {
        say!("  {caches}");
    }
    slow_fills(plan).iter().for_each(|fill| say!("  {fill}"));
    events(plan).iter().for_each(|event| say!("  {event}"));
    if let Some(guests) = guests {
        let emulated =
            if guests.accel() == Accel::Tcg { " Guests' figures are labelled emulated." } else { "" };
        say!("{}.{emulated}", guests.accel_reason());
    }
}

/// Returns a sentence for each target whose throttle makes its filling take longer than a minute.
pub(super) fn slow_fills(plan: &Plan) -> Vec<String> {
    /// Longest filling time in seconds that is not reported.
    const SHORT: f64 = 60.0;
    let slow = plan.everything().filter_map(|target| Some((target, runner::throttled_fill(target, plan)?)));
    let sentence = |(target, seconds): (&TargetSpec, f64)| {
        format!(
            "{}: its throttle holds the filling of {} too, for about {} at least; raise iops or rate, or lower size.",
            target.name,
            human::bytes(runner::fill_bytes(target, plan)),
            human::duration(seconds)
        )
    };
    slow.filter(|(_, seconds)| *seconds > SHORT).map(sentence).collect()
}

/// Returns a sentence about the workloads that drop the whole machine's caches; `None` if no workload does.
pub(super) fn machine_caches(plan: &Plan) -> Option<String> {
    let mut names = plan.workloads.iter().filter(|it| it.drops_machine_caches()).map(|it| &it.name);
    let first = names.next()?;
    let more = match names.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "Before each measurement of {first}{more} all caches of the machine are dropped (pages, dentries, inodes)."
    ))
}

/// Formats a count and a noun: `1 target`, `2 targets`, `4 to 22 rounds`.
fn many(count: &str, noun: &str) -> String {
    format!("{count} {noun}{}", if count == "1" { "" } else { "s" })
}

/// Lists a watch's events with their times, so that the user sees every command before it runs.
pub(super) fn events(plan: &Plan) -> Vec<String> {
    let Some(watch) = plan.watch() else { return Vec::new() };
    let window = plan.workloads.first().map(|workload| workload.runtime).unwrap_or_default();
    let all = watch.scheduled(window).into_iter();
    let exchanged = watch.exchanged().map(|[one, other]| {
        format!("events {} and {} change places at random from round to round", one.name, other.name)
    });
    all.map(|(at, event)| match &event.action {
        Action::Command(command) => format!("event {} at {at}: sh -c {command:?}", event.name),
        Action::Operation(operation) => format!("event {} at {at}: QEMU's {operation}", event.name),
    })
    .chain(exchanged)
    .collect()
}

/// Formats the shell commands that a watch's events run; empty for other plans.
pub(super) fn commands(plan: &Plan) -> Vec<String> {
    let events = plan.watch().into_iter().flat_map(|watch| &watch.events);
    let commands = events.filter_map(|event| match &event.action {
        Action::Command(command) => Some(format!("sh -c {command:?}")),
        Action::Operation(_) => None,
    });
    commands.collect()
}

/// Asks on the terminal whether to begin. Returns true for `y`, `yes` and an empty line; false for any other answer, after Ctrl-C and at
/// the end of input.
pub(super) fn confirmed(stop: &Interrupt) -> bool {
    asked("Begin? [Y/n] ", stop)
}

/// Asks a question on the terminal. Returns true for `y`, `yes` and an empty line; false for any other answer, after Ctrl-C and at the end
/// of input.
pub(super) fn asked(question: &str, stop: &Interrupt) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    Stream::Stderr.text(question);
    let stdin = io::stdin();
    while !stop.load(Ordering::Relaxed) {
        let ready = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&POLL));
        if matches!(ready, Ok(1..)) {
            let mut answer = String::new();
            let read = stdin.lock().read_line(&mut answer);
            return matches!(read, Ok(n) if n > 0)
                && matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes");
        }
    }
    false
}
