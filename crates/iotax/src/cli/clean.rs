//! `iotax clean`: undoes the effects of an interrupted run.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_testbed::undo::{self, UndoLogError};

use super::say::print_line;
use super::{Failure, OrExit, args};

/// Flags of `iotax clean`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Print what would be undone, in the order of undoing, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Forget changes that cannot be undone: they stay in place, and no run mentions them again
    #[arg(long, conflicts_with = "dry_run")]
    forget: bool,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let dir = args::undo_dir()?;
    if args.dry_run {
        let left = undo::leftovers(&dir).or_exit(Exit::Environment)?;
        left.iter().for_each(|effect| print_line!("would undo: {effect}"));
        let unreadable = undo::unreadable(&dir).or_exit(Exit::Environment)?;
        unreadable.iter().for_each(left_alone);
        match left.len() {
            0 if !unreadable.is_empty() => {}
            0 => print_line!("nothing was left behind"),
            1 => print_line!("nothing was done: 1 thing was left behind, which iotax clean undoes"),
            more => print_line!("nothing was done: {more} things were left behind, which iotax clean undoes"),
        }
        return Ok(if unreadable.is_empty() { Exit::Fine } else { Exit::Environment });
    }
    let cleaned = undo::clean(&dir, args.forget).or_exit(Exit::Environment)?;
    cleaned.undone.iter().for_each(|effect| print_line!("undone: {effect}"));
    let word = if args.forget { "forgotten" } else { "not undone" };
    cleaned.failed.iter().for_each(|failure| print_line!("{word}: {}: {}", failure.effect, failure.reason));
    if !cleaned.failed.is_empty() && !args.forget {
        print_line!("what cannot be undone any more is forgotten with: iotax clean --forget");
    }
    cleaned.unreadable.iter().for_each(left_alone);
    if cleaned.in_use > 0 {
        let runs = if cleaned.in_use == 1 { "a run that is" } else { "runs that are" };
        print_line!("left alone: {runs} still going on ({})", cleaned.in_use);
    }
    let sound = (cleaned.failed.is_empty() || args.forget) && cleaned.unreadable.is_empty();
    if sound && cleaned.undone.is_empty() && cleaned.failed.is_empty() {
        print_line!("nothing was left behind");
    }
    Ok(if sound { Exit::Fine } else { Exit::Environment })
}

fn left_alone(error: &UndoLogError) {
    print_line!("left alone: {error}; remove the file if nothing of it is to be undone");
}
