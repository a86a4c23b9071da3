//! Finds layers that acknowledged flushes without passing them on, in this machine's last run of `iotax flush`, for `iotax doctor`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use iotax_analysis::durability::{DurableWrites, is_of_methods};
use iotax_analysis::judge;
use iotax_analysis::time::utc;
use iotax_model::run::RunState;
use iotax_model::survey::{Fact, SwallowedFlushes};
use iotax_model::target::BottomLocation;
use iotax_model::{Run, TargetSpec};
use iotax_store::{Filter, Store, StoreError};

/// Maximum number of recent runs to search for a run of the suite `flush`.
const NEWEST: u32 = 100;

/// Returns the layers that swallowed flushes in this machine's last complete run of the suite `flush` on each path; with `path`, only on
/// targets at, below or above that path. Leaves out targets on other machines. Empty without such a run among the newest 100 complete ones.
pub(super) fn swallowed(
    store: &Store,
    hostname: &str,
    path: Option<&Path>,
) -> Result<Vec<Fact<SwallowedFlushes>>, StoreError> {
    let filter = Filter {
        state: Some(RunState::Complete),
        machine: Some(hostname.to_owned()),
        limit: Some(NEWEST),
        ..Filter::default()
    };
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for summary in store.list(&filter)? {
        let (run, _) = store.load_figures(summary.id)?;
        if is_of_methods(&run) && !run.source.is_imported() {
            found.extend(of_run(&store.load(summary.id)?, path, &known));
            known.extend(run.plan.targets.iter().filter_map(bottom_path).map(Path::to_path_buf));
        }
    }
    Ok(found)
}

/// Returns the layers that swallowed flushes in a run, on targets whose path is not known from a later one.
fn of_run(run: &Run, path: Option<&Path>, known: &HashSet<PathBuf>) -> Vec<Fact<SwallowedFlushes>> {
    let judgement = judge(run);
    let Some(writes) = DurableWrites::of(run, &judgement) else { return Vec::new() };
    let report = run.command("report", "");
    let source = format!("run {} of {}", run.id, utc(run.started_at_ms));
    let is_meant = |target: &str| {
        let spec = run.plan.targets.iter().find(|spec| spec.name == target);
        spec.is_some_and(|spec| {
            let is_new = bottom_path(spec).is_none_or(|bottom_path| !known.contains(bottom_path));
            is_new && spec.remote().is_none() && path.is_none_or(|path| is_on(spec, path))
        })
    };
    let found = writes.swallowed().into_iter().filter(|one| is_meant(one.target));
    let fact = |one: iotax_analysis::durability::Swallowed<'_>| SwallowedFlushes {
        target: one.target.to_owned(),
        layer: one.by.to_owned(),
        asked: one.asked,
        passed_on: one.passed_on,
        report: report.clone(),
    };
    found.map(|one| Fact::new(fact(one), source.clone())).collect()
}

/// Returns whether the target's path is at or below `path`, or `path` is below the target's path.
fn is_on(spec: &TargetSpec, path: &Path) -> bool {
    bottom_path(spec)
        .is_some_and(|bottom_path| bottom_path.starts_with(path) || path.starts_with(bottom_path))
}

/// Returns the path at the bottom of a target; `None` if it is in a volume group or has none.
fn bottom_path(spec: &TargetSpec) -> Option<&Path> {
    match spec.stack.location()? {
        BottomLocation::Path(path) | BottomLocation::Directory(path) | BottomLocation::Device(path) => {
            Some(path)
        }
        BottomLocation::Group(_) => None,
    }
}
