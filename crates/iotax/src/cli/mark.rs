//! `iotax mark`: adds a mark with the current time to every watch of this user that is measuring.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;

use super::say::{print_line, say};
use super::{Failure, OrExit, args, usage};
use crate::runner::marks;

/// Flags of `iotax mark`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The event, in one line
    text: String,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    marks::check(&args.text).map_err(usage)?;
    let answers = marks::send_to_all(&args::undo_dir()?, &args.text).or_exit(Exit::Environment)?;
    if answers.is_empty() {
        return Err(usage(
            "no watch of this user is in its window: marks are taken while one measures (iotax watch TARGET, in another terminal)",
        ));
    }
    for answer in &answers {
        if answer.is_marked {
            print_line!("{}", answer.text);
        } else {
            say!("not marked: {}", answer.text);
        }
    }
    Ok(if answers.iter().any(|answer| answer.is_marked) { Exit::Fine } else { Exit::Usage })
}
