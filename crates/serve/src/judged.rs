//! A cache of runs with their evaluated results.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use iotax_analysis::compare::Account;
use iotax_analysis::{Judgement, judge};
use iotax_model::{Run, RunState};
use iotax_store::{Filter, RunSummary, Store};

use crate::problem::Problem;

/// Maximum number of runs in the cache.
const KEPT: usize = 48;

/// A run, its statistical judgement, and its figures in the form that comparisons use.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) run: Run,
    pub(crate) judgement: Judgement,
    pub(crate) account: Account,
}

/// The state of a run from which a cached result was computed. The result is valid as long as the run's key is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    state: RunState,
    measured: u64,
    planned: u64,
}

impl Key {
    pub(crate) fn of(run: &RunSummary) -> Self {
        Self { state: run.state, measured: run.measured, planned: run.planned }
    }
}

#[derive(Debug)]
struct Kept<T> {
    key: Key,
    used: u64,
    of_run: Arc<T>,
}

/// A cache with one result per run; when full, the least recently used result is dropped.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    most: usize,
    kept: Mutex<(u64, HashMap<i64, Kept<T>>)>,
}

impl<T> Recent<T> {
    /// Creates an empty cache for at most `most` runs.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    pub(crate) fn get(&self, id: i64, key: Key) -> Option<Arc<T>> {
        let mut guard = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (clock, kept) = &mut *guard;
        let found = kept.get_mut(&id).filter(|kept| kept.key == key)?;
        *clock += 1;
        found.used = *clock;
        Some(Arc::clone(&found.of_run))
    }

    pub(crate) fn keep(&self, id: i64, key: Key, of_run: T) -> Arc<T> {
        let of_run = Arc::new(of_run);
        let mut guard = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (clock, kept) = &mut *guard;
        *clock += 1;
        kept.insert(id, Kept { key, used: *clock, of_run: Arc::clone(&of_run) });
        if kept.len() > self.most {
            let oldest = kept.iter().min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id);
            oldest.map(|id| kept.remove(&id));
        }
        of_run
    }
}

/// A cache of runs with their judgement.
#[derive(Debug)]
pub(crate) struct Cache(Recent<Judged>);

impl Default for Cache {
    fn default() -> Self {
        Self(Recent::new(KEPT))
    }
}

impl Cache {
    /// Returns a run with its judgement, from the cache if the run has not changed since it was cached.
    pub(crate) fn get(&self, store: &Store, id: i64) -> Result<Arc<Judged>, Problem> {
        let Some(summary) = summary(store, id)? else {
            // The store's error says which runs exist.
            return Err(store
                .load(id)
                .err()
                .map_or_else(|| Problem::busy("the store changes"), Problem::from));
        };
        let key = Key::of(&summary);
        if let Some(judged) = self.0.get(id, key) {
            return Ok(judged);
        }
        let run = store.load(id)?;
        let judgement = judge(&run);
        let account = Account::of(&run, &judgement);
        Ok(self.0.keep(id, key, Judged { run, judgement, account }))
    }
}

/// Returns a run's entry in the list of runs; `None` if the store has no such run.
pub(crate) fn summary(store: &Store, id: i64) -> Result<Option<RunSummary>, Problem> {
    let Some(before) = id.checked_add(1).filter(|_| id > 0) else { return Ok(None) };
    let filter = Filter { before: Some(before), limit: Some(1), ..Filter::default() };
    // The newest run before number `id + 1`. If the store has no run `id`, this is a different run.
    let last = store.latest()?.unwrap_or_default();
    if id > last {
        return Ok(None);
    }
    Ok(store.list(&filter)?.into_iter().find(|found| found.id == id))
}
