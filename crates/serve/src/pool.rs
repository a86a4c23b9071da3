//! Keeps open stores for requests, which use them on threads that may block.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use iotax_store::{Location, Store};
use tokio::sync::Semaphore;

use crate::problem::Problem;

/// Maximum number of open stores, and so of requests that use one at the same time.
const OPEN: usize = 8;
/// Maximum time that a request waits for a store.
const PATIENCE: Duration = Duration::from_secs(10);

/// Open stores. Those opened for reading are used again.
#[derive(Debug)]
pub(crate) struct Pool {
    location: Location,
    idle: Arc<Mutex<Vec<Store>>>,
    free: Arc<Semaphore>,
}

impl Pool {
    pub(crate) fn new(location: Location) -> Self {
        Self { location, idle: Arc::default(), free: Arc::new(Semaphore::new(OPEN)) }
    }

    /// Runs a function on a blocking thread with a store that is open for reading.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (location, idle) = (self.location.clone(), Arc::clone(&self.idle));
        self.blocking(move || {
            let store = pop(&idle).map_or_else(|| Store::open_to_read(location), Ok)?;
            let done = work(&store);
            // A store that failed may have lost its connection: the next request opens another.
            if !matches!(&done, Err(problem) if problem.is_of_the_store()) {
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(store);
            }
            done
        })
        .await
    }

    /// Runs a function on a blocking thread with a store that is open for writing.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (location, idle) = (self.location.clone(), Arc::clone(&self.idle));
        self.blocking(move || {
            // Makes room for the one that is opened.
            drop(pop(&idle));
            work(&mut Store::open(location)?)
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let free = Arc::clone(&self.free);
        let permit = tokio::time::timeout(PATIENCE, free.acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(Problem::busy("too many requests wait for the store"));
        };
        let done = tokio::task::spawn_blocking(move || {
            // Held until the work ends, even if nobody waits for it any longer.
            let _permit = permit;
            work()
        });
        done.await.unwrap_or_else(|_| Err(Problem::internal("the request could not be carried out")))
    }
}

fn pop(idle: &Mutex<Vec<Store>>) -> Option<Store> {
    idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn stores_that_write_take_the_place_of_idle_ones() {
        let dir = tempfile::tempdir().expect("a directory");
        let location = Location::from(&dir.path().join("a.db"));
        drop(Store::open(location.clone()).expect("created"));
        let pool = Arc::new(Pool::new(location));
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let idle = || pool.idle.lock().expect("not poisoned").len();
        let all = Arc::new(Barrier::new(OPEN));
        let reads = (0..OPEN).map(|_| {
            let (pool, all) = (Arc::clone(&pool), Arc::clone(&all));
            runtime.spawn(async move {
                let read = pool.read(move |_| {
                    all.wait();
                    Ok(())
                });
                read.await.is_ok()
            })
        });
        for read in reads.collect::<Vec<_>>() {
            assert!(runtime.block_on(read).expect("ended"));
        }
        assert_eq!(idle(), OPEN);
        let at_work = Arc::clone(&pool.idle);
        let left = pool.write(move |_| Ok(at_work.lock().expect("not poisoned").len()));
        assert_eq!(runtime.block_on(left).ok(), Some(OPEN - 1), "eight in all");
    }
}
