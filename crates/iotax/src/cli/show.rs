//! `iotax show`: a run's results again.

use std::io::IsTerminal;

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_results::judge::Judgement;
use iotax_results::store::Run;

use super::args::Output;
use super::{Failure, OrExit};

/// Columns when there is no terminal to ask.
const DEFAULT_WIDTH: usize = 110;

/// Flags of `iotax show`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Number of the run, as iotax list shows it [default: the newest]
    run: Option<i64>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = args.output.store()?;
    let id = match args.run {
        Some(id) => id,
        None => store
            .latest()
            .or_exit(Exit::Environment)?
            .context("the store has no run yet")
            .or_exit(Exit::Usage)?,
    };
    let run = store.load(id).or_exit(Exit::Usage)?;
    let judgement = iotax_results::judge::judge(&run);
    print(&args.output, &run, &judgement);
    let write = |path: &std::path::Path, text: String| {
        std::fs::write(path, text)
            .with_context(|| format!("cannot write {}", path.display()))
            .or_exit(Exit::Environment)
    };
    if let Some(path) = args.output.json.as_deref().filter(|_| !args.output.json_on_stdout()) {
        write(path, format!("{:#}\n", iotax_results::exchange::json::document(&run, &judgement)))?;
    }
    if let Some(path) = &args.output.html {
        write(path, iotax_results::report::html::render(&run, &judgement))?;
    }
    Ok(Exit::Fine)
}

/// The tables on stdout; or JSON on stdout and the tables on stderr.
pub(super) fn print(output: &Output, run: &Run, judgement: &Judgement) {
    let json = output.json_on_stdout();
    let terminal = if json { std::io::stderr().is_terminal() } else { std::io::stdout().is_terminal() };
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    let width = if terminal && columns > 0 { columns } else { DEFAULT_WIDTH };
    let tables = iotax_results::report::terminal::render(run, judgement, width, colour);
    if json {
        eprint!("{tables}");
        println!("{:#}", iotax_results::exchange::json::document(run, judgement));
    } else {
        print!("{tables}");
    }
}
