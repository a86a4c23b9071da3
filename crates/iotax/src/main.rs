//! iotax measures what every layer between a program and its disk costs per I/O.
//!
//! One binary with three roles: the tool on the host ([`cli`], which has [`runner`] carry out plans), the agent that makes load wherever it
//! is started ([`agent`]), and PID 1 of a guest ([`init`]), which runs the agent there.

mod agent;
mod causes;
mod cli;
mod database;
mod init;
mod runner;
mod say;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use crate::causes::with_causes;
use iotax_model::exit::Exit;
use rustix::process::{Resource, getrlimit};

/// Returns the version of iotax, with its commit.
const fn version() -> &'static str {
    env!("IOTAX_VERSION")
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::main();
    }
    // Without this, a write beyond the maximum file size (RLIMIT_FSIZE) would end the process; with it, the write fails with EFBIG. If no
    // handler can be installed, the default stays.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    // Prefer the first thread: the kernel delivers signals to it, such as one for a new terminal size.
    let limit = getrlimit(Resource::Stack).current.and_then(|limit| usize::try_from(limit).ok());
    if limit.is_none_or(|limit| limit >= STACK) {
        return carry_out();
    }
    match thread::Builder::new().name("main".into()).stack_size(STACK).spawn(carry_out) {
        Ok(carried_out) => carried_out.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(error) => {
            say::say!("iotax: {error}, and the stack is limited to less than {STACK} bytes (ulimit -s)");
            Exit::Environment.into()
        }
    }
}

/// Minimum stack size in bytes; with a lower `ulimit -s`, the command runs on a thread with this stack.
const STACK: usize = 2 << 20;

/// Executes the command line and returns its exit code. Output that could not be written to stdout is an error too.
fn carry_out() -> ExitCode {
    let exit = cli::main().unwrap_or_else(|failure| {
        say::say!("iotax: {}", with_causes(&failure.error));
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
