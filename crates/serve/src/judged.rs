//! Judged runs, kept for the next request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use iotax_analysis::compare::Account;
use iotax_analysis::{Judgement, judge};
use iotax_model::{Run, RunState};
use iotax_store::{Filter, RunSummary, Store};

use crate::problem::Problem;

/// Runs that are kept.
const KEPT: usize = 48;

/// A run with all that is derived from it.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) run: Run,
    pub(crate) judgement: Judgement,
    pub(crate) account: Account,
}

/// What a run's judgement rests on: with another one it is judged anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    state: RunState,
    measured: u64,
    planned: u64,
}

#[derive(Debug)]
struct Kept {
    key: Key,
    used: u64,
    judged: Arc<Judged>,
}

/// Judged runs, the last ones that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    kept: Mutex<(u64, HashMap<i64, Kept>)>,
}

impl Cache {
    /// A run, judged.
    pub(crate) fn get(&self, store: &Store, id: i64) -> Result<Arc<Judged>, Problem> {
        let Some(summary) = summary(store, id)? else {
            // The store says which runs there are.
            return Err(store
                .load(id)
                .err()
                .map_or_else(|| Problem::busy("the store changes"), Problem::from));
        };
        let key = Key { state: summary.state, measured: summary.measured, planned: summary.planned };
        if let Some(judged) = self.kept(id, key) {
            return Ok(judged);
        }
        let run = store.load(id)?;
        let judgement = judge(&run);
        let account = Account::of(&run, &judgement);
        let judged = Arc::new(Judged { run, judgement, account });
        self.keep(id, key, Arc::clone(&judged));
        Ok(judged)
    }

    fn kept(&self, id: i64, key: Key) -> Option<Arc<Judged>> {
        let mut guard = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (clock, kept) = &mut *guard;
        let found = kept.get_mut(&id).filter(|kept| kept.key == key)?;
        *clock += 1;
        found.used = *clock;
        Some(Arc::clone(&found.judged))
    }

    fn keep(&self, id: i64, key: Key, judged: Arc<Judged>) {
        let mut guard = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (clock, kept) = &mut *guard;
        *clock += 1;
        kept.insert(id, Kept { key, used: *clock, judged });
        if kept.len() > KEPT {
            let oldest = kept.iter().min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id);
            oldest.map(|id| kept.remove(&id));
        }
    }
}

/// A run's line in the list; absent if there is no such run.
pub(crate) fn summary(store: &Store, id: i64) -> Result<Option<RunSummary>, Problem> {
    let Some(before) = id.checked_add(1).filter(|_| id > 0) else { return Ok(None) };
    let filter = Filter { before: Some(before), limit: Some(1), ..Filter::default() };
    // The newest before the next one, which is another one where this one is not.
    let last = store.latest()?.unwrap_or_default();
    if id > last {
        return Ok(None);
    }
    Ok(store.list(&filter)?.into_iter().find(|found| found.id == id))
}
