//! Publishes a run's progress in the store, for all readers of the store.
//!
//! A separate thread writes the state, at most once a second and only if it changed, so that a slow store does not delay measurements.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use iotax_model::threads;
use iotax_store::Store;
use serde_json::{Map, Value};

/// Interval between two updates.
const EVERY: Duration = Duration::from_secs(1);

/// Publication of a run's state in the store, until dropped.
pub(super) struct Live {
    state: Arc<Mutex<Map<String, Value>>>,
    /// Sender whose drop ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Starts to publish the state of run `run` in `store`, a connection used for nothing else.
    pub(super) fn of(run: i64, mut store: Store) -> Self {
        let state = Arc::<Mutex<Map<String, Value>>>::default();
        let (end, ended) = mpsc::channel();
        let shared = Arc::clone(&state);
        let thread = threads::spawn("live", move || {
            let mut last = Map::new();
            while matches!(ended.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout)) {
                let now = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // If the state cannot be published, only observers of the run miss it.
                if now != last && store.put_live(run, &Value::Object(now.clone())).is_ok() {
                    last = now;
                }
            }
        });
        Self { state, end: Some(end), thread: thread.ok() }
    }

    /// Sets keys of the published state; the value `None` removes a key.
    pub(super) fn set(&self, changes: impl IntoIterator<Item = (&'static str, Option<Value>)>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in changes {
            match value {
                Some(value) => state.insert(key.to_owned(), value),
                None => state.remove(key),
            };
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
