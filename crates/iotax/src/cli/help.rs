//! Help that fits a screen: `-h` shows the everyday options, one line each; `--help` shows all options under headings, with examples.

use clap::builder::Resettable;
use clap::{Arg, Command, CommandFactory};
use iotax_model::exit::Exit;

use super::flags::OwnDefaults;
use super::{Cli, ask, audit, bench, curve, examples, flush, tune, watch};

/// Options shown by `-h`, for commands with more options than fit on a screen. A subcommand's name includes its command's: `net run`.
const EVERYDAY: [(&str, &str); 22] = [
    (
        "bench",
        "target rw bs iodepth numjobs size runtime repeat rwmixread ioengine rate_iops verify job json html overwrite",
    ),
    (
        "ladder",
        "dir device size time rungs formats like workloads curve margin print_plan json html yes overwrite",
    ),
    ("run", "plan target repeat size runtime until_decided margin json html output_format yes overwrite"),
    ("curve", "targets time points rw bs rwmixread size iodepth numjobs print_plan json html yes overwrite"),
    (
        "ask",
        "targets slo time sustain iops fail_if rw bs rwmixread size iodepth print_plan json html yes overwrite",
    ),
    (
        "watch",
        "targets together ping event control require repeat rw rate_iops size runtime json html yes overwrite",
    ),
    ("tune", "target wanted objective time workloads rw bs iodepth size apply json print_plan yes overwrite"),
    ("fit", "application targets list repeat runtime size print_plan json html yes overwrite"),
    ("suite", "name targets list tests size repeat runtime print_plan json html yes"),
    ("audit", "targets promise size repeat runtime print_plan json html yes overwrite"),
    (
        "flush",
        "targets methods bs iodepth numjobs layout size repeat runtime print_plan json html yes overwrite",
    ),
    ("fleet run", "plan hosts mode repeat size runtime yes overwrite db json"),
    ("fleet resume", "fleet yes overwrite db json"),
    ("fleet report", "fleet markdown db json"),
    ("net ladder", "rungs peer workloads together time repeat print_plan json html yes"),
    ("net run", "hosts port udp time bitrate reverse bidir parallel length interval json html"),
    ("net ping", "host port icmp tcp rate length time under_load json html"),
    ("plan check", "plan target overwrite accel"),
    ("plan show", "plan target json toml repeat runtime size"),
    ("resume", "run time repeat max_time db json html yes commands"),
    ("trend", "name plan tag target workload metric control last since fail_if detail json"),
    ("report", "runs detail paste timing csv markdown db json html"),
];

/// Headings of options common to several commands.
const HEADINGS: [(&str, &[&str]); 6] = [
    ("Results", &["db", "json", "html", "output_format", "output", "csv", "excel"]),
    ("Job files", &["job", "section"]),
    ("Decision", &["until_decided", "until_steady", "may_write", "margin", "max_rounds", "max_time"]),
    ("Devices", &["overwrite", "overwrite_signature"]),
    ("Other machines", &["sudo", "leave_agent"]),
    ("Guests", &["guests", "accel", "kernel", "modules", "like", "like_disk"]),
];

type ListDefaults = fn() -> OwnDefaults;

/// Commands with special defaults. Each command's file lists them from the constants that it uses.
const DEFAULTS: [(&str, ListDefaults); 7] = [
    ("ask", ask::own_defaults),
    ("audit", audit::own_defaults),
    ("bench", bench::own_defaults),
    ("curve", curve::own_defaults),
    ("flush", flush::own_defaults),
    ("tune", tune::own_defaults),
    ("watch", watch::own_defaults),
];

/// The output of `iotax -h`: all commands, grouped by purpose.
const OVERVIEW: &str = "\
Usage: iotax COMMAND [OPTIONS]     All about one: iotax COMMAND --help

Measure
  ladder            Storage built in several ways: what each layer costs
  bench, suite      One file or device; a classic benchmark suite
  fit, flush, audit Good enough for etcd; a durable write's price; a rate limit
  crash, powercut   What a power cut loses: of stacks; of real storage
  curve, ask        Latency at each load; the highest rate that keeps a limit
  watch, mark       What an event costs while storage is in use; mark a moment
  net, fleet        The network; one plan on many machines
  run, plan, resume A plan, a fio job or a trace; show it first; go on longer
Look at a machine
  top, doctor       What goes on right now; how a machine or a path is set up
  record, trace     The I/O of a disk, to be replayed; what such a trace holds
  tune              Find the settings of the kernel or of a guest that help
  verify, clean     Lost writes after a power cut; undo what a killed run left
Results
  list, report      Runs and what came out; the tables and charts of one
  compare, trend    Two runs, or a run and its history; gates for CI
  note, serve       Tag a run; show the store in a browser
  import, export    Results of fio and others; to CSV, Parquet and others
  store, push, pull A store for a team, and runs to and from it
The program
  completions, man  For a shell; the man pages
";

/// Maximum width of help, in columns.
const WIDEST: usize = 110;

/// Builds the command-line parser with the full help of `--help`.
pub(super) fn command(width: usize) -> Command {
    each("", Cli::command().term_width(width.min(WIDEST)), &|path, command| {
        let command = command.mut_args(|arg| {
            let takes_values = arg.get_action().takes_values();
            // The help texts list the possible values; clap's list is for completions.
            let has_list = arg.get_id() != "shell" && takes_values;
            let arg = if has_list { arg.hide_possible_values(true) } else { arg };
            // With this, the error for `--points -3` names the accepted values.
            let arg = if takes_values { arg.allow_negative_numbers(true) } else { arg };
            let is_in = |ids: &[&str]| ids.contains(&arg.get_id().as_str());
            match HEADINGS.iter().find(|(_, ids)| is_in(ids)) {
                Some((heading, _)) => arg.help_heading(*heading),
                None => arg,
            }
        });
        let command = with_own_defaults(path, command);
        let exit_codes = path.is_empty().then(exit_codes);
        let after: Vec<String> = examples::of(path).into_iter().chain(exit_codes).collect();
        if after.is_empty() { command } else { command.after_long_help(after.join("\n\n")) }
    })
}

fn exit_codes() -> String {
    let lines = Exit::ALL.map(|(exit, meaning)| format!("{:>5}  {meaning}", exit as u8));
    format!("Exit codes:\n{}", lines.join("\n"))
}

/// Builds the command-line parser with the short help of `-h`.
pub(super) fn short(width: usize) -> Command {
    let width = width.min(WIDEST);
    each("", Cli::command().term_width(width), &|path, command| {
        let everyday = EVERYDAY.iter().find(|(name, _)| *name == path).map(|(_, ids)| *ids);
        let is_everyday =
            |arg: &Arg| everyday.is_none_or(|ids| ids.split_whitespace().any(|id| arg.get_id() == id));
        let is_shown = |arg: &Arg| arg.get_id() != "quiet" && is_everyday(arg);
        let longest = command.get_arguments().filter(|arg| is_shown(arg)).map(name_width).max();
        // 8 columns for indentation, the short flag and the gap before the text.
        let room = width.saturating_sub(longest.unwrap_or_default() + 8);
        let command = with_own_defaults(path, command);
        let command = command.disable_help_subcommand(true).mut_args(|arg| {
            let help = arg.get_help().map(|help| first_clauses(&help.to_string(), room));
            let is_rare = !is_shown(&arg);
            let arg = if arg.get_action().takes_values() {
                arg.hide_possible_values(true).hide_default_value(true)
            } else {
                arg
            };
            arg.hide_short_help(is_rare).help(help.unwrap_or_default()).help_heading(Resettable::Reset)
        });
        let names = command.get_subcommands().map(|sub| sub.get_name().len());
        let room = width.saturating_sub(names.max().unwrap_or_default() + 4);
        let command = if path.is_empty() { command.override_help(OVERVIEW) } else { command };
        command.mut_subcommands(|sub| {
            // clap appends ` [alias: NAME]` to a text.
            let aliases: usize = sub.get_visible_aliases().map(|alias| alias.len() + 10).sum();
            let about = sub.get_about();
            let about = about.map(|about| first_clauses(&about.to_string(), room.saturating_sub(aliases)));
            sub.about(about.unwrap_or_default())
        })
    })
}

/// Replaces defaults in a command's help with its entries in `DEFAULTS`.
fn with_own_defaults(path: &str, command: Command) -> Command {
    let own = DEFAULTS.iter().find(|(name, _)| *name == path).map(|(_, own)| own()).unwrap_or_default();
    own.into_iter().fold(command, |command, (id, default)| {
        command.mut_arg(id, |arg| {
            let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let text = text.rsplit_once(" [default: ").map_or(text.as_str(), |(text, _)| text);
            arg.help(format!("{text} [default: {default}]"))
        })
    })
}

/// Applies `arrange` to a command and all its subcommands, each with its path, such as `net run`.
fn each(path: &str, command: Command, arrange: &dyn Fn(&str, Command) -> Command) -> Command {
    let command = command.mut_subcommands(|sub| {
        let path =
            if path.is_empty() { sub.get_name().to_owned() } else { format!("{path} {}", sub.get_name()) };
        each(&path, sub, arrange)
    });
    arrange(path, command)
}

/// Returns the width in columns of an argument's name and value in help, as in `--json [<FILE|->]`.
fn name_width(arg: &Arg) -> usize {
    let flag = arg.get_long().map_or(0, |long| long.len() + 2);
    let value = arg.get_value_names().and_then(|names| names.first()).map_or(0, |name| name.len() + 3);
    let is_optional = arg.get_num_args().is_some_and(|number| number.min_values() == 0);
    flag + value + if is_optional { 2 } else { 0 }
}

/// Shortens a text to the first clauses that fit into `room` columns, at least one clause. Keeps a list whole or leaves it out.
fn first_clauses(text: &str, room: usize) -> String {
    const ENDS: [&str; 5] = [". ", "; ", ": ", " [", ", "];
    let (mut ends, mut depth, mut in_list) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        let end = ENDS.iter().find(|end| depth == 0 && text[at..].starts_with(**end));
        if end.is_some_and(|end| !(in_list && *end == ", ")) {
            ends.push(at);
        }
        in_list |= end == Some(&": ");
        depth += i32::from("[(".contains(c)) - i32::from("])".contains(c));
    }
    ends.push(text.len());
    let fitting = ends.iter().rev().find(|at| text[..**at].chars().count() <= room);
    text[..*fitting.unwrap_or(&ends[0])].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines and columns of the smallest usual terminal.
    const SCREEN: (usize, usize) = (24, 80);

    /// Returns all commands with their paths.
    fn all(path: &str, command: &Command) -> Vec<(String, Command)> {
        let subs = command.get_subcommands().filter(|sub| {
            !["help", "agent", "commits", "member", "relay", "volatile"].contains(&sub.get_name())
        });
        let subs = subs.flat_map(|sub| all(format!("{path} {}", sub.get_name()).trim_start(), sub));
        [(path.to_owned(), command.clone())].into_iter().chain(subs).collect()
    }

    #[test]
    fn short_help_fits_a_screen() {
        let mut cli = short(SCREEN.1);
        cli.build();
        let all = all("", &cli);
        let helps = all.clone().into_iter().map(|(_, mut command)| command.render_help().to_string());
        let fits = |help: &String| {
            let lines = help.lines().count();
            lines <= SCREEN.0 && help.lines().all(|line| line.chars().count() <= SCREEN.1)
        };
        let wrong: Vec<String> = helps.filter(|help| !fits(help) || !help.contains("--help")).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        for (path, everyday) in EVERYDAY {
            let (_, command) = all.iter().find(|(name, _)| name == path).expect("a command");
            let ids: Vec<_> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
            assert!(everyday.split_whitespace().all(|id| ids.contains(&id)), "{path}: {ids:?}");
        }
    }

    #[test]
    fn the_overview_names_every_command() {
        let names: Vec<&str> = OVERVIEW
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .flat_map(|line| {
                line.split_once("  ").unwrap_or_else(|| line.split_at(17)).0.split(", ").map(str::trim)
            })
            .collect();
        let cli = command(SCREEN.1);
        let known: Vec<&str> =
            cli.get_subcommands().filter(|sub| !sub.is_hide_set()).map(Command::get_name).collect();
        assert!(known.iter().all(|name| names.contains(name)), "{known:?} in {names:?}");
        assert!(names.iter().all(|name| known.contains(name)), "{names:?} in {known:?}");
    }

    #[test]
    fn long_help_has_everything_and_examples() {
        let mut cli = command(SCREEN.1);
        cli.build();
        for (path, mut command) in all("", &cli) {
            let help = command.render_long_help().to_string();
            for flag in command.get_arguments().filter_map(Arg::get_long) {
                assert!(help.contains(&format!("--{flag}")), "{path} --{flag}");
            }
            assert!(help.contains(&format!("    iotax {path}")), "{path}: no example\n{help}");
        }
    }

    #[test]
    fn json_goes_to_stdout_or_to_a_file() {
        let mut cli = command(SCREEN.1);
        cli.build();
        // One document for each test, as iperf3 does.
        for (path, command) in all("", &cli).iter().filter(|(path, _)| path != "net serve") {
            let Some(json) = command.get_arguments().find(|arg| arg.get_id() == "json") else { continue };
            let values = json.get_num_args().expect("built");
            assert_eq!((values.min_values(), values.max_values()), (0, 1), "{path}");
            assert_eq!(
                json.get_value_names().and_then(|names| names.first()),
                Some(&"FILE|-".into()),
                "{path}"
            );
        }
    }

    #[test]
    fn a_command_tells_the_defaults_that_it_uses() {
        let mut cli = command(SCREEN.1);
        cli.build();
        let all = all("", &cli);
        for (path, id, default) in [
            ("bench", "runtime", "2s in each of 5 rounds"),
            ("curve", "iodepth", "64"),
            ("curve", "runtime", "250ms"),
            ("curve", "ramp_time", "50ms"),
            ("ask", "iodepth", "64"),
            ("ask", "runtime", "50 times the longest limit of --slo, from 1s to 5s"),
            ("watch", "iodepth", "512, or the depth of its virtio devices"),
            ("watch", "runtime", "1m"),
            ("tune", "iodepth", "that of --workloads; 1 if another flag of the work is given"),
            ("tune", "runtime", "short enough for 24 rounds in --time, at least 250ms"),
            ("flush", "size", "64m"),
            ("flush", "repeat", "5"),
            ("audit", "runtime", "10s"),
        ] {
            let (_, command) = all.iter().find(|(name, _)| name == path).expect("a command");
            let arg = command.get_arguments().find(|arg| arg.get_id() == id).expect("an option");
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.ends_with(&format!(" [default: {default}]")), "{path} {id}: {help}");
        }
        for (path, own) in DEFAULTS {
            let (_, command) = all.iter().find(|(name, _)| name == path).expect("a command");
            for (id, _) in own() {
                assert!(command.get_arguments().any(|arg| arg.get_id() == id), "{path}: {id}");
            }
        }
    }

    #[test]
    fn clauses_are_kept_while_they_fit() {
        let text = "Size of each rung's disk, in bytes; more with --time [default: 1GiB]";
        assert_eq!(first_clauses(text, 100), text);
        assert_eq!(first_clauses(text, 60), "Size of each rung's disk, in bytes; more with --time");
        assert_eq!(first_clauses(text, 40), "Size of each rung's disk, in bytes");
        assert_eq!(first_clauses(text, 5), "Size of each rung's disk");
        let list = "Pattern: read, write or trim [default: read, as fio]";
        assert_eq!(first_clauses(list, 40), "Pattern: read, write or trim");
        assert_eq!(first_clauses(list, 20), "Pattern");
    }
}
