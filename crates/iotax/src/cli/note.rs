//! `iotax note`: adds a note or tags to a run.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::visible;

use super::number;
use super::output::StoreArgs;
use super::say::print_line;
use super::{Failure, OrExit, usage};

/// Flags of `iotax note`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Run number from iotax list
    #[arg(value_parser = number::run)]
    run: i64,
    /// New text, in place of the previous one; an empty text removes it. Without text and tags, the note is only shown
    text: Option<String>,
    /// Add a tag
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Remove a tag
    #[arg(long, value_name = "TAG")]
    untag: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    if let Some(tag) =
        args.tag.iter().find(|tag| tag.is_empty() || tag.contains(|c: char| c.is_control() || c == ','))
    {
        return Err(usage(format!(
            "--tag {:?}: accepted: words of one line without commas",
            visible::line(tag)
        )));
    }
    let store = args.store.open_existing()?;
    super::output::known(&store, args.run)?;
    if args.text.is_some() || !args.tag.is_empty() || !args.untag.is_empty() {
        let mut store = args.store.open()?;
        let changed = store.change_notes(args.run, |notes| {
            if let Some(text) = &args.text {
                notes.text.clone_from(text);
            }
            notes.tags.retain(|tag| !args.untag.contains(tag));
            notes.tags.extend(args.tag.iter().filter(|tag| !args.untag.contains(tag)).cloned());
        });
        changed.or_exit(Exit::Environment)?;
    }
    let notes = store.notes(args.run).or_exit(Exit::Environment)?;
    if !notes.tags.is_empty() {
        print_line!("tags: {}", visible::line(&notes.tags.join(", ")));
    }
    if !notes.text.is_empty() {
        print_line!("{}", notes.text);
    }
    Ok(Exit::Fine)
}
