//! Turns traces on the command line into plans that replay them.

use std::path::{Path, PathBuf};

use iotax_interop::trace;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::target::TargetSpec;
use iotax_model::trace::TraceSummary;
use iotax_model::units::human;
use iotax_model::workload::{ReplayPace, Workload, WorkloadKeys};
use iotax_report::counted;

use super::say::note;
use super::trace::{broken, open};
use super::{Failure, OrExit};

/// Error for a trace that lacks most completion times, without which dependencies cannot be inferred.
const NO_COMPLETIONS: &str = "replay_pace = dependency needs the times of completion, which most of its I/Os lack; leave replay_pace out, or record \
                              it with iotax record or blktrace";

/// Returns whether the file's content is a trace. False for names that end in .toml, .fio or .job.
pub(super) fn is_meant(path: &Path) -> bool {
    let named = path.extension().and_then(|extension| extension.to_str());
    !matches!(named, Some("toml" | "fio" | "job")) && trace::open(path).is_ok()
}

/// Builds a plan that replays a trace on `targets`, in `repeat` rounds.
pub(super) fn plan(path: &Path, targets: Vec<TargetSpec>, repeat: u32) -> Plan {
    let read_iolog = Some(path.display().to_string());
    let workload = WorkloadKeys { read_iolog, ..WorkloadKeys::default() }.complete(&WorkloadKeys::default());
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Plan { repeat, ..Plan::new(name, targets, vec![workload]) }
}

/// Reads each trace of a plan to its end, and completes its workload.
pub(super) fn take_over(plan: &mut Plan) -> Result<(), Failure> {
    plan.workloads.iter_mut().try_for_each(complete)?;
    plan.check().or_exit(Exit::Usage)
}

/// Reads a workload's trace to its end, and completes the workload from the summary; does nothing without a trace. Fails on a trace that
/// cannot be read or has no I/Os, and with `replay_pace = dependency` on a trace that lacks most completion times.
pub(super) fn complete(workload: &mut Workload) -> Result<(), Failure> {
    let Some(path) = workload.read_iolog.as_ref().map(PathBuf::from) else { return Ok(()) };
    let opened = open(&path)?;
    let (caveat, lost) = (opened.format.caveat(), opened.facts.lost.unwrap_or(0));
    let summary = trace::summary(opened.events, workload.replay_offsets);
    let summary = summary.map_err(|reason| broken(&path, &reason))?;
    if summary.ios() == 0 {
        return Err(broken(&path, "it has no I/O"));
    }
    if workload.replay_pace == ReplayPace::Dependency && summary.completed * 2 < summary.ios() {
        return Err(broken(&path, NO_COMPLETIONS));
    }
    if let Some(caveat) = caveat {
        note!("note: {}: {caveat}", path.display());
    }
    if lost > 0 {
        note!("note: {}: it lacks {}, lost when it was recorded", path.display(), counted(lost, "event"));
    }
    if summary.has_several_queues {
        note!(
            "note: {}: it has several volumes; all are replayed on the same offsets of each target",
            path.display()
        );
    }
    let absolute = std::path::absolute(&path).or_exit(Exit::Environment)?;
    let given = workload.runtime;
    workload.read_iolog = Some(absolute.display().to_string());
    *workload = workload.clone().replaying(&summary);
    if workload.runtime == given {
        note!("{}", cut(workload, &summary));
    }
    Ok(())
}

/// Formats the note that the runtime is too short for the whole trace.
fn cut(workload: &Workload, trace: &TraceSummary) -> String {
    let [first, all] = [workload.runtime, workload.scaled(trace.duration_ns)];
    let [first, all] = [first, all].map(|time| human::duration(time.0 as f64 / 1e9));
    format!("note: the first {first} of {all} are replayed")
}
