//! iotax: what every layer between a program and its disk charges per I/O.
//!
//! One file with three lives: the tool on the host ([`cli`], which has [`conduct`] carry out plans), the agent that makes
//! load wherever it is started ([`agent`]), and PID 1 of a guest ([`init`]), which serves the agent there.

mod agent;
mod cli;
mod conduct;
mod init;

use std::process::ExitCode;

/// Version and commit.
const fn version() -> &'static str {
    env!("IOTAX_VERSION")
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::main();
    }
    match cli::main() {
        Ok(exit) => exit,
        Err(failure) => {
            cli::say::say!("iotax: {:#}", failure.error);
            failure.exit.into()
        }
    }
}
