//! Help that fits a screen: `-h` shows the everyday options, `--help` all of them, under headings.

use clap::{Arg, Command, CommandFactory};
use iotax_model::exit::Exit;

use super::Cli;

/// Options in `-h` of commands with more options than fit on a screen.
const EVERYDAY: [(&str, &[&str]); 4] = [
    (
        "bench",
        &[
            "target",
            "rw",
            "bs",
            "iodepth",
            "numjobs",
            "size",
            "runtime",
            "ramp_time",
            "rwmixread",
            "direct",
            "ioengine",
            "rate_iops",
            "verify",
            "job",
            "json",
            "html",
            "yes",
            "overwrite",
        ],
    ),
    (
        "ladder",
        &[
            "dir",
            "device",
            "size",
            "time",
            "rungs",
            "workloads",
            "guests",
            "repeat",
            "margin",
            "print_plan",
            "json",
            "html",
            "yes",
            "overwrite",
        ],
    ),
    (
        "run",
        &[
            "plan",
            "target",
            "repeat",
            "size",
            "runtime",
            "until_decided",
            "margin",
            "json",
            "html",
            "yes",
            "overwrite",
        ],
    ),
    (
        "suite",
        &[
            "name",
            "targets",
            "list",
            "tests",
            "size",
            "repeat",
            "print_plan",
            "json",
            "html",
            "yes",
            "overwrite",
        ],
    ),
];

/// Headings of options that several commands share.
const HEADINGS: [(&str, &[&str]); 6] = [
    ("Results", &["db", "json", "html", "output_format", "output", "csv", "excel"]),
    ("Job files", &["job", "section"]),
    ("Decision", &["until_decided", "margin", "max_rounds", "max_time"]),
    ("Devices", &["overwrite", "overwrite_signature"]),
    ("Other machines", &["sudo", "leave_agent"]),
    ("Guests", &["guests", "accel", "kernel", "modules", "like", "like_disk"]),
];

/// The command line with its help arranged.
pub(super) fn command() -> Command {
    EVERYDAY.iter().fold(Cli::command().after_long_help(exit_codes()), |cli, (name, everyday)| {
        cli.mut_subcommand(name, |command| command.mut_args(|arg| arranged(arg, everyday)))
    })
}

fn exit_codes() -> String {
    let lines = Exit::ALL.map(|(exit, meaning)| format!("{:>5}  {meaning}", exit as u8));
    format!("Exit codes:\n{}", lines.join("\n"))
}

fn arranged(arg: Arg, everyday: &[&str]) -> Arg {
    let is_in = |ids: &[&str]| ids.contains(&arg.get_id().as_str());
    let heading = HEADINGS.iter().find(|(_, ids)| is_in(ids)).map(|(heading, _)| *heading);
    let is_rare = !is_in(everyday);
    let arg = arg.hide_short_help(is_rare);
    match heading {
        Some(heading) => arg.help_heading(heading),
        None => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most lines of short help.
    const SCREEN: usize = 50;

    #[test]
    fn short_help_fits_a_screen_and_long_help_has_everything() {
        let mut cli = command().term_width(100);
        cli.build();
        for (name, everyday) in EVERYDAY {
            let command = cli.find_subcommand_mut(name).expect("a command");
            let short = command.render_help().to_string();
            let long = command.render_long_help().to_string();
            assert!(short.lines().count() <= SCREEN, "{name}: {} lines\n{short}", short.lines().count());
            let ids: Vec<_> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
            assert!(everyday.iter().all(|id| ids.contains(id)), "{name}: {ids:?}");
            for flag in command.get_arguments().filter_map(Arg::get_long) {
                assert!(long.contains(&format!("--{flag}")), "{name} --{flag}");
            }
            assert!(short.lines().count() < long.lines().count() && short.contains("--help"), "{name}");
        }
    }
}
