//! Finds layers that acknowledged flushes without passing them on, in this machine's last run of `iotax flush`, for `iotax doctor`.

use std::path::Path;

use iotax_analysis::durability::{DurableWrites, is_of_methods};
use iotax_analysis::judge;
use iotax_analysis::time::utc;
use iotax_model::Run;
use iotax_model::run::RunState;
use iotax_model::survey::{Fact, SwallowedFlushes};
use iotax_model::target::BottomLocation;
use iotax_store::{Filter, Store, StoreError};

/// Maximum number of recent runs to search for a run of the suite `flush`.
const NEWEST: u32 = 100;

/// Returns the layers that swallowed flushes in this machine's last complete run of the suite `flush`; with `path`, only on targets at,
/// below or above that path. Leaves out targets on other machines. Empty without such a run among the newest 100 complete ones.
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
    for summary in store.list(&filter)? {
        let (run, _) = store.load_figures(summary.id)?;
        if is_of_methods(&run) && run.source.is_none() {
            return Ok(of_run(&store.load(summary.id)?, path));
        }
    }
    Ok(Vec::new())
}

fn of_run(run: &Run, path: Option<&Path>) -> Vec<Fact<SwallowedFlushes>> {
    let judgement = judge(run);
    let Some(writes) = DurableWrites::of(run, &judgement) else { return Vec::new() };
    let report = run.command("report", "");
    let source = format!("run {} of {}", run.id, utc(run.started_at_ms));
    let is_meant = |target: &str| {
        let spec = run.plan.targets.iter().find(|spec| spec.name == target);
        spec.is_some_and(|spec| spec.remote().is_none() && path.is_none_or(|path| is_on(spec, path)))
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
fn is_on(spec: &iotax_model::TargetSpec, path: &Path) -> bool {
    let place = match spec.stack.location() {
        Some(
            BottomLocation::Path(place) | BottomLocation::Directory(place) | BottomLocation::Device(place),
        ) => place,
        Some(BottomLocation::Group(_)) | None => return false,
    };
    place.starts_with(path) || path.starts_with(place)
}
