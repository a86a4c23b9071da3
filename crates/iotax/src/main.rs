//! iotax measures what every layer between a program and its disk charges per I/O.
//!
//! One binary with three roles: the tool on the host ([`cli`], which has [`runner`] carry out plans), the agent that makes
//! load wherever it is started ([`agent`]), and PID 1 of a guest ([`init`]), which runs the agent there.

mod agent;
mod cli;
mod init;
mod runner;
mod say;

use std::process::ExitCode;
use std::sync::Arc;

use iotax_model::exit::Exit;

/// Version and commit.
const fn version() -> &'static str {
    env!("IOTAX_VERSION")
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::main();
    }
    // A file that may grow no further (RLIMIT_FSIZE) is an error of that write, EFBIG, and not the end of all. Where no handler can be had the
    // signal stays what it was.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let exit = cli::main().unwrap_or_else(|failure| {
        say::say!("iotax: {:#}", failure.error);
        failure.exit.into()
    });
    // Lost output is an error even if the command itself succeeded.
    say::finish().map_or_else(
        |error| {
            say::say!("iotax: cannot write to stdout: {error}");
            Exit::Environment.into()
        },
        |()| exit,
    )
}
