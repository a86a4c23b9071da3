//! `--print-plan`: prints a command's plan as a file to edit.

use anyhow::Context;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;

use super::say::{self, print_line};
use super::{Failure, OrExit};

/// Prints a plan as a file that `iotax run` reads, with notes as comments.
pub(super) fn print_plan(plan: &Plan, notes: &[String]) -> Result<Exit, Failure> {
    let text = plan.to_toml().context("this has no form as a plan").or_exit(Exit::Usage)?;
    print_line!("# Show it with iotax plan show FILE, run it with iotax run FILE.");
    notes.iter().for_each(|note| print_line!("# {note}"));
    say::document(&format!("{}\n", text.trim_end()));
    Ok(Exit::Fine)
}
