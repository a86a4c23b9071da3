//! Starts threads, with a clear error if that fails, and sleeps without panicking in sandboxes.

use std::io;
use std::thread::{self, Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Starts a named thread.
///
/// # Errors
/// The system allows no more threads, for example because of a cgroup's `pids.max`: `a thread could not be started: ...`
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(work).map_err(not_started)
}

/// Starts a named thread like [`spawn`]; the thread may borrow data that outlives `scope`.
///
/// # Errors
/// The system allows no more threads.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, work).map_err(not_started)
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes a value")]
fn not_started(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("a thread could not be started: {error}"))
}

/// Blocks for at least `time`. Unlike [`thread::sleep`], this does not panic if a sandbox forbids clock_nanosleep(2).
pub fn sleep(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_lasts_although_its_thread_is_woken() {
        let begun = Instant::now();
        thread::current().unpark();
        sleep(Duration::from_millis(20));
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_thread_that_cannot_be_had_is_an_error() {
        let error = Builder::new().stack_size(usize::MAX >> 2).spawn(|| ()).map_err(not_started).map(drop);
        let said = error.expect_err("no machine has so much").to_string();
        assert!(said.starts_with("a thread could not be started: "), "{said}");
    }
}
