//! The command line: one definition feeds the parser, the help, the completions and the man page.

mod args;
mod ask;
mod audit;
mod auth;
mod bench;
mod clean;
mod commits;
mod compare;
mod concurrent;
mod confine;
mod confirm;
mod crash;
mod csv_dir;
mod curve;
mod cut_load;
mod destination;
mod disk_marks;
mod doctor;
mod enlist;
mod estimate;
mod examples;
mod export;
mod failure;
mod fit;
mod flags;
mod fleet;
mod flush;
mod from_libvirt;
mod guest_filesystem;
mod help;
mod import;
mod input;
mod jobs;
mod json_args;
mod known_words;
mod ladder;
mod last_flush;
mod links;
mod list;
mod live;
mod mark;
mod net;
mod note;
mod number;
mod output;
mod output_formats;
mod plan;
mod powercut;
mod print_plan;
mod progress;
mod pull;
mod push;
mod quit_key;
mod rate_gate;
mod record;
mod relay;
mod replace;
mod replay;
mod report;
mod requirements;
mod resume;
mod run;
mod serve;
mod session;
mod signals;
mod store;
mod suite;
mod target_args;
mod terminal;
mod time;
mod top;
mod trace;
mod trend;
mod tune;
mod verify;
mod volatile;
mod watch;
mod wear;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{FromArgMatches, Parser, Subcommand};
use iotax_model::exit::Exit;

use crate::say;
pub(crate) use failure::Failure;
use failure::{OrExit, usage};

/// Measures what every layer between a program and its disk costs per I/O.
#[derive(Debug, Parser)]
#[command(name = "iotax", version = crate::version())]
pub(crate) struct Cli {
    /// Show results, questions and errors only: no progress, no notes
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the same storage in several ways, run the same work on each, and show what each layer costs
    Ladder(ladder::Args),
    /// Measure one file, directory or device, by default in a few short rounds
    Bench(Box<bench::Args>),
    /// Measure latency against offered load: from idle to beyond each target's capacity
    Curve(Box<curve::Args>),
    /// Find the highest I/O rate that meets conditions on latency or errors, with its confidence interval
    Ask(Box<ask::Args>),
    /// Measure what an event costs while storage is in use: gaps, late, failed and lost I/Os, and the time to recovery
    Watch(Box<watch::Args>),
    /// Find settings of the kernel or of a guest that help: try them in random order, and confirm before recommending any
    ///
    /// Restores every setting right after each measurement. Without options: 3 minutes, on the workloads named below.
    Tune(Box<tune::Args>),
    /// Show activity as it happens: devices and layers, guests, processes, network; live, recorded or replayed
    Top(top::Args),
    /// Record the I/O of a block device as a trace, which iotax trace shows and iotax run replays
    ///
    /// Needs root. Uses the kernel's tracepoints in a separate tracing instance, and changes nothing else.
    Record(record::Args),
    /// Show a trace of I/O: its rates, sizes, offsets and bursts, and the closest synthetic workload
    ///
    /// Reads traces of iotax record, fio (iolog 2 and 3), blktrace, blkparse, MSR Cambridge, Alibaba, Tencent, SPC, vSCSI, FIU and
    /// libCacheSim. iotax run replays them.
    Trace(trace::Args),
    /// Check how a machine or path or guest is set up; nothing is measured
    ///
    /// Names settings that endanger data or cost I/O, each with its evidence and a remedy. Only looks, and changes nothing.
    Doctor(doctor::Args),
    /// Mark this moment in the watches that are measuring
    ///
    /// The report lists the mark among the watch's events, with the gap and the recovery that follow it.
    Mark(mark::Args),
    /// Run a plan, a job file of fio or vdbench, or a trace
    Run(run::Args),
    /// Run a classic benchmark suite on one or more targets: sizes, threads, stream, orion, records and others
    Suite(Box<suite::Args>),
    /// Is storage good enough for an application? Yes, no or undecided, by a published limit
    Fit(Box<fit::Args>),
    /// Measure the cost of a durable write by every method, and find layers that swallow flushes
    ///
    /// Counts the flushes that the program requested, that each layer passed on and that the device completed.
    Flush(Box<flush::Args>),
    /// Detect a rate limit in front of storage, and check a promised rate
    ///
    /// A limit shows as the same steady rate at several block sizes; a burst before it, as a drop in the rate.
    Audit(Box<audit::Args>),
    /// Measure the data that a stack loses in a power cut, to weigh against its speed
    ///
    /// Writes to each stack, cuts its power, opens it again and reads back all acknowledged writes.
    Crash(crash::Args),
    /// Test what real storage loses when the plug is pulled: journal acknowledged writes elsewhere, and check against the journal
    #[command(subcommand)]
    Powercut(powercut::Command),
    /// Run one plan on many machines
    #[command(subcommand)]
    Fleet(fleet::Command),
    /// Measure the network
    #[command(subcommand)]
    Net(net::Command),
    /// Check or show a plan without running it
    #[command(subcommand)]
    Plan(plan::Command),
    /// Resume a run that was stopped, or add rounds to one
    Resume(resume::Args),
    /// Import results of fio and other tools as runs; the format is recognised by content
    Import(import::Args),
    /// List the runs in the store
    List(list::Args),
    /// Show the store in a browser: runs, comparisons, trends, machines and what is being measured now
    ///
    /// Pages work without scripts and load nothing from elsewhere. Accepts connections from this machine only, unless a token or client
    /// certificates restrict access.
    Serve(Box<serve::Args>),
    /// Add a note or tags to a run
    Note(note::Args),
    /// Copy runs to another store: a file, or a PostgreSQL database that a team shares
    Push(push::Args),
    /// Copy runs from another store
    Pull(pull::Args),
    /// Make a store for a team
    #[command(subcommand)]
    Store(store::Command),
    /// Show the results of a run again, or of several runs side by side
    #[command(visible_alias = "show")]
    Report(report::Args),
    /// Write a run in another format, such as fio's, vdbench's or CSV, or runs as Parquet files
    Export(export::Args),
    /// Compare two runs, or two targets of one
    Compare(compare::Args),
    /// Find changes over a history of runs: when, by how much, and what else changed then
    ///
    /// Reports changes of level, not single runs that differ. With a control (a target that shows the bare machine), changes of the machine
    /// itself are removed.
    Trend(trend::Args),
    /// Check a target against the journal of its acknowledged writes
    Verify(verify::Args),
    /// Undo what an interrupted run left behind
    Clean(clean::Args),
    /// Print a shell's completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write one for every command
    Man {
        /// Write a page for every command into this new directory
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Serve a runner on stdin and stdout, or wait at a NATS server for fleets to work for
    #[command(hide = true)]
    Agent(enlist::Args),
    /// Commit rows to a database
    #[command(hide = true, subcommand)]
    Commits(commits::Command),
    /// Connect stdin and stdout to a shell in a guest
    #[command(hide = true)]
    Relay(relay::Args),
    /// Serve a volatile directory
    #[command(hide = true)]
    Volatile(volatile::Args),
}

/// Parses and executes the command line.
pub(crate) fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.len() < 2 {
        say::Stream::Stdout.text(&examples::first());
        return Ok(Exit::Fine.into());
    }
    let wants_short_help = arguments.iter().take_while(|word| *word != "--").any(|word| word == "-h");
    let width = say::Stream::Stdout.width();
    let mut command = if wants_short_help { help::short(width) } else { help::command(width) };
    let parsed = command.try_get_matches_from_mut(arguments);
    let parsed =
        parsed.and_then(|given| Cli::from_arg_matches(&given).map_err(|error| error.format(&mut command)));
    let command = match parsed {
        Ok(cli) => {
            say::be_quiet(cli.quiet);
            cli.command
        }
        Err(error) => return Ok(print_clap_error(&error)),
    };
    let exit = match command {
        Command::Ladder(args) => ladder::main(&args),
        Command::Bench(args) => bench::main(&args),
        Command::Curve(args) => curve::main(&args),
        Command::Ask(args) => ask::main(&args),
        Command::Watch(args) => watch::main(&args),
        Command::Tune(args) => tune::main(&args),
        Command::Top(args) => top::main(&args),
        Command::Record(args) => record::main(&args),
        Command::Trace(args) => trace::main(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Mark(args) => mark::main(&args),
        Command::Run(args) => run::main(&args),
        Command::Suite(args) => suite::main(&args),
        Command::Fit(args) => fit::main(&args),
        Command::Flush(args) => flush::main(&args),
        Command::Audit(args) => audit::main(&args),
        Command::Crash(args) => crash::main(&args),
        Command::Powercut(command) => powercut::main(&command),
        Command::Fleet(command) => fleet::main(&command),
        Command::Net(command) => net::main(&command),
        Command::Plan(command) => plan::main(&command),
        Command::Resume(args) => resume::main(&args),
        Command::Import(args) => import::main(&args),
        Command::List(args) => list::main(&args),
        Command::Serve(args) => serve::main(&args),
        Command::Note(args) => note::main(&args),
        Command::Push(args) => push::main(&args),
        Command::Pull(args) => pull::main(&args),
        Command::Store(command) => store::main(&command),
        Command::Report(args) => report::main(&args),
        Command::Export(args) => export::main(&args),
        Command::Compare(args) => compare::main(&args),
        Command::Trend(args) => trend::main(&args),
        Command::Verify(args) => verify::main(&args),
        Command::Clean(args) => clean::main(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut help::command(width), "iotax", &mut script);
            say::document(&String::from_utf8_lossy(&script));
            Ok(Exit::Fine)
        }
        Command::Man { dir: None } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(help::command(width)).render(&mut page).or_exit(Exit::Environment)?;
            say::document(&String::from_utf8_lossy(&page));
            Ok(Exit::Fine)
        }
        Command::Man { dir: Some(dir) } => man_pages(&dir),
        Command::Commits(command) => commits::main(&command),
        Command::Relay(args) => relay::main(args),
        Command::Volatile(args) => volatile::main(&args),
        Command::Agent(agent) => match agent.main() {
            Some(exit) => exit,
            None => return Ok(crate::agent::main(args::undo_dir().ok())),
        },
    };
    exit.map(Into::into)
}

/// Writes a man page for every command into a new directory.
fn man_pages(dir: &Path) -> Result<Exit, Failure> {
    let shown = || dir.display().to_string();
    links::check(dir).and_then(|()| fs::create_dir(dir)).with_context(shown).or_exit(Exit::Environment)?;
    clap_mangen::generate_to(help::command(say::Stream::Stdout.width()), dir)
        .with_context(shown)
        .or_exit(Exit::Environment)?;
    Ok(Exit::Fine)
}

/// Prints clap's help or version on stdout, or its usage error on stderr. Returns the exit code.
fn print_clap_error(error: &clap::Error) -> ExitCode {
    let (stream, exit) = if error.use_stderr() {
        (say::Stream::Stderr, Exit::Usage)
    } else {
        (say::Stream::Stdout, Exit::Fine)
    };
    stream.help(&error.render());
    exit.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        help::command(80).debug_assert();
        help::short(80).debug_assert();
    }
}
