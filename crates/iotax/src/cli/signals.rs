//! The signals that ask a command to stop.

use std::fs;
use std::io;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use iotax_model::exit::Exit;
use iotax_testbed::interrupt::{Interrupt, PRESSED};

use super::say;

/// Watches for signals: the first Ctrl-C, SIGTERM or SIGHUP (unless hangups are ignored) asks the run to stop and undo; a second Ctrl-C
/// ends the process immediately and leaves the rest to `iotax clean`.
pub(super) fn watch_signals() -> anyhow::Result<Interrupt> {
    watch_signals_with(&PRESSED)
}

/// Like [`watch_signals`], but the first Ctrl-C sets `pressed` instead of [`PRESSED`]. A later Ctrl-C ends the process immediately only if
/// [`PRESSED`] is set by then.
pub(super) fn watch_signals_with(pressed: &Interrupt) -> anyhow::Result<Interrupt> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // A command that measures twice must not install the handlers twice: one Ctrl-C would then count as two and end the process.
    static WATCHED: OnceLock<Interrupt> = OnceLock::new();
    if let Some(stop) = WATCHED.get() {
        return Ok(Arc::clone(stop));
    }
    let stop = Interrupt::default();
    let watch = || {
        let ends = Arc::clone(&PRESSED);
        signal_hook::flag::register_conditional_shutdown(SIGINT, Exit::Interrupted as i32, ends)?;
        signal_hook::flag::register(SIGINT, Arc::clone(pressed))?;
        let hangup = (!ignores_hangups()).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        io::Result::Ok(())
    };
    watch().context("cannot watch for signals")?;
    say::heed(&stop);
    Ok(Arc::clone(WATCHED.get_or_init(|| stop)))
}

/// Returns whether hangups are ignored, as under nohup(1): the run then continues after a logout.
fn ignores_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_watched_once_for_all_runs_of_a_command() {
        let first = watch_signals().expect("watched");
        assert!(Arc::ptr_eq(&first, &watch_signals().expect("watched")));
    }
}
