//! iotax: what every layer between a program and its disk charges per I/O.

mod agent;
mod init;

use std::process::ExitCode;

fn main() -> ExitCode {
    // In a guest this very file is /init.
    if std::process::id() == 1 {
        init::main();
    }
    match std::env::args().nth(1).as_deref() {
        Some("agent") => agent::main(),
        _ => ExitCode::FAILURE,
    }
}
