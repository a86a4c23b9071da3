//! Defines a command-line flag for each workload key in the table of keys.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use iotax_model::workload::{KEYS, WorkloadKey, WorkloadKeys};

use super::known_words::known_words;
use super::time;

/// The workload keys given as flags. `--key-name` and `--key_name` are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkloadFlags(pub(super) WorkloadKeys);

/// A command's defaults of options that other commands have too, with other defaults: the option's id, and the default in words.
pub(super) type OwnDefaults = Vec<(&'static str, String)>;

fn flag(key: &'static WorkloadKey) -> Arg {
    let help = key.default.map_or_else(
        || key.help.trim().to_owned(),
        |default| format!("{} [default: {}]", key.help.trim(), default()),
    );
    let parse = move |text: &str| {
        let text = time::with_unit(key.name, text);
        (key.check)(&text).map(|()| text.into_owned())
    };
    let arg = Arg::new(key.name)
        .long(key.name.replace('_', "-"))
        .help(help)
        .help_heading("Workload")
        .value_name(key.value)
        .value_parser(known_words(parse, key.words.iter().copied()))
        .action(ArgAction::Set);
    let arg = if key.name.contains('_') { arg.alias(key.name) } else { arg };
    if key.switch { arg.num_args(0..=1).require_equals(true).default_missing_value("1") } else { arg }
}

impl Args for WorkloadFlags {
    fn augment_args(command: Command) -> Command {
        command.args(KEYS.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for WorkloadFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for key in KEYS {
            let Some(text) = matches.get_one::<String>(key.name) else { continue };
            self.0
                .set(key.name, text)
                .map_err(|why| clap::Error::raw(clap::error::ErrorKind::ValueValidation, why))?;
        }
        Ok(())
    }
}
