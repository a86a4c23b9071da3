//! What every command that measures does: check, show the plan, ask, carry it out, report.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::target::Accel;
use iotax_model::units::human;
use iotax_results::store::{NewRun, Store};
use iotax_rig::ledger::{self, Ledger};
use iotax_rig::link::Interrupt;
use iotax_rig::target::preflight;

use super::args::{self, Conduct, Output};
use super::progress::Watcher;
use super::{Failure, OrExit, show, usage};
use crate::conduct::{self, Ended, GuestOptions, Guests, Order};

/// Measurements that a run has already.
pub(super) struct Earlier {
    pub(super) run: i64,
    pub(super) seed: u64,
    pub(super) done: HashSet<(String, String, u32)>,
}

/// What a command wants carried out.
pub(super) struct Session<'a> {
    pub(super) plan: &'a Plan,
    pub(super) output: &'a Output,
    pub(super) conduct: &'a Conduct,
    pub(super) guests: GuestOptions,
    /// The run to go on with; absent: a new one.
    pub(super) earlier: Option<Earlier>,
    /// Created files stay.
    pub(super) keep: bool,
    /// Show the plan and ask before it is begun: for what takes minutes and gigabytes.
    pub(super) ask: bool,
    /// Write a report even if none was asked for.
    pub(super) report: bool,
}

/// Files that results go to, opened before anything is measured.
struct Files {
    json: Option<File>,
    html: Option<(PathBuf, File)>,
}

impl Session<'_> {
    /// Carries it out and reports.
    pub(super) fn carry_out(self) -> Result<Exit, Failure> {
        let needs = preflight::check(self.plan)
            .map_err(|refusal| Failure { exit: refusal.exit, error: refusal.into() })?;
        if self.ask && !self.conduct.yes && !io::stdin().is_terminal() {
            return Err(usage("there is no terminal to ask on; add --yes to begin without asking"));
        }
        let stop = watch_signals().or_exit(Exit::Environment)?;
        let ledger_dir = args::ledger_dir()?;
        hint_at_leftovers(&ledger_dir);
        let mut store = self.output.store()?;
        let json = match &self.output.json {
            Some(path) if path.as_path() != Path::new("-") => Some(create(path)?),
            _ => None,
        };

        let tag = conduct::fresh_tag().or_exit(Exit::Environment)?;
        let mut ledger = Ledger::create(&ledger_dir, &tag).or_exit(Exit::Environment)?;
        let guests = if self.plan.targets.iter().any(|target| target.guest.is_some()) {
            match Guests::prepare(&self.guests, &tag, &mut ledger, &stop) {
                Ok(guests) => Some(guests),
                Err(error) => {
                    ledger.undo_all();
                    return Err(error).or_exit(Exit::Environment);
                }
            }
        } else {
            None
        };
        let seed = match (&self.earlier, self.plan.seed.or(self.conduct.seed)) {
            (Some(earlier), _) => earlier.seed,
            (None, Some(seed)) => seed,
            (None, None) => conduct::fresh_seed().or_exit(Exit::Environment)? % 1_000_000,
        };
        if self.ask && !self.agreed(seed, needs.total(), guests.as_ref(), &stop) {
            ledger.undo_all();
            eprintln!("Nothing was done.");
            return Ok(Exit::Fine);
        }
        let (run, done) = if let Some(Earlier { run, done, .. }) = self.earlier {
            (run, done)
        } else {
            let new = NewRun { plan: self.plan, seed, started_at_ms: conduct::now_ms() };
            (store.create_run(&new).or_exit(Exit::Environment)?, HashSet::new())
        };
        let html = match &self.output.html {
            Some(path) => Some((path.clone(), create(path)?)),
            None if self.report => default_report(run),
            None => None,
        };

        let mut watcher = Watcher::new();
        let order = Order { run, plan: self.plan, seed, done, guests: guests.as_ref(), keep: self.keep };
        let ended = conduct::carry_out(&order, &tag, &mut ledger, &mut store, &mut watcher, &stop);
        watcher.finish();
        let reported = report(self.output, Files { json, html }, &store, run);
        match ended {
            Ok(ended) => {
                reported?;
                Ok(conclude(ended, run))
            }
            Err(error) => Err(error).or_exit(Exit::Measurement),
        }
    }

    /// Shows what will be done and asks whether to begin.
    fn agreed(&self, seed: u64, space: u64, guests: Option<&Guests>, stop: &Interrupt) -> bool {
        let done = self.earlier.as_ref().map_or(0, |earlier| earlier.done.len());
        let plan = self.plan;
        let seconds = conduct::estimate_seconds(plan, done, guests.map(Guests::accel));
        let dirs: Vec<String> = plan.directories().iter().map(|dir| dir.display().to_string()).collect();
        let space = match dirs.as_slice() {
            [] => String::new(),
            dirs => format!(", {} in {}", human::bytes(space), dirs.join(" and ")),
        };
        let earlier = match done {
            0 => String::new(),
            done => format!("; {done} measurements are there already"),
        };
        eprintln!(
            "{} targets x {} workloads x {} blocks, about {}{space}{earlier}. Seed {seed}.",
            plan.targets.len(),
            plan.workloads.len(),
            plan.repeat,
            human::duration(seconds)
        );
        for target in &plan.targets {
            eprintln!("  {:<20} {}", target.name, describe(target));
        }
        if let Some(guests) = guests {
            let emulated =
                if guests.accel() == Accel::Tcg { " Guests' figures are labelled emulated." } else { "" };
            eprintln!("{}.{emulated}", guests.accel_reason());
        }
        self.conduct.yes || confirmed(stop)
    }
}

/// One line about a target as it will be built.
fn describe(target: &iotax_model::TargetSpec) -> String {
    let file = match (&target.path, &target.file) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(file)) => {
            let snapshot = file.snapshot.map(|kind| format!(" + {kind} snapshot")).unwrap_or_default();
            format!("{} file{snapshot}", file.format)
        }
        (None, None) => String::new(),
    };
    match &target.guest {
        Some(guest) => format!("{file} > {} cache={} aio={} > guest", guest.bus, guest.cache, guest.aio),
        None => file,
    }
}

/// Asks on the terminal. Ctrl-C is a no.
fn confirmed(stop: &Interrupt) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    eprint!("Begin? [Y/n] ");
    let _ = io::stderr().flush();
    let stdin = io::stdin();
    while !stop.load(Ordering::Relaxed) {
        let ready = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&LOOK_AGAIN));
        if matches!(ready, Ok(1..)) {
            let mut answer = String::new();
            let read = stdin.lock().read_line(&mut answer);
            return matches!(read, Ok(n) if n > 0)
                && matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes");
        }
    }
    false
}

/// The first Ctrl-C (or termination, or a lost terminal) asks the run to stop and undo; a second one ends the process
/// at once and leaves the rest to `iotax clean`.
fn watch_signals() -> anyhow::Result<Interrupt> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Interrupt::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot watch for signals")?;
    }
    Ok(stop)
}

fn hint_at_leftovers(ledger_dir: &Path) {
    if let Ok(left) = ledger::leftovers(ledger_dir)
        && !left.is_empty()
    {
        eprintln!(
            "note: an earlier run that was cut off left {} things behind; iotax clean removes them",
            left.len()
        );
    }
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).with_context(|| format!("cannot write {}", path.display())).or_exit(Exit::Environment)
}

/// `iotax-RUN.html` here, unless something of that name is there already.
fn default_report(run: i64) -> Option<(PathBuf, File)> {
    let path = PathBuf::from(format!("iotax-{run}.html"));
    match File::create_new(&path) {
        Ok(file) => Some((path, file)),
        Err(error) => {
            eprintln!(
                "note: no report is written to {}: {error}; later: iotax show {run} --html FILE",
                path.display()
            );
            None
        }
    }
}

/// Table, JSON and HTML of what the store has.
fn report(output: &Output, files: Files, store: &Store, run: i64) -> Result<(), Failure> {
    let run = store.load(run).or_exit(Exit::Environment)?;
    let judgement = iotax_results::judge::judge(&run);
    show::print(output, &run, &judgement);
    if let Some(mut file) = files.json {
        serde_json::to_writer_pretty(&mut file, &iotax_results::exchange::json::document(&run, &judgement))
            .or_exit(Exit::Environment)?;
        file.write_all(b"\n").or_exit(Exit::Environment)?;
    }
    if let Some((path, mut file)) = files.html {
        file.write_all(iotax_results::report::html::render(&run, &judgement).as_bytes())
            .or_exit(Exit::Environment)?;
        eprintln!("Report: {}", path.display());
    }
    Ok(())
}

fn conclude(ended: Ended, run: i64) -> Exit {
    match ended {
        Ended::Complete => {
            eprintln!("Run {run} kept; show it again with: iotax show {run}");
            Exit::Fine
        }
        Ended::Missing(cells) => {
            eprintln!("{cells} measurements failed; try them again with: iotax resume {run}");
            Exit::Measurement
        }
        Ended::Interrupted => {
            eprintln!("Interrupted; everything is undone. Go on with: iotax resume {run}");
            Exit::Interrupted
        }
    }
}
